//! A constraint on what a model says when it has thought.

use super::triggered::allows;
use crate::Constraint;
use smelt_tokenizer::Tokenizer;
use smelt_tokenizer::answer::ThinkTags;
use std::sync::Arc;

/// Tokens of white space that may stand between thoughts and the answer.
const MOST_SPACES: usize = 2;

/// Lets a think block pass, and holds what is behind it to another constraint.
pub(super) struct Thoughts {
    tokenizer: Tokenizer,
    tags: &'static ThinkTags,
    sets: Arc<Sets>,
    state: State,
    /// Bytes that may belong to a tag.
    seen: Vec<u8>,
    mask: Vec<u32>,
    then: Box<dyn Constraint>,
    /// The other constraint behind the part of the opening tag that came, as long as that may be the answer too.
    instead: Option<Box<dyn Constraint>>,
}

/// Sets of tokens that don't depend on what was said.
struct Sets {
    /// All but those that end an answer.
    open: Vec<u32>,
    /// Nothing but white space.
    space: Vec<u32>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Nothing but white space came, or a part of the opening tag. Without a block the other constraint holds from the
    /// beginning.
    Before,
    Within,
    /// The block is closed, and so many tokens of white space came.
    Between(usize),
    Behind,
}

impl Thoughts {
    /// `is_open` says that the prompt has opened the block.
    pub(super) fn new(
        tokenizer: &Tokenizer,
        tags: &'static ThinkTags,
        is_open: bool,
        then: Box<dyn Constraint>,
    ) -> Self {
        let state = if is_open { State::Within } else { State::Before };
        let is_space = |id: u32, bytes: &[u8]| !tokenizer.is_special(id) && bytes.trim_ascii().is_empty();
        let sets = Sets {
            open: set(tokenizer, |id, _| !tokenizer.is_eog(id)),
            space: set(tokenizer, |id, bytes| !bytes.is_empty() && is_space(id, bytes)),
        };
        Self {
            tokenizer: tokenizer.clone(),
            tags,
            sets: sets.into(),
            state,
            seen: Vec::new(),
            mask: Vec::new(),
            then,
            instead: None,
        }
    }

    /// Tokens that begin the opening tag or go on with it.
    fn opening(&self) -> Vec<u32> {
        let open = self.tags.open.trim_end().as_bytes();
        let rest = open.strip_prefix(self.seen.as_slice()).unwrap_or_default();
        set(&self.tokenizer, |_, bytes| {
            let bytes = if self.seen.is_empty() { bytes.trim_ascii_start() } else { bytes };
            !bytes.is_empty() && (rest.starts_with(bytes) || bytes.starts_with(rest))
        })
    }

    /// All tokens but those that would close the block and go on with the answer at once, which nothing would check.
    fn within(&self) -> Option<Vec<u32>> {
        let close = self.tags.close.as_bytes();
        let begun = (1..close.len()).rev().find(|n| self.seen.ends_with(&close[..*n]))?;
        let goes_on = set(&self.tokenizer, |_, bytes| {
            bytes.strip_prefix(&close[begun..]).is_some_and(|rest| !rest.trim_ascii().is_empty())
        });
        Some(self.sets.open.iter().zip(goes_on).map(|(open, not)| open & !not).collect())
    }

    fn look(&mut self, token: u32) {
        let bytes = self.tokenizer.token_bytes(token, true).unwrap_or_default();
        self.seen.extend_from_slice(bytes);
        let close = self.tags.close.as_bytes();
        if let Some(at) = self.seen.windows(close.len()).position(|window| window == close) {
            let spaces = usize::from(at + close.len() < self.seen.len());
            self.state = State::Between(spaces);
            return;
        }
        let keep = self.seen.len().min(close.len() - 1);
        self.seen.drain(..self.seen.len() - keep);
    }

