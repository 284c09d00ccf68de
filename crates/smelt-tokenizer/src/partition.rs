//! Finds special and user-defined tokens in a text before it is split into words.

use crate::error::Error;
use crate::vocab::{TokenKind, Vocab};
use aho_corasick::{AhoCorasick, Input, MatchKind};
use std::ops::Range;

/// A part of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fragment<'t> {
    Token(u32),
    Text(&'t str),
}

/// Leftmost-longest search over the texts of one set of tokens.
#[derive(Debug)]
struct Finder {
    automaton: AhoCorasick,
    ids: Vec<u32>,
}

impl Finder {
    /// The leftmost match from byte `at` on, and of several the longest.
    fn find(&self, text: &str, at: usize) -> Option<(u32, Range<usize>)> {
        let found = self.automaton.find(Input::new(text).range(at..))?;
        Some((self.ids[found.pattern().as_usize()], found.range()))
    }

    fn new(vocab: &Vocab, ids: Vec<u32>) -> Result<Option<Self>, Error> {
        if ids.is_empty() {
            return Ok(None);
        }
        let texts = ids.iter().filter_map(|&id| vocab.text(id));
        let automaton = AhoCorasick::builder()
            .match_kind(MatchKind::LeftmostLongest)
            .build(texts)
            .map_err(|e| Error::Automaton { what: "the special tokens", reason: e.to_string() })?;
        Ok(Some(Self { automaton, ids }))
    }
}

#[derive(Debug)]
pub(crate) struct Partition {
    /// With control and unknown tokens, for what a template wrote.
    all: Option<Finder>,
    /// User-defined tokens only, for what a user wrote.
    user: Option<Finder>,
}

impl Partition {
    pub(crate) fn new(vocab: &Vocab) -> Result<Self, Error> {
        let all = vocab.partition_ids();
        let user = all.iter().copied().filter(|&id| vocab.kind(id) == Some(TokenKind::UserDefined)).collect();
        Ok(Self { all: Finder::new(vocab, all)?, user: Finder::new(vocab, user)? })
    }

    /// The first control token that stands in `text`, and where.
    pub(crate) fn find_control(&self, vocab: &Vocab, text: &str) -> Option<(u32, Range<usize>)> {
        let mut at = 0;
        loop {
            let (id, found) = self.all.as_ref()?.find(text, at)?;
            if vocab.kind(id) == Some(TokenKind::Control) {
                return Some((id, found));
            }
            at = found.end;
        }
    }

    /// Calls `each` with the parts of `text` in order; texts are never empty. Control and unknown tokens are found only
    /// outside of `user` (sorted, disjoint byte ranges); what a user wrote stays text across its own borders.
    pub(crate) fn split<'t>(
        &self,
        vocab: &Vocab,
        text: &'t str,
        user: &[Range<usize>],
        mut each: impl FnMut(Fragment<'t>),
    ) {
        let mut at = 0;
        while let Some((id, found)) = self.next(vocab, text, user, at) {
            let (strip_left, strip_right) = vocab.strips(id);
            let mut before = &text[at..found.start];
            if strip_left {
                before = before.trim_end_matches(is_c_space);
            }
            if !before.is_empty() {
                each(Fragment::Text(before));
            }
            each(Fragment::Token(id));
            at = found.end;
            if strip_right {
                let rest = &text[at..];
                at += rest.len() - rest.trim_start_matches(is_c_space).len();
            }
        }
        if at < text.len() {
            each(Fragment::Text(&text[at..]));
        }
    }

    /// The first token from byte `at` on, the longest of those that begin there.
    fn next(
        &self,
        vocab: &Vocab,
        text: &str,
        user: &[Range<usize>],
        at: usize,
    ) -> Option<(u32, Range<usize>)> {
        let plain = self.user.as_ref().and_then(|finder| finder.find(text, at));
        let mut from = at;
        let special = loop {
            let Some((id, found)) = self.all.as_ref().and_then(|finder| finder.find(text, from)) else {
                break None;
            };
            if plain.as_ref().is_some_and(|(_, p)| p.start < found.start) {
                break None;
            }
            let written_by_user = {
                let next = user.partition_point(|r| r.end <= found.start);
                user.get(next).is_some_and(|r| r.start < found.end)
            };
            if vocab.kind(id) == Some(TokenKind::UserDefined) || !written_by_user {
                break Some((id, found));
            }
            from = found.start + text[found.start..].chars().next().map_or(1, char::len_utf8);
        };
        match (special, plain) {
            (Some(s), Some(p)) if p.1.start < s.1.start => Some(p),
            (Some(s), Some(p)) if p.1.start == s.1.start && p.1.end > s.1.end => Some(p),
            (s, p) => s.or(p),
        }
    }
}

/// C's `isspace` in the C locale.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}
