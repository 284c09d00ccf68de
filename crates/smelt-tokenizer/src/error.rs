//! What can be wrong with a vocabulary.

use thiserror::Error;

/// Why a vocabulary was refused. Keys are named as GGUF files spell them, because that is what a user can look up.
#[derive(Debug, Error)]
pub enum Error {
    /// `tokenizer.ggml.model` names a kind that this crate has no algorithm for.
    #[error("tokenizer.ggml.model is {model:?}, which is not supported; known kinds: {known}")]
    UnknownModel { model: String, known: String },

    /// `tokenizer.ggml.pre` names a pre-tokenizer that is not in the table.
    #[error(
        "tokenizer.ggml.pre is {pre:?}, which is unknown, so the text would be split in a way that the model was not \
         trained on; use --force to split by the \"default\" rules anyway. Known: {known}"
    )]
    UnknownPre { pre: String, known: String },

    /// A byte-level vocabulary without `tokenizer.ggml.pre`.
    #[error(
        "tokenizer.ggml.pre is missing, so nothing says how the model splits text into words; convert the model again \
         with a newer converter, or use --force to split by the \"default\" rules"
    )]
    MissingPre,

    /// There are no tokens at all.
    #[error("tokenizer.ggml.tokens is empty; the file carries no vocabulary")]
    Empty,

    /// More tokens than ids can count.
    #[error("tokenizer.ggml.tokens has {count} entries; at most {limit} are supported")]
    TooManyTokens { count: usize, limit: usize },

    /// An array that must run beside the tokens has another length.
    #[error("{key} has {found} entries, but tokenizer.ggml.tokens has {expected}; the file is damaged")]
    LengthMismatch { key: &'static str, found: usize, expected: usize },

    /// A special token's id is outside of the vocabulary.
    #[error("{key} is {id}, but the vocabulary ends at {last}; correct the key with a metadata editor")]
    IdOutOfRange { key: &'static str, id: u32, last: usize },

    /// A score that can't be ordered.
    #[error("tokenizer.ggml.scores[{index}] is not a number")]
    BadScore { index: usize },

    /// Two ids share one text, so that text has no single id.
    #[error(
        "tokenizer.ggml.tokens[{second}] repeats {text:?} of token {first}; use --force to let the later one win"
    )]
    DuplicateToken { text: String, first: u32, second: u32 },

    /// A merge line without a space between its two halves.
    #[error("tokenizer.ggml.merges[{index}] is {merge:?}, which is not two pieces with a space between")]
    MalformedMerge { index: usize, merge: String },

    /// A merge line that names a piece the vocabulary lacks.
    #[error(
        "tokenizer.ggml.merges[{index}] is {merge:?}, but {piece:?} is not a token; use --force to leave it out"
    )]
    MergeUnknownPiece { index: usize, merge: String, piece: String },

    /// Byte-pair encoding without merges.
    #[error("tokenizer.ggml.merges is missing or empty, but tokenizer.ggml.model {model:?} needs it")]
    MissingMerges { model: String },

    /// The kind needs a special token that neither the metadata nor a default gives.
    #[error("{key} is missing, but tokenizer.ggml.model {model:?} needs it")]
    MissingSpecial { key: &'static str, model: String },

    /// A token of type BYTE that isn't spelled `<0xHH>`.
    #[error("tokenizer.ggml.tokens[{index}] has type BYTE, but {text:?} is not of the form <0x0A>")]
    BadByteToken { index: usize, text: String },

    /// `tokenizer.ggml.precompiled_charsmap` is damaged.
    #[error("tokenizer.ggml.precompiled_charsmap is damaged: {what}")]
    BadCharsmap { what: &'static str },

    /// An automaton over the vocabulary could not be built.
    #[error("no search automaton could be built for {what}: {reason}")]
    Automaton { what: &'static str, reason: String },
}
