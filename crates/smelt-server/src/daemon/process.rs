//! A child process as the server holds it: documents in, documents out, and how it ended.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::sync::mpsc::{Receiver, Sender, UnboundedReceiver, UnboundedSender, channel, unbounded_channel};

use super::protocol::{MOST_LINE, Order, Report, from_line, to_line};

/// Reports that wait for the supervisor.
const BUFFER: usize = 256;
/// For a process that has closed its output, and for one that was killed.
const LAST_BREATH: Duration = Duration::from_secs(5);

/// How engines' processes are started.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Launch {
    /// The program.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
}

impl Default for Launch {
    /// The command `smelt` of the system.
    fn default() -> Self {
        Self { program: "smelt".into(), args: vec!["daemon".into()] }
    }
}

impl Launch {
    /// The command `daemon` of the program that runs, also after its file was replaced or removed: an update must not keep
    /// a server from starting engines, nor give it those of another version.
    ///
    /// # Errors
    /// If the system doesn't tell which program this is.
    pub fn own() -> std::io::Result<Self> {
        let running = PathBuf::from("/proc/self/exe");
        let program = if running.exists() { running } else { std::env::current_exe()? };
        Ok(Self { program, args: vec!["daemon".into()] })
    }
}

/// A process that runs.
pub(super) struct Process {
    child: Child,
    orders: UnboundedSender<Vec<u8>>,
    /// What it reports, and in the end why nothing more can be read.
    pub(super) reports: Receiver<Result<Report, String>>,
}

impl Process {
    pub(super) fn start(launch: &Launch) -> std::io::Result<Self> {
        let mut command = Command::new(&launch.program);
        command.args(&launch.args).stdin(Stdio::piped()).stdout(Stdio::piped()).kill_on_drop(true);
        // Ctrl-C in a terminal is for the server, which lets answers end. And people look for this name.
        #[cfg(unix)]
        command.process_group(0).arg0("smelt");
        let mut child = command.spawn()?;
        let (Some(input), Some(output)) = (child.stdin.take(), child.stdout.take()) else {
            return Err(std::io::ErrorKind::BrokenPipe.into());
        };
        let (orders, lines) = unbounded_channel();
        let (sender, reports) = channel(BUFFER);
        tokio::spawn(write(lines, input));
        tokio::spawn(read(output, sender));
        Ok(Self { child, orders, reports })
    }

    pub(super) fn id(&self) -> Option<u32> {
        self.child.id()
    }

    /// Gives an order. A process that is gone tells so by its reports.
    pub(super) fn order(&self, order: &Order) {
        if let Ok(line) = to_line(order) {
            let _ = self.orders.send(line);
        }
    }

    /// Waits until it is gone, which it ought to be already, and says how it ended.
    pub(super) async fn end(&mut self) -> String {
        match tokio::time::timeout(LAST_BREATH, self.child.wait()).await {
            Ok(Ok(status)) => describe(status),
            Ok(Err(error)) => format!("nothing is known of it: {error}"),
            Err(_) => {
                self.kill().await;
                "it closed its output and had to be killed".into()
            }
        }
    }

    pub(super) fn start_kill(&mut self) {
        // It may be gone, which is as well.
        let _ = self.child.start_kill();
    }

    pub(super) async fn kill(&mut self) {
        self.start_kill();
        let _ = tokio::time::timeout(LAST_BREATH, self.child.wait()).await;
    }
}

#[cfg(unix)]
fn describe(status: ExitStatus) -> String {
    use std::os::unix::process::ExitStatusExt;
    match status.signal() {
        Some(9) => "killed by signal 9 (often: out of memory)".into(),
        Some(signal) => format!("killed by signal {signal}"),
        None => format!("ended with {status}"),
    }
}

#[cfg(not(unix))]
fn describe(status: ExitStatus) -> String {
    format!("ended with {status}")
}

async fn write(mut lines: UnboundedReceiver<Vec<u8>>, mut input: ChildStdin) {
    while let Some(line) = lines.recv().await {
        if input.write_all(&line).await.is_err() {
            return;
        }
    }
}

async fn read(output: ChildStdout, reports: Sender<Result<Report, String>>) {
    let mut output = BufReader::new(output);
    let mut line = Vec::new();
    loop {
        line.clear();
        let report = match (&mut output).take(MOST_LINE).read_until(b'\n', &mut line).await {
            Ok(0) | Err(_) => return,
            Ok(length) if length as u64 == MOST_LINE => Err("it wrote a line without end".into()),
            // A line that the end has cut off says nothing.
            Ok(_) if line.last() != Some(&b'\n') => return,
            Ok(_) => from_line(&line).map_err(|error| format!("it wrote what is no report: {error}")),
        };
        let is_sense = report.is_ok();
        if reports.send(report).await.is_err() || !is_sense {
            return;
        }
    }
}
