//! Integration tests of the tokenizer crate.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod answer;
mod chat;
mod chat_provenance;
mod detok;
mod encode;
mod fuzz;
mod sources;
