//! Tokens, their kinds and texts, roles, and the set that ends a generation.

use crate::error::Error;
use crate::merge::NONE;
use crate::source::{SpecialIds, Strictness, VocabSource};
use crate::specials::{ALWAYS_SHOWN, END_TEXTS, END_TEXTS_IF_CONTROL, NOT_ENDS, ROLES, STRIP_RULES};
use crate::spm::SPACE;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;

/// What a token is (`tokenizer.ggml.token_type`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Text.
    Normal,
    /// Stands for what can't be spelled.
    Unknown,
    /// Steers the model; never text.
    Control,
    /// Text that is found before anything else is split.
    UserDefined,
    /// Text that training never used.
    Unused,
    /// One byte, `<0xHH>`.
    Byte,
}

impl TokenKind {
    fn from_gguf(code: i32) -> Self {
        match code {
            2 => Self::Unknown,
            3 => Self::Control,
            4 => Self::UserDefined,
            5 => Self::Unused,
            6 => Self::Byte,
            _ => Self::Normal,
        }
    }
}

/// How normal tokens are written in the vocabulary.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Spelling {
    /// As text whose spaces are U+2581.
    Escaped,
    /// As GPT-2's printable stand-ins for bytes.
    ByteLevel,
}

#[derive(Debug, Default, Clone, Copy)]
struct Flags {
    strip_left: bool,
    strip_right: bool,
    shown: bool,
}

#[derive(Debug)]
pub(crate) struct Vocab {
    texts: Vec<String>,
    kinds: Vec<TokenKind>,
    flags: Vec<Flags>,
    hasher: DefaultHashBuilder,
    /// Ids by text, of every token that has one.
    by_text: HashTable<u32>,
    /// What each id decodes to: `bytes[ends[id - 1]..ends[id]]`.
    bytes: Vec<u8>,
    ends: Vec<usize>,
    special: SpecialIds,
    eog: Vec<u32>,
    max_token_len: usize,
}

impl Vocab {
    pub(crate) fn new(
        source: &mut VocabSource,
        spelling: Spelling,
        strict: Strictness,
    ) -> Result<Self, Error> {
        let count = source.tokens.len();
        if count == 0 {
            return Err(Error::Empty);
        }
        let limit = NONE as usize;
        if count >= limit {
            return Err(Error::TooManyTokens { count, limit });
        }
        check_len("tokenizer.ggml.scores", source.scores.len(), count)?;
        check_len("tokenizer.ggml.token_type", source.token_types.len(), count)?;
        if let Some(index) = source.scores.iter().position(|s| s.is_nan()) {
            return Err(Error::BadScore { index });
        }
        let mut kinds: Vec<_> = source.token_types.iter().map(|&t| TokenKind::from_gguf(t)).collect();
        kinds.resize(count, TokenKind::Normal);
        let texts = std::mem::take(&mut source.tokens);
        let max_token_len = texts.iter().map(String::len).max().unwrap_or(0);
        let mut vocab = Self {
            flags: vec![Flags::default(); count],
            hasher: DefaultHashBuilder::default(),
            by_text: HashTable::with_capacity(count),
            bytes: Vec::new(),
            ends: Vec::with_capacity(count),
            special: source.special,
            eog: Vec::new(),
            max_token_len,
            texts,
            kinds,
        };
        vocab.index_texts(strict)?;
        vocab.fill_roles(&source.eog)?;
        vocab.collect_ends(&source.eog);
        vocab.apply_strip_rules(source);
        vocab.spell(spelling)?;
        Ok(vocab)
    }

    fn index_texts(&mut self, strict: Strictness) -> Result<(), Error> {
        let Self { texts, by_text, hasher, .. } = self;
        for (id, text) in texts.iter().enumerate() {
            // An empty text can't be found in any input; several of them are no conflict.
            if text.is_empty() {
                continue;
            }
            let hash = hasher.hash_one(text.as_bytes());
            let slot = by_text.entry(
                hash,
                |&o| texts[o as usize] == *text,
                |&o| hasher.hash_one(texts[o as usize].as_bytes()),
            );
            match slot {
                hashbrown::hash_table::Entry::Vacant(slot) => {
                    slot.insert(id as u32);
                }
                hashbrown::hash_table::Entry::Occupied(mut slot) => {
                    if strict == Strictness::Strict {
                        let (first, second) = (*slot.get(), id as u32);
                        return Err(Error::DuplicateToken { text: text.clone(), first, second });
                    }
                    *slot.get_mut() = id as u32;
                }
            }
        }
        Ok(())
    }

