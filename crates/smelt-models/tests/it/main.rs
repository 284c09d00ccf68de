//! Every family against transformers' logits, on the reference backend.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bert;
mod families;
mod hostile;
