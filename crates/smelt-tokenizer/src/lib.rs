//! Text to token ids and back, chat templates, and what models answer in them.
//!
//! A [`Tokenizer`] is built from a [`VocabSource`], the plain form of what a checkpoint says about its vocabulary. Four
//! algorithms cover the families: SentencePiece byte-pair encoding, byte-pair encoding with a merge list, unigram, and
//! WordPiece. Text that looks like a control token becomes one only where the caller says so ([`Special`]).

pub mod answer;
mod bpe;
mod charsmap;
pub mod chat;
mod detok;
mod error;
mod merge;
mod partition;
mod patterns;
mod pre;
mod source;
mod specials;
mod split;
mod spm;
mod tokenizer;
mod unigram;
mod vocab;
mod wordpiece;

pub use detok::Detokenizer;
pub use error::Error;
pub use pre::known_pre_names;
pub use source::{Special, SpecialIds, Strictness, VocabSource};
pub use tokenizer::Tokenizer;
pub use vocab::TokenKind;
