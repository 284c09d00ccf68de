//! How errors are shown, and which exit code they get.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use smelt_store::StoreError;

use crate::env;

/// Something failed.
const FAILURE: u8 = 1;
/// The command line is wrong.
pub(crate) const USAGE: u8 = 2;
/// Ctrl-C: 128 + SIGINT, as shells say it.
pub(crate) const INTERRUPTED: u8 = 130;

/// The command was ended by Ctrl-C; nothing is printed for it.
#[derive(Debug, thiserror::Error)]
#[error("interrupted")]
pub(crate) struct Interrupted;

/// Prints the error and what to do about it; gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is::<Interrupted>(error, |_| true) || is::<StoreError>(error, |e| matches!(e, StoreError::Cancelled)) {
        return ExitCode::from(INTERRUPTED);
    }
    // Whoever read our output has seen enough.
    if is::<io::Error>(error, |e| e.kind() == io::ErrorKind::BrokenPipe) {
        return ExitCode::SUCCESS;
    }
    say("error", "\x1b[1;31m", &format!("{error:#}"));
    if let Some(hint) = error.chain().find_map(|e| e.downcast_ref::<StoreError>()?.hint()) {
        say("hint", "\x1b[1;36m", &hint);
    }
    ExitCode::from(FAILURE)
}

/// Prints a note that is no result.
pub(crate) fn warn(text: &str) {
    say("warning", "\x1b[1;33m", text);
}

fn say(label: &str, colour: &str, text: &str) {
    let mut stderr = io::stderr().lock();
    let (on, off) = match stderr.is_terminal() && env::NO_COLOR.get().is_none() {
        true => (colour, "\x1b[0m"),
        false => ("", ""),
    };
    // There is nobody left to tell if this fails.
    let _ = writeln!(stderr, "{on}{label}:{off} {text}");
}

fn is<E: std::error::Error + Send + Sync + 'static>(
    error: &anyhow::Error,
    matches: impl Fn(&E) -> bool,
) -> bool {
    error.chain().any(|e| e.downcast_ref::<E>().is_some_and(&matches))
}
