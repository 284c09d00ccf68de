//! `clients`: the published Python clients of OpenAI, Anthropic and Ollama, and OpenAI's for JavaScript, against
//! `smelt serve`.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result};

use crate::server::{self, Server};
use crate::{fetch, minilm, workspace};

/// What the clients are, with their versions.
const REQUIREMENTS: &str = "tests/clients/requirements.txt";
/// The cases.
const CASES: &str = "tests/clients/clients.py";
/// The JavaScript client and the node that it runs on, and its cases.
const NODE_REQUIREMENTS: &str = "tests/clients/package.json";
const NODE_CASES: &str = "tests/clients/clients.mjs";
/// The major version of the client that llama.cpp's own tests use, with the dependencies that are its own.
const OLDER_CLIENT: &str = "openai==2.14.0";
/// Models that `fetch` brings, the tokens of their contexts, and whether the older client asks them too.
static MODELS: &[(&str, &str, bool)] = &[
    ("SmolLM2-135M-Instruct.Q4_1.gguf", CONTEXT, true),
    ("gemma-3-270m-q4_k_m.gguf", CONTEXT, false),
    (minilm::FILE, "512", true),
];
/// Tokens of a context: prompts of the cases that must not fit are far longer.
const CONTEXT: &str = "2048";

/// Runs the cases against each model.
pub(crate) fn run() -> Result<()> {
    let folder = workspace::target().join("clients");
    let requirements = workspace::root().join(REQUIREMENTS);
    let list = fs::read_to_string(&requirements).with_context(|| format!("can't read {REQUIREMENTS}"))?;
    let newer = install(&folder.join("newer"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let older = install(&folder.join("older"), &[OLDER_CLIENT.as_ref()], OLDER_CLIENT)?;
    let node = install_node(&folder.join("node"))?;
    let smelt = server::build_smelt()?;
    for (file, context, with_older) in MODELS {
        let mut command = server::smelt(&smelt, &fetch::model(file));
        let server = Server::start(command.args(["--ctx", context]), true)?;
        ask(&server, std::slice::from_ref(&newer))?;
        if *with_older {
            ask(&server, &[older.clone(), newer.clone()])?;
            ask_from_node(&server, &node)?;
        }
    }
    Ok(())
}

/// Has pip put packages into a folder, unless what is there was made from the same `wanted`.
pub(crate) fn install(folder: &Path, arguments: &[&OsStr], wanted: &str) -> Result<PathBuf> {
    once(folder, wanted, || {
        let mut pip = fetch::python()?;
        pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target"]).arg(folder);
        workspace::run(pip.args(arguments).stdout(Stdio::null()))
    })
}

/// Has npm put the JavaScript client and its node into a folder. That node is newer than those of many distributions.
fn install_node(folder: &Path) -> Result<PathBuf> {
    let requirements = workspace::root().join(NODE_REQUIREMENTS);
    let wanted =
        fs::read_to_string(&requirements).with_context(|| format!("can't read {NODE_REQUIREMENTS}"))?;
    once(folder, &wanted, || {
        fs::create_dir_all(folder)?;
        fs::copy(&requirements, folder.join("package.json"))?;
        let mut npm = Command::new("npm");
        npm.args(["install", "--no-fund", "--no-audit", "--loglevel=error", "--prefix"]).arg(folder);
        workspace::run(npm.stdout(Stdio::null()))
            .context("the JavaScript client needs npm (Debian: apt-get install npm)")
    })
}

/// Fills a folder, unless what is there was made from the same `wanted`.
fn once(folder: &Path, wanted: &str, fill: impl FnOnce() -> Result<()>) -> Result<PathBuf> {
    let stamp = folder.join("wanted.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(folder.into());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    fill()?;
    fs::write(stamp, wanted)?;
    Ok(folder.into())
}

/// Runs the cases with the packages of `folders`, the first of which goes before.
fn ask(server: &Server, folders: &[PathBuf]) -> Result<()> {
    let path = std::env::join_paths(folders)?;
    let mut python = fetch::python()?;
    // A proxy of this machine's environment has nothing to do with its own servers.
    python.env("PYTHONPATH", path).env("NO_PROXY", "127.0.0.1");
    workspace::run(python.arg(workspace::root().join(CASES)).args([server.address.as_str(), "model"]))
}

/// Runs the JavaScript cases with the packages of `folder`.
fn ask_from_node(server: &Server, folder: &Path) -> Result<()> {
    // Modules find packages beside themselves only.
    let cases = folder.join("clients.mjs");
    fs::copy(workspace::root().join(NODE_CASES), &cases)?;
    let mut node = Command::new(folder.join("node_modules/.bin/node"));
    workspace::run(node.arg(cases).args([server.address.as_str(), "model"]))
}
