//! The model catalogue, downloads, and the store of model files on disk.
//!
//! ```text
//! <root>/blobs/sha256-<hex>            model files, named by what is in them
//!       /manifests/<name>/<tag>.json   one small file per installed model: which blobs, from where, when
//!       /splits/<hex>/<file name>      links that give the shards of a split file the names GGUF expects
//!       /partial/<key>.*               unfinished downloads and their locks
//!       /store.lock                    shared while a pull commits, exclusive while blobs are collected
//! ```
//!
//! Nothing is ever half-installed: a file is downloaded under `partial/`, its SHA-256 is checked, it is
//! flushed to the disk and renamed into `blobs/`, and the manifest, written last and renamed into place too,
//! is what makes the model exist. A crash before that leaves a partial file that the next pull goes on with.
//!
//! The crate prints nothing and reads no environment variable (the HTTP client honours the usual proxy
//! variables, and `pip` the user's own configuration): what happens is told to a [`Progress`], and every
//! choice comes in [`Settings`].

mod catalogue;
mod error;
mod fetch;
mod files;
mod manifest;
mod progress;
mod pull;
mod reference;
mod settings;
mod store;

pub use catalogue::{Catalogue, Model, Source};
pub use error::{SourceFailure, StoreError};
pub use manifest::{Manifest, ManifestFile};
pub use progress::{Event, Progress};
pub use reference::Reference;
pub use settings::Settings;
pub use store::{Installed, Listing, Removed, Store};

/// This crate's result.
pub type Result<T, E = StoreError> = std::result::Result<T, E>;
