//! Byte-pair encoding with a merge list (`tokenizer.ggml.model = gpt2` and `gemma4`).
//!
//! Text is split into words, words into bytes (or characters, where the vocabulary holds plain text), and neighbours
//! merge in the order of the merge list.

use crate::error::Error;
use crate::merge::{Merger, NONE};
use crate::pre::Pre;
use crate::source::Strictness;
use crate::split::Splitter;
use crate::spm::{SPACE, push_bytes};
use crate::vocab::{Vocab, byte_level_encode};
use hashbrown::{DefaultHashBuilder, HashMap, HashTable};
use std::borrow::Cow;
use std::hash::BuildHasher;
use std::ops::Range;
use unicode_normalization::{IsNormalized, UnicodeNormalization, is_nfc_quick};

#[derive(Debug)]
pub(crate) struct Bpe {
    pre: &'static Pre,
    splitter: Splitter,
    /// `(left id, right id)` to `(rank, id of the union)`.
    pairs: HashMap<(u32, u32), (u32, u32)>,
    /// The token of each byte, [`NONE`] where there is none.
    bytes: Box<[u32; 256]>,
    /// Plain tokens by what they decode to, for words that are tokens as a whole.
    by_bytes: HashTable<u32>,
    hasher: DefaultHashBuilder,
}

/// Buffers that words share.
#[derive(Debug, Default)]
struct Scratch {
    words: Vec<Range<usize>>,
    spare: Vec<Range<usize>>,
}

impl Bpe {
    pub(crate) fn new(
        vocab: &Vocab,
        pre: &'static Pre,
        merges: &[String],
        model: &str,
        strict: Strictness,
    ) -> Result<Self, Error> {
        if merges.is_empty() {
            return Err(Error::MissingMerges { model: model.into() });
        }
        let mut bpe = Self {
            pre,
            splitter: Splitter::new(pre.steps)?,
            pairs: HashMap::with_capacity(merges.len()),
            bytes: if pre.byte_level { byte_level_tokens(vocab) } else { vocab.byte_tokens() },
            by_bytes: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
        };
        bpe.read_merges(vocab, merges, strict)?;
        if pre.ignore_merges || pre.whole_newlines {
            bpe.index_bytes(vocab);
        }
        Ok(bpe)
    }

    fn read_merges(&mut self, vocab: &Vocab, merges: &[String], strict: Strictness) -> Result<(), Error> {
        for (index, merge) in merges.iter().enumerate() {
            // A piece may itself start with a space, so the separator is looked for behind the first character.
            let first = merge.chars().next().map_or(0, char::len_utf8);
            let parts = merge[first..].find(' ').map(|at| (&merge[..first + at], &merge[first + at + 1..]));
            let Some((left, right)) = parts.filter(|(_, right)| !right.is_empty()) else {
                return Err(Error::MalformedMerge { index, merge: merge.clone() });
            };
            let union = [left, right].concat();
            let ids = [left, right, &union].map(|piece| vocab.id_of(piece).ok_or(piece));
            let [left, right, union] = match ids {
                [Ok(left), Ok(right), Ok(union)] => [left, right, union],
                _ if strict == Strictness::Force => continue,
                ids => {
                    let piece = ids.into_iter().find_map(Result::err).unwrap_or_default().to_string();
                    return Err(Error::MergeUnknownPiece { index, merge: merge.clone(), piece });
                }
            };
            // Merging may never arrive at a control token: text from a user would turn into one.
            if vocab.is_plain(union) {
                self.pairs.entry((left, right)).or_insert((index as u32, union));
            }
        }
        Ok(())
    }

    fn index_bytes(&mut self, vocab: &Vocab) {
        let Self { by_bytes, hasher, .. } = self;
        let hash = |id: u32| hasher.hash_one(vocab.bytes(id).unwrap_or_default());
        for id in (0..vocab.len() as u32).filter(|&id| vocab.is_plain(id)) {
            if vocab.bytes(id).is_some_and(|b| !b.is_empty()) {
                by_bytes.insert_unique(hash(id), id, |&other| hash(other));
            }
        }
    }

    fn whole(&self, vocab: &Vocab, word: &[u8]) -> Option<u32> {
        self.by_bytes.find(self.hasher.hash_one(word), |&id| vocab.bytes(id) == Some(word)).copied()
    }

    /// Appends the ids of `text`, which holds no special tokens.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let mut scratch = Scratch::default();
        let mut text = Cow::Borrowed(text);
        if self.pre.nfc && is_nfc_quick(text.chars()) != IsNormalized::Yes {
            text = Cow::Owned(text.nfc().collect());
        }
        if !self.pre.byte_level {
            text = Cow::Owned(self.escape_spaces(&text));
        }
        self.splitter.split(&text, &mut scratch.words, &mut scratch.spare);
        for word in &scratch.words {
            self.encode_word(vocab, &text[word.clone()], merger, out);
        }
    }

    fn escape_spaces(&self, text: &str) -> String {
        let escaped = text.replace(' ', SPACE);
        if !self.splitter.has_metaspace() {
            return escaped;
        }
        let prefixed = |line: &str| {
            let bare = !line.trim_end_matches('\n').is_empty() && !line.starts_with(SPACE);
            if bare { [SPACE, line].concat() } else { line.to_string() }
        };
        escaped.split_inclusive('\n').map(prefixed).collect()
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        let newlines = || self.pre.whole_newlines && word.bytes().all(|b| b == b'\n');
        if self.pre.ignore_merges || newlines() {
            // The index holds what tokens decode to, where a space is a space.
            let plain =
                if self.pre.byte_level { Cow::Borrowed(word) } else { Cow::Owned(word.replace(SPACE, " ")) };
            if let Some(id) = self.whole(vocab, plain.as_bytes()) {
                out.push(id);
                return;
            }
        }
        merger.clear();
        if self.pre.byte_level {
            for (at, byte) in word.bytes().enumerate() {
                merger.push(at as u32, 1, self.bytes[usize::from(byte)]);
            }
        } else {
            for (at, c) in word.char_indices() {
                let len = c.len_utf8();
                merger.push(at as u32, len as u32, vocab.plain_id(&word[at..at + len]).unwrap_or(NONE));
            }
        }
        merger.run(|l, r| self.pairs.get(&(l.id, r.id)).copied());
        for symbol in merger.symbols() {
            if symbol.id != NONE {
                out.push(symbol.id);
            } else if self.pre.byte_level {
                out.extend(vocab.special().unk);
            } else {
                push_bytes(
                    vocab,
                    &self.bytes,
                    &word[symbol.start as usize..(symbol.start + symbol.len) as usize],
                    out,
                );
            }
        }
    }
}

/// The token of each byte's stand-in, [`NONE`] where the vocabulary lacks it.
fn byte_level_tokens(vocab: &Vocab) -> Box<[u32; 256]> {
    let mut table = Box::new([NONE; 256]);
    for (byte, slot) in (0..=255u8).zip(table.iter_mut()) {
        let mut buffer = [0; 4];
        *slot = vocab.plain_id(byte_level_encode(byte).encode_utf8(&mut buffer)).unwrap_or(NONE);
    }
    table
}
