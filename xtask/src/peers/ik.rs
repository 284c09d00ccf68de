//! Getting ik_llama.cpp: a wheel in a virtual environment of its own, driven by a Python script.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use crate::{fetch, workspace};

/// The package and its version.
const PACKAGE: &str = "ik-llama-cpp-python==0.1.5";

/// What calls its C functions.
const SCRIPT: &str = include_str!("ik_bench.py");

/// Its Python, and the script.
#[derive(Clone)]
pub(super) struct Ik {
    python: PathBuf,
    script: PathBuf,
}

impl Ik {
    /// Installs the package below `folder` unless that is done.
    pub(super) fn prepare(folder: &Path) -> Result<Self> {
        let environment = folder.join("ik-venv");
        let python = environment.join("bin/python");
        let stamp = environment.join(".installed");
        if !std::fs::read_to_string(&stamp).is_ok_and(|installed| installed == PACKAGE) {
            eprintln!("peers: installing {PACKAGE} in {}", environment.display());
            workspace::run(fetch::python()?.args(["-m", "venv"]).arg(&environment))?;
            // Only a wheel is quick, and is what the comparison is defined with.
            let flags = ["-m", "pip", "install", "--quiet", "--only-binary", ":all:", PACKAGE];
            workspace::run(Command::new(&python).args(flags))?;
            std::fs::write(&stamp, PACKAGE).with_context(|| format!("can't write {}", stamp.display()))?;
        }
        let script = environment.join("ik_bench.py");
        std::fs::write(&script, SCRIPT).with_context(|| format!("can't write {}", script.display()))?;
        Ok(Self { python, script })
    }

    /// The script's command, without what it measures.
    pub(super) fn command(&self) -> Command {
        let mut command = Command::new(&self.python);
        command.arg(&self.script);
        command
    }
}
