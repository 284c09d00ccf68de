//! A constraint that begins behind a sequence of tokens.

use super::GrammarError;
use crate::Constraint;
use smelt_tokenizer::Tokenizer;
use std::sync::Arc;

/// Lets everything pass but an end, until one of some sequences of tokens came; from then on holds to another constraint.
pub(super) struct After {
    triggers: Arc<[Vec<u32>]>,
    /// All tokens but those that end an answer.
    open: Arc<[u32]>,
    /// The last tokens, as many as the longest trigger has.
    last: Vec<u32>,
    has_begun: bool,
    then: Box<dyn Constraint>,
}

impl After {
    /// # Errors
    /// If there is no trigger, or an empty one.
    pub(super) fn start(
        tokenizer: &Tokenizer,
        triggers: Vec<Vec<u32>>,
        then: Box<dyn Constraint>,
    ) -> Result<Self, GrammarError> {
        if triggers.is_empty() || triggers.iter().any(Vec::is_empty) {
            return Err(GrammarError::Invalid("what the grammar waits for is empty".into()));
        }
        let mut open = vec![0_u32; tokenizer.vocab_size().div_ceil(32)];
        for id in (0..).take(tokenizer.vocab_size()).filter(|id| !tokenizer.is_eog(*id)) {
            open[id as usize / 32] |= 1 << (id % 32);
        }
        Ok(Self { triggers: triggers.into(), open: open.into(), last: Vec::new(), has_begun: false, then })
    }
}

impl Constraint for After {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        if self.has_begun { self.then.mask() } else { Ok(Some(&self.open)) }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        if self.has_begun {
            return self.then.accept(token);
        }
        self.last.push(token);
        self.has_begun = self.triggers.iter().any(|trigger| self.last.ends_with(trigger));
        let longest = self.triggers.iter().map(Vec::len).max().unwrap_or(0);
        self.last.drain(..self.last.len().saturating_sub(longest));
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            triggers: self.triggers.clone(),
            open: self.open.clone(),
            last: self.last.clone(),
            has_begun: self.has_begun,
            then: self.then.fork(),
        })
    }
}
