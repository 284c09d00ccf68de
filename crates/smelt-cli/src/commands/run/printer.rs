//! Where an answer goes: text as it comes, or a stream of JSON events.

use std::io::{self, Write};

use anyhow::Result;
use serde_json::{Value, json};
use smelt_engine::chat::Fitted;
use smelt_engine::{Engine, Event, Finish, Outcome};

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
    pub(super) fn start(&mut self, engine: &Engine, fitted: &Fitted, seed: u64, quiet: bool) -> Result<()> {
        let facts = engine.facts();
        let left_out = fitted.full_tokens - fitted.tokens.len();
        if self.style == Style::Json {
            output::event(&json!({
                "event": "start", "model": facts.name, "architecture": facts.architecture,
                "context": facts.context, "backend": engine.device().description, "seed": seed,
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
    pub(super) fn end(mut self, outcome: &Outcome, stop: &[String]) -> Result<String> {
        if let Some(failure) = self.failure {
            return Err(failure);
        }
        self.bar = None;
        match self.style {
            Style::Json => output::event(&end_event(outcome, stop))?,
            Style::Text if !self.text.ends_with('\n') => output::line("")?,
            Style::Text | Style::Raw => {}
        }
        Ok(self.text)
    }
}

fn end_event(outcome: &Outcome, stop: &[String]) -> Value {
    let completion = outcome.tokens.len();
    // A rate that has no time to be measured over is null: JSON has no NaN.
    json!({
        "event": "end",
        "finish_reason": outcome.finish.name(),
        "detail": outcome.finish.detail(),
        "stop": match outcome.finish {
            Finish::StopString(index) => stop.get(index),
            _ => None,
        },
        "usage": {
            "prompt_tokens": outcome.prompt_tokens,
            "cached_tokens": outcome.cached_tokens,
            "completion_tokens": completion,
            "total_tokens": outcome.prompt_tokens + completion,
        },
        "timings": {
            "time_to_first_token_s": outcome.time_to_first_token.as_secs_f64(),
            "decode_s": outcome.decode_time.as_secs_f64(),
            "prompt_per_second": outcome.prompt_rate(),
            "decode_per_second": outcome.decode_rate(),
        },
    })
}
