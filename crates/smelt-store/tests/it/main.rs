//! Tests of the store with real parts: an HTTP server, child processes that are killed, and `pip`.

#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper fails the test, as it should")]

mod catalogue;
mod http;
mod processes;
mod python;
mod reference;
mod store;
mod support;
