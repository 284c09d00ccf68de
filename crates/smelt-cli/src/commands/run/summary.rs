//! How an answer went, wherever it was computed.

use std::time::Duration;

use serde_json::{Value, json};
use smelt_engine::{Finish, Outcome};

/// How an answer went.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Summary {
    /// The field's word for why it ended: `stop`, `length`, `cancelled`.
    pub(super) finish_reason: &'static str,
    /// What exactly it was.
    pub(super) detail: &'static str,
    /// The stop string that ended it.
    pub(super) stop: Option<String>,
    /// Tokens of the prompt.
    pub(super) prompt_tokens: usize,
    /// Of those, taken from the cache.
    pub(super) cached_tokens: usize,
    /// Tokens generated, the ending one not counted.
    pub(super) completion_tokens: usize,
    /// From the start to the first token.
    pub(super) time_to_first_token: Duration,
    /// From the first token to the last.
    pub(super) decode_time: Duration,
    /// The seed in use: with it the answer can be repeated.
    pub(super) seed: u64,
}

impl Summary {
    /// Of an answer that was held to `stop`.
    pub(super) fn new(outcome: &Outcome, stop: &[String]) -> Self {
        Self {
            finish_reason: outcome.finish.name(),
            detail: outcome.finish.detail(),
            stop: match outcome.finish {
                Finish::StopString(index) => stop.get(index).cloned(),
                _ => None,
            },
            prompt_tokens: outcome.prompt_tokens,
            cached_tokens: outcome.cached_tokens,
            completion_tokens: outcome.tokens.len(),
            time_to_first_token: outcome.time_to_first_token,
            decode_time: outcome.decode_time,
            seed: outcome.seed,
        }
    }

    /// Prompt tokens computed per second.
    pub(super) fn prompt_rate(&self) -> f64 {
        (self.prompt_tokens - self.cached_tokens) as f64 / self.time_to_first_token.as_secs_f64()
    }

    /// Tokens per second behind the first.
    pub(super) fn decode_rate(&self) -> f64 {
        self.completion_tokens.saturating_sub(1) as f64 / self.decode_time.as_secs_f64()
    }

    /// The last event of an answer. A rate that has no time to be measured over is null: JSON has no NaN.
    pub(super) fn event(&self) -> Value {
        json!({
            "event": "end",
            "finish_reason": self.finish_reason,
            "detail": self.detail,
            "stop": self.stop,
            "usage": {
                "prompt_tokens": self.prompt_tokens,
                "cached_tokens": self.cached_tokens,
                "completion_tokens": self.completion_tokens,
                "total_tokens": self.prompt_tokens + self.completion_tokens,
            },
            "timings": {
                "time_to_first_token_s": self.time_to_first_token.as_secs_f64(),
                "decode_s": self.decode_time.as_secs_f64(),
                "prompt_per_second": self.prompt_rate(),
                "decode_per_second": self.decode_rate(),
            },
        })
    }
}
