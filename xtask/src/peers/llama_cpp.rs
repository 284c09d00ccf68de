//! Getting and building llama.cpp.

use std::ffi::OsString;
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Result, ensure};

use crate::{fetch, workspace};

/// The programs of `bench-peers`.
pub(crate) const BENCHMARKS: [&str; 4] =
    ["llama-bench", "llama-batched-bench", "llama-perplexity", "llama-completion"];

/// How it is configured: as its users build it for their own CPU, without what the comparison does not touch.
const OPTIONS: [&str; 5] = [
    "-DCMAKE_BUILD_TYPE=Release",
    "-DLLAMA_CURL=OFF",
    "-DLLAMA_OPENSSL=OFF",
    "-DLLAMA_BUILD_TESTS=OFF",
    "-DLLAMA_BUILD_WEBUI=OFF",
];

/// Unpacks and builds `wanted` of llama.cpp below `folder` unless that is done; gives the folder of its programs.
pub(crate) fn build(folder: &Path, wanted: &[&str]) -> Result<PathBuf> {
    let build = folder.join("build");
    let programs = build.join("bin");
    if wanted.iter().all(|program| programs.join(program).is_file()) {
        return Ok(programs);
    }
    let source = folder.join("llama.cpp");
    fetch::fetch_llama_cpp(&source, "everything", |_| true)?;
    let cmake = cmake(folder)?;
    eprintln!("peers: building llama.cpp in {}; this takes several minutes", build.display());
    let mut configure = Command::new(&cmake);
    // Stdout is for the tables.
    configure.arg("-S").arg(&source).arg("-B").arg(&build).args(OPTIONS).stdout(io::stderr());
    workspace::run(&mut configure)?;
    let jobs = std::thread::available_parallelism().map_or(1, usize::from).to_string();
    let flags = ["--parallel", &jobs, "--target"];
    let mut compile = Command::new(&cmake);
    workspace::run(compile.arg("--build").arg(&build).args(flags).args(wanted).stdout(io::stderr()))?;
    for program in wanted {
        ensure!(programs.join(program).is_file(), "the build of llama.cpp left no {program}");
    }
    Ok(programs)
}

/// The machine's CMake, or else one from pip in a virtual environment below `folder`.
fn cmake(folder: &Path) -> Result<OsString> {
    let version = Command::new("cmake").arg("--version").stdout(Stdio::null()).stderr(Stdio::null()).status();
    if version.is_ok_and(|status| status.success()) {
        return Ok("cmake".into());
    }
    let environment = folder.join("venv");
    let cmake = environment.join("bin/cmake");
    if !cmake.is_file() {
        workspace::run(fetch::python()?.args(["-m", "venv"]).arg(&environment))?;
        workspace::run(Command::new(environment.join("bin/pip")).args(["install", "--quiet", "cmake"]))?;
    }
    Ok(cmake.into())
}
