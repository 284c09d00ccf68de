//! Reading and writing model files.

#![expect(clippy::unwrap_used, reason = "a failed unwrap in a helper fails the test, as it should")]

mod malformed;
mod metadata;
mod raw;
mod seeds;
#[cfg(unix)]
mod shrink;
mod split;
mod writer;
