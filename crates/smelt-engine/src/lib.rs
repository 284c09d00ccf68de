//! The engine: loads a model, owns its cache, samples, and emits tokens.
//!
//! ```text
//! Engine::load(path, settings)
//!   └─ Engine::generate(sequence, request, sink)     the one token loop: prefill, sample, stop, emit
//!        ├─ runner      steps of the backend, pages of the cache
//!        ├─ sampler     logits to a token
//!        ├─ stop        stop strings
//!        └─ Detokenizer tokens to whole characters
//! Chat                  messages to a prompt that fits the context
//! eval                  perplexity, logits, timings
//! ```
//!
//! Architecture Invariant: the engine reads no environment variable and prints nothing. Settings arrive as a struct,
//! events leave as values.
//!
//! Architecture Invariant: there is one token loop and one emitter, [`Engine::generate`].

pub mod chat;
mod engine;
mod error;
pub mod eval;
mod generate;
mod pages;
mod runner;
pub mod sampler;
mod settings;
pub mod stop;
pub mod vocab;

pub use engine::{Engine, Facts, template_of, tokenizer_of};
pub use error::Error;
pub use generate::{Event, Finish, Outcome, Request, Sink};
pub use runner::Sequence;
pub use settings::{BackendChoice, Settings};
pub use smelt_backend::{KvFormat, KvFormats};
pub use smelt_cpu::{Isa, IsaChoice, Peaks};
pub use smelt_tokenizer as tokenizer;
