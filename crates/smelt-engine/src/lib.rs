//! The engine: loads a model, owns its cache, samples, and emits tokens.

pub mod vocab;
