//! The inputs of one step.

use crate::{Error, Program};

/// Tokens per page of a KV cache.
pub const PAGE_TOKENS: usize = 32;

/// One sequence as a step sees it.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInput<'a> {
    /// Page `i` holds the positions `i * PAGE_TOKENS ..`. Must cover every row's position. A page wholly behind every
    /// layer's window may be [`u32::MAX`].
    pub pages: &'a [u32],
}

/// What one step computes: `n` rows, each a token of some sequence at some position.
///
/// Rows of one sequence stand in order of position, and everything before a row's position is either in the cache or
/// an earlier row of this step.
#[derive(Debug, Clone, Copy)]
pub struct StepInputs<'a> {
    /// Token ids, `[n]`.
    pub tokens: &'a [u32],
    /// Positions, `[n]`.
    pub positions: &'a [u32],
    /// Index into `sequences`, `[n]`.
    pub sequence: &'a [u32],
    /// The sequences that the rows belong to.
    pub sequences: &'a [SequenceInput<'a>],
    /// The rows whose output is wanted, ascending.
    pub logit_rows: &'a [u32],
}

/// The sizes that a step may have.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StepLimits {
    /// Most rows in a step.
    pub rows: usize,
    /// Most rows whose output is wanted.
    pub logit_rows: usize,
}

impl StepInputs<'_> {
    /// Checks the inputs against `program`, with `pages` pages reserved.
    ///
    /// # Errors
    /// [`Error::Step`] naming the first thing that doesn't fit.
    pub fn validate(&self, program: &Program, pages: usize) -> Result<(), Error> {
        let fail = |what: String| Err(Error::Step(what));
        let n = self.tokens.len();
        if n == 0 || n > program.limits.rows {
            return fail(format!("{n} rows, where 1 to {} fit", program.limits.rows));
        }
        if self.positions.len() != n || self.sequence.len() != n {
            return fail(format!(
                "{n} tokens, {} positions, {} sequence indices",
                self.positions.len(),
                self.sequence.len()
            ));
        }
        if self.logit_rows.len() > program.limits.logit_rows {
            return fail(format!(
                "{} logit rows, where {} fit",
                self.logit_rows.len(),
                program.limits.logit_rows
            ));
        }
        if let Some(t) = self.tokens.iter().find(|t| **t as usize >= program.vocab_size) {
            return fail(format!("token {t} is outside the vocabulary of {}", program.vocab_size));
        }
        if self.logit_rows.windows(2).any(|w| w[0] >= w[1])
            || self.logit_rows.iter().any(|r| *r as usize >= n)
        {
            return fail("logit rows are not ascending row indices".into());
        }
        for (row, (position, sequence)) in self.positions.iter().zip(self.sequence).enumerate() {
            let Some(s) = self.sequences.get(*sequence as usize) else {
                return fail(format!("row {row} names sequence {sequence} of {}", self.sequences.len()));
            };
            match s.pages.get(*position as usize / PAGE_TOKENS) {
                Some(page) if (*page as usize) < pages => {}
                _ => return fail(format!("row {row}: no page holds position {position}")),
            }
        }
        Ok(())
    }
}
