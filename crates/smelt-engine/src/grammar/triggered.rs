//! A constraint on the calls in what a model says, which begins where one begins.

use super::matcher::{GrammarConstraint, Position};
use super::workers::Workers;
use crate::Constraint;
use smelt_tokenizer::Tokenizer;
use smelt_tokenizer::answer::Trigger;
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::{Arc, Mutex, PoisonError};

/// Lets content pass, free or held to another constraint, and holds what begins with a trigger to the grammar of calls.
/// Free content may go on behind a call; where content is held, calls come instead of it.
pub(super) struct Triggered {
    shared: Arc<Shared>,
    state: State,
    is_free: bool,
    mask: Vec<u32>,
}

/// What all answers to a request share.
struct Shared {
    tokenizer: Tokenizer,
    workers: Workers,
    triggers: Vec<Trigger>,
    /// The beginning of a trigger and of its call.
    begin: Mutex<Position>,
    choices: Mutex<Choices>,
}

/// By what was said of a trigger, and where it stands.
type Choices = HashMap<(Vec<u8>, Place), Arc<Choice>>;

/// What may come next beside content, where some of a trigger was said. It doesn't depend on what was said before that.
struct Choice {
    /// The tokens that complete a trigger.
    completing: Vec<u32>,
    /// The tokens with which a call may go on.
    calls: Vec<u32>,
    /// The tokens that may come where content is free; `None` if all may.
    free: Option<Vec<u32>>,
}

enum State {
    Open(Open),
    Call(GrammarConstraint),
}

/// Content, in which a call may begin.
struct Open {
    content: Content,
    /// What was said of a trigger, if it becomes one.
    seen: Vec<u8>,
    /// Where that stands.
    place: Place,
}

enum Content {
    Free,
    Held(Box<dyn Constraint>),
    /// What was said is none: it is the beginning of a call.
    Over,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
enum Place {
    /// There was nothing but white space.
    First,
    /// There was nothing but white space since a call.
    BehindCall,
    Within,
}

impl Place {
    /// What of a text is not in front of all content.
    fn trim(self, text: &[u8]) -> &[u8] {
        let trimmed = text.trim_ascii_start();
        match self {
            Self::First => trimmed,
            Self::BehindCall => match trimmed.strip_prefix(b";").or_else(|| trimmed.strip_prefix(b",")) {
                Some(rest) => rest.trim_ascii_start(),
                None => trimmed,
            },
            Self::Within => text,
        }
    }
}

impl Triggered {
    /// `begin` is the place in front of a trigger. Content is free if no other constraint holds it.
    pub(super) fn new(
        (begin, workers): (Position, Workers),
        tokenizer: &Tokenizer,
        triggers: &[Trigger],
        content: Option<Box<dyn Constraint>>,
    ) -> Self {
        let shared = Shared {
            tokenizer: tokenizer.clone(),
            workers,
            triggers: triggers.to_vec(),
            begin: begin.into(),
            choices: Mutex::default(),
        };
        // The engine needs these for nearly every token of content.
        shared.choice(b"", Place::First);
        shared.choice(b"", Place::Within);
        let is_free = content.is_none();
        let content = content.map_or(Content::Free, Content::Held);
        let state = State::Open(Open { content, seen: Vec::new(), place: Place::First });
        Self { shared: shared.into(), state, is_free, mask: Vec::new() }
    }

    /// Goes on with content behind a call that is complete.
    fn settle(&mut self) {
        if let State::Call(call) = &mut self.state
            && self.is_free
            && call.is_over()
        {
            self.state =
                State::Open(Open { content: Content::Free, seen: Vec::new(), place: Place::BehindCall });
        }
    }
}

impl Shared {
    /// What a token writes, as a reader sees it: control tokens that are no marks write nothing.
    fn text(&self, token: u32) -> &[u8] {
        let bytes = self.tokenizer.token_bytes(token, true).unwrap_or_default();
        let mut marks = self.triggers.iter().filter(|trigger| !trigger.is_first);
        let is_shown = !self.tokenizer.is_special(token)
            || marks.any(|trigger| contains(trigger.text.as_bytes(), bytes));
        if is_shown { bytes } else { &[] }
    }

    /// Whether `text` makes a trigger complete behind what was `seen` of one.
    fn completes(&self, seen: &[u8], place: Place, text: &[u8]) -> bool {
        if text.is_empty() {
            return false;
        }
        let said = [seen, text].concat();
        let first = place.trim(&said);
        let is_complete = |trigger: &Trigger| {
            let trigger = (trigger.text.as_bytes(), trigger.is_first);
            match trigger {
                (trigger, true) => place != Place::Within && first.starts_with(trigger),
                (trigger, false) => contains(&said, trigger),
            }
        };
        self.triggers.iter().any(is_complete)
    }

    /// Whether a trigger may begin with this.
    fn begins(&self, text: &[u8], place: Place) -> bool {
        let may = |trigger: &&Trigger| place != Place::Within || !trigger.is_first;
        self.triggers.iter().filter(may).any(|trigger| trigger.text.as_bytes().starts_with(text))
    }

    /// The place in the grammar of calls behind the beginning of a trigger.
    fn position(&self, seen: &[u8]) -> Position {
        self.begin.lock().unwrap_or_else(PoisonError::into_inner).copy().behind(seen)
    }

    fn choice(&self, seen: &[u8], place: Place) -> Arc<Choice> {
        let key = (seen.to_vec(), place);
        let mut choices = self.choices.lock().unwrap_or_else(PoisonError::into_inner);
        choices.entry(key).or_insert_with(|| self.compute(seen, place).into()).clone()
    }