    /// Checks the ids that the metadata names and finds the rest by their well-known texts.
    fn fill_roles(&mut self, eog: &[u32]) -> Result<(), Error> {
        let last = self.len() - 1;
        let mut special = self.special;
        for role in ROLES {
            let slot = (role.field)(&mut special);
            match *slot {
                Some(id) if id as usize > last => {
                    return Err(Error::IdOutOfRange { key: role.key, id, last });
                }
                Some(_) => {}
                None => {
                    *slot = role.texts.iter().find_map(|text| self.id_of(text));
                    if let Some(id) = *slot {
                        self.kinds[id as usize] = TokenKind::Control;
                    }
                }
            }
        }
        if let Some(&id) = eog.iter().find(|&&id| id as usize > last) {
            return Err(Error::IdOutOfRange { key: "tokenizer.ggml.eos_token_ids", id, last });
        }
        self.special = special;
        Ok(())
    }

    /// Collects the tokens that end a generation.
    fn collect_ends(&mut self, extra: &[u32]) {
        let s = self.special;
        let mut eog: Vec<u32> = extra.to_vec();
        eog.extend([s.eos, s.eot, s.eom, s.fim_pad, s.fim_rep, s.fim_sep].into_iter().flatten());
        let by_control =
            END_TEXTS_IF_CONTROL.iter().filter_map(|t| self.id_of(t)).filter(|&id| self.is_control(id));
        eog.extend(by_control);
        for id in END_TEXTS.iter().filter_map(|t| self.id_of(t)).collect::<Vec<_>>() {
            // Some converters call these normal, which would let a user's text spell them.
            self.kinds[id as usize] = TokenKind::Control;
            eog.push(id);
        }
        eog.sort_unstable();
        eog.dedup();
        let is_end = |text: &str| self.id_of(text).is_some_and(|id| eog.contains(&id));
        let dropped: Vec<u32> = NOT_ENDS
            .iter()
            .filter(|rule| is_end(rule.text) && rule.beside.iter().all(|text| is_end(text)))
            .filter_map(|rule| self.id_of(rule.text))
            .filter(|&id| Some(id) != s.eos && !extra.contains(&id))
            .collect();
        eog.retain(|id| !dropped.contains(id));
        self.eog = eog;
        let always = ALWAYS_SHOWN.iter().filter_map(|t| self.id_of(t)).chain(dropped);
        for id in always.collect::<Vec<_>>() {
            self.flags[id as usize].shown = true;
        }
    }

    fn apply_strip_rules(&mut self, source: &VocabSource) {
        let name = source.name.as_deref().unwrap_or("").to_lowercase();
        let pre = source.pre.as_deref().unwrap_or("");
        let any = |needles: &[&str], hay: &str| needles.iter().any(|n| hay.contains(n));
        let Some(rule) = STRIP_RULES
            .iter()
            .find(|r| any(r.name, &name) || any(r.pre, pre) || any(r.architecture, &source.architecture))
        else {
            return;
        };
        for id in rule.left.iter().filter_map(|t| self.id_of(t)).collect::<Vec<_>>() {
            self.flags[id as usize].strip_left = true;
        }
        if rule.right {
            for id in self.partition_ids() {
                let text = self.texts[id as usize].as_str();
                self.flags[id as usize].strip_right = !rule.not_right.contains(&text);
            }
        }
    }

    /// Writes down what each token decodes to.
    fn spell(&mut self, spelling: Spelling) -> Result<(), Error> {
        for (index, (text, kind)) in self.texts.iter().zip(&self.kinds).enumerate() {
            match (kind, spelling) {
                (TokenKind::Byte, _) => {
                    let byte =
                        byte_of(text).ok_or_else(|| Error::BadByteToken { index, text: text.clone() })?;
                    self.bytes.push(byte);
                }
                (TokenKind::Normal | TokenKind::Unused, Spelling::ByteLevel) => {
                    let decoded: Option<Vec<u8>> = text.chars().map(byte_level_decode).collect();
                    self.bytes.extend(decoded.unwrap_or_else(|| text.as_bytes().to_vec()));
                }
                (TokenKind::Normal | TokenKind::Unused, Spelling::Escaped) => {
                    self.bytes.extend(text.replace(SPACE, " ").into_bytes());
                }
                _ => self.bytes.extend(text.bytes()),
            }
            self.ends.push(self.bytes.len());
        }
        Ok(())
    }

    pub(crate) fn len(&self) -> usize {
        self.texts.len()
    }

    pub(crate) fn special(&self) -> &SpecialIds {
        &self.special
    }

    pub(crate) fn eog(&self) -> &[u32] {
        &self.eog
    }

    pub(crate) fn max_token_len(&self) -> usize {
        self.max_token_len
    }

