//! Servers that chores start: Smelt's and others, each a child that ends with the value that holds it.

use std::collections::HashMap;
use std::fs;
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::thread;

use anyhow::{Context, Result, bail};

use crate::workspace;

/// What servers say before their address.
const LISTENING: &str = "listening on ";

/// A server that is killed when it is dropped.
pub(crate) struct Server {
    child: Child,
    /// `http://HOST:PORT`.
    pub(crate) address: String,
}

impl Server {
    /// Starts `command`, and waits until it says where it listens. What it says later is shown if `is_loud`.
    pub(crate) fn start(command: &mut Command, is_loud: bool) -> Result<Self> {
        let name = workspace::describe(command);
        let piped = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::piped());
        let mut child = piped.spawn().with_context(|| format!("can't run {name}"))?;
        let mut lines = BufReader::new(child.stderr.take().context("no standard error")?).lines();
        let mut server = Self { child, address: String::new() };
        let mut said = String::new();
        for line in lines.by_ref() {
            let line = line?;
            if is_loud {
                eprintln!("{line}");
            }
            if let Some((_, rest)) = line.split_once(LISTENING) {
                server.address = rest.split_whitespace().next().unwrap_or_default().to_owned();
                break;
            }
            said = said + &line + "\n";
        }
        if server.address.is_empty() {
            bail!("{name} ended before it listened\n{}", said.trim_end());
        }
        // What it has to say goes on, and its pipe must not fill.
        thread::spawn(move || {
            lines.map_while(Result::ok).filter(|_| is_loud).for_each(|line| eprintln!("{line}"));
        });
        Ok(server)
    }

    /// Resident memory of it and of its children, in bytes; `None` where there is no /proc to read it from.
    pub(crate) fn resident(&self) -> Option<u64> {
        let mut children: HashMap<u32, Vec<u32>> = HashMap::new();
        for entry in fs::read_dir("/proc").ok()?.flatten() {
            let Some(id) = entry.file_name().to_str().and_then(|name| name.parse().ok()) else { continue };
            // A process may end while it is looked at.
            if let Some(parent) = status(id, "PPid:") {
                children.entry(parent as u32).or_default().push(id);
            }
        }
        let mut tree = vec![self.child.id()];
        let mut next = 0;
        while let Some(id) = tree.get(next) {
            tree.extend(children.remove(id).unwrap_or_default());
            next += 1;
        }
        let kibibytes: u64 = tree.into_iter().filter_map(|id| status(id, "VmRSS:")).sum();
        (kibibytes > 0).then_some(kibibytes * 1024)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It holds nothing that a kill could harm.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The number behind `key` in a process's status.
fn status(id: u32, key: &str) -> Option<u64> {
    let text = fs::read_to_string(format!("/proc/{id}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix(key))?;
    line.split_whitespace().next()?.parse().ok()
}

/// `smelt serve MODEL --name model`, on a port that is free.
pub(crate) fn smelt(smelt: &Path, model: &Path) -> Command {
    let mut command = Command::new(smelt);
    command.arg("serve").arg(model).args(["--name", "model", "--port", "0", "--log-level", "warn"]);
    command
}

/// Builds `smelt` as tests do, and gives its path.
pub(crate) fn build_smelt() -> Result<PathBuf> {
    workspace::run(workspace::cargo().args(["build", "-p", "smelt-cli"]))?;
    Ok(workspace::target().join("debug").join(format!("smelt{}", std::env::consts::EXE_SUFFIX)))
}
