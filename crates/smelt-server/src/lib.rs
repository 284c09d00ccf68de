//! The HTTP server: OpenAI's, Anthropic's, Ollama's and llama.cpp's interfaces in front of the engine's scheduler.
//!
//! ```text
//! listen      the address, the end by a signal; connections, their limits; tls
//!   app       one request: id, origin, key, body, route, error, metrics; trace tells collectors of it
//!     routes  the table of routes, which /openapi.json and the answers 404 and 405 iterate too
//!       openai/ anthropic ollama llamacpp/ tokens      one dialect each: wire types to engine requests, and back
//!         conversation  messages and tools to a prompt, and how its answer is read
//!         structure   schemas and grammars to what the engine holds answers to
//!         prompt      texts to tokens, wishes to settings
//!         generation  the engine's events, read, which end with whoever waits for them
//!         stream      pieces of an answer to a body
//!     models  what is offered: names, files, what prompts need of them
//!       daemon  engines, each in a process of its own
//! ```
//!
//! Architecture Invariant: a client that goes away drops its future or its body, and with it the engine's ticket:
//! nothing else has to notice.
//!
//! Architecture Invariant: whether a request is refused is known before its answer begins, so an error has its own
//! status; what fails later is one error event in the dialect's shape.

mod access;
mod anthropic;
mod app;
mod connections;
mod conversation;
mod daemon;
mod embeddings;
mod generation;
mod info;
mod listen;
mod llamacpp;
mod metrics;
mod models;
mod ollama;
mod openai;
mod openapi;
mod page;
mod pool;
mod prompt;
mod pull;
mod rerank;
mod routes;
mod settings;
mod stages;
mod stream;
mod structure;
mod tls;
mod tokens;
mod trace;

pub use access::ApiKey;
pub use daemon::{DaemonError, Launch, run_daemon};
pub use listen::{Server, Stopper};
pub use models::{Defaults, ModelSource};
pub use pull::{PullError, Puller};
pub use settings::{DEFAULT_PORT, Error, Limits, Settings};
pub use tls::{Tls, TlsError};
pub use trace::Traces;
