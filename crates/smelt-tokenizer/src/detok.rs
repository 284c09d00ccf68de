//! Token ids to text, one at a time.

use std::sync::Arc;

use crate::tokenizer::Tokenizer;

/// Turns a stream of ids into text. Every string that it gives is complete: bytes of a character that later tokens
/// finish are held back, bytes that can't become one are U+FFFD, one per maximal subpart (Unicode 15, chapter 3.9).
#[derive(Clone, Debug)]
pub struct Detokenizer {
    tokenizer: Tokenizer,
    show_special: bool,
    /// Control tokens that are shown all the same.
    shown: Arc<[u32]>,
    /// Whether the next text starts with a space that encoding put there.
    strip_space: bool,
    /// The start of a character, at most three bytes between calls.
    pending: Vec<u8>,
}

impl Detokenizer {
    pub(crate) fn new(tokenizer: Tokenizer, show_special: bool) -> Self {
        Self { tokenizer, show_special, shown: Arc::default(), strip_space: false, pending: Vec::new() }
    }

    pub(crate) fn strip_space(self, strip_space: bool) -> Self {
        Self { strip_space, ..self }
    }

    /// Shows these control tokens whatever becomes of others.
    #[must_use]
    pub fn showing(self, shown: Arc<[u32]>) -> Self {
        Self { shown, ..self }
    }

    /// The text that `id` completes, often empty. Ids outside of the vocabulary give nothing.
    pub fn push(&mut self, id: u32) -> String {
        let shows = self.show_special || self.shown.contains(&id);
        let mut bytes = self.tokenizer.token_bytes(id, shows).unwrap_or_default();
        // A control token that is shown is no text that a space could precede.
        if self.strip_space && !bytes.is_empty() && !self.tokenizer.is_special(id) {
            bytes = bytes.strip_prefix(b" ").unwrap_or(bytes);
            self.strip_space = false;
        }
        self.pending.extend_from_slice(bytes);
        self.drain(false)
    }

    /// What is still held back, as U+FFFD, at the end of the stream.
    pub fn finish(&mut self) -> String {
        self.drain(true)
    }

    /// Whether the start of a character is held back.
    #[must_use]
    pub fn is_pending(&self) -> bool {
        !self.pending.is_empty()
    }

    fn drain(&mut self, at_end: bool) -> String {
        let mut text = String::new();
        let mut rest = self.pending.as_slice();
        while !rest.is_empty() {
            match std::str::from_utf8(rest) {
                Ok(valid) => {
                    text.push_str(valid);
                    rest = &[];
                }
                Err(e) => {
                    let (valid, after) = rest.split_at(e.valid_up_to());
                    text.push_str(&String::from_utf8_lossy(valid));
                    rest = after;
                    match e.error_len() {
                        Some(len) => rest = &rest[len..],
                        None if at_end => rest = &[],
                        None => break,
                    }
                    text.push(char::REPLACEMENT_CHARACTER);
                }
            }
        }
        let keep = rest.len();
        let drop = self.pending.len() - keep;
        self.pending.drain(..drop);
        text
    }
}
