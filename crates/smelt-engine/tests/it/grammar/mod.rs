//! Constraints over real vocabularies.

mod answers;
mod forms;
mod suite;

use smelt_engine::tokenizer::{TokenKind, Tokenizer};
use smelt_engine::{Constraint, Engine, Grammar, GrammarError, Model, Settings};
use std::sync::Arc;

/// A model with a small vocabulary, which has a token for every byte.
pub(crate) fn model() -> Arc<Model> {
    let file = smelt_testdata::data("tiny/llama/llama-f16.gguf");
    Engine::load(&file, &Settings::default()).unwrap().model().clone()
}

/// The token of each byte.
pub(crate) fn byte_tokens(tokenizer: &Tokenizer) -> Vec<u32> {
    let mut tokens = vec![u32::MAX; 256];
    for id in 0..tokenizer.vocab_size() as u32 {
        let is_text = matches!(tokenizer.kind(id), Some(TokenKind::Normal | TokenKind::Byte));
        if let (true, Some([byte])) = (is_text, tokenizer.token_bytes(id, true)) {
            tokens[usize::from(*byte)] = id;
        }
    }
    tokens
}

pub(crate) fn allows(mask: &[u32], token: u32) -> bool {
    mask.get(token as usize / 32).is_some_and(|word| word >> (token % 32) & 1 == 1)
}

/// Whether a text, written byte by byte, may be a whole answer.
pub(crate) fn accepts(constraint: &dyn Constraint, text: &str, model: &Model, bytes: &[u32]) -> bool {
    let mut constraint = constraint.fork();
    for byte in text.bytes() {
        let token = bytes[usize::from(byte)];
        if !allows(constraint.mask().unwrap().unwrap(), token) {
            return false;
        }
        constraint.accept(token).unwrap();
    }
    let end = model.tokenizer().eog_ids()[0];
    allows(constraint.mask().unwrap().unwrap(), end)
}

pub(crate) fn constrain(
    model: &Model,
    grammar: Result<Grammar, GrammarError>,
) -> Result<Box<dyn Constraint>, GrammarError> {
    model.constrain(&grammar?)
}
