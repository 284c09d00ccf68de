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
        let mut state: RefMut<'_, State> = self.state.borrow_mut();
        Self::settle(&mut state);
        let state = match &*state {
            State::Ready(position) => State::Ready(Box::new(position.copy())),
            State::Ended(position) => State::Ended(Box::new(position.copy())),
            State::Computing(_) | State::Lost => State::Lost,
        };
        Box::new(Self {
            state: state.into(),
            tokenizer: self.tokenizer.clone(),
            workers: self.workers.clone(),
        })
    }
}
