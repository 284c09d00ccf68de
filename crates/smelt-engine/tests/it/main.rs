//! Integration tests of the engine.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod vocab;
