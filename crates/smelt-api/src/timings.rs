//! How long an answer took, in llama.cpp's words.

use std::time::Duration;

use serde::Serialize;

/// Tokens of a prompt and of its answer, and the time that they took: as the server saw it, from the moment in which the
/// engine began with the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize)]
pub struct Timings {
    /// Tokens of the prompt that were found in the cache.
    pub cache_n: usize,
    /// Tokens of the prompt that were computed.
    pub prompt_n: usize,
    /// Milliseconds until the first token.
    pub prompt_ms: f64,
    /// Of each that was computed.
    pub prompt_per_token_ms: f64,
    /// Tokens.
    pub prompt_per_second: f64,
    /// Tokens of the answer.
    pub predicted_n: usize,
    /// Milliseconds from the first token to the last.
    pub predicted_ms: f64,
    /// Of each; the first one belongs to the prompt.
    pub predicted_per_token_ms: f64,
    /// Tokens.
    pub predicted_per_second: f64,
}

impl Timings {
    /// Of a prompt of which so many tokens were cached, so many computed in some time, and an answer of so many tokens, all
    /// but the first of which took another time.
    #[must_use]
    pub fn new(cached: usize, prompt: (usize, Duration), predicted: (usize, Duration)) -> Self {
        let prompt_ms = prompt.1.as_secs_f64() * 1e3;
        let predicted_ms = predicted.1.as_secs_f64() * 1e3;
        let steps = predicted.0.saturating_sub(1);
        Self {
            cache_n: cached,
            prompt_n: prompt.0,
            prompt_ms,
            prompt_per_token_ms: ratio(prompt_ms, prompt.0 as f64),
            prompt_per_second: ratio(prompt.0 as f64 * 1e3, prompt_ms),
            predicted_n: predicted.0,
            predicted_ms,
            predicted_per_token_ms: ratio(predicted_ms, steps as f64),
            predicted_per_second: ratio(steps as f64 * 1e3, predicted_ms),
        }
    }
}

/// How far a prompt is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Progress {
    /// Its tokens.
    pub total: usize,
    /// Those of them that were found in the cache.
    pub cache: usize,
    /// Those of them that are computed, or were found.
    pub processed: usize,
    /// Milliseconds since the engine began with it.
    pub time_ms: u64,
}

/// 0 where there is nothing to divide by: JSON has no infinity.
fn ratio(of: f64, by: f64) -> f64 {
    if by > 0.0 { of / by } else { 0.0 }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rates_leave_the_first_token_to_the_prompt() {
        let timings = Timings::new(3, (10, Duration::from_millis(500)), (5, Duration::from_secs(2)));
        assert_eq!((timings.prompt_per_second, timings.prompt_per_token_ms), (20.0, 50.0));
        assert_eq!((timings.predicted_per_second, timings.predicted_per_token_ms), (2.0, 500.0));
        // Nothing was computed, and nothing said.
        let nothing = Timings::new(3, (0, Duration::ZERO), (1, Duration::from_secs(1)));
        assert_eq!((nothing.prompt_per_second, nothing.predicted_per_second), (0.0, 0.0));
    }
}
