//! Where an answer goes: text as it comes, or a stream of JSON events.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::json;
use smelt_engine::chat::Fitted;
use smelt_engine::{Event, Facts};

use super::summary::Summary;
use crate::output;
use crate::report;
use crate::wait::Bar;

/// What is printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Style {
    /// The answer, ended by a line feed.
    Text,
    /// The answer and nothing else.
    Raw,
    /// One JSON object per event and line.
    Json,
}

/// Prints one answer.
#[derive(Debug)]
pub(super) struct Printer {
    style: Style,
    /// Prefill's progress; `None` if it is unwanted.
    bar: Option<Bar>,
    /// The text so far.
    text: String,
    /// Why printing ended early.
    failure: Option<anyhow::Error>,
}

impl Printer {
    pub(super) fn new(style: Style, quiet: bool) -> Self {
        let bar = (!quiet && style != Style::Json).then(|| Bar::new("tokens of the prompt"));
        Self { style, bar, text: String::new(), failure: None }
    }

    /// Says what will answer, and what was left out of the question.
    pub(super) fn start(
        &mut self,
        facts: &Facts,
        backend: &str,
        fitted: &Fitted,
        seed: u64,
        quiet: bool,
    ) -> Result<()> {
        let left_out = fitted.full_tokens - fitted.tokens.len();
        if self.style == Style::Json {
            output::event(&json!({
                "event": "start", "model": facts.name, "architecture": facts.architecture,
                "context": facts.context, "backend": backend, "seed": seed,
            }))?;
        }
        if left_out == 0 {
            return Ok(());
        }
        if self.style == Style::Json {
            output::event(&json!({
                "event": "context", "full_tokens": fitted.full_tokens, "kept_tokens": fitted.tokens.len(),
                "dropped_messages": fitted.dropped_messages,
            }))?;
        }
        if !quiet {
            let what = match fitted.dropped_messages {
                0 => format!("{left_out} tokens at the prompt's beginning"),
                1 => "the oldest message".to_owned(),
                n => format!("the oldest {n} messages"),
            };
            let (full, context) = (fitted.full_tokens, facts.context);
            report::warn(&format!("{what} left out: {full} tokens do not fit the context of {context}"));
        }
        Ok(())
    }

    /// Takes an event; false if nobody reads any more.
    pub(super) fn event(&mut self, event: &Event<'_>) -> bool {
        let printed = match event {
            Event::Prefill { done, total } => {
                if let Some(bar) = &mut self.bar {
                    bar.update(*done, *total, String::new);
                }
                self.prefill(*done, *total)
            }
            Event::Token(_) => {
                if let Some(bar) = &mut self.bar {
                    bar.clear();
                }
                Ok(())
            }
            Event::Text(text) => {
                self.text.push_str(text);
                self.print(text)
            }
        };
        self.failure = printed.err();
        self.failure.is_none()
    }

    fn prefill(&self, done: usize, total: usize) -> Result<()> {
        match self.style {
            Style::Json => output::event(&json!({"event": "prompt", "done": done, "total": total})),
            Style::Text | Style::Raw => Ok(()),
        }
    }

    fn print(&self, text: &str) -> Result<()> {
        if self.style == Style::Json {
            return output::event(&json!({"event": "text", "text": text}));
        }
        let mut stdout = io::stdout().lock();
        stdout.write_all(text.as_bytes())?;
        Ok(stdout.flush()?)
    }

    /// Ends the answer; gives its text.
    ///
    /// # Errors
    /// What went wrong while printing, a closed pipe included.
    pub(super) fn end(mut self, summary: &Summary) -> Result<String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.bar = None;
        match self.style {
            Style::Json => output::event(&summary.event())?,
            Style::Text if !self.text.ends_with('\n') => output::line("")?,
            Style::Text | Style::Raw => {}
        }
        Ok(self.text)
    }
}
