//! `page-test`: the chat page of `smelt serve` in a headless Chromium, with screenshots in target/page.

use std::fs;

use anyhow::{Context, Result};

use crate::clients::install;
use crate::server::{self, Server};
use crate::{fetch, workspace};

/// What drives the browser.
const REQUIREMENTS: &str = "tests/page/requirements.txt";
/// The cases.
const CASES: &str = "tests/page/page.py";
/// The model that answers.
const MODEL: &str = "SmolLM2-135M-Instruct.Q4_1.gguf";
/// The key of a server that has one.
const KEY: &str = "sk-page-test";

/// Options of `page-test`.
#[derive(clap::Args, Default)]
pub(crate) struct Arguments {
    /// Cases to run; all unless given.
    cases: Vec<String>,
}

/// Runs the cases against a server without keys and one with a key.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let requirements = workspace::root().join(REQUIREMENTS);
    let list = fs::read_to_string(&requirements).with_context(|| format!("can't read {REQUIREMENTS}"))?;
    let packages =
        install(&workspace::target().join("page-test"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let smelt = server::build_smelt()?;
    let screenshots = workspace::target().join("page");
    fs::create_dir_all(&screenshots)?;
    let model = fetch::model(MODEL);
    let start = |flags: &[&str]| Server::start(server::smelt(&smelt, &model).args(flags), true);
    let (open, keyed) = (start(&[])?, start(&["--api-key", KEY])?);
    let mut python = fetch::python()?;
    // A proxy of this machine's environment has nothing to do with its own servers.
    python.env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1").arg(workspace::root().join(CASES));
    python.args([&open.address, &keyed.address, KEY]).arg(screenshots).args(&arguments.cases);
    workspace::run(&mut python)
}
