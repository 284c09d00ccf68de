//! How errors are shown, and which exit code they get.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;

use serde_json::json;
use smelt_store::StoreError;

use crate::{env, output};

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

/// An error, and what to do about it.
#[derive(Debug, thiserror::Error)]
#[error("{problem}")]
pub(crate) struct Hinted {
    pub(crate) problem: String,
    pub(crate) hint: String,
}

/// Other errors were printed already; this one only ends the command.
#[derive(Debug, thiserror::Error)]
#[error("some of it failed")]
pub(crate) struct Reported;

/// Prints the error and what to do about it; gives the exit code.
pub(crate) fn report(error: &anyhow::Error) -> ExitCode {
    if is_interrupt(error) {
        return ExitCode::from(INTERRUPTED);
    }
    // Whoever read our output has seen enough.
    if is_closed_output(error) {
        return ExitCode::SUCCESS;
    }
    let code = if is_usage(error) { USAGE } else { FAILURE };
    if !is::<Reported>(error, |_| true) {
        print(error);
        if wants_json() {
            // Whoever reads the events need not read standard error too.
            event(&message(error), hint(error).as_deref(), code);
        }
    }
    ExitCode::from(code)
}

/// Whether the command line asks for JSON. The words themselves are looked at, because this must be known of a command
/// line that does not parse too.
pub(crate) fn wants_json() -> bool {
    std::env::args_os().skip(1).take_while(|word| word != "--").any(|word| word == "--json")
}

/// Prints an error as an event on standard output.
pub(crate) fn event(message: &str, hint: Option<&str>, code: u8) {
    let value = json!({"event": "error", "message": message, "hint": hint, "exit_code": code});
    // The error is on standard error; that this copy can't be printed adds nothing.
    let _ = output::event(&value);
}

/// What clap says of a wrong command line, without its label and the usage behind it.
pub(crate) fn clap_message(error: &clap::Error) -> String {
    let text = error.to_string();
    let text = text.strip_prefix("error: ").unwrap_or(&text);
    let end = text.find("\n\nUsage:").or_else(|| text.find("\n\nFor more")).unwrap_or(text.len());
    text[..end].trim().to_owned()
}

/// Whether the command line is to blame: a value that only the model's vocabulary or the sampler could judge too.
fn is_usage(error: &anyhow::Error) -> bool {
    use smelt_engine::Error;
    is::<Usage>(error, |_| true)
        || is::<Error>(error, |e| {
            matches!(
                e,
                Error::TokenRange { .. }
                    | Error::Setting { .. }
                    | Error::Sampler(_)
                    | Error::Stop(_)
                    | Error::Grammar(_)
                    | Error::EmptyPrompt
            )
        })
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
    if let Some(hint) = hint(error) {
        say("hint", "\x1b[1;36m", &hint);
    }
}

/// What a person can do about an error, where that is known.
fn hint(error: &anyhow::Error) -> Option<String> {
    use smelt_engine::Error;
    let of_store = error.chain().find_map(|e| e.downcast_ref::<StoreError>()?.hint());
    let of_engine = || {
        let is_template = is::<Error>(error, |e| matches!(e, Error::Template { .. }));
        is_template.then(|| "`smelt run --raw` runs a model without its chat template".to_owned())
    };
    let own = || error.chain().find_map(|e| Some(e.downcast_ref::<Hinted>()?.hint.clone()));
    of_store.or_else(of_engine).or_else(own)
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
    let _ = writeln!(io::stderr().lock(), "{}", output::plain(text, "\n"));
}

fn say(label: &str, colour: &str, text: &str) {
    let mut stderr = io::stderr().lock();
    let (on, off) = match stderr.is_terminal() && env::NO_COLOR.get().is_none() {
        true => (colour, "\x1b[0m"),
        false => ("", ""),
    };
    // There is nobody left to tell if this fails.
    let _ = writeln!(stderr, "{on}{label}:{off} {}", output::plain(text, "\n"));
}

fn is<E: std::error::Error + Send + Sync + 'static>(
    error: &anyhow::Error,
    matches: impl Fn(&E) -> bool,
) -> bool {
    error.chain().any(|e| e.downcast_ref::<E>().is_some_and(&matches))
}
