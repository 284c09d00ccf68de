//! Text from standard input.

use std::io::{self, Read};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::report;

/// How long an open and silent input is waited for without a word.
const PATIENCE: Duration = Duration::from_secs(1);
/// The mark with which some editors begin UTF-8 text. It is no part of what was written.
const BYTE_ORDER_MARK: &str = "\u{feff}";

/// All of standard input. Unless `quiet`, somebody who may not know that it is read is told after a moment.
///
/// # Errors
/// If it can't be read, or is no UTF-8.
pub(crate) fn text(quiet: bool) -> Result<String> {
    let cannot = "cannot read standard input";
    let mut bytes = vec![0; 64 << 10];
    let n = with_notice(quiet, || read(&mut bytes)).context(cannot)?;
    bytes.truncate(n);
    if n > 0 {
        io::stdin().read_to_end(&mut bytes).context(cannot)?;
    }
    let mut text = String::from_utf8(bytes)
        .map_err(|e| anyhow::anyhow!("byte {} of it is no UTF-8", e.utf8_error().valid_up_to()))
        .context(cannot)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// What comes first; 0 at the end.
fn read(bytes: &mut [u8]) -> io::Result<usize> {
    loop {
        match io::stdin().read(bytes) {
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            other => return other,
        }
    }
}

fn with_notice<T>(quiet: bool, work: impl FnOnce() -> T) -> T {
    if quiet {
        return work();
    }
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if finished.recv_timeout(PATIENCE) == Err(RecvTimeoutError::Timeout) {
                report::note("waiting for text on standard input (`< /dev/null` gives none)");
            }
        });
        let result = work();
        drop(done);
        result
    })
}
