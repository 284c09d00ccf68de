//! What can go wrong at the seam.

/// An error of a backend or of a program that doesn't hold together.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// An operation's operands don't fit each other.
    #[error("operation {index} ({op}): {what}")]
    Shape { index: usize, op: &'static str, what: String },
    /// A weight's bytes don't have the size that its spec says.
    #[error("weight {name}: {what}")]
    Weight { name: String, what: String },
    /// The inputs of a step don't fit the program.
    #[error("step: {0}")]
    Step(String),
    /// The flag of [`crate::Backend::interrupt_on`] was raised.
    #[error("the step was interrupted")]
    Interrupted,
    /// Memory could not be had.
    #[error("out of memory: {what} needs {bytes} bytes; use a smaller context or a smaller model")]
    OutOfMemory { what: &'static str, bytes: usize },
    /// The backend can't do what the program asks.
    #[error("the {backend} backend can't run this model: {what}")]
    Unsupported { backend: String, what: String },
}
