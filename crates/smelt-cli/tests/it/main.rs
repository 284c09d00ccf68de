//! Whole-command transcripts: what a person types and sees.

#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper fails the test, as it should")]

mod chat;
mod commands;
mod config;
#[cfg(unix)]
mod life;
#[cfg(unix)]
mod log;
#[cfg(unix)]
mod pulls;
#[cfg(unix)]
mod remote;
mod run;
mod served;
mod support;
mod tls;
mod tools;
