//! The store: what is installed, and where.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use crate::catalogue::{Catalogue, Model};
use crate::error::StoreError;
use crate::files::{KeyLock, create_dir, open_lock, remove_file, sync_dir};
use crate::manifest::Manifest;
use crate::pull;
use crate::reference::Reference;

/// A directory with installed models, and the catalogue that names more. Any number of processes may use one
/// directory at a time.
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
    catalogue: Catalogue,
}

/// A model that can be loaded.
#[derive(Clone, Debug)]
pub struct Installed {
    /// The GGUF file, or the first shard of a split one, with the others beside it under the names GGUF expects.
    pub path: PathBuf,
    /// What the store knows about it; `None` for a local file that is used where it is.
    pub manifest: Option<Manifest>,
}

/// What [`Store::list`] finds.
#[derive(Debug, Default)]
pub struct Listing {
    /// Installed models, by name.
    pub installed: Vec<Installed>,
    /// Manifests that can't be used, each with its reason.
    pub problems: Vec<StoreError>,
}

/// What [`Store::remove`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Removed {
    /// The model, with its tag.
    pub reference: String,
    /// Bytes that became free; 0 where another model has the same file.
    pub freed: u64,
}

impl Store {
    /// Opens the store in `root` with the built-in catalogue. Nothing is created before the first pull.
    ///
    /// # Errors
    /// [`StoreError::Catalogue`] if the built-in catalogue is broken.
    pub fn open(root: impl Into<PathBuf>) -> Result<Store, StoreError> {
        Ok(Store::with_catalogue(root, Catalogue::builtin()?))
    }

    /// Opens the store in `root` with another catalogue.
    pub fn with_catalogue(root: impl Into<PathBuf>, catalogue: Catalogue) -> Store {
        Store { root: root.into(), catalogue }
    }

    /// The directory.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// The models that have a short name.
    pub fn catalogue(&self) -> &Catalogue {
        &self.catalogue
    }

    /// The installed model that `reference` means; `None` if it could be pulled but is not here.
    ///
    /// # Errors
    /// [`StoreError::NoSuchFile`] for a path to nothing, [`StoreError::UnknownModel`] for a name that neither
    /// catalogue nor store has, [`StoreError::Damaged`] for a manifest or blob that is not as it should be.
    pub fn resolve(&self, reference: &Reference) -> Result<Option<Installed>, StoreError> {
        if let Reference::Path(path) = reference {
            return match path.try_exists().map_err(StoreError::io("look at", path))? {
                true => Ok(Some(Installed { path: path.clone(), manifest: None })),
                false => Err(StoreError::NoSuchFile { path: path.clone() }),
            };
        }
        let full = self.complete(reference)?;
        let Some(path) = self.manifest_file(&full) else { return Ok(None) };
        match path.try_exists().map_err(StoreError::io("look at", &path))? {
            true => self.load(&path, &full.to_string()).map(Some),
            false if self.is_known(&full) => Ok(None),
            false => Err(self.unknown(&full)),
        }
    }

    /// Fetches a model, or finds that it is here and unchanged.
    ///
    /// A local path is only checked to exist. Downloads that broke off go on where they stopped; a second pull of
    /// the same model at the same time waits for the first.
    ///
    /// # Errors
    /// [`StoreError::UnknownModel`], [`StoreError::AllSourcesFailed`] with the reason of each source,
    /// [`StoreError::Cancelled`], or what the file system says. None leaves anything half-installed.
    pub fn pull(
        &self,
        reference: &Reference,
        settings: &crate::Settings,
        progress: &mut dyn crate::Progress,
    ) -> Result<Installed, StoreError> {
        if let Reference::Path(_) = reference {
            let installed = self.resolve(reference)?;
            return installed.ok_or_else(|| StoreError::NotInstalled { reference: reference.to_string() });
        }
        let full = self.complete(reference)?;
        pull::pull(self, &full, settings, progress)
    }

    /// Everything that is installed.
    ///
    /// # Errors
    /// Only if the directory itself can't be read: a bad manifest is listed as a problem.
    pub fn list(&self) -> Result<Listing, StoreError> {
        let mut listing = Listing::default();
        for path in self.manifest_files()? {
            match self.load(&path, &self.reference_of(&path)) {
                Ok(installed) => listing.installed.push(installed),
                Err(problem) => listing.problems.push(problem),
            }
        }
        Ok(listing)
    }

    /// The manifest and path of one installed model.
    ///
    /// # Errors
    /// Those of [`Store::resolve`], and [`StoreError::NotInstalled`].
    pub fn show(&self, reference: &Reference) -> Result<Installed, StoreError> {
        let installed = self.resolve(reference)?;
        installed.ok_or_else(|| StoreError::NotInstalled { reference: reference.to_string() })
    }

