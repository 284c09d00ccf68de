//! Numbers about the scheduler, as plain values.

use serde::{Deserialize, Serialize};
use std::time::Duration;

/// Upper bounds of the times to a first token and of whole requests, in seconds.
pub const SECONDS: [f64; 22] = [
    0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1.0, 2.5, 5.0, 7.5, 10.0, 20.0, 40.0,
    80.0, 160.0, 640.0, 2560.0,
];

/// A histogram over [`SECONDS`].
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Histogram {
    /// Values up to each bound and over the one before; the last count is of those over all bounds.
    pub counts: [u64; SECONDS.len() + 1],
    /// Sum of all values, in seconds.
    pub sum: f64,
}

impl Histogram {
    pub(super) fn add(&mut self, value: Duration) {
        let seconds = value.as_secs_f64();
        self.counts[SECONDS.partition_point(|bound| *bound < seconds)] += 1;
        self.sum += seconds;
    }

    /// Both together.
    fn behind(&self, ended: &Self) -> Self {
        Self { counts: std::array::from_fn(|i| self.counts[i] + ended.counts[i]), sum: self.sum + ended.sum }
    }

    /// How many values there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().sum()
    }

    /// Their mean, in seconds.
    #[must_use]
    pub fn mean(&self) -> Option<f64> {
        let count = self.count();
        (count > 0).then(|| self.sum / count as f64)
    }
}

/// Numbers about the scheduler: what is now, and what has been since it began.
#[derive(Debug, Clone, Copy, PartialEq, Default, Serialize, Deserialize)]
pub struct Stats {
    /// Answers that have pages and rows.
    pub running: usize,
    /// Requests that wait for their first row, and answers that wait to go on.
    pub waiting: usize,
    /// Pages that answers hold.
    pub kv_pages_used: usize,
    /// Pages that are kept for prompts to come and make room at once.
    pub kv_pages_kept: usize,
    /// Pages that may be.
    pub kv_pages: usize,
    /// Tokens per page.
    pub page_tokens: usize,
    /// Prompt tokens that were looked up in the prefix cache.
    pub prefix_queries: u64,
    /// Of those, found.
    pub prefix_hits: u64,
    /// Steps.
    pub steps: u64,
    /// Rows that the steps computed.
    pub rows: u64,
    /// Prompt tokens of requests that began.
    pub prompt_tokens: u64,
    /// Tokens that were chosen.
    pub generation_tokens: u64,
    /// Texts that embeddings or scores were computed of.
    pub pooled: u64,
    /// Answers that lost their pages to others, and were computed again.
    pub preemptions: u64,
    /// Requests that were accepted.
    pub requests: u64,
    /// Answers that ended by themselves: by an end token or a stop string.
    pub finished_stop: u64,
    /// Answers that reached `max_tokens` or the context's end.
    pub finished_length: u64,
    /// Requests that were cancelled.
    pub cancelled: u64,
    /// Requests that failed.
    pub failed: u64,
    /// From a request's submission to its first token.
    pub time_to_first_token: Histogram,
    /// Between two tokens of an answer.
    pub inter_token: Histogram,
    /// From a request's submission to its end.
    pub end_to_end: Histogram,
    /// From a request's submission to its start.
    pub queue_time: Histogram,
}

impl Stats {
    /// These numbers of an engine that follows one with the numbers `ended`: what has been is the sum of both, what is now
    /// is this one's.
    #[must_use]
    pub fn behind(&self, ended: &Self) -> Self {
        Self {
            running: self.running,
            waiting: self.waiting,
            kv_pages_used: self.kv_pages_used,
            kv_pages_kept: self.kv_pages_kept,
            kv_pages: self.kv_pages,
            page_tokens: self.page_tokens,
            prefix_queries: self.prefix_queries + ended.prefix_queries,
            prefix_hits: self.prefix_hits + ended.prefix_hits,
            steps: self.steps + ended.steps,
            rows: self.rows + ended.rows,
            prompt_tokens: self.prompt_tokens + ended.prompt_tokens,
            generation_tokens: self.generation_tokens + ended.generation_tokens,
            preemptions: self.preemptions + ended.preemptions,
            requests: self.requests + ended.requests,
            finished_stop: self.finished_stop + ended.finished_stop,
            finished_length: self.finished_length + ended.finished_length,
            cancelled: self.cancelled + ended.cancelled,
            failed: self.failed + ended.failed,
            pooled: self.pooled + ended.pooled,
            time_to_first_token: self.time_to_first_token.behind(&ended.time_to_first_token),
            inter_token: self.inter_token.behind(&ended.inter_token),
            end_to_end: self.end_to_end.behind(&ended.end_to_end),
            queue_time: self.queue_time.behind(&ended.queue_time),
        }
    }
}
