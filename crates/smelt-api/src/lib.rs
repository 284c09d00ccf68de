//! The wire types of the HTTP interfaces: OpenAI, Anthropic, Ollama, llama.cpp.
//!
//! A request is read in two steps. [`params`] checks the body against a table of parameters, so that types, ranges and
//! unsupported parameters are reported in one way, by the parameter's name; the dialect's own `read` then makes a typed
//! request of it. A response is a struct that serialises to exactly what the dialect's clients expect.
//!
//! Architecture Invariant: a parameter that is known and not supported is refused, never ignored; a field that nobody
//! knows (routers add some) is tolerated and told to the caller.

pub mod anthropic;
pub mod embeddings;
pub mod error;
pub mod keep_alive;
pub mod llamacpp;
pub mod message;
pub mod ollama;
pub mod openai;
pub mod params;
pub mod reasoning;
pub mod rerank;
pub mod responses;
pub mod sampling;
pub mod structure;
pub mod timings;
pub mod tokens;
pub mod tools;

pub use error::{ApiError, Code, Dialect};
pub use keep_alive::KeepAlive;
pub use message::{ChatMessage, Role, ToolCall};
pub use reasoning::{Effort, Reasoning};
pub use sampling::{Limits, Sampling};
pub use structure::{Form, Structure};
pub use timings::{Progress, Timings};
pub use tools::{Tool, ToolChoice, Tools};
