//! BERT's WordPiece (`tokenizer.ggml.model = bert`).
//!
//! Text is cleaned, split at white space, punctuation and Chinese characters, and each word is spelled by the longest
//! token that fits, again and again. GGUF vocabularies mark tokens that start a word with U+2581 instead of marking the
//! others with `##`.

use crate::error::Error;
use crate::source::VocabSource;
use crate::spm::SPACE;
use crate::vocab::Vocab;
use unicode_normalization::UnicodeNormalization;
use unicode_properties::{GeneralCategory, GeneralCategoryGroup, UnicodeGeneralCategory};

/// Longer words are unknown, as in the reference tokenizer.
const MAX_WORD_CHARS: usize = 100;

#[derive(Debug)]
pub(crate) struct WordPiece {
    unk: u32,
    lowercase: bool,
    strip_accents: bool,
}

impl WordPiece {
    pub(crate) fn new(vocab: &Vocab, source: &VocabSource) -> Result<Self, Error> {
        let model = &source.model;
        let unk = vocab.special().unk;
        let unk = unk.ok_or_else(|| Error::MissingSpecial {
            key: "tokenizer.ggml.unknown_token_id",
            model: model.clone(),
        })?;
        // Files from before these keys existed hold uncased models.
        let lowercase = source.lowercase.unwrap_or(true);
        Ok(Self { unk, lowercase, strip_accents: source.strip_accents.unwrap_or(lowercase) })
    }

    /// Appends the ids of `text`.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, out: &mut Vec<u32>) {
        let mut word = String::from(SPACE);
        let mut flush = |word: &mut String| {
            if word.len() > SPACE.len() {
                self.encode_word(vocab, word, out);
                word.truncate(SPACE.len());
            }
        };
        let mut take = |c: char| {
            if self.strip_accents && c.general_category() == GeneralCategory::NonspacingMark {
                return;
            }
            if is_apart(c) {
                flush(&mut word);
                self.push_lower(&mut word, c);
                flush(&mut word);
            } else if c.is_whitespace() {
                flush(&mut word);
            } else if !is_dropped(c) {
                self.push_lower(&mut word, c);
            }
        };
        if self.strip_accents {
            text.nfd().for_each(&mut take);
        } else {
            text.chars().for_each(&mut take);
        }
        // One more space ends the last word.
        take(' ');
    }

    fn push_lower(&self, word: &mut String, c: char) {
        if self.lowercase {
            word.extend(c.to_lowercase());
        } else {
            word.push(c);
        }
    }

    fn encode_word(&self, vocab: &Vocab, word: &str, out: &mut Vec<u32>) {
        if word.chars().count() > MAX_WORD_CHARS + 1 {
            out.push(self.unk);
            return;
        }
        let before = out.len();
        let mut at = 0;
        while at < word.len() {
            let rest = &word[at..];
            let ends = rest.char_indices().rev().map(|(i, c)| i + c.len_utf8());
            let fit = ends.filter(|&end| end <= vocab.max_token_len()).find_map(|end| {
                let id = vocab.plain_id(&rest[..end])?;
                Some((end, id))
            });
            let Some((end, id)) = fit else {
                out.truncate(before);
                out.push(self.unk);
                return;
            };
            out.push(id);
            at += end;
        }
    }
}

/// Control characters vanish; tab and newlines are white space and never get here.
fn is_dropped(c: char) -> bool {
    c == '\0' || c == char::REPLACEMENT_CHARACTER || c.general_category_group() == GeneralCategoryGroup::Other
}

/// Characters that are words by themselves.
fn is_apart(c: char) -> bool {
    c.is_ascii_punctuation()
        || c.general_category_group() == GeneralCategoryGroup::Punctuation
        || is_chinese(c)
}

/// The blocks of the reference tokenizer, with its own slip in the sixth (it starts at 2B920, not 2B820).
fn is_chinese(c: char) -> bool {
    matches!(u32::from(c),
        0x4E00..=0x9FFF | 0x3400..=0x4DBF | 0x20000..=0x2A6DF | 0x2A700..=0x2B73F | 0x2B740..=0x2B81F
        | 0x2B920..=0x2CEAF | 0xF900..=0xFAFF | 0x2F800..=0x2FA1F)
}
