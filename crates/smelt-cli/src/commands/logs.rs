//! `smelt logs`.

use std::collections::VecDeque;
use std::fs::{self, File};
use std::io::{BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context as _, Result};

use super::stop::Which;
use crate::context::Context;
use crate::output;
use crate::report::Usage;
use crate::servers;

/// Show the log of a server that was started with `smelt serve -d`
///
/// It is that of the server that runs, or else of the last one that did; --port N chooses another.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    which: Which,
    /// Go on with what is written from now on, until Ctrl-C
    #[arg(short, long)]
    follow: bool,
    /// Show this many of the last lines only
    #[arg(short = 'n', long, value_name = "N")]
    lines: Option<usize>,
}

const TICK: Duration = Duration::from_millis(200);

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let path = path(args, context)?;
    let mut log = Log::open(&path)?;
    match args.lines {
        None => log.lines(print)?,
        Some(most) => {
            let mut last = VecDeque::new();
            log.lines(|line| {
                last.push_back(line.to_owned());
                last.drain(..last.len().saturating_sub(most));
                Ok(())
            })?;
            last.iter().try_for_each(|line| print(line))?;
        }
    }
    if !args.follow {
        return Ok(());
    }
    loop {
        std::thread::sleep(TICK);
        log.lines(print)?;
        if log.was_replaced() {
            log = Log::open(&path)?;
        }
    }
}

/// What clients send may be in a log, and must not steer the terminal.
fn print(line: &str) -> Result<()> {
    output::line(output::plain(line.trim_end_matches(['\n', '\r']), "\t"))
}

fn path(args: &Args, context: &Context) -> Result<PathBuf> {
    if let Some(port) = args.which.port() {
        return Ok(servers::log_path(&context.state, port));
    }
    match args.which.find(context)?.map(|server| server.record) {
        Some(record) => record.detached.map(|detached| detached.log).ok_or_else(|| {
            let problem = format!(
                "the server on http://{} (process {}) was not started with -d; it writes its log to its standard error",
                record.address, record.pid
            );
            Usage(problem).into()
        }),
        None => newest(&context.state).ok_or_else(|| Usage("no server has a log yet; `smelt serve -d` writes one".into()).into()),
    }
}

/// The log that was written last.
fn newest(state: &Path) -> Option<PathBuf> {
    let folder = servers::log_path(state, 0).parent()?.to_owned();
    let logs = fs::read_dir(folder).ok()?.flatten().map(|entry| entry.path());
    let logs = logs.filter(|path| path.extension().is_some_and(|extension| extension == "log"));
    logs.max_by_key(|path| fs::metadata(path).and_then(|meta| meta.modified()).ok())
}

/// A log that is being written.
struct Log<'a> {
    path: &'a Path,
    file: BufReader<File>,
    /// A line whose end is not written yet.
    part: Vec<u8>,
    /// Bytes that were read.
    read: u64,
}

impl<'a> Log<'a> {
    fn open(path: &'a Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot read the log {}", path.display()))?;
        Ok(Self { path, file: BufReader::new(file), part: Vec::new(), read: 0 })
    }

    /// Takes the lines that have been completed since.
    fn lines(&mut self, mut take: impl FnMut(&str) -> Result<()>) -> Result<()> {
        loop {
            self.read += self.file.read_until(b'\n', &mut self.part).context("cannot read the log")? as u64;
            if !self.part.ends_with(b"\n") {
                return Ok(());
            }
            take(&String::from_utf8_lossy(&self.part))?;
            self.part.clear();
        }
    }

    /// Whether a new file has the log's name.
    fn was_replaced(&self) -> bool {
        fs::metadata(self.path).is_ok_and(|meta| meta.len() < self.read)
    }
}
