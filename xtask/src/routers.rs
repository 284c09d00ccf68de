//! `routers`: published routers, each in front of two `smelt serve`.

use std::fs;

use anyhow::{Context, Result};

use crate::clients::install;
use crate::server::{self, Server};
use crate::{fetch, workspace};

/// The routers, with their versions.
const REQUIREMENTS: &str = "tests/routers/requirements.txt";
/// The cases.
const CASES: &str = "tests/routers/routers.py";
/// The model that answers.
const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";

/// Options of `routers`.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Routers to run; all unless given.
    routers: Vec<String>,
}

/// Runs the cases behind each router.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let requirements = workspace::root().join(REQUIREMENTS);
    let list = fs::read_to_string(&requirements).with_context(|| format!("can't read {REQUIREMENTS}"))?;
    let packages =
        install(&workspace::target().join("routers"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let smelt = server::build_smelt()?;
    let model = fetch::model(MODEL);
    let start = || Server::start(server::smelt(&smelt, &model).args(["--ctx", "2048"]), true);
    let servers = [start()?, start()?];
    let mut python = fetch::python()?;
    // A proxy of this machine's environment has nothing to do with its own servers.
    python.env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1").arg(workspace::root().join(CASES));
    python.args(servers.iter().map(|server| &server.address)).args(&arguments.routers);
    workspace::run(&mut python)
}
