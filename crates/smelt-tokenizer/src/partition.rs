//! Finds special and user-defined tokens in a text before it is split into words.

use crate::error::Error;
use crate::source::Special;
use crate::vocab::{TokenKind, Vocab};
use aho_corasick::{AhoCorasick, Input, MatchKind};

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
    /// With control and unknown tokens, for [`Special::Parse`].
    all: Option<Finder>,
    /// User-defined tokens only, for [`Special::Text`].
    user: Option<Finder>,
}

impl Partition {
    pub(crate) fn new(vocab: &Vocab) -> Result<Self, Error> {
        let all = vocab.partition_ids();
        let user = all.iter().copied().filter(|&id| vocab.kind(id) == Some(TokenKind::UserDefined)).collect();
        Ok(Self { all: Finder::new(vocab, all)?, user: Finder::new(vocab, user)? })
    }

    /// Calls `each` with the parts of `text` in order; texts are never empty.
    pub(crate) fn split<'t>(
        &self,
        vocab: &Vocab,
        text: &'t str,
        special: Special,
        mut each: impl FnMut(Fragment<'t>),
    ) {
        let finder = match special {
            Special::Parse => &self.all,
            Special::Text => &self.user,
        };
        let mut at = 0;
        if let Some(finder) = finder {
            while let Some(found) = finder.automaton.find(Input::new(text).range(at..)) {
                let id = finder.ids[found.pattern().as_usize()];
                let (strip_left, strip_right) = vocab.strips(id);
                let mut before = &text[at..found.start()];
                if strip_left {
                    before = before.trim_end_matches(is_c_space);
                }
                if !before.is_empty() {
                    each(Fragment::Text(before));
                }
                each(Fragment::Token(id));
                at = found.end();
                if strip_right {
                    let rest = &text[at..];
                    at += rest.len() - rest.trim_start_matches(is_c_space).len();
                }
            }
        }
        if at < text.len() {
            each(Fragment::Text(&text[at..]));
        }
    }
}

/// C's `isspace` in the C locale.
fn is_c_space(c: char) -> bool {
    matches!(c, ' ' | '\t' | '\n' | '\u{b}' | '\u{c}' | '\r')
}
