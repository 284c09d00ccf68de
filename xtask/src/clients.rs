//! `clients`: the published Python clients of OpenAI, Anthropic and Ollama against `smelt serve`.

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result};

use crate::{fetch, workspace};

/// What the clients are, with their versions.
const REQUIREMENTS: &str = "tests/clients/requirements.txt";
/// The cases.
const CASES: &str = "tests/clients/clients.py";
/// The major version of the client that llama.cpp's own tests use, with the dependencies that are its own.
const OLDER_CLIENT: &str = "openai==2.14.0";
/// Models that `fetch` brings, and whether the older client asks them too.
static MODELS: &[(&str, bool)] =
    &[("SmolLM2-135M-Instruct.Q4_1.gguf", true), ("gemma-3-270m-q4_k_m.gguf", false)];
/// Tokens of a context: prompts of the cases that must not fit are far longer.
const CONTEXT: &str = "2048";
/// What `smelt serve` says before its address.
const LISTENING: &str = "listening on ";

/// Runs the cases against each model.
pub(crate) fn run() -> Result<()> {
    let folder = workspace::target().join("clients");
    let requirements = workspace::root().join(REQUIREMENTS);
    let list = fs::read_to_string(&requirements).with_context(|| format!("can't read {REQUIREMENTS}"))?;
    let newer = install(&folder.join("newer"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let older = install(&folder.join("older"), &[OLDER_CLIENT.as_ref()], OLDER_CLIENT)?;
    workspace::run(workspace::cargo().args(["build", "-p", "smelt-cli"]))?;
    for (file, with_older) in MODELS {
        let server = Server::start(&workspace::target().join("fetched/models").join(file))?;
        server.ask(std::slice::from_ref(&newer))?;
        if *with_older {
            server.ask(&[older.clone(), newer.clone()])?;
        }
    }
    Ok(())
}

/// Has pip put packages into a folder, unless what is there was made from the same `wanted`.
fn install(folder: &Path, arguments: &[&OsStr], wanted: &str) -> Result<PathBuf> {
    let stamp = folder.join("wanted.txt");
    if fs::read_to_string(&stamp).is_ok_and(|made| made == wanted) {
        return Ok(folder.into());
    }
    if folder.exists() {
        fs::remove_dir_all(folder)?;
    }
    let mut pip = fetch::python()?;
    pip.args(["-m", "pip", "--disable-pip-version-check", "install", "--quiet", "--target"]).arg(folder);
    workspace::run(pip.args(arguments).stdout(Stdio::null()))?;
    fs::write(stamp, wanted)?;
    Ok(folder.into())
}

/// A server that is killed when it is dropped.
struct Server {
    child: Child,
    address: String,
}

impl Server {
    fn start(model: &Path) -> Result<Self> {
        let smelt = workspace::target().join("debug").join(format!("smelt{}", std::env::consts::EXE_SUFFIX));
        let mut command = Command::new(smelt);
        command.arg("serve").arg(model).args([
            "--name",
            "model",
            "--port",
            "0",
            "--ctx",
            CONTEXT,
            "--log-level",
            "warn",
        ]);
        let mut child = command
            .stdin(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .with_context(|| format!("can't run {}", workspace::describe(&command)))?;
        let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
        let mut server = Self { child, address: String::new() };
        for line in lines.by_ref() {
            let line = line?;
            eprintln!("{line}");
            if let Some(rest) = line.strip_prefix(LISTENING) {
                server.address = rest.split_whitespace().next().unwrap_or_default().to_owned();
                break;
            }
        }
        // What it has to say goes on, and its pipe must not fill.
        thread::spawn(move || lines.map_while(Result::ok).for_each(|line| eprintln!("{line}")));
        Ok(server)
    }

    /// Runs the cases with the packages of `folders`, the first of which goes before.
    fn ask(&self, folders: &[PathBuf]) -> Result<()> {
        let path = std::env::join_paths(folders)?;
        let mut python = fetch::python()?;
        // A proxy of this machine's environment has nothing to do with its own servers.
        python.env("PYTHONPATH", path).env("NO_PROXY", "127.0.0.1");
        workspace::run(python.arg(workspace::root().join(CASES)).args([self.address.as_str(), "model"]))
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that a kill could harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}
