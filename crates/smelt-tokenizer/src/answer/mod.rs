//! What a model says, read: reasoning, content and calls of tools told apart, while the text arrives.
//!
//! It is the way back of [`chat`](crate::chat): a template writes tools and calls in the family's own marks, and the
//! model answers in them. The families are data ([`FORMATS`], [`THINKING`]); one machine, [`Reader`], reads them all.
//!
//! Architecture Invariant: how the text was cut into pieces never matters: the parts, joined, are the same.
//!
//! Architecture Invariant: nothing is lost. What begins like a call and turns out to be none is content, character for
//! character. White space around calls and think blocks is all that is left out.

mod cursor;
mod formats;
mod loose;
mod reader;
mod shape;
mod syntax;
mod tools;
mod write;

pub use formats::{CallFormat, FORMATS, THINKING, ThinkTags, Trigger};
pub use reader::{Held, Reader, ReaderOptions};
pub use shape::Shape;
pub use tools::{Tool, ToolCall, ToolSet};

/// A piece of an answer, of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// What the model thought.
    Reasoning(String),
    /// What it said.
    Content(String),
    /// It calls a tool of this name; the arguments follow.
    Call(String),
    /// More of the last call's arguments: all pieces together are a JSON object.
    Arguments(String),
}
