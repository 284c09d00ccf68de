//! The engine: loads a model, owns its cache, samples, and emits tokens.
//!
//! ```text
//! Engine::load(path, settings)
//!   ├─ Engine::generate(sequence, request, sink)     one answer, into a cache that the caller keeps
//!   └─ Scheduler::start(engine, settings)            many answers at once, on a thread of its own
//! runner                steps of the backend, pages of the cache
//! emitter               logits to tokens, text and an end: sampler, constraint, stop strings, Detokenizer
//! Model, chat           what any thread may read; messages to a prompt that fits the context
//! Grammar               what an answer must look like; Model::constrain holds an answer to it
//! eval                  perplexity, logits, timings
//! ```
//!
//! Architecture Invariant: the engine reads no environment variable and prints nothing. Settings arrive as a struct,
//! events leave as values.
//!
//! Architecture Invariant: there is one emitter per sequence, and nobody else turns logits to tokens or tokens to text.

pub mod chat;
mod constraint;
mod embedding;
mod emitter;
mod engine;
mod error;
pub mod eval;
mod generate;
pub mod grammar;
mod infill;
mod lines;
mod model;
mod pages;
mod rerank;
mod runner;
pub mod sampler;
pub mod scheduler;
mod settings;
pub mod stop;
mod thinking;
pub mod vocab;

pub use constraint::Constraint;
pub use embedding::{EUCLIDEAN, normalize};
pub use emitter::{TokenInfo, TopToken};
pub use engine::{CacheSize, Engine, template_of, tokenizer_of};
pub use error::Error;
pub use generate::{Event, Finish, Outcome, Request, Sink};
pub use grammar::{Calls, Grammar, GrammarError};
pub use infill::Infill;
pub use lines::LineLimits;
pub use model::{DeviceFacts, Facts, Model};
pub use rerank::Reranking;
pub use runner::Sequence;
pub use settings::{BackendChoice, Settings};
pub use smelt_backend::{KvFormat, KvFormats};
pub use smelt_cpu::{Isa, IsaChoice, Numa, Peaks, Repack, System};
pub use smelt_models::{Head, Pooling};
pub use smelt_tokenizer as tokenizer;
pub use thinking::ThinkingBudget;
