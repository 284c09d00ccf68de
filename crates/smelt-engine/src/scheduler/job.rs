//! A request on its way, and its answers.

use super::cache::Held;
use super::pool::{Pooler, Text};
use super::request::{Event, EventSink, Failure};
use crate::emitter::{Emitter, TokenInfo};
use smelt_backend::Output;
use std::collections::VecDeque;
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
    /// The tokens of the prompt that were last told to be computed, if that is told.
    pub(super) progress: Option<usize>,
    /// Answers that are not finished.
    pub(super) open: usize,
    /// Texts that have not begun, and the index of the first.
    pub(super) texts: VecDeque<(Text, Pooler)>,
    pub(super) next_text: usize,
}

impl Job {
    /// Tells how far the prompt is, if that is asked for and something new. Pages that were lost are computed again.
    pub(super) fn tell_progress(&mut self, computed: usize) {
        let computed_tokens = computed.min(self.prompt_tokens);
        if self.progress.is_some_and(|told| told < computed_tokens) {
            self.progress = Some(computed_tokens);
            self.voice.tell(Event::Progress { computed_tokens });
        }
    }
}

/// A request as it is submitted: its answers' emitters, the first of which computes the prompt.
pub(super) struct Submission {
    pub(super) voice: Voice,
    pub(super) priority: i32,
    pub(super) arrival: Instant,
    pub(super) work: Work,
}

/// What is asked for.
pub(super) enum Work {
    /// Text: a prompt, its answers' emitters, how many likely tokens are to be told for each of the prompt's, whether it is
    /// computed even where the cache has it, and whether it is told how far it is.
    Write {
        prompt: Vec<u32>,
        emitters: Vec<Emitter>,
        prompt_logprobs: Option<usize>,
        fresh: bool,
        progress: bool,
    },
    /// Something of each text.
    Pool(VecDeque<(Text, Pooler)>),
}

/// What an answer is to become.
pub(super) enum Goal {
    /// Text.
    Write(Box<Emitter>),
    /// An embedding or scores.
    Pool(Pooler),
}

/// An answer.
pub(super) struct Answer {
    /// The prompt and what was chosen.
    pub(super) tokens: Vec<u32>,
    /// The prompt's segments; empty where all are 0.
    pub(super) segments: Vec<u32>,
    pub(super) held: Held,
    pub(super) goal: Goal,
    /// The step that it was last in.
    pub(super) served: u64,
    /// When its last token was chosen.
    pub(super) last_token: Option<Instant>,
    /// Other answers' emitters, until the prompt is computed.
    pub(super) siblings: Vec<Emitter>,
    pub(super) prompt: Option<PromptLogprobs>,
    /// What the cache has of it is of no use.
    pub(super) fresh: bool,
}

/// What is told of a prompt's tokens.
pub(super) struct PromptLogprobs {
    pub(super) top: usize,
    /// Of the first tokens, as far as they are computed.
    pub(super) infos: Vec<TokenInfo>,
}

impl Answer {
    /// One of which nothing is computed.
    pub(super) fn new(text: Text, goal: Goal) -> Self {
        Self {
            tokens: text.tokens,
            segments: text.segments,
            held: Held::default(),
            goal,
            served: 0,
            last_token: None,
            siblings: Vec::new(),
            prompt: None,
            fresh: false,
        }
    }

    /// Tokens that are still to be computed before the next can be chosen.
    pub(super) fn missing(&self) -> usize {
        self.tokens.len() - self.held.computed
    }

    /// How many leading tokens need no computing if the cache has them. The last one's logits are always needed, and
    /// those in front of each token whose log-probability is yet to be told.
    pub(super) fn reusable(&self) -> usize {
        match (&self.prompt, &self.goal) {
            (_, Goal::Write(_)) if self.fresh => 0,
            (Some(prompt), _) => prompt.infos.len() - 1,
            (None, Goal::Write(_)) => self.tokens.len() - 1,
            (None, Goal::Pool(pooler)) => pooler.reusable(self.tokens.len()),
        }
    }

    /// What its steps are to give.
    pub(super) fn output(&self) -> Output {
        match &self.goal {
            Goal::Write(_) => Output::Logits,
            Goal::Pool(pooler) => pooler.output(),
        }
    }

    /// Whether the next step chooses a token of text.
    pub(super) fn is_writing(&self) -> bool {
        matches!(self.goal, Goal::Write(_)) && self.missing() == 1
    }

    /// Whether all its tokens must be computed in one step.
    pub(super) fn is_whole(&self) -> bool {
        matches!(&self.goal, Goal::Pool(pooler) if pooler.is_whole())
    }
}