    pub(crate) fn text(&self, id: u32) -> Option<&str> {
        self.texts.get(id as usize).map(String::as_str)
    }

    pub(crate) fn kind(&self, id: u32) -> Option<TokenKind> {
        self.kinds.get(id as usize).copied()
    }

    pub(crate) fn is_control(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Control)
    }

    pub(crate) fn is_unused(&self, id: u32) -> bool {
        self.kind(id) == Some(TokenKind::Unused)
    }

    /// Whether decoding leaves this token out unless special tokens are asked for.
    pub(crate) fn is_hidden(&self, id: u32) -> bool {
        let special = matches!(self.kind(id), Some(TokenKind::Control | TokenKind::Unknown));
        special && !self.flags[id as usize].shown
    }

    pub(crate) fn strips(&self, id: u32) -> (bool, bool) {
        self.flags.get(id as usize).map_or((false, false), |f| (f.strip_left, f.strip_right))
    }

    pub(crate) fn bytes(&self, id: u32) -> Option<&[u8]> {
        let end = *self.ends.get(id as usize)?;
        let start = (id as usize).checked_sub(1).map_or(0, |i| self.ends[i]);
        Some(&self.bytes[start..end])
    }

    pub(crate) fn id_of(&self, text: &str) -> Option<u32> {
        let hash = self.hasher.hash_one(text.as_bytes());
        self.by_text.find(hash, |&id| self.texts[id as usize] == text).copied()
    }

    /// The token that `text` may become as plain text: control, unknown and byte tokens are never spelled by a user.
    pub(crate) fn plain_id(&self, text: &str) -> Option<u32> {
        self.id_of(text).filter(|&id| self.is_plain(id))
    }

    pub(crate) fn is_plain(&self, id: u32) -> bool {
        matches!(self.kind(id), Some(TokenKind::Normal | TokenKind::UserDefined | TokenKind::Unused))
    }

    /// Tokens that are found in text before it is split: control, unknown, user-defined.
    pub(crate) fn partition_ids(&self) -> Vec<u32> {
        let found = |id: &u32| {
            let kind = self.kinds[*id as usize];
            matches!(kind, TokenKind::Control | TokenKind::Unknown | TokenKind::UserDefined)
                && !self.texts[*id as usize].is_empty()
        };
        (0..self.len() as u32).filter(found).collect()
    }

    /// The `<0xHH>` tokens by byte, else the one-character token of an ASCII byte, else [`NONE`].
    pub(crate) fn byte_tokens(&self) -> Box<[u32; 256]> {
        let mut table = Box::new([NONE; 256]);
        for (byte, slot) in (0..=255u8).zip(table.iter_mut()) {
            let plain = byte.is_ascii().then(|| char::from(byte).to_string());
            let id = self.id_of(&format!("<0x{byte:02X}>")).or_else(|| self.plain_id(&plain?));
            *slot = id.unwrap_or(NONE);
        }
        table
    }
}

fn check_len(key: &'static str, found: usize, expected: usize) -> Result<(), Error> {
    if found != 0 && found != expected {
        return Err(Error::LengthMismatch { key, found, expected });
    }
    Ok(())
}

/// The byte that `<0xHH>` names.
fn byte_of(text: &str) -> Option<u8> {
    let hex = text.strip_prefix("<0x")?.strip_suffix('>')?;
    (hex.len() == 2).then(|| u8::from_str_radix(hex, 16).ok())?
}

/// GPT-2's printable stand-in for a byte: itself if it is printable Latin-1, else the next free one from U+0100.
pub(crate) fn byte_level_encode(byte: u8) -> char {
    let code = match byte {
        b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
        0x00..=0x20 => 0x100 + u32::from(byte),
        0x7F..=0xA0 => 0x121 + u32::from(byte - 0x7F),
        0xAD => 0x143,
    };
    char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER)
}

/// The inverse of [`byte_level_encode`].
fn byte_level_decode(c: char) -> Option<u8> {
    let code = u32::from(c);
    let byte = match code {
        0x21..=0x7E | 0xA1..=0xAC | 0xAE..=0xFF => code,
        0x100..=0x120 => code - 0x100,
        0x121..=0x142 => code - 0x121 + 0x7F,
        0x143 => 0xAD,
        _ => return None,
    };
    u8::try_from(byte).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn byte_level_stand_ins_round_trip() {
        for byte in 0..=255 {
            assert_eq!(byte_level_decode(byte_level_encode(byte)), Some(byte));
        }
        assert_eq!(byte_level_encode(b' '), 'Ġ');
        assert_eq!(byte_level_encode(b'\n'), 'Ċ');
    }
}
