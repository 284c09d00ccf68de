//! What goes into the scheduler and what comes out.

use crate::constraint::Constraint;
use crate::emitter::TokenInfo;
use crate::lines::LineLimits;
use crate::sampler::SamplerSettings;
use crate::{Error, Finish};
use serde::{Deserialize, Serialize};
use std::ops::{ControlFlow, RangeInclusive};
use std::sync::Arc;
use std::time::Duration;

/// Priorities that requests may have.
pub const PRIORITIES: RangeInclusive<i32> = -1000..=1000;

/// Most answers to one prompt.
pub const MAX_CHOICES: usize = 128;

/// Most tokens told per place.
pub const MAX_LOGPROBS: usize = 100;

/// A prompt, and how to answer it. With a description `C` of the constraint in its place it is data that can go to another
/// process; [`Request::held_to`] makes it a request of the engine there.
#[derive(Clone, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Request<C = Box<dyn Constraint>> {
    /// The prompt; at least one token.
    pub prompt: Vec<u32>,
    /// How to choose tokens, the bias of single tokens included. Answer `i` of several has the seed plus `i`.
    pub sampler: SamplerSettings,
    /// Strings that end an answer; nothing of them is emitted.
    pub stop: Vec<String>,
    /// Lines that end an answer.
    pub lines: LineLimits,
    /// Tokens per answer; `None` for as many as the context holds, 0 to compute the prompt only.
    pub max_tokens: Option<usize>,
    /// Answers, 1 to [`MAX_CHOICES`]. The prompt is computed once.
    pub n: usize,
    /// Log-probabilities of the model's own distribution for each token, and of how many of the likeliest in its place;
    /// at most [`MAX_LOGPROBS`].
    pub logprobs: Option<usize>,
    /// Those are of the distribution that tokens are drawn from, behind all that sampling does, and not of the model's own. Tokens
    /// that can't be drawn are not told.
    pub post_sampling: bool,
    /// The same for the prompt's tokens, as [`Event::PromptLogprobs`]. What the cache has of the prompt is of no use
    /// then. With `logprobs` at `None` there are no likeliest tokens.
    pub prompt_logprobs: bool,
    /// Compute the prompt even where the cache has it. The answer is the same.
    pub fresh: bool,
    /// Tell how far the prompt is, as [`Event::Progress`].
    pub progress: bool,
    /// Go on behind a token that ends an answer.
    pub ignore_eos: bool,
    /// Emit the texts of control tokens.
    pub show_special: bool,
    /// Control tokens whose texts are emitted all the same: the marks of calls and reasoning.
    pub shown: Arc<[u32]>,
    /// Lower goes first, in [`PRIORITIES`]; 0 is usual. One step is worth [`super::SchedulerSettings::aging`] of waiting, so that
    /// nobody waits for ever.
    pub priority: i32,
    /// What the answers must look like.
    pub constraint: Option<C>,
}

impl<C> std::fmt::Debug for Request<C> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        // Prompts stay out of logs.
        f.debug_struct("Request").field("n", &self.n).finish_non_exhaustive()
    }
}

impl<C> Request<C> {
    /// One answer to `prompt` with usual settings.
    #[must_use]
    pub fn new(prompt: Vec<u32>, sampler: SamplerSettings) -> Self {
        Self {
            prompt,
            sampler,
            stop: Vec::new(),
            lines: LineLimits::default(),
            max_tokens: None,
            n: 1,
            logprobs: None,
            post_sampling: false,
            prompt_logprobs: false,
            fresh: false,
            progress: false,
            ignore_eos: false,
            show_special: false,
            shown: Arc::default(),
            priority: 0,
            constraint: None,
        }
    }

