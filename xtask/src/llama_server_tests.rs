//! `llama-server-tests`: llama.cpp's own tests of its server, against Smelt.
//!
//! The tests are read from a checkout and copied into the target folder, where a `conftest.py` of ours stands in place of
//! theirs; docs/server.md has what comes of it.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;

use crate::clients::install;
use crate::{fetch, server, workspace};

/// What stands in for llama.cpp's parts.
const OURS: &str = "tests/llama-server";
/// The models that stand in for those of its presets.
const PRESETS: &[(&str, &str)] = &[
    ("tinyllama2", "tests/data/tiny/llama3/llama3-f16.gguf"),
    ("stories15m_moe", "tests/data/tiny/mixtral/mixtral-f16.gguf"),
];
/// Seconds for one test.
const PATIENCE: &str = "60";

/// Where the tests are, and which of them to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// llama.cpp's folder `tools/server/tests`.
    #[arg(long)]
    tests: PathBuf,
    /// Files or tests of it, as pytest takes them: `unit/test_basic.py`. All but slow ones otherwise.
    only: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = workspace::target().join("llama-server-tests");
    let requirements = workspace::root().join(OURS).join("requirements.txt");
    let list = fs::read_to_string(&requirements).context("can't read the requirements")?;
    let packages = install(&folder.join("packages"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let smelt = server::build_smelt()?;
    let tests = folder.join("tests");
    if tests.exists() {
        fs::remove_dir_all(&tests)?;
    }
    copy(&arguments.tests, &tests)?;
    fs::copy(workspace::root().join(OURS).join("conftest.py"), tests.join("conftest.py"))?;
    let models: serde_json::Map<_, _> = PRESETS
        .iter()
        .map(|(name, file)| ((*name).to_owned(), json!(workspace::root().join(file))))
        .collect();
    let mut python = fetch::python()?;
    python.current_dir(&tests).env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1,localhost");
    python.env("SMELT", smelt).env("LOCAL_MODELS", serde_json::Value::from(models).to_string());
    python.env("LLAMA_SERVER_BIN_PATH", workspace::root().join(OURS).join("llama-server"));
    python.args([
        "-m",
        "pytest",
        "-q",
        "--tb=line",
        "-m",
        "not slow",
        "--timeout",
        PATIENCE,
        "-p",
        "no:cacheprovider",
    ]);
    // That some fail is what is to be seen; a run that came to nothing ends otherwise.
    match python.args(&arguments.only).status()?.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!("pytest did not run the tests"),
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("can't read {}", from.display()))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
