//! `serve -d`: a server that goes on without its terminal.
//!
//! The command starts itself again with the same words, and waits. The second one fetches models and takes its address as
//! ever, so that what goes wrong there is told on the terminal, and then: writes its record to the first one, sends what
//! it says to its log, and leaves the terminal's session. The first one ends once the models are loaded.

use std::fs::{self, File, OpenOptions};
use std::io::{self, BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow};
use serde::{Deserialize, Serialize};

use super::{Client, Record};
use crate::report::Reported;
use crate::{env, wait};

/// A log that is larger gives way to a new one when a server starts.
const MAX_LOG: u64 = 10 << 20;
/// Lines of the log that tell why a server ended.
const LAST_LINES: usize = 10;
const TICK: Duration = Duration::from_millis(50);

/// What a server without a terminal was started with.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Detached {
    /// Words of the command line, without the program.
    args: Vec<String>,
    /// The folder in which it was started.
    folder: PathBuf,
    pub(crate) log: PathBuf,
}

/// Whether this process is the one that is to go on.
pub(crate) fn is_detached() -> bool {
    env::SMELT_DETACHED.get().is_some()
}

/// The log of the server on a port.
pub(crate) fn log_path(state: &Path, port: u16) -> PathBuf {
    state.join("logs").join(format!("{port}.log"))
}

impl Detached {
    /// This process, with the log of `port`; it listens there, and so nobody else writes that log.
    ///
    /// # Errors
    /// If a word of the command line is no Unicode, or there is no folder any more.
    pub(crate) fn new(state: &Path, port: u16) -> Result<Self> {
        let words = std::env::args_os().skip(1).map(std::ffi::OsString::into_string);
        let args = words.collect::<Result<_, _>>();
        let args = args.map_err(|word| anyhow!("{} is no Unicode, which -d needs", word.display()))?;
        let folder = std::env::current_dir().context("cannot tell the current folder")?;
        Ok(Self { args, folder, log: log_path(state, port) })
    }

    /// Starts the server, and waits until it answers.
    ///
    /// # Errors
    /// If it ends before.
    pub(crate) fn start(&self) -> Result<Record> {
        let program = std::env::current_exe().context("cannot find this program")?;
        let mut command = Command::new(program);
        command.args(&self.args).current_dir(&self.folder).env(env::SMELT_DETACHED.name, "1");
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("cannot start the server")?;
        let mut line = String::new();
        if let Some(out) = child.stdout.take() {
            BufReader::new(out).read_line(&mut line).context("cannot hear the server")?;
        }
        if line.is_empty() {
            child.wait().context("cannot wait for the server")?;
            // Our standard error is its own.
            return Err(Reported.into());
        }
        let record: Record =
            serde_json::from_str(&line).context("the server says something else than it should")?;
        wait::with_spinner("loading the models", || ready(&mut child, &record))?;
        Ok(record)
    }

    /// Lets go of the terminal, and of who waits for `record`.
    ///
    /// # Errors
    /// If there can be no log, or the system refuses.
    pub(crate) fn leave(&self, record: &Record) -> Result<()> {
        let log = open(&self.log).with_context(|| format!("cannot write {}", self.log.display()))?;
        let mut out = io::stdout();
        let told =
            serde_json::to_string(record).map_err(io::Error::from).and_then(|text| writeln!(out, "{text}"));
        // Who waited may have had enough.
        drop(told.and_then(|()| out.flush()));
        redirect(&log).context("cannot leave the terminal")
    }
}

fn ready(child: &mut Child, record: &Record) -> Result<()> {
    let client = Client::new(record);
    loop {
        if let Some(status) = child.try_wait().context("cannot watch the server")? {
            let log = record.detached.as_ref().map(|detached| detached.log.clone()).unwrap_or_default();
            let text = fs::read_to_string(&log).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            let last = lines[lines.len().saturating_sub(LAST_LINES)..].join("\n");
            return Err(anyhow!("the server ended ({status}); {} ends with\n{last}", log.display()));
        }
        // One that is being loaded may be too busy to answer, and one that can't load its model ends soon.
        match client.health() {
            Ok(word) if word != "loading" && word != "draining" => return Ok(()),
            _ => std::thread::sleep(TICK),
        }
    }
}

fn open(log: &Path) -> io::Result<File> {
    if let Some(folder) = log.parent() {
        fs::create_dir_all(folder)?;
    }
    if fs::metadata(log).is_ok_and(|meta| meta.len() > MAX_LOG) {
        fs::rename(log, log.with_extension("log.1"))?;
    }
    OpenOptions::new().append(true).create(true).open(log)
}

#[cfg(unix)]
fn redirect(log: &File) -> io::Result<()> {
    rustix::stdio::dup2_stdout(log)?;
    rustix::stdio::dup2_stderr(log)?;
    rustix::process::setsid()?;
    Ok(())
}

#[cfg(not(unix))]
fn redirect(_log: &File) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}