    /// The same request with another constraint.
    #[must_use]
    pub fn held_to<D>(self, constraint: Option<D>) -> Request<D> {
        let Self { prompt, sampler, stop, lines, max_tokens, n, logprobs, prompt_logprobs, .. } = self;
        let Self { post_sampling, fresh, progress, ignore_eos, show_special, shown, priority, .. } = self;
        Request {
            prompt,
            sampler,
            stop,
            lines,
            max_tokens,
            n,
            logprobs,
            post_sampling,
            prompt_logprobs,
            fresh,
            progress,
            ignore_eos,
            show_special,
            shown,
            priority,
            constraint,
        }
    }
}

/// Tokens that an answer took.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: usize,
    /// Of those, not computed again.
    pub cached_tokens: usize,
    /// Of this answer; the ending one is not counted.
    pub completion_tokens: usize,
    /// The seed in use: with it the answer can be repeated.
    pub seed: u64,
}

/// What happens to a request. `Started` comes first, `Done` or `Failed` last; after a cancel nothing comes.
#[derive(Debug)]
pub enum Event {
    /// It has its place in the cache, and is computed from now on.
    Started {
        /// Tokens of the prompt that are in the cache already.
        cached_tokens: usize,
        /// Tokens of the prompt.
        prompt_tokens: usize,
    },
    /// More of the prompt is computed, where [`Request::progress`] asks for it; the last one tells of all of it.
    Progress {
        /// Tokens of the prompt that are in the cache now.
        computed_tokens: usize,
    },
    /// The prompt's tokens, where [`Request::prompt_logprobs`] asks for them.
    PromptLogprobs(Vec<TokenInfo>),
    /// More of an answer: text in whole characters, and the tokens whose text is out with it. Either may be empty.
    Delta {
        /// Which answer.
        index: usize,
        /// Its next text.
        text: String,
        /// The tokens whose last byte of text is now out.
        tokens: Vec<TokenInfo>,
    },
    /// What was asked of a text of a [`super::PoolRequest`]: an embedding, or scores.
    Pooled {
        /// Which text.
        index: usize,
        /// The values.
        values: Vec<f32>,
    },
    /// An answer ended.
    Finished {
        /// Which answer.
        index: usize,
        /// Why.
        finish: Finish,
        /// What it took.
        usage: Usage,
    },
    /// All answers ended.
    Done,
    /// None of the answers goes on.
    Failed(Failure),
}

/// Takes a request's events, on the engine's thread: it must not block. [`ControlFlow::Break`] cancels the request.
pub type EventSink = Box<dyn FnMut(Event) -> ControlFlow<()> + Send>;

/// Why a request failed after it was accepted.
#[derive(Debug, Clone, thiserror::Error)]
pub enum Failure {
    /// The model, or what was to be chosen from its logits. A step's error is that of all requests in it.
    #[error(transparent)]
    Engine(Arc<Error>),
    /// A defect of Smelt.
    #[error("the engine failed: {0}; this is a defect of Smelt, please report it")]
    Panic(String),
    /// The scheduler was shut down before the answer was complete.
    #[error("the engine was stopped before the answer was complete; send the request again")]
    Stopped,
}

/// Why a request was not accepted.
#[derive(Debug, thiserror::Error)]
pub enum SubmitError {
    /// Too many wait already.
    #[error("{waiting} requests are waiting already; try again in {} s", .retry_after.as_secs())]
    QueueFull {
        /// Requests that wait.
        waiting: usize,
        /// When there will be room, by what answers took lately.
        retry_after: Duration,
    },
    /// The prompt doesn't fit.
    #[error("the prompt has {prompt_tokens} tokens, but the context holds {context}; shorten the prompt")]
    TooLong {
        /// Tokens of the prompt.
        prompt_tokens: usize,
        /// Tokens that the model's context and the cache hold.
        context: usize,
    },
    /// The scheduler is stopping.
    #[error("the engine is stopping and takes no more requests")]
    Stopping,
    /// The engine's thread ended by a defect.
    #[error("the engine has stopped: {0}; restart it")]
    Stopped(String),
    /// A setting is out of range.
    #[error(transparent)]
    Invalid(#[from] Error),
}
