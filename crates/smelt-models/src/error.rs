//! Why a checkpoint can't be run.

use std::path::PathBuf;

/// An error that names the file and the key or tensor at fault.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The checkpoint itself.
    #[error(transparent)]
    Checkpoint(#[from] smelt_checkpoint::Error),
    /// The compiled program doesn't hold together.
    #[error("{file}: {source}")]
    Program { file: PathBuf, source: smelt_backend::Error },
    /// No family claims the checkpoint.
    #[error("{file}: architecture \"{architecture}\" is not supported; supported are: {supported}")]
    UnknownArchitecture { file: PathBuf, architecture: String, supported: String },
    /// A key has a value that makes no sense.
    #[error("{file}: key {key}: {what}")]
    Key { file: PathBuf, key: String, what: String },
    /// A tensor has another shape than its family's metadata says.
    #[error("{file}: tensor {name} is {found:?}, where {expected:?} is needed")]
    Shape { file: PathBuf, name: String, found: Vec<usize>, expected: Vec<usize> },
    /// Tensors that the family doesn't know: running without them would give wrong answers.
    #[error(
        "{file}: architecture \"{architecture}\" as Smelt knows it doesn't use {count} tensors of this file ({names}); \
         the file is of a newer or different variant"
    )]
    UnusedTensors { file: PathBuf, architecture: String, count: usize, names: String },
}
