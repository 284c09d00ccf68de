//! Plain text as a prompt.

use smelt_engine::tokenizer::{Special, Tokenizer};

use crate::report;

/// The ids of a text that a person wrote, as the vocabulary wants a text to begin and end. Where the text begins with
/// BOS itself, none is added: two of them confuse a model. Unless `quiet`, that is said.
pub(super) fn encode(tokenizer: &Tokenizer, text: &str, special: Special, quiet: bool) -> Vec<u32> {
    let mut ids = tokenizer.encode(text, special, true);
    let bos = tokenizer.bos().filter(|_| tokenizer.adds_bos());
    if special == Special::Parse && bos.is_some_and(|bos| ids.starts_with(&[bos, bos])) {
        ids.remove(0);
        if !quiet {
            report::note("the text begins with BOS, so none is added");
        }
    }
    ids
}