    /// Removes a model, an unfinished download of it, and every blob that no other model uses.
    ///
    /// Safe beside a pull: blobs are collected only while no pull is between placing a blob and naming it. A
    /// process that has the file open or mapped keeps it.
    ///
    /// # Errors
    /// [`StoreError::NotInstalled`] if there is nothing to remove; [`StoreError::UnknownModel`].
    pub fn remove(&self, reference: &Reference) -> Result<Removed, StoreError> {
        let full = self.complete(reference)?;
        let Some(manifest) = self.manifest_file(&full) else {
            return Err(StoreError::NotInstalled { reference: full.to_string() });
        };
        if !manifest.exists() && !self.is_known(&full) {
            return Err(self.unknown(&full));
        }
        if !self.root.exists() {
            return Err(StoreError::NotInstalled { reference: full.to_string() });
        }
        let mut freed = pull::discard_partial(self, &full)?;
        let was_installed = {
            let _exclusive = self.lock_exclusive()?;
            let there = remove_file(&manifest)?;
            if there {
                self.remove_empty_parents(&manifest);
                freed += self.collect()?;
            }
            there
        };
        if !was_installed && freed == 0 {
            return Err(StoreError::NotInstalled { reference: full.to_string() });
        }
        Ok(Removed { reference: full.to_string(), freed })
    }

    /// The catalogue's entry for a reference.
    pub(crate) fn model(&self, reference: &Reference) -> Option<&Model> {
        match reference {
            Reference::Catalogue { name, tag } => self.catalogue.find(name, tag.as_deref()),
            _ => None,
        }
    }

    pub(crate) fn blob(&self, sha256: &str) -> PathBuf {
        self.root.join("blobs").join(format!("sha256-{sha256}"))
    }

    pub(crate) fn partial(&self) -> PathBuf {
        self.root.join("partial")
    }

    pub(crate) fn splits(&self) -> PathBuf {
        self.root.join("splits")
    }

    pub(crate) fn manifest_file(&self, reference: &Reference) -> Option<PathBuf> {
        let mut path = self.root.join("manifests").join(reference.manifest_path()?).into_os_string();
        path.push(".json");
        Some(path.into())
    }

    pub(crate) fn create_directories(&self) -> Result<(), StoreError> {
        ["blobs", "manifests", "partial", "splits"].iter().try_for_each(|d| create_dir(&self.root.join(d)))
    }

    /// Held while blobs are placed and named; many pulls may hold it at once.
    pub(crate) fn lock_shared(&self) -> Result<File, StoreError> {
        let path = self.root.join("store.lock");
        let file = open_lock(&path)?;
        file.lock_shared().map_err(StoreError::io("lock", &path))?;
        Ok(file)
    }

    /// Held while blobs are collected.
    pub(crate) fn lock_exclusive(&self) -> Result<File, StoreError> {
        let path = self.root.join("store.lock");
        let file = open_lock(&path)?;
        file.lock().map_err(StoreError::io("lock", &path))?;
        Ok(file)
    }

    /// Removes blobs and split directories that no manifest names; gives the bytes freed. The caller holds the
    /// exclusive lock.
    pub(crate) fn collect(&self) -> Result<u64, StoreError> {
        let mut blobs = BTreeSet::new();
        let mut splits = BTreeSet::new();
        for path in self.manifest_files()? {
            // A manifest that can't be read may name any blob, so nothing can be called unused.
            let Ok(manifest) = Manifest::read(&path, "") else { return Ok(0) };
            splits.extend(pull::split_name(&manifest));
            blobs.extend(manifest.files.iter().map(|f| self.blob(&f.sha256)));
        }
        for entry in entries(&self.splits())? {
            let name = entry.file_name().unwrap_or_default().to_string_lossy().into_owned();
            if !splits.contains(&name) {
                fs::remove_dir_all(&entry).map_err(StoreError::io("remove", &entry))?;
            }
        }
        let mut freed = 0;
        for blob in entries(&self.root.join("blobs"))? {
            if !blobs.contains(&blob) {
                freed += fs::metadata(&blob).map_or(0, |m| m.len());
                remove_file(&blob)?;
            }
        }
        sync_dir(&self.root.join("blobs"))?;
        Ok(freed)
    }

    /// Adds the default tag to a bare name.
    fn complete(&self, reference: &Reference) -> Result<Reference, StoreError> {
        let Reference::Catalogue { name, tag: None } = reference else { return Ok(reference.clone()) };
        if let Some(model) = self.catalogue.find(name, None) {
            return Ok(Reference::Catalogue { name: name.clone(), tag: Some(model.tag.clone()) });
        }
        // A model that was installed when the catalogue still had it.
        let installed = entries(&self.root.join("manifests").join(name))?;
        match installed.as_slice() {
            [only] => {
                let tag = only.file_stem().map(|t| t.to_string_lossy().into_owned());
                Ok(Reference::Catalogue { name: name.clone(), tag })
            }
            _ => Err(self.unknown(reference)),
        }
    }

