//! The line that a person types: editing, history, several lines, completion of commands.

use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use rustyline::completion::Completer;
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::DefaultHistory;
use rustyline::validate::{ValidationContext, ValidationResult, Validator};
use rustyline::{Config, Helper};

use super::chat::COMMANDS;
use super::knobs::KEYS;
use crate::report;

const PROMPT: &str = "> ";
const QUOTE: &str = "\"\"\"";
/// Messages that the history keeps.
const HISTORY: usize = 1000;

/// What was typed.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Input {
    /// A message or a command.
    Text(String),
    /// Ctrl-C.
    Interrupt,
    /// Ctrl-D, or the end of the input.
    End,
}

/// Reads messages from the terminal.
pub(super) struct Editor {
    line: rustyline::Editor<Rules, DefaultHistory>,
    history: PathBuf,
}

impl Editor {
    /// An editor whose history is kept in the directory `home`.
    pub(super) fn new(home: &Path) -> Result<Self> {
        let config = Config::builder().max_history_size(HISTORY)?.auto_add_history(true).build();
        let mut line = rustyline::Editor::with_config(config).context("cannot read from this terminal")?;
        line.set_helper(Some(Rules));
        let history = home.join("history");
        match line.load_history(&history) {
            Err(ReadlineError::Io(e)) if e.kind() == std::io::ErrorKind::NotFound => {}
            Err(e) => report::warn(&format!("{} can't be read: {e}", history.display())),
            Ok(()) => {}
        }
        Ok(Self { line, history })
    }

    pub(super) fn read(&mut self) -> Result<Input> {
        match self.line.readline(PROMPT) {
            Ok(text) => Ok(Input::Text(unquote(&text))),
            Err(ReadlineError::Interrupted) => Ok(Input::Interrupt),
            Err(ReadlineError::Eof) => Ok(Input::End),
            Err(ReadlineError::Io(e)) if e.kind() == std::io::ErrorKind::InvalidData => {
                report::warn("that was not UTF-8, so the line is left out");
                Ok(Input::Text(String::new()))
            }
            Err(error) => Err(error).context("cannot read from this terminal"),
        }
    }
}

impl Drop for Editor {
    fn drop(&mut self) {
        let directory = self.history.parent().map_or(Ok(()), std::fs::create_dir_all);
        let saved =
            directory.map_err(ReadlineError::from).and_then(|()| self.line.save_history(&self.history));
        if let Err(error) = saved {
            report::warn(&format!("{} can't be written: {error}", self.history.display()));
        }
    }
}

/// Whether more lines belong to the text.
fn goes_on(text: &str) -> bool {
    match text.trim_start().strip_prefix(QUOTE) {
        Some(quoted) => !quoted.trim_end().ends_with(QUOTE),
        None => text.ends_with('\\'),
    }
}

/// The text without the marks that made it several lines.
fn unquote(text: &str) -> String {
    let quoted = text.trim().strip_prefix(QUOTE).and_then(|rest| rest.strip_suffix(QUOTE));
    match quoted {
        Some(quoted) => quoted.trim_matches('\n').to_owned(),
        None => text.replace("\\\n", "\n"),
    }
}

struct Rules;

impl Helper for Rules {}
impl Highlighter for Rules {}

impl Hinter for Rules {
    type Hint = String;
}

impl Validator for Rules {
    fn validate(&self, cx: &mut ValidationContext<'_>) -> rustyline::Result<ValidationResult> {
        Ok(if goes_on(cx.input()) { ValidationResult::Incomplete } else { ValidationResult::Valid(None) })
    }
}

impl Completer for Rules {
    type Candidate = String;

    fn complete(
        &self,
        line: &str,
        position: usize,
        _: &rustyline::Context<'_>,
    ) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        let (start, names): (usize, Vec<&str>) = match typed.strip_prefix("/set ") {
            Some(_) => ("/set ".len(), KEYS.iter().map(|key| key.name).collect()),
            None => (0, COMMANDS.iter().map(|command| command.0).collect()),
        };
        let matching =
            names.into_iter().filter(|name| !typed.is_empty() && name.starts_with(&typed[start..]));
        Ok((start, matching.map(|name| format!("{name} ")).collect()))
    }
}

#[cfg(test)]
mod tests {
    use super::{goes_on, unquote};

    #[test]
    fn several_lines_are_one_message() {
        assert!(goes_on("\"\"\"") && goes_on("\"\"\"a\nb") && goes_on("a\\") && goes_on("a\\\nb\\"));
        assert!(!goes_on("\"\"\"a\nb\"\"\"") && !goes_on("a\\\nb") && !goes_on("\"a\""));
        assert_eq!(unquote("\"\"\"\na\n\nb\n\"\"\""), "a\n\nb");
        assert_eq!(unquote("a\\\nb"), "a\nb");
        assert_eq!(unquote("a"), "a");
    }
}
