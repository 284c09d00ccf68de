//! SentencePiece's compiled normalization rules.
//!
//! ```text
//! u32 LE  n               bytes of the trie
//! u32 LE  units[n / 4]    a double-array trie over UTF-8 bytes
//! u8      strings[..]     replacements, each ended by a zero byte
//! ```
//! A unit packs `label` (bits 0-7, and bit 31 clear), `has a value` (bit 8), and the offset to its children (bits 10-30,
//! times 256 if bit 9 is set). The child by byte `c` is at `node ^ offset ^ c` and has label `c`; a node's value is at
//! `node ^ offset`, in the lower 31 bits.

use crate::error::Error;

#[derive(Debug)]
pub(crate) struct Charsmap {
    units: Vec<u32>,
    strings: String,
}

impl Charsmap {
    pub(crate) fn new(bytes: &[u8]) -> Result<Self, Error> {
        let bad = |what| Error::BadCharsmap { what };
        let (head, rest) = bytes.split_first_chunk::<4>().ok_or(bad("it is shorter than its header"))?;
        let len = u32::from_le_bytes(*head) as usize;
        if !len.is_multiple_of(4) || len == 0 {
            return Err(bad("the trie's length is not a positive multiple of 4"));
        }
        let (trie, strings) = rest.split_at_checked(len).ok_or(bad("the trie is longer than the data"))?;
        let units = trie.as_chunks::<4>().0.iter().map(|&unit| u32::from_le_bytes(unit)).collect();
        let strings = std::str::from_utf8(strings).map_err(|_| bad("a replacement is not UTF-8"))?;
        if !strings.ends_with('\0') {
            return Err(bad("the last replacement has no end"));
        }
        Ok(Self { units, strings: strings.to_string() })
    }

    /// The replacement of the longest prefix of `text` that has one, and that prefix's length in bytes.
    pub(crate) fn longest(&self, text: &str) -> Option<(&str, usize)> {
        let offset = |unit: u32| (unit >> 10) << ((unit & (1 << 9)) >> 6);
        let unit = |node: u32| self.units.get(node as usize).copied();
        let mut node = offset(unit(0)?);
        let mut found = None;
        for (i, byte) in text.bytes().enumerate().take_while(|&(_, b)| b != 0) {
            node ^= u32::from(byte);
            let Some(here) = unit(node).filter(|u| u & (1 << 31 | 0xFF) == u32::from(byte)) else { break };
            node ^= offset(here);
            if here & (1 << 8) != 0 {
                let Some(value) = unit(node) else { break };
                found = Some((value & (u32::MAX >> 1), i + 1));
            }
        }
        let (value, len) = found?;
        // A damaged trie may point into the middle of a character on either side; such a rule is no rule.
        text.get(..len)?;
        let replacement = self.strings.get(value as usize..)?;
        Some((&replacement[..replacement.find('\0')?], len))
    }
}
