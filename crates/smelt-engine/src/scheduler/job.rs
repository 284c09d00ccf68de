//! A request on its way, and its answers.

use super::cache::Held;
use super::request::{Event, EventSink, Failure};
use crate::emitter::{Emitter, TokenInfo};
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

/// The order in which answers are served: when they are due, then as they came.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    /// The time of arrival, and the priority's worth of time, in nanoseconds.
    pub(super) due: i128,
    pub(super) job: u64,
    pub(super) index: usize,
}

/// Tells a request's events: exactly one that ends it, unless it was cancelled.
pub(super) struct Voice {
    sink: Option<EventSink>,
    cancelled: Arc<AtomicBool>,
}

impl Voice {
    pub(super) fn new(sink: EventSink, cancelled: Arc<AtomicBool>) -> Self {
        Self { sink: Some(sink), cancelled }
    }

    /// Whether nobody listens any more.
    pub(super) fn is_cancelled(&self) -> bool {
        self.sink.is_none() || self.cancelled.load(Ordering::Relaxed)
    }

    pub(super) fn tell(&mut self, event: Event) {
        if self.is_cancelled() {
            self.sink = None;
            return;
        }
        let last = matches!(event, Event::Done | Event::Failed(_));
        let Some(sink) = &mut self.sink else { return };
        // A sink that panics takes nobody with it but its own request.
        let flow = catch_unwind(AssertUnwindSafe(|| sink(event)));
        if last || !matches!(flow, Ok(ControlFlow::Continue(()))) {
            self.sink = None;
        }
    }
}

impl Drop for Voice {
    /// A request that is dropped on its way, in the channel too, was stopped.
    fn drop(&mut self) {
        self.tell(Event::Failed(Failure::Stopped));
    }
}

/// A request: what its answers share.
pub(super) struct Job {
    pub(super) voice: Voice,
    pub(super) priority: i32,
    pub(super) arrival: Instant,
    /// When it began, and what of the prompt was cached.
    pub(super) started: Option<usize>,
    pub(super) prompt_tokens: usize,
    /// Answers that are not finished.
    pub(super) open: usize,
}

/// A request as it is submitted: its answers' emitters, the first of which computes the prompt.
pub(super) struct Submission {
    pub(super) voice: Voice,
    pub(super) priority: i32,
    pub(super) arrival: Instant,
    pub(super) prompt: Vec<u32>,
    pub(super) emitters: Vec<Emitter>,
    /// How many likely tokens are to be told for each of the prompt's.
    pub(super) prompt_logprobs: Option<usize>,
}

/// An answer.
pub(super) struct Answer {
    /// The prompt and what was chosen.
    pub(super) tokens: Vec<u32>,
    pub(super) held: Held,
    pub(super) emitter: Emitter,
    /// The step that it was last in.
    pub(super) served: u64,
    /// When its last token was chosen.
    pub(super) last_token: Option<Instant>,
    /// Other answers' emitters, until the prompt is computed.
    pub(super) siblings: Vec<Emitter>,
    pub(super) prompt: Option<PromptLogprobs>,
}

/// What is told of a prompt's tokens.
pub(super) struct PromptLogprobs {
    pub(super) top: usize,
    /// Of the first tokens, as far as they are computed.
    pub(super) infos: Vec<TokenInfo>,
}

impl Answer {
    /// Tokens that are still to be computed before the next can be chosen.
    pub(super) fn missing(&self) -> usize {
        self.tokens.len() - self.held.computed
    }

    /// How many leading tokens need no computing if the cache has them. The last one's logits are always needed, and
    /// those in front of each token whose log-probability is yet to be told.
    pub(super) fn reusable(&self) -> usize {
        match &self.prompt {
            Some(prompt) => prompt.infos.len() - 1,
            None => self.tokens.len() - 1,
        }
    }
}