    fn is_known(&self, reference: &Reference) -> bool {
        !matches!(reference, Reference::Catalogue { .. }) || self.model(reference).is_some()
    }

    pub(crate) fn unknown(&self, reference: &Reference) -> StoreError {
        let name = reference.to_string();
        let installed = self.manifest_files().unwrap_or_default();
        let mut names: BTreeSet<String> = installed.iter().map(|p| self.reference_of(p)).collect();
        names.extend(self.catalogue.models.iter().map(|m| format!("{}:{}", m.name, m.tag)));
        let mut scored: Vec<(f64, String)> = names
            .into_iter()
            .map(|known| {
                let bare = known.split(':').next().unwrap_or_default();
                (strsim::jaro_winkler(&name, &known).max(strsim::jaro_winkler(&name, bare)), known)
            })
            .filter(|(score, _)| *score >= SIMILAR)
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        StoreError::UnknownModel { name, nearest: scored.into_iter().take(3).map(|(_, n)| n).collect() }
    }

    fn load(&self, path: &Path, reference: &str) -> Result<Installed, StoreError> {
        let manifest = Manifest::read(path, reference)?;
        let damaged = |path: &Path, reason: String| StoreError::Damaged {
            reference: reference.into(),
            path: path.into(),
            reason,
        };
        for file in &manifest.files {
            let blob = self.blob(&file.sha256);
            match fs::metadata(&blob) {
                Ok(found) if found.len() == file.size => {}
                Ok(found) => {
                    let reason = format!("the file has {} bytes instead of {}", found.len(), file.size);
                    return Err(damaged(&blob, reason));
                }
                Err(e) if e.kind() == io::ErrorKind::NotFound => {
                    return Err(damaged(&blob, "the file is missing".into()));
                }
                Err(e) => return Err(StoreError::io("look at", &blob)(e)),
            }
        }
        let path = match pull::split_name(&manifest) {
            None => self.blob(&manifest.files[0].sha256),
            Some(split) => {
                let dir = self.splits().join(split);
                if let Some(lost) = manifest.files.iter().map(|f| dir.join(&f.name)).find(|p| !p.exists()) {
                    return Err(damaged(&lost, "a link to a shard is missing".into()));
                }
                dir.join(&manifest.files[0].name)
            }
        };
        Ok(Installed { path, manifest: Some(manifest) })
    }

    /// All manifest files, in order of their paths.
    fn manifest_files(&self) -> Result<Vec<PathBuf>, StoreError> {
        let mut found = Vec::new();
        let mut directories = vec![self.root.join("manifests")];
        while let Some(directory) = directories.pop() {
            for entry in entries(&directory)? {
                if entry.is_dir() {
                    directories.push(entry);
                } else if entry.extension().is_some_and(|e| e == "json") {
                    found.push(entry);
                }
            }
        }
        found.sort();
        Ok(found)
    }

    /// The reference of a manifest: what it says, or, if it can't be read, what its place says.
    fn reference_of(&self, manifest: &Path) -> String {
        if let Ok(read) = Manifest::read(manifest, "") {
            return read.reference;
        }
        let place = manifest.strip_prefix(self.root.join("manifests")).unwrap_or(manifest).with_extension("");
        let parts: Vec<_> = place.iter().map(|p| p.to_string_lossy().into_owned()).collect();
        match parts.as_slice() {
            [name, tag] => format!("{name}:{tag}"),
            [hf, rest @ ..] if hf == "hf" => format!("hf:{}", rest.join("/")),
            _ => parts.join("/"),
        }
    }

    fn remove_empty_parents(&self, manifest: &Path) {
        let top = self.root.join("manifests");
        let mut directory = manifest.parent();
        // Removing a directory fails once it is not empty, which is where to stop.
        while let Some(d) = directory.filter(|d| *d != top && d.starts_with(&top)) {
            if fs::remove_dir(d).is_err() {
                break;
            }
            directory = d.parent();
        }
    }

    /// Takes the lock of one model's download.
    pub(crate) fn lock_key(
        &self,
        key: &str,
        waiting: impl FnMut() -> Result<(), StoreError>,
    ) -> Result<KeyLock, StoreError> {
        KeyLock::acquire(&self.partial().join(format!("{key}.lock")), waiting)
    }
}

/// How alike (Jaro-Winkler, 0 to 1) a name must be to be offered instead.
const SIMILAR: f64 = 0.75;

/// The paths in a directory, sorted; none if there is no such directory.
pub(crate) fn entries(directory: &Path) -> Result<Vec<PathBuf>, StoreError> {
    let read = match fs::read_dir(directory) {
        Ok(read) => read,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(e) => return Err(StoreError::io("list", directory)(e)),
    };
    let paths: io::Result<Vec<PathBuf>> = read.map(|entry| entry.map(|e| e.path())).collect();
    let mut paths = paths.map_err(StoreError::io("list", directory))?;
    paths.sort();
    Ok(paths)
}
