//! SentencePiece's unigram model (`tokenizer.ggml.model = t5`): of all ways to spell a text, the likeliest.

use crate::charsmap::Charsmap;
use crate::error::Error;
use crate::source::VocabSource;
use crate::spm::SPACE;
use crate::vocab::{TokenKind, Vocab};
use aho_corasick::{AhoCorasick, Anchored, Input, MatchKind, StartKind};

/// How much less likely than the unlikeliest token an unknown character is (log-probability).
const UNKNOWN_PENALTY: f64 = 10.0;

#[derive(Debug)]
pub(crate) struct Unigram {
    /// Finds every token in a text, overlapping.
    tokens: AhoCorasick,
    /// Id and log-probability by pattern.
    entries: Vec<(u32, f64)>,
    /// User-defined tokens, which normalization leaves alone.
    user: AhoCorasick,
    charsmap: Option<Charsmap>,
    unk: u32,
    unknown_score: f64,
    escape: bool,
    merge_spaces: bool,
    prefix: bool,
    suffix: bool,
}

impl Unigram {
    pub(crate) fn new(vocab: &Vocab, source: &VocabSource, add_space: bool) -> Result<Self, Error> {
        let model = &source.model;
        let unk = vocab.special().unk;
        let unk = unk.ok_or_else(|| Error::MissingSpecial {
            key: "tokenizer.ggml.unknown_token_id",
            model: model.clone(),
        })?;
        let score = |id: u32| source.scores.get(id as usize).map_or(0.0, |&s| f64::from(s));
        let ids = 0..vocab.len() as u32;
        let normal = ids.clone().filter(|&id| vocab.kind(id) == Some(TokenKind::Normal));
        let min = normal.map(score).fold(f64::INFINITY, f64::min);
        let entries: Vec<(u32, f64)> = ids
            .clone()
            .filter(|&id| vocab.is_plain(id) && vocab.text(id).is_some_and(|t| !t.is_empty()))
            // Those that a person added always win over likely spellings by parts.
            .map(|id| (id, if is_user(vocab, id) { 0.0 } else { score(id) }))
            .collect();
        let texts = entries.iter().filter_map(|&(id, _)| vocab.text(id));
        let user =
            ids.filter(|&id| is_user(vocab, id)).filter_map(|id| vocab.text(id)).filter(|t| !t.is_empty());
        let failed =
            |e: aho_corasick::BuildError| Error::Automaton { what: "the vocabulary", reason: e.to_string() };
        let as_suffix = source.treat_whitespace_as_suffix.unwrap_or(false);
        Ok(Self {
            tokens: AhoCorasick::builder().build(texts).map_err(failed)?,
            entries,
            user: AhoCorasick::builder()
                .match_kind(MatchKind::LeftmostLongest)
                .start_kind(StartKind::Anchored)
                .build(user)
                .map_err(failed)?,
            charsmap: source.precompiled_charsmap.as_deref().map(Charsmap::new).transpose()?,
            unk,
            unknown_score: if min.is_finite() { min - UNKNOWN_PENALTY } else { -UNKNOWN_PENALTY },
            escape: source.escape_whitespaces.unwrap_or(true),
            merge_spaces: source.remove_extra_whitespaces.unwrap_or(false),
            prefix: add_space && !as_suffix,
            suffix: add_space && as_suffix,
        })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, text: &str, out: &mut Vec<u32>) {
        let text = self.normalize(text);
        // `best[end]` is the likeliest spelling of the first `end` bytes: its score, its last token and where that starts.
        let mut best = vec![(f64::NEG_INFINITY, self.unk, 0); text.len() + 1];
        best[0].0 = 0.0;
        let mut found = self.tokens.find_overlapping_iter(&text).peekable();
        for (start, c) in text.char_indices() {
            let end = start + c.len_utf8();
            let mut spelled = false;
            // Matches come by their end, and longest first among equal ends, so earlier starts win ties.
            while let Some(m) = found.next_if(|m| m.end() <= end) {
                let (id, score) = self.entries[m.pattern().as_usize()];
                spelled |= m.start() == start;
                offer(&mut best, m.start(), m.end(), score, id);
            }
            if !spelled {
                offer(&mut best, start, end, self.unknown_score, self.unk);
            }
        }
        let first = out.len();
        let mut at = text.len();
        let mut after_unknown = false;
        while at > 0 {
            let (_, id, start) = best[at];
            let unknown = id == self.unk;
            if !(unknown && after_unknown) {
                out.push(id);
            }
            after_unknown = unknown;
            at = start;
        }
        out[first..].reverse();
    }

    fn normalize(&self, text: &str) -> String {
        let space = if self.escape { SPACE } else { " " };
        let mut out = String::with_capacity(text.len() + text.len() / 4 + space.len());
        let (mut in_word, mut prefixed, mut at) = (false, false, 0);
        while at < text.len() {
            let (piece, consumed) = self.normalize_prefix(text, at);
            at += consumed;
            for c in piece.chars() {
                if c == ' ' {
                    in_word = false;
                    if !self.merge_spaces {
                        out.push_str(space);
                    }
                    continue;
                }
                if !in_word {
                    in_word = true;
                    if (self.prefix && !prefixed) || self.merge_spaces {
                        out.push_str(space);
                        prefixed = true;
                    }
                }
                out.push(c);
            }
        }
        if self.suffix {
            out.push_str(space);
        }
        out
    }

    /// What the start of `text[at..]` becomes, and how many bytes of it that takes.
    fn normalize_prefix<'a>(&'a self, text: &'a str, at: usize) -> (&'a str, usize) {
        let input = Input::new(text).range(at..).anchored(Anchored::Yes);
        if let Some(m) = self.user.find(input) {
            return (&text[m.range()], m.len());
        }
        let rest = &text[at..];
        if let Some((replacement, len)) = self.charsmap.as_ref().and_then(|map| map.longest(rest)) {
            return (replacement, len);
        }
        let len = rest.chars().next().map_or(rest.len(), char::len_utf8);
        (&rest[..len], len)
    }
}

fn is_user(vocab: &Vocab, id: u32) -> bool {
    vocab.kind(id) == Some(TokenKind::UserDefined)
}

fn offer(best: &mut [(f64, u32, usize)], start: usize, end: usize, score: f64, id: u32) {
    let score = best[start].0 + score;
    if score > best[end].0 || best[end].0 == f64::NEG_INFINITY {
        best[end] = (score, id, start);
    }
}
