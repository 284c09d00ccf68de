//! The engine against references: transformers, llama.cpp, and itself.

#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod calls;
mod common;
mod determinism;
mod families;
mod grammar;
mod interrupt;
mod nan;
mod pool;
mod real;
mod sampler;
mod scheduler;
mod stop;
mod vocab;
