//! What a server tells, on standard error.
//!
//! Lines are written by a thread of their own. Who reads them may be slow, have stopped the terminal or be gone, and the disk
//! may be full: nothing of that holds a request up, or ends it. Lines that find no room are left out, and counted.

use std::io::{self, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;
use std::time::Duration;

/// Lines that wait for their reader.
const MOST_LINES: usize = 4096;
/// For those that wait when the server ends.
const LAST_WORDS: Duration = Duration::from_secs(1);

enum Line {
    Text(Vec<u8>),
    /// Those before it are written.
    Last(SyncSender<()>),
}

/// Takes the lines, each in one piece.
#[derive(Clone)]
pub(crate) struct Lines {
    sender: SyncSender<Line>,
    lost: Arc<AtomicU64>,
}

impl Lines {
    /// Begins to write lines, which ends with the process.
    ///
    /// # Errors
    /// If the machine refuses a thread.
    pub(crate) fn start() -> io::Result<Self> {
        let (sender, receiver) = sync_channel(MOST_LINES);
        let lines = Self { sender, lost: Arc::default() };
        let lost = lines.lost.clone();
        thread::Builder::new().name("smelt-log".into()).spawn(move || write(&receiver, &lost))?;
        Ok(lines)
    }

    /// Writes what waits, as far as it can be written.
    pub(crate) fn finish(&self) {
        let (written, is_written) = sync_channel(1);
        if self.sender.try_send(Line::Last(written)).is_ok() {
            let _ = is_written.recv_timeout(LAST_WORDS);
        }
    }
}

impl Write for Lines {
    fn write(&mut self, line: &[u8]) -> io::Result<usize> {
        if self.sender.try_send(Line::Text(line.into())).is_err() {
            self.lost.fetch_add(1, Ordering::Relaxed);
        }
        Ok(line.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(lines: &Receiver<Line>, lost: &AtomicU64) {
    for line in lines {
        match line {
            // There is nobody to tell that it can't be written.
            Line::Text(text) => drop(io::stderr().write_all(&text)),
            Line::Last(written) => drop(written.send(())),
        }
        match lost.swap(0, Ordering::Relaxed) {
            0 => {}
            lines => tracing::warn!(lines, "the log had no room for some lines"),
        }
    }
}
