//! A limit to what a model thinks before it answers.

use crate::{Constraint, Model};
use smelt_tokenizer::answer::ThinkTags;
use smelt_tokenizer::{Special, Tokenizer};
use std::sync::Arc;

/// Closes a think block by force when its tokens are spent. Whatever else the answer must look like is the inner
/// constraint's to say, which sees the tokens of the think block too.
pub struct ThinkingBudget {
    tokenizer: Tokenizer,
    tags: &'static ThinkTags,
    /// Tokens of thought that are left.
    left: usize,
    state: State,
    /// Bytes among which a mark may be.
    tail: Vec<u8>,
    /// The tokens that close the block.
    closing: Arc<[u32]>,
    /// A set with the next one of them only.
    mask: Vec<u32>,
    inner: Option<Box<dyn Constraint>>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space, or a part of the opening mark, has come.
    Before,
    Within,
    /// So many of the closing tokens have come.
    Closing(usize),
    /// The block is closed, or there was none.
    Behind,
}

impl std::fmt::Debug for ThinkingBudget {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThinkingBudget")
            .field("left", &self.left)
            .field("state", &self.state)
            .finish_non_exhaustive()
    }
}

impl ThinkingBudget {
    /// At most `tokens` tokens of thought between `tags`. `is_open` says that the prompt has opened the block.
    #[must_use]
    pub fn new(
        model: &Model,
        tags: &'static ThinkTags,
        is_open: bool,
        tokens: usize,
        inner: Option<Box<dyn Constraint>>,
    ) -> Self {
        let tokenizer = model.tokenizer().clone();
        // Behind the block the inner constraint decides.
        let behind = if inner.is_some() { "" } else { "\n\n" };
        let closing = tokenizer.encode(&format!("\n{}{behind}", tags.close), Special::Parse, false);
        let state = if is_open { State::Within } else { State::Before };
        let mut budget = Self {
            tokenizer,
            tags,
            left: tokens,
            state,
            tail: Vec::new(),
            closing: closing.into(),
            mask: Vec::new(),
            inner,
        };
        budget.spend(0);
        budget
    }

    /// Takes `tokens` off what is left; the block closes when nothing is.
    fn spend(&mut self, tokens: usize) {
        self.left = self.left.saturating_sub(tokens);
        if self.state == State::Within && self.left == 0 {
            self.close(0);
        }
    }

    fn close(&mut self, done: usize) {
        self.mask.clear();
        let Some(token) = self.closing.get(done) else {
            self.state = State::Behind;
            return;
        };
        self.mask.resize(*token as usize / 32 + 1, 0);
        self.mask[*token as usize / 32] |= 1 << (token % 32);
        self.state = State::Closing(done);
    }

    /// Looks for the marks in what has come.
    fn look(&mut self, token: u32) {
        self.tail.extend_from_slice(self.tokenizer.token_bytes(token, true).unwrap_or_default());
        let (open, close) = (self.tags.open.as_bytes(), self.tags.close.as_bytes());
        if self.state == State::Before {
            let text = self.tail.trim_ascii_start();
            if let Some(rest) = text.strip_prefix(open) {
                self.tail = rest.to_vec();
                self.state = State::Within;
                self.spend(0);
            } else if !open.starts_with(text) {
                self.state = State::Behind;
            }
            return;
        }
        if self.tail.windows(close.len()).any(|window| window == close) {
            self.state = State::Behind;
            return;
        }
        let keep = self.tail.len().min(close.len() - 1);
        self.tail.drain(..self.tail.len() - keep);
        self.spend(1);
    }
}

impl Constraint for ThinkingBudget {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        match (self.state, &mut self.inner) {
            (State::Closing(_), _) => Ok(Some(&self.mask)),
            (_, Some(inner)) => inner.mask(),
            (_, None) => Ok(None),
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        match self.state {
            State::Before | State::Within => self.look(token),
            State::Closing(done) => self.close(done + 1),
            State::Behind => {}
        }
        self.inner.as_mut().map_or(Ok(()), |inner| inner.accept(token))
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: self.tokenizer.clone(),
            tags: self.tags,
            left: self.left,
            state: self.state,
            tail: self.tail.clone(),
            closing: self.closing.clone(),
            mask: self.mask.clone(),
            inner: self.inner.as_ref().map(|inner| inner.fork()),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Engine, Settings};

    /// What comes of a model that would say `wanted`, one token after the other, under a budget.
    fn say(wanted: &str, is_open: bool, tokens: usize) -> String {
        let file = smelt_testdata::data("tiny/llama3/llama3-f16.gguf");
        let engine = Engine::load(&file, &Settings::default()).unwrap();
        let tokenizer = engine.model().tokenizer();
        let tags = ThinkTags::of_template("</think>").unwrap();
        let mut budget: Box<dyn Constraint> =
            Box::new(ThinkingBudget::new(engine.model(), tags, is_open, tokens, None));
        let mut said = Vec::new();
        let mut wanted = tokenizer.encode(wanted, Special::Text, false).into_iter();
        loop {
            budget = budget.fork();
            let forced = budget.mask().unwrap().map(|mask| {
                let bits = |(i, word): (usize, &u32)| {
                    (word.count_ones() == 1).then(|| i as u32 * 32 + word.trailing_zeros())
                };
                mask.iter().enumerate().find_map(bits).unwrap()
            });
            let Some(token) = forced.or_else(|| wanted.next()) else { break };
            budget.accept(token).unwrap();
            said.push(token);
        }
        tokenizer.decode(&said, true)
    }

    #[test]
    fn a_block_is_closed_when_its_tokens_are_spent() {
        let closing = "\n</think>\n\n";
        // What closes itself in time, or is no block, is left alone.
        for (text, is_open) in [
            ("a b</think>c d e f g h", true),
            (" <think>a</think> b c d e f", false),
            ("no thoughts at all here", false),
        ] {
            assert_eq!(say(text, is_open, 9), text);
        }
        let cut = say("one two three four five six seven eight", true, 4);
        let (thought, rest) = cut.split_once(closing).unwrap();
        assert_eq!(format!("{thought}{rest}"), "one two three four five six seven eight");
        assert!(!thought.is_empty() && rest.len() > thought.len(), "{cut}");
        assert_eq!(say("answer", true, 0), format!("{closing}answer"));
        assert_eq!(say("<think>answer", false, 0), format!("<think>{closing}answer"));
    }
}
