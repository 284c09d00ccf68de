//! The server as clients see it: over HTTP, with a tiny model.

#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper fails the test, as it should")]

mod anthropic;
mod daemon;
mod defaults;
mod embeddings;
mod life;
mod llamacpp;
mod llamacpp_clients;
mod odd;
mod ollama;
mod openai;
mod page;
mod pull;
mod responses;
mod scripted;
mod structure;
mod support;
mod tools;
mod traces;
