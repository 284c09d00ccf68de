//! A pull: lock, fetch from the first source that works, check, put in place.

use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};

use crate::catalogue::Source;
use crate::error::{SourceFailure, StoreError};
use crate::fetch::{self, Context, Expected, Fetched, Outcome};
use crate::files::{create_dir, hex, remove_file, rename_into_place, sync_dir, write_atomically};
use crate::manifest::{Manifest, ManifestFile};
use crate::progress::{Event, Progress, tell};
use crate::reference::{Reference, is_unprotected};
use crate::settings::Settings;
use crate::store::{Installed, Store, entries};

/// What is to be fetched, from where.
struct Job {
    reference: Reference,
    /// Names the files under `partial/`, and the lock.
    key: String,
    expected: Option<Expected>,
    sources: Vec<Source>,
}

impl Job {
    fn new(store: &Store, reference: &Reference) -> Result<Job, StoreError> {
        let (expected, sources) = match reference {
            Reference::Catalogue { .. } => {
                let model = store.model(reference).ok_or_else(|| store.unknown(reference))?;
                let expected = Expected { sha256: model.sha256.clone(), size: Some(model.size) };
                (Some(expected), model.sources.clone())
            }
            Reference::HuggingFace { repo, file, revision } => {
                let (repo, file, revision) = (repo.clone(), file.clone(), revision.clone());
                (None, vec![Source::HuggingFace { repo, file, revision }])
            }
            Reference::Url(url) => {
                let expected =
                    reference.sha256().map(|sha256| Expected { sha256: sha256.into(), size: None });
                if is_unprotected(url) && expected.is_none() {
                    return Err(StoreError::Unprotected { url: url.clone() });
                }
                let mut url = url.clone();
                url.set_fragment(None);
                if expected.is_some() && fetch::is_split(&url) {
                    return Err(StoreError::HashOfSplit { url });
                }
                (expected, vec![Source::Url { url }])
            }
            Reference::Path(path) => (None, vec![Source::Path { path: path.clone() }]),
        };
        Ok(Job { reference: reference.clone(), key: key(store, reference), expected, sources })
    }

    /// Whether this very file is what the job would fetch; never known where the source decides.
    fn is_met_by(&self, installed: &Installed) -> bool {
        match (&self.expected, &installed.manifest) {
            (Some(expected), Some(manifest)) => {
                matches!(manifest.files.as_slice(), [only] if only.sha256 == expected.sha256)
            }
            _ => false,
        }
    }
}

/// Partial files are keyed by content where that is known, so that every name of a file shares its download.
fn key(store: &Store, reference: &Reference) -> String {
    match store.model(reference) {
        Some(model) => format!("sha256-{}", model.sha256),
        None => format!("ref-{}", hex(&Sha256::digest(reference.to_string().as_bytes()))),
    }
}

