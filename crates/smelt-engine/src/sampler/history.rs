//! The latest tokens, and how often each occurs in the penalties' window.

use std::collections::VecDeque;

/// The latest tokens of a sequence, as many as any edit looks at.
#[derive(Debug, Clone)]
pub(super) struct History {
    /// Oldest first.
    tokens: VecDeque<u32>,
    /// How many tokens to keep.
    keep: usize,
    /// How many of the latest tokens `counts` covers.
    count_window: usize,
    /// (token, occurrences in the count window), sorted by token: iterated once per step, changed twice.
    counts: Vec<(u32, u32)>,
}

impl History {
    /// A history of `prompt` that counts the last `count_window` tokens and can look back over `look_back`.
    pub(super) fn new(count_window: usize, look_back: usize, prompt: &[u32]) -> Self {
        let keep = count_window.max(look_back);
        let mut history = Self { tokens: VecDeque::new(), keep, count_window, counts: Vec::new() };
        for &token in &prompt[prompt.len().saturating_sub(keep)..] {
            history.push(token);
        }
        history
    }

    pub(super) fn push(&mut self, token: u32) {
        if self.keep == 0 {
            return;
        }
        self.tokens.push_back(token);
        if self.count_window > 0 {
            match self.find(token) {
                Ok(i) => self.counts[i].1 += 1,
                Err(i) => self.counts.insert(i, (token, 1)),
            }
            if let Some(left) = self.tokens.len().checked_sub(self.count_window.saturating_add(1)) {
                self.uncount(self.tokens[left]);
            }
        }
        if self.tokens.len() > self.keep {
            self.tokens.pop_front();
        }
    }

    /// (token, occurrences), each occurring at least once.
    pub(super) fn counts(&self) -> &[(u32, u32)] {
        &self.counts
    }

    /// The tokens from the latest to the oldest.
    pub(super) fn latest_first(&self) -> impl Iterator<Item = u32> {
        self.tokens.iter().rev().copied()
    }

    fn find(&self, token: u32) -> Result<usize, usize> {
        self.counts.binary_search_by_key(&token, |&(counted, _)| counted)
    }

    fn uncount(&mut self, token: u32) {
        if let Ok(i) = self.find(token) {
            self.counts[i].1 -= 1;
            if self.counts[i].1 == 0 {
                self.counts.remove(i);
            }
        }
    }
}