    /// Takes a token at the beginning; whether it belongs to the opening tag.
    fn opens(&mut self, token: u32) -> bool {
        let bytes = self.tokenizer.token_bytes(token, true).unwrap_or_default();
        let bytes = if self.seen.is_empty() { bytes.trim_ascii_start() } else { bytes };
        let seen = [&self.seen, bytes].concat();
        let open = self.tags.open.trim_end().as_bytes();
        if let Some(rest) = seen.strip_prefix(open) {
            self.seen = rest.to_vec();
            self.state = State::Within;
            return true;
        }
        let is_part = !bytes.is_empty() && open.starts_with(&seen);
        if is_part {
            self.seen = seen;
        }
        is_part
    }
}

/// The tokens that a condition holds for.
fn set(tokenizer: &Tokenizer, holds: impl Fn(u32, &[u8]) -> bool) -> Vec<u32> {
    let size = tokenizer.vocab_size();
    let mut mask = vec![0_u32; size.div_ceil(32)];
    for id in (0..).take(size) {
        if holds(id, tokenizer.token_bytes(id, true).unwrap_or_default()) {
            mask[id as usize / 32] |= 1 << (id % 32);
        }
    }
    mask
}

/// What `then` allows, and `also`.
fn join(then: &mut dyn Constraint, also: &[u32], out: &mut Vec<u32>) -> Result<(), String> {
    out.clear();
    match then.mask()? {
        None => out.resize(also.len(), u32::MAX),
        Some(mask) => out.extend_from_slice(mask),
    }
    out.resize(out.len().max(also.len()), 0);
    out.iter_mut().zip(also).for_each(|(word, also)| *word |= also);
    Ok(())
}

/// The constraint behind a token, if it allows it.
fn passed(mut constraint: Box<dyn Constraint>, token: u32) -> Result<Option<Box<dyn Constraint>>, String> {
    if !constraint.mask()?.is_none_or(|mask| allows(mask, token)) {
        return Ok(None);
    }
    constraint.accept(token)?;
    Ok(Some(constraint))
}

impl Constraint for Thoughts {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        match self.state {
            State::Behind => return self.then.mask(),
            State::Between(spaces) if spaces >= MOST_SPACES => return self.then.mask(),
            State::Between(_) => join(&mut *self.then, &self.sets.space, &mut self.mask)?,
            State::Within => match self.within() {
                None => return Ok(Some(&self.sets.open)),
                Some(mask) => self.mask = mask,
            },
            State::Before if self.seen.is_empty() => {
                let opening = self.opening();
                join(&mut *self.then, &opening, &mut self.mask)?;
            }
            State::Before => {
                let opening = self.opening();
                match &mut self.instead {
                    Some(instead) => join(&mut **instead, &opening, &mut self.mask)?,
                    None => self.mask = opening,
                }
            }
        }
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let is_space =
            self.sets.space.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1);
        match self.state {
            State::Within => {
                self.look(token);
                return Ok(());
            }
            State::Between(spaces) if is_space && spaces < MOST_SPACES => {
                self.state = State::Between(spaces + 1);
                return Ok(());
            }
            State::Before if is_space && self.seen.is_empty() => return self.then.accept(token),
            State::Before => {
                let instead = if self.seen.is_empty() { Some(self.then.fork()) } else { self.instead.take() };
                if self.opens(token) {
                    if self.state == State::Before {
                        self.instead = instead.map(|instead| passed(instead, token)).transpose()?.flatten();
                    }
                    return Ok(());
                }
                self.then = instead.ok_or("the opening tag of thoughts was not gone on with")?;
            }
            State::Between(_) | State::Behind => {}
        }
        self.state = State::Behind;
        self.then.accept(token)
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(Self {
            tokenizer: self.tokenizer.clone(),
            tags: self.tags,
            sets: self.sets.clone(),
            state: self.state,
            seen: self.seen.clone(),
            mask: Vec::new(),
            then: self.then.fork(),
            instead: self.instead.as_ref().map(|instead| instead.fork()),
        })
    }
}
