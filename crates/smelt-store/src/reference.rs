//! How a person names a model.

use std::fmt;
use std::path::{Component, Path, PathBuf};

use sha2::{Digest, Sha256};
use url::{Host, Url};

use crate::error::StoreError;
use crate::files::{hex, is_sha256};

/// A model as a person names it. [`fmt::Display`] gives text that [`Reference::parse`] reads back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reference {
    /// `smollm2:135m`, or `smollm2` for the name's default tag.
    Catalogue {
        /// Name of the model.
        name: String,
        /// Size or variant.
        tag: Option<String>,
    },
    /// `./file.gguf`, `/models/file.gguf`: used where it is.
    Path(PathBuf),
    /// `hf:owner/repo/file.gguf[@revision]`.
    HuggingFace {
        /// `owner/repo`.
        repo: String,
        /// Path of the file inside the repository.
        file: String,
        /// Branch, tag or commit.
        revision: String,
    },
    /// `https://host/path/file.gguf`; `#sha256=…` may follow, by which the file is checked.
    Url(Url),
}

/// Revision of a Hugging Face reference that names none.
const DEFAULT_REVISION: &str = "main";

impl Reference {
    /// Reads a reference.
    ///
    /// # Errors
    /// [`StoreError::BadReference`] if the text has none of the four forms. Whether the model exists is not asked.
    pub fn parse(text: &str) -> Result<Reference, StoreError> {
        let bad = |reason| StoreError::BadReference { text: text.into(), reason };
        if text.is_empty() {
            return Err(bad("it is empty"));
        }
        if let Some(rest) = text.strip_prefix("hf:") {
            return parse_hugging_face(rest).map_err(bad);
        }
        if text.contains("://") {
            let url = Url::parse(text).map_err(|_| bad("the address does not parse"))?;
            if !matches!(url.scheme(), "https" | "http") || url.host_str().is_none() {
                return Err(bad("only https:// and http:// addresses can be pulled"));
            }
            if url.fragment().is_some_and(|fragment| fragment_sha256(fragment).is_none()) {
                return Err(bad("behind # only sha256= and 64 lower-case hex digits can stand"));
            }
            return Ok(Reference::Url(url));
        }
        if looks_like_path(text) {
            return Ok(Reference::Path(text.into()));
        }
        let (name, tag) = match text.split_once(':') {
            Some((name, tag)) => (name, Some(tag)),
            None => (text, None),
        };
        if !is_name(name) || !tag.is_none_or(is_name) {
            return Err(bad("a name and its tag consist of letters, digits, '.', '_' and '-'"));
        }
        Ok(Reference::Catalogue { name: name.into(), tag: tag.map(Into::into) })
    }

    /// The SHA-256 that a person demands of the file.
    pub(crate) fn sha256(&self) -> Option<&str> {
        match self {
            Reference::Url(url) => fragment_sha256(url.fragment()?),
            _ => None,
        }
    }

    /// Where the manifest of this reference lies below `manifests/`, without the `.json`; `None` for a path and
    /// for a name without tag. Every component is safe in a file name, and two references never share a place.
    pub(crate) fn manifest_path(&self) -> Option<PathBuf> {
        match self {
            Reference::Catalogue { name, tag } => Some(PathBuf::from(name).join(tag.as_ref()?)),
            Reference::Path(_) => None,
            Reference::HuggingFace { repo, file, revision } => {
                let mut path = PathBuf::from("hf");
                path.extend(repo.split('/').chain(file.split('/')).map(encode));
                let name = format!("{}@{}", path.file_name()?.to_str()?, encode(revision));
                path.set_file_name(name);
                Some(path)
            }
            Reference::Url(url) => {
                let digest = hex(&Sha256::digest(url.as_str().as_bytes()));
                let name = url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default();
                let name: String = encode(name).chars().take(100).collect();
                Some(PathBuf::from("url").join(format!("{name}-{}", &digest[..32])))
            }
        }
    }
}

fn fragment_sha256(fragment: &str) -> Option<&str> {
    fragment.strip_prefix("sha256=").filter(|sha256| is_sha256(sha256))
}

/// Whether the address is one of this machine.
pub(crate) fn is_local(url: &Url) -> bool {
    match url.host() {
        Some(Host::Domain(name)) => name == "localhost" || name.ends_with(".localhost"),
        Some(Host::Ipv4(address)) => address.is_loopback(),
        Some(Host::Ipv6(address)) => address.is_loopback(),
        None => false,
    }
}

/// Whether others on the way can change what comes from there.
pub(crate) fn is_unprotected(url: &Url) -> bool {
    url.scheme() == "http" && !is_local(url)
}

/// Names that a catalogue may not use: they are directories of `manifests/` with another meaning.
pub(crate) const RESERVED_NAMES: [&str; 2] = ["hf", "url"];

/// Whether `text` can be a model's name or tag: a plain component of a path on every system.
pub(crate) fn is_name(text: &str) -> bool {
    !text.is_empty()
        && text.len() <= 100
        && text.bytes().all(|b| b.is_ascii_alphanumeric() || b"._-".contains(&b))
        && !text.starts_with(['.', '-'])
}

fn looks_like_path(text: &str) -> bool {
    let path = Path::new(text);
    path.is_absolute()
        || matches!(path.components().next(), Some(Component::CurDir | Component::ParentDir))
        || text.contains('\\')
        || text.contains('/')
        || path.extension().is_some_and(|e| e.eq_ignore_ascii_case("gguf"))
}

fn parse_hugging_face(rest: &str) -> Result<Reference, &'static str> {
    let (path, revision) = rest.rsplit_once('@').unwrap_or((rest, DEFAULT_REVISION));
    let mut parts = path.splitn(3, '/');
    let (Some(owner), Some(repo), Some(file)) = (parts.next(), parts.next(), parts.next()) else {
        return Err("write hf:OWNER/REPO/FILE.gguf, with @REVISION if you want one");
    };
    if !is_name(owner) || !is_name(repo) {
        return Err("the owner or the repository has characters that Hugging Face does not allow");
    }
    let plain = |s: &str| !matches!(s, "" | "." | "..") && !s.contains('\\') && !s.contains(char::is_control);
    if !file.split('/').all(plain) || !revision.split('/').all(plain) {
        return Err("the file or the revision is empty or not a plain path");
    }
    Ok(Reference::HuggingFace {
        repo: format!("{owner}/{repo}"),
        file: file.into(),
        revision: revision.into(),
    })
}

/// Percent-encodes everything that is not plain in a file name on every system.
fn encode(component: &str) -> String {
    component.bytes().fold(String::new(), |mut out, byte| {
        if byte.is_ascii_alphanumeric() || b"._-".contains(&byte) {
            out.push(byte as char);
        } else {
            out.push_str(&format!("%{byte:02X}"));
        }
        out
    })
}

impl fmt::Display for Reference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Reference::Catalogue { name, tag: None } => f.write_str(name),
            Reference::Catalogue { name, tag: Some(tag) } => write!(f, "{name}:{tag}"),
            Reference::Path(path) => write!(f, "{}", path.display()),
            Reference::HuggingFace { repo, file, revision } if revision == DEFAULT_REVISION => {
                write!(f, "hf:{repo}/{file}")
            }
            Reference::HuggingFace { repo, file, revision } => write!(f, "hf:{repo}/{file}@{revision}"),
            Reference::Url(url) => f.write_str(url.as_str()),
        }
    }
}
