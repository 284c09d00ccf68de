//! What can go wrong with a chat template.

use thiserror::Error;

/// Why a template could not be compiled or rendered. Lines count from 1 in the template's own text.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum TemplateError {
    /// The template is not valid Jinja.
    #[error("chat template, line {line}: {message}")]
    Syntax {
        /// Line of the template.
        line: u32,
        /// What the parser expected.
        message: String,
    },
    /// The template itself refused the messages with `raise_exception(message)`.
    #[error("the model's chat template refuses these messages (line {line}): \"{message}\"")]
    Raised {
        /// Line of the template.
        line: u32,
        /// The template's own words.
        message: String,
    },
    /// An operation failed while rendering, as it would in Python (`None + "x"`, an attribute of an undefined name …).
    #[error("chat template, line {line}: {message}")]
    Runtime {
        /// Line of the template.
        line: u32,
        /// What failed.
        message: String,
    },
    /// A limit that keeps hostile templates from hanging or filling the memory.
    #[error("chat template, line {line}: {message}; no ordinary template does this, use another one")]
    Limit {
        /// Line of the template.
        line: u32,
        /// Which limit.
        message: String,
    },
    /// A message is not an object with a `role` that is a string.
    #[error("message {index}: {problem}")]
    Message {
        /// Position in the list, from 0.
        index: usize,
        /// What is wrong with it.
        problem: &'static str,
    },
}

/// Kinds of failure inside the evaluator, which learns the line only at the statement level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum FaultKind {
    Raised,
    Runtime,
    Limit,
}

/// A failure without its line.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    pub(super) kind: FaultKind,
    pub(super) message: String,
}

impl Fault {
    pub(super) fn new(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Runtime, message: message.into() }
    }

    pub(super) fn raised(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Raised, message: message.into() }
    }

    pub(super) fn limit(message: impl Into<String>) -> Self {
        Self { kind: FaultKind::Limit, message: message.into() }
    }

    pub(super) fn at(self, line: u32) -> TemplateError {
        let message = self.message;
        match self.kind {
            FaultKind::Raised => TemplateError::Raised { line, message },
            FaultKind::Runtime => TemplateError::Runtime { line, message },
            FaultKind::Limit => TemplateError::Limit { line, message },
        }
    }
}

pub(super) type Res<T> = Result<T, Fault>;