/// See [`Store::pull`]; `reference` has its tag.
pub(crate) fn pull(
    store: &Store,
    reference: &Reference,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Installed, StoreError> {
    let job = Job::new(store, reference)?;
    if let Some(installed) = usable(store, reference)?.filter(|i| job.is_met_by(i)) {
        return Ok(installed);
    }
    store.create_directories()?;
    sweep(store)?;
    let text = reference.to_string();
    let mut waited = false;
    let lock = store.lock_key(&job.key, || {
        let event = if waited { Event::Tick } else { Event::WaitingForOther { reference: &text } };
        waited = true;
        tell(progress, event)
    })?;
    let result = fetch_and_commit(store, &job, waited, settings, progress);
    match &result {
        Ok(()) => remove_partial(store, &job.key).map(|_| ())?,
        Err(_) => remove_empty(store, &job.key)?,
    }
    drop(lock);
    result?;
    store.show(reference)
}

/// What [`pull`] does while it holds the lock.
fn fetch_and_commit(
    store: &Store,
    job: &Job,
    waited: bool,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<(), StoreError> {
    let reference = &job.reference;
    let installed = usable(store, reference)?;
    if installed.as_ref().is_some_and(|i| waited || job.is_met_by(i)) {
        return Ok(());
    }
    if let Some(fetched) = job.expected.as_ref().and_then(|e| already_here(store, job, e)) {
        // Placed by a pull that was killed before it wrote the manifest, or by another name of the same file.
        return commit(store, job, "the store itself", &[fetched]);
    }
    let known = installed.and_then(|i| i.manifest);
    let Some((source, fetched)) = fetch_any(store, job, known.as_ref(), settings, progress)? else {
        return Ok(());
    };
    commit(store, job, &source, &fetched)?;
    if known.is_some() {
        let _exclusive = store.lock_exclusive()?;
        store.collect()?;
    }
    Ok(())
}

/// The installed model unless it is damaged, which a pull repairs.
fn usable(store: &Store, reference: &Reference) -> Result<Option<Installed>, StoreError> {
    match store.resolve(reference) {
        Err(StoreError::Damaged { .. }) => Ok(None),
        other => other,
    }
}

fn already_here(store: &Store, job: &Job, expected: &Expected) -> Option<Fetched> {
    let blob = store.blob(&expected.sha256);
    // Only a blob whose hash was right ever gets this name; its size tells whether it was damaged since.
    let size = fs::metadata(&blob).ok()?.len();
    let sha256 = expected.sha256.clone();
    let right = expected.size == Some(size);
    right.then(|| Fetched { name: file_name(job), part: None, size, sha256, etag: None })
}

/// A name for the file where the source gives none.
fn file_name(job: &Job) -> String {
    format!("{}.gguf", job.reference.to_string().replace(['/', ':'], "-"))
}

/// Tries the sources in order; `None` if what is installed is still what the source has.
fn fetch_any(
    store: &Store,
    job: &Job,
    known: Option<&Manifest>,
    settings: &Settings,
    progress: &mut dyn Progress,
) -> Result<Option<(String, Vec<Fetched>)>, StoreError> {
    let partial = store.partial();
    let mut failures = Vec::new();
    for source in &job.sources {
        let name = source.to_string();
        tell(progress, Event::Source { source: &name })?;
        let mut context = Context {
            settings,
            progress: &mut *progress,
            partial: &partial,
            key: &job.key,
            expected: job.expected.as_ref(),
            known,
        };
        let result = fetch::fetch(&mut context, source, &file_name(job)).and_then(|outcome| {
            if let Outcome::Files(files) = &outcome {
                files.iter().try_for_each(check_magic)?;
            }
            Ok(outcome)
        });
        match result {
            Ok(Outcome::Unchanged) => return Ok(None),
            Ok(Outcome::Files(files)) => return Ok(Some((name, files))),
            Err(StoreError::Cancelled) => return Err(StoreError::Cancelled),
            Err(error) => {
                tell(progress, Event::SourceFailed { source: &name, error: &error })?;
                failures.push(SourceFailure { source: name, error: Box::new(error) });
            }
        }
    }
    Err(StoreError::AllSourcesFailed { reference: job.reference.to_string(), failures })
}

/// Refuses a web page or the like under a GGUF file's name, where no hash was known to tell.
fn check_magic(file: &Fetched) -> Result<(), StoreError> {
    let Some(part) = &file.part else { return Ok(()) };
    if !file.name.to_ascii_lowercase().ends_with(".gguf") {
        return Ok(());
    }
    let mut start = [0; 4];
    let read = fs::File::open(part).and_then(|mut f| f.read_exact(&mut start));
    match read {
        Ok(()) if &start == b"GGUF" => Ok(()),
        Err(e) if e.kind() != io::ErrorKind::UnexpectedEof => Err(StoreError::io("read", part)(e)),
        _ => {
            remove_file(part)?;
            Err(StoreError::BadAnswer {
                url: file.name.clone(),
                reason: format!("this is no GGUF file: it begins with {:?}", String::from_utf8_lossy(&start)),
            })
        }
    }
}

/// Puts checked files in place and makes the model exist.
fn commit(store: &Store, job: &Job, source: &str, fetched: &[Fetched]) -> Result<(), StoreError> {
    let path = store
        .manifest_file(&job.reference)
        .ok_or_else(|| StoreError::NotInstalled { reference: job.reference.to_string() })?;
    let model = store.model(&job.reference);
    let manifest = Manifest {
        version: Manifest::VERSION,
        reference: job.reference.to_string(),
        source: source.into(),
        files: fetched.iter().map(manifest_file).collect(),
        licence: model.map(|m| m.licence.clone()),
        family: model.map(|m| m.family.clone()),
        format: model.map(|m| m.format.clone()),
        pulled: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |d| d.as_secs()),
    };
    // From here to the manifest nobody may collect blobs.
    let _shared = store.lock_shared()?;
    for file in fetched {
        let blob = store.blob(&file.sha256);
        match &file.part {
            Some(part) => rename_into_place(part, &blob)?,
            None if blob.exists() => {}
            None => {
                let reference = job.reference.to_string();
                let reason = "the file was removed meanwhile".into();
                return Err(StoreError::Damaged { reference, path: blob, reason });
            }
        }
    }
    if let Some(split) = split_name(&manifest) {
        link_shards(store, &job.key, &split, &manifest.files)?;
    }
    if let Some(parent) = path.parent() {
        create_dir(parent)?;
    }
    let text = serde_json::to_vec_pretty(&manifest)
        .map_err(|e| StoreError::io("write", &path)(io::Error::other(e)))?;
    write_atomically(&path, &text, &store.partial().join(format!("{}.manifest", job.key)))
}

fn manifest_file(file: &Fetched) -> ManifestFile {
    ManifestFile {
        name: file.name.clone(),
        size: file.size,
        sha256: file.sha256.clone(),
        etag: file.etag.clone(),
    }
}

/// The directory under `splits/` of a model with several files: named by all their names and hashes.
pub(crate) fn split_name(manifest: &Manifest) -> Option<String> {
    (manifest.files.len() > 1).then(|| {
        let mut hash = Sha256::new();
        for file in &manifest.files {
            hash.update(format!("{} {}\n", file.sha256, file.name).as_bytes());
        }
        hex(&hash.finalize())
    })
}

/// Gives the shards' blobs their names beside each other.
fn link_shards(store: &Store, key: &str, split: &str, files: &[ManifestFile]) -> Result<(), StoreError> {
    let target = store.splits().join(split);
    if files.iter().all(|f| target.join(&f.name).exists()) {
        return Ok(());
    }
    let scratch = store.partial().join(format!("{key}.links"));
    for stale in [&scratch, &target] {
        if stale.exists() {
            fs::remove_dir_all(stale).map_err(StoreError::io("remove", stale))?;
        }
    }
    create_dir(&scratch)?;
    for file in files {
        let link = scratch.join(&file.name);
        link_blob(&store.blob(&file.sha256), &link).map_err(StoreError::io("link", &link))?;
    }
    sync_dir(&scratch)?;
    rename_into_place(&scratch, &target)
}

#[cfg(unix)]
fn link_blob(blob: &Path, link: &Path) -> io::Result<()> {
    // Relative, so that the store may be moved.
    let name = blob.file_name().ok_or(io::ErrorKind::InvalidInput)?;
    std::os::unix::fs::symlink(Path::new("../../blobs").join(name), link)
}

#[cfg(not(unix))]
fn link_blob(blob: &Path, link: &Path) -> io::Result<()> {
    fs::hard_link(blob, link)
}

/// Removes what an unfinished download of `reference` left, unless one is running; gives the bytes freed.
pub(crate) fn discard_partial(store: &Store, reference: &Reference) -> Result<u64, StoreError> {
    if !store.partial().exists() {
        return Ok(0);
    }
    let key = key(store, reference);
    match store.lock_key(&key, || Err(StoreError::Cancelled)) {
        Ok(_lock) => remove_partial(store, &key),
        Err(StoreError::Cancelled) => Ok(0),
        Err(other) => Err(other),
    }
}

/// The caller holds the lock of `key`, which is left in place.
fn remove_partial(store: &Store, key: &str) -> Result<u64, StoreError> {
    let mut freed = 0;
    for path in entries(&store.partial())? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        let belongs = name.strip_prefix(key).is_some_and(|rest| rest.starts_with(['-', '.']));
        if !belongs || name.ends_with(".lock") {
            continue;
        }
        if path.is_dir() {
            fs::remove_dir_all(&path).map_err(StoreError::io("remove", &path))?;
        } else {
            freed += fs::metadata(&path).map_or(0, |m| m.len());
            remove_file(&path)?;
        }
    }
    Ok(freed)
}

