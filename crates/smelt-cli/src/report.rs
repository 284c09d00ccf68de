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

/// The command line makes no sense in a way that clap can't see.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// Prints the error and what to do about it; gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_interrupt(error) {
        return ExitCode::from(INTERRUPTED);
    }
    // Whoever read our output has seen enough.
    if is_closed_output(error) {
        return ExitCode::SUCCESS;
    }
    print(error);
    if is::<Usage>(error, |_| true) { ExitCode::from(USAGE) } else { ExitCode::from(FAILURE) }
}

/// Whether nobody reads our output any more.
pub(crate) fn is_closed_output(error: &anyhow::Error) -> bool {
    is::<io::Error>(error, |e| e.kind() == io::ErrorKind::BrokenPipe)
}

/// Whether Ctrl-C ended the command.
pub(crate) fn is_interrupt(error: &anyhow::Error) -> bool {
    is::<Interrupted>(error, |_| true) || is::<StoreError>(error, |e| matches!(e, StoreError::Cancelled))
}

/// Prints an error and what to do about it.
pub(crate) fn print(error: &anyhow::Error) {
    say("error", "\x1b[1;31m", &message(error));
    if let Some(hint) = error.chain().find_map(|e| e.downcast_ref::<StoreError>()?.hint()) {
        say("hint", "\x1b[1;36m", &hint);
    }
}

/// The error and its causes, without a cause that the message before it already ends in.
fn message(error: &anyhow::Error) -> String {
    error.chain().map(ToString::to_string).fold(String::new(), |said, cause| match said.is_empty() {
        true => cause,
        false if said.contains(&cause) => said,
        false => format!("{said}: {cause}"),
    })
}

/// Prints a note that is no result.
pub(crate) fn warn(text: &str) {
    say("warning", "\x1b[1;33m", text);
}

/// Prints a line of talk, which is no result either.
pub(crate) fn note(text: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(io::stderr().lock(), "{text}");
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