    fn compute(&self, seen: &[u8], place: Place) -> Choice {
        let size = self.tokenizer.vocab_size();
        // A token completes a trigger with one of these at its beginning, or with all of it.
        let ends: HashSet<&[u8]> = (0..=seen.len())
            .flat_map(|from| {
                self.triggers.iter().map(move |trigger| (trigger.text.as_bytes(), &seen[from..]))
            })
            .filter_map(|(trigger, seen)| trigger.strip_prefix(seen))
            .collect();
        let lengths: BTreeSet<usize> = ends.iter().map(|end| end.len()).collect();
        let shortest = self.triggers.iter().map(|trigger| trigger.text.len()).min().unwrap_or(usize::MAX);
        let mut completing = vec![0_u32; size.div_ceil(32)];
        for id in (0..).take(size) {
            let text = self.text(id);
            let mut heads = lengths.range(..=text.len()).map(|length| &text[..*length]);
            let may = text.len() >= shortest || heads.any(|head| ends.contains(head));
            if may && self.completes(seen, place, text) {
                completing[id as usize / 32] |= 1 << (id % 32);
            }
        }
        let mut calls =
            self.position(seen).mask().map_or_else(|_| Vec::new(), |mask| mask.as_slice().to_vec());
        calls.resize(completing.len(), 0);
        let allowed: Vec<u32> =
            completing.iter().zip(&calls).map(|(completing, call)| !completing | call).collect();
        let free = allowed.iter().any(|word| *word != u32::MAX).then_some(allowed);
        Choice { completing, calls, free }
    }
}

impl Open {
    /// Takes text that completes no trigger.
    fn advance(&mut self, shared: &Shared, text: &[u8]) {
        let said = [&self.seen, text].concat();
        if self.place != Place::Within {
            let first = self.place.trim(&said);
            if first.is_empty() || shared.begins(first, self.place) {
                // White space may have to be seen again, for what follows it.
                self.seen = if first.is_empty() { said } else { first.to_vec() };
                return;
            }
            self.place = Place::Within;
        }
        let begins = |from: &usize| shared.begins(&said[*from..], Place::Within);
        let from = (0..said.len()).find(begins).unwrap_or(said.len());
        self.seen = said[from..].to_vec();
    }
}

impl Constraint for Triggered {
    fn mask(&mut self) -> Result<Option<&[u32]>, String> {
        self.settle();
        let open = match &mut self.state {
            State::Call(call) => return call.mask(),
            State::Open(open) => open,
        };
        let choice = |open: &Open| self.shared.choice(open.place.trim(&open.seen), open.place);
        match &open.content {
            Content::Free => match &choice(open).free {
                None => return Ok(None),
                Some(free) => self.mask.clone_from(free),
            },
            Content::Over => self.mask.clone_from(&choice(open).calls),
            Content::Held(_) => {
                let choice = (open.place != Place::Within).then(|| choice(open));
                let Content::Held(content) = &mut open.content else { return Ok(None) };
                let content = content.mask()?;
                let Some(choice) = choice else { return Ok(content) };
                self.mask.clone_from(&choice.calls);
                let all = |i: usize| content.map_or(u32::MAX, |content| content.get(i).copied().unwrap_or(0));
                let words = self.mask.iter_mut().zip(&choice.completing).enumerate();
                words.for_each(|(i, (word, completing))| *word |= all(i) & !completing);
            }
        }
        Ok(Some(&self.mask))
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.settle();
        let shared = &self.shared;
        let open = match &mut self.state {
            State::Call(call) => return call.accept(token),
            State::Open(open) => open,
        };
        let text = shared.text(token);
        let may_trigger = open.place != Place::Within || matches!(open.content, Content::Free);
        if may_trigger && shared.completes(&open.seen, open.place, text) {
            let position = shared.position(open.place.trim(&open.seen));
            let mut call = GrammarConstraint::new(position, shared.tokenizer.clone(), shared.workers.clone());
            call.accept(token)?;
            self.state = State::Call(call);
            return Ok(());
        }
        if let Content::Held(content) = &mut open.content {
            let is_content = content.mask()?.is_none_or(|mask| allows(mask, token));
            match is_content {
                true => content.accept(token)?,
                false => open.content = Content::Over,
            }
        }
        open.advance(shared, text);
        if may_trigger && !open.seen.is_empty() {
            // While the engine computes the step, as far as it isn't known yet; who asks for it waits for it.
            let (known, seen, place) = (shared.clone(), open.place.trim(&open.seen).to_vec(), open.place);
            drop(shared.workers.run(move || drop(known.choice(&seen, place))));
        }
        Ok(())
    }

    fn fork(&self) -> Box<dyn Constraint> {
        let state = match &self.state {
            State::Call(call) => State::Call(call.copy()),
            State::Open(Open { content, seen, place }) => {
                let content = match content {
                    Content::Free => Content::Free,
                    Content::Held(content) => Content::Held(content.fork()),
                    Content::Over => Content::Over,
                };
                State::Open(Open { content, seen: seen.clone(), place: *place })
            }
        };
        Box::new(Self { shared: self.shared.clone(), state, is_free: self.is_free, mask: Vec::new() })
    }
}

/// Whether a set has a token.
pub(super) fn allows(mask: &[u32], token: u32) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    !part.is_empty() && text.windows(part.len()).any(|window| window == part)
}
