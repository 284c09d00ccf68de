//! Many requests at once.
//!
//! ```text
//! Handle::submit ── channel ──> the engine's thread: Core::step, again and again
//!                                 ├─ sweep     requests that nobody waits for any more go
//!                                 ├─ admit     waiting answers get pages, in order of due time      (cache, radix)
//!                                 ├─ plan      rows: answers' next tokens and chunks of prompts     (batch)
//!                                 ├─ secure    pages for them; the last to be due give theirs
//!                                 ├─ compute   one step of the model
//!                                 └─ advance   each answer's Emitter chooses and tells              (emitter)
//! ```
//!
//! An answer is a list of tokens of which some are computed. One that lacks a single token decodes, one that lacks more
//! computes a prompt, and one that lost its pages lacks all: they differ in nothing else. One that is to become an
//! embedding or scores ends with its prompt (`pool`).
//!
//! **Order.** An answer is due when its request arrived, plus its priority's worth of time. Whoever is due first is
//! admitted first, and nobody passes one that doesn't fit. When pages run out, the answer that is due last gives its own
//! and waits. So the one that is due first always goes on, ends, and makes way for the next: nothing waits for ever.
//!
//! **Sameness.** A row's logits don't depend on the other rows of its step, nor on how its prompt was cut, nor on whose
//! step computed the pages that it shares: an answer is the same alone and under load.

mod batch;
mod cache;
mod core;
mod job;
mod pool;
mod radix;
mod request;
#[cfg(test)]
mod simulation;
mod stats;
mod stepper;
mod thread;

pub use self::pool::{MAX_TEXTS, PoolRequest, Task, Text};
pub use self::request::{
    Event, EventSink, Failure, MAX_CHOICES, MAX_LOGPROBS, PRIORITIES, Request, SubmitError, Usage,
};
pub use self::stats::{Histogram, SECONDS, Stats};
pub use self::thread::{Handle, Scheduler, Ticket};

use crate::{Error, Model};
use serde::{Deserialize, Serialize};
use smelt_backend::PAGE_TOKENS;
use std::any::Any;
use std::time::Duration;

/// Memory for keys and values. It is taken as it fills.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum KvBudget {
    /// Bytes of keys and values.
    Bytes(u64),
    /// Pages of [`smelt_backend::PAGE_TOKENS`] tokens.
    Pages(usize),
}

/// Settings of a scheduler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct SchedulerSettings {
    /// Answers that run at once; others wait. Loading the engine with as many [`crate::Settings::logit_rows`] lets each
    /// have a token per step.
    pub max_sequences: usize,
    /// Rows of a step in which something answers: more makes prompts faster and pauses in answers longer. Steps with
    /// prompts only have as many as the engine's [`crate::Settings::batch`].
    pub token_budget: usize,
    /// Memory for keys and values, those of kept prefixes too.
    pub kv: KvBudget,
    /// Requests that may wait for their first row.
    pub max_queue: usize,
    /// What one step of priority is worth, in time of waiting.
    pub aging: Duration,
}

impl Default for SchedulerSettings {
    fn default() -> Self {
        Self {
            max_sequences: 16,
            token_budget: 256,
            kv: KvBudget::Bytes(4 << 30),
            max_queue: 256,
            aging: Duration::from_secs(10),
        }
    }
}

impl SchedulerSettings {
    /// Tokens that an answer of this model may have with its prompt: what the model and the cache hold.
    ///
    /// # Errors
    /// If a setting is out of range.
    pub fn context(&self, model: &Model) -> Result<usize, Error> {
        Ok(Limits::new(self, model)?.context)
    }
}

/// What the settings come to with a model.
#[derive(Debug, Clone, Copy)]
struct Limits {
    sequences: usize,
    budget: usize,
    pages: usize,
    queue: usize,
    aging: Duration,
    /// Tokens that an answer may have with its prompt.
    context: usize,
}

impl Limits {
    fn new(settings: &SchedulerSettings, model: &Model) -> Result<Self, Error> {
        let day = Duration::from_secs(24 * 3600);
        let ranges = [
            ("max_sequences", settings.max_sequences, 4096),
            ("token_budget", settings.token_budget, 4096),
            ("max_queue", settings.max_queue, 1 << 20),
        ];
        for (name, value, most) in ranges {
            if !(1..=most).contains(&value) {
                return Err(setting(name, value, format!("between 1 and {most}")));
            }
        }
        if settings.aging > day {
            return Err(setting("aging", settings.aging.as_secs(), "a day at most".into()));
        }
        let page_bytes = (model.facts.kv_bytes_per_token * PAGE_TOKENS).max(1) as u64;
        let pages = match settings.kv {
            KvBudget::Pages(pages) => pages,
            KvBudget::Bytes(bytes) => usize::try_from(bytes / page_bytes).unwrap_or(usize::MAX),
        };
        // More pages than all answers can fill would only be kept ones; page numbers are 32 bits wide.
        let pages = pages.min(1 << 30);
        if pages == 0 {
            return Err(setting("kv", "less than a page".to_owned(), format!("{page_bytes} bytes or more")));
        }
        Ok(Self {
            sequences: settings.max_sequences,
            // A step in which everybody answers must leave room for a prompt.
            budget: settings.token_budget.max(settings.max_sequences + PAGE_TOKENS),
            pages,
            queue: settings.max_queue,
            aging: settings.aging,
            context: model.facts.context.min(pages * PAGE_TOKENS),
        })
    }
}

fn setting(name: &'static str, value: impl ToString, range: String) -> Error {
    Error::Setting { name, value: value.to_string(), range }
}

/// What a panic said.
fn panic_message(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "a panic".to_owned())
}
