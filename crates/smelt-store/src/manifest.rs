//! What the store knows about an installed model.

use std::fs;
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::error::StoreError;
use crate::files::is_sha256;

/// The small file that makes a model installed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Manifest {
    /// Version of this file's layout, [`Manifest::VERSION`].
    pub version: u32,
    /// The model, as [`crate::Reference`] prints it.
    pub reference: String,
    /// Where it came from, as text for people.
    pub source: String,
    /// The model's files; more than one if the GGUF file is split, then in the order of the shards.
    pub files: Vec<ManifestFile>,
    /// Terms of use, where the catalogue knows them.
    pub licence: Option<String>,
    /// Architecture family, where the catalogue knows it.
    pub family: Option<String>,
    /// How the weights are stored, where the catalogue knows it.
    pub format: Option<String>,
    /// When it was pulled, in seconds since 1970 (UTC).
    pub pulled: u64,
}

/// One file of an installed model.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ManifestFile {
    /// Its name at the source.
    pub name: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its SHA-256, lower-case hex; also its name in the store.
    pub sha256: String,
    /// The server's entity tag, by which a later pull sees that nothing has changed.
    pub etag: Option<String>,
}

/// Largest manifest that is read: a split model of a thousand shards stays far below.
const MAX_BYTES: u64 = 4 << 20;

impl Manifest {
    /// Layout version that this program writes and reads.
    pub const VERSION: u32 = 1;

    /// Size of all files in bytes.
    pub fn size(&self) -> u64 {
        self.files.iter().fold(0, |sum, f| sum.saturating_add(f.size))
    }

    /// Reads and checks the manifest at `path`; `reference` is for messages.
    pub(crate) fn read(path: &Path, reference: &str) -> Result<Manifest, StoreError> {
        #[derive(Deserialize)]
        struct Version {
            version: u32,
        }
        let damaged =
            |reason: String| StoreError::Damaged { reference: reference.into(), path: path.into(), reason };
        let length = fs::metadata(path).map_err(StoreError::io("read", path))?.len();
        if length > MAX_BYTES {
            return Err(damaged(format!("it has {length} bytes")));
        }
        let text = fs::read(path).map_err(StoreError::io("read", path))?;
        let Version { version } = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        if version > Manifest::VERSION {
            let path = path.into();
            return Err(StoreError::NewerManifest { path, found: version, known: Manifest::VERSION });
        }
        let manifest: Manifest = serde_json::from_slice(&text).map_err(|e| damaged(e.to_string()))?;
        let plain = |name: &str| !name.contains(['/', '\\', '\0']) && !matches!(name, "" | "." | "..");
        if manifest.files.is_empty() {
            return Err(damaged("it lists no file".into()));
        }
        if let Some(file) = manifest.files.iter().find(|f| !is_sha256(&f.sha256) || !plain(&f.name)) {
            return Err(damaged(format!("its entry for {:?} is malformed", file.name)));
        }
        Ok(manifest)
    }
}
