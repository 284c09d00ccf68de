//! The inputs of one step.

use crate::{Error, Index, Program};

/// Tokens per page of a KV cache.
pub const PAGE_TOKENS: usize = 32;

/// One sequence as a step sees it.
#[derive(Debug, Clone, Copy)]
pub struct SequenceInput<'a> {
    /// Page `i` holds the positions `i * PAGE_TOKENS ..`. Must cover every row's position. A page wholly behind every
    /// layer's window may be [`u32::MAX`].
    pub pages: &'a [u32],
}

/// What a step is to give.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Output {
    /// The program's output of the logit rows.
    #[default]
    Logits,
    /// The hidden states of all rows: [`crate::States`].
    States,
}

/// What one step computes: `n` rows, each a token of some sequence at some position.
///
/// Rows of one sequence stand in order of position, and everything before a row's position is either in the cache or
/// an earlier row of this step.
#[derive(Debug, Clone, Copy, Default)]
pub struct StepInputs<'a> {
    /// Token ids, `[n]`.
    pub tokens: &'a [u32],
    /// Positions, `[n]`.
    pub positions: &'a [u32],
    /// Index into `sequences`, `[n]`.
    pub sequence: &'a [u32],
    /// The sequences that the rows belong to.
    pub sequences: &'a [SequenceInput<'a>],
    /// Segments, `[n]`; empty where all are of segment 0.
    pub segments: &'a [u32],
    /// The rows whose logits are wanted, ascending; none where states are.
    pub logit_rows: &'a [u32],
    /// Whether logits or states.
    pub output: Output,
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
        if program.ops_for(self.output).is_none() {
            return fail("the program gives no hidden states".into());
        }
        self.validate_indices(program)?;
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

    /// Checks what tables of learned positions and of segments are read by.
    fn validate_indices(&self, program: &Program) -> Result<(), Error> {
        if !self.segments.is_empty() && self.segments.len() != self.tokens.len() {
            return Err(Error::Step(format!(
                "{} tokens, {} segments",
                self.tokens.len(),
                self.segments.len()
            )));
        }
        for (index, values, what) in
            [(Index::Position, self.positions, "position"), (Index::Segment, self.segments, "segment")]
        {
            let Some(rows) = program.table_rows(index) else { continue };
            if let Some(value) = values.iter().find(|value| **value as usize >= rows) {
                return Err(Error::Step(format!("{what} {value} is outside a table of {rows}")));
            }
        }
        Ok(())
    }

    /// One more than the last position that the step has of a sequence.
    #[must_use]
    pub fn end_of(&self, sequence: u32) -> usize {
        let last = self.sequence.iter().rposition(|s| *s == sequence);
        last.map_or(0, |row| self.positions[row] as usize + 1)
    }

    /// What row `row` reads its row of a table by.
    #[must_use]
    pub fn index(&self, by: Index, row: usize) -> usize {
        let value = match by {
            Index::Token => self.tokens[row],
            Index::Position => self.positions[row],
            Index::Segment => self.segments.get(row).copied().unwrap_or(0),
        };
        value as usize
    }
}