/// Removes what holds nothing of an unfinished download; the caller holds the lock of `key`.
fn remove_empty(store: &Store, key: &str) -> Result<(), StoreError> {
    let is_part = |name: &str| name.strip_prefix(key).is_some_and(|rest| rest.starts_with(['-', '.']));
    for path in entries(&store.partial())? {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if !is_part(&name) || name.ends_with(".lock") {
            continue;
        }
        if path.is_dir() {
            // Fails unless it is empty, which is what is wanted.
            let _ = fs::remove_dir(&path);
        } else if name.ends_with(".part") && fs::metadata(&path).is_ok_and(|m| m.len() == 0) {
            remove_file(&path)?;
            remove_file(&path.with_extension("json"))?;
        }
    }
    Ok(())
}

/// Removes the locks, and with them the empty files, of pulls that were killed.
fn sweep(store: &Store) -> Result<(), StoreError> {
    for path in entries(&store.partial())?.iter().filter(|path| path.extension().is_some_and(|e| e == "lock"))
    {
        let key = path.file_stem().unwrap_or_default().to_string_lossy();
        match store.lock_key(&key, || Err(StoreError::Cancelled)) {
            // Letting the lock go removes its file.
            Ok(_lock) => remove_empty(store, &key)?,
            Err(StoreError::Cancelled) => {}
            Err(other) => return Err(other),
        }
    }
    Ok(())
}

/// Where a file of a job is being downloaded to.
pub(crate) fn part_path(partial: &Path, key: &str, index: usize) -> PathBuf {
    partial.join(format!("{key}-{index}.part"))
}
