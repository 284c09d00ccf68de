//! Where an answer is in its grammar.

use super::workers::Workers;
use crate::Constraint;
use llguidance::Matcher;
use llguidance::toktrie::SimpleVob;
use smelt_tokenizer::Tokenizer;
use std::cell::{RefCell, RefMut};
use std::sync::mpsc::Receiver;

/// A matcher, and the tokens that may come next. What a client's grammar makes impossible is told in a few words.
pub(super) struct Position {
    matcher: Matcher,
    mask: Result<SimpleVob, String>,
}

impl Position {
    /// The beginning.
    pub(super) fn new(matcher: Matcher) -> Self {
        let mut position = Self { matcher, mask: Err(String::new()) };
        position.compute();
        position
    }

    /// The tokens that may come next.
    pub(super) fn mask(&self) -> Result<&SimpleVob, &String> {
        self.mask.as_ref()
    }

    /// The place behind a text, of which no control token is a part.
    pub(super) fn behind(mut self, text: &[u8]) -> Self {
        let tokens = self.matcher.tok_env().map(|env| {
            let tokens = env.tok_trie().greedy_tokenize(text);
            (env.tok_trie().decode_raw(&tokens) == text).then_some(tokens)
        });
        match tokens.map(|tokens| tokens.map(|tokens| self.matcher.consume_tokens(&tokens))) {
            Ok(Some(Ok(()))) => self.compute(),
            Ok(None) => self.mask = Err("the vocabulary can't write it".into()),
            Ok(Some(Err(error))) | Err(error) => self.mask = Err(first_line(&error)),
        }
        self
    }

    /// Whether the answer is complete, and nothing may follow.
    fn is_over(&self) -> bool {
        let (Ok(mask), Ok(env)) = (&self.mask, self.matcher.tok_env()) else { return false };
        let ends = env.tok_trie().eos_token_set();
        mask.as_slice().iter().zip(ends.as_slice()).all(|(word, end)| word & !end == 0)
    }

    fn advance(mut self, token: u32) -> Self {
        match self.matcher.consume_token(token) {
            Ok(()) => self.compute(),
            Err(error) => self.mask = Err(first_line(&error)),
        }
        self
    }

    fn compute(&mut self) {
        self.mask = self.matcher.compute_mask_or_eos().map_err(|error| first_line(&error));
    }

    /// A copy that shares nothing, so that threads don't wait for one another.
    pub(super) fn copy(&self) -> Self {
        Self { matcher: self.matcher.deep_clone(), mask: self.mask.clone() }
    }
}

/// What llguidance says, in one line: without the state that it dumps behind it, and without the drawing of a regular
/// expression that doesn't parse.
pub(super) fn first_line(error: &(impl std::fmt::Display + ?Sized)) -> String {
    let text = format!("{error:#}");
    let mut lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let first = lines.next().unwrap_or("it is too complex");
    match lines.find_map(|line| line.strip_prefix("error: ")) {
        Some(more) => format!("{first} {more}"),
        None => first.to_owned(),
    }
}

enum State {
    Ready(Box<Position>),
    Computing(Receiver<Position>),
    /// A token ended the answer.
    Ended(Box<Position>),
    /// The threads are gone.
    Lost,
}

/// A grammar and an answer's place in it. The next mask is computed on another thread from the moment on that a token is
/// known.
pub(super) struct GrammarConstraint {
    state: RefCell<State>,
    tokenizer: Tokenizer,
    workers: Workers,
}

impl GrammarConstraint {
    pub(super) fn new(position: Position, tokenizer: Tokenizer, workers: Workers) -> Self {
        Self { state: State::Ready(Box::new(position)).into(), tokenizer, workers }
    }

    /// Waits for what is being computed.
    fn settle(state: &mut State) {
        if let State::Computing(receiver) = state {
            *state = receiver.recv().map_or(State::Lost, |position| State::Ready(Box::new(position)));
        }
    }
}

impl GrammarConstraint {
    /// Whether the answer is complete, and nothing may follow.
    pub(super) fn is_over(&mut self) -> bool {
        let state = self.state.get_mut();
        Self::settle(state);
        matches!(state, State::Ready(position) if position.is_over())
    }

    /// The same place, with nothing shared.
    pub(super) fn copy(&self) -> Self {
        let mut state: RefMut<'_, State> = self.state.borrow_mut();
        Self::settle(&mut state);
        let state = match &*state {
            State::Ready(position) => State::Ready(Box::new(position.copy())),
            State::Ended(position) => State::Ended(Box::new(position.copy())),
            State::Computing(_) | State::Lost => State::Lost,
        };
        Self { state: state.into(), tokenizer: self.tokenizer.clone(), workers: self.workers.clone() }
    }
}

const LOST: &str = "the threads that compute masks are gone";

impl Constraint for GrammarConstraint {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        let state = self.state.get_mut();
        Self::settle(state);
        match state {
            State::Ready(position) | State::Ended(position) => match position.mask() {
                Ok(mask) => Ok(Some(mask.as_slice())),
                Err(error) => Err(error.clone()),
            },
            State::Computing(_) | State::Lost => Err(LOST.into()),
        }
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        let state = self.state.get_mut();
        Self::settle(state);
        *state = match std::mem::replace(state, State::Lost) {
            // The end was allowed, and is all that is allowed behind it.
            State::Ready(position) if self.tokenizer.is_eog(token) => State::Ended(position),
            State::Ready(position) => State::Computing(self.workers.run(move || position.advance(token))),
            ended @ State::Ended(_) => ended,
            State::Computing(_) | State::Lost => return Err(LOST.into()),
        };
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        Box::new(self.copy())
    }
}
