//! File-system work that must survive a crash or another process.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use sha2::{Digest, Sha256};

use crate::error::StoreError;

/// How long a waiting process sleeps between two looks at a lock.
const LOCK_POLL: Duration = Duration::from_millis(100);

/// Bytes read at once when an existing file is hashed or copied.
pub(crate) const CHUNK: usize = 1 << 20;

/// Lower-case hex.
pub(crate) fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Whether `text` is a SHA-256 in lower-case hex.
pub(crate) fn is_sha256(text: &str) -> bool {
    text.len() == 64 && text.bytes().all(|b| matches!(b, b'0'..=b'9' | b'a'..=b'f'))
}

pub(crate) fn create_dir(path: &Path) -> Result<(), StoreError> {
    fs::create_dir_all(path).map_err(StoreError::io("create the directory", path))
}

/// Removes a file; that it isn't there is fine.
pub(crate) fn remove_file(path: &Path) -> Result<bool, StoreError> {
    match fs::remove_file(path) {
        Ok(()) => Ok(true),
        Err(e) if e.kind() == io::ErrorKind::NotFound => Ok(false),
        Err(e) => Err(StoreError::io("remove", path)(e)),
    }
}

/// Makes renames and removals inside `dir` survive a power cut.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), StoreError> {
    // Only Unix has a way to flush a directory; elsewhere the file system's journal orders the rename.
    if cfg!(unix) {
        File::open(dir).and_then(|d| d.sync_all()).map_err(StoreError::io("flush the directory", dir))?;
    }
    Ok(())
}

/// Renames a flushed file into place and flushes the target's directory.
pub(crate) fn rename_into_place(from: &Path, to: &Path) -> Result<(), StoreError> {
    fs::rename(from, to).map_err(StoreError::io("rename into place", to))?;
    to.parent().map_or(Ok(()), sync_dir)
}

/// Writes a small file so that readers see the old or the new one, never a part. `temporary` is on the same file
/// system and nobody else's; a crash may leave it.
pub(crate) fn write_atomically(path: &Path, bytes: &[u8], temporary: &Path) -> Result<(), StoreError> {
    let write = || {
        let mut file = File::create(temporary)?;
        file.write_all(bytes)?;
        file.sync_all()
    };
    write().map_err(StoreError::io("write", temporary))?;
    rename_into_place(temporary, path)
}

/// An exclusive lock on a file that exists only as long as somebody holds it.
#[derive(Debug)]
pub(crate) struct KeyLock {
    path: PathBuf,
    // Held for its lock.
    _file: File,
}

impl KeyLock {
    /// Takes the lock; `waiting` is called now and then while another process has it, and can end the wait.
    pub(crate) fn acquire(
        path: &Path,
        mut waiting: impl FnMut() -> Result<(), StoreError>,
    ) -> Result<KeyLock, StoreError> {
        loop {
            let file = open_lock(path)?;
            loop {
                match file.try_lock() {
                    Ok(()) => break,
                    Err(TryLockError::WouldBlock) => {
                        waiting()?;
                        std::thread::sleep(LOCK_POLL);
                    }
                    Err(TryLockError::Error(e)) => return Err(StoreError::io("lock", path)(e)),
                }
            }
            // The holder before us may have removed the file that we had open; then our lock guards nothing.
            if is_same_file(&file, path) {
                return Ok(KeyLock { path: path.into(), _file: file });
            }
        }
    }
}

impl Drop for KeyLock {
    fn drop(&mut self) {
        // Where the identity check above can't be made the file stays.
        if cfg!(unix) {
            let _ = fs::remove_file(&self.path);
        }
    }
}

pub(crate) fn open_lock(path: &Path) -> Result<File, StoreError> {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .map_err(StoreError::io("open the lock", path))
}

#[cfg(unix)]
fn is_same_file(file: &File, path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    match (file.metadata(), fs::metadata(path)) {
        (Ok(a), Ok(b)) => (a.dev(), a.ino()) == (b.dev(), b.ino()),
        _ => false,
    }
}

#[cfg(not(unix))]
fn is_same_file(_file: &File, _path: &Path) -> bool {
    true
}

/// A file that is being downloaded: appended to and hashed in one go.
#[derive(Debug)]
pub(crate) struct Part {
    path: PathBuf,
    file: File,
    hash: Sha256,
    len: u64,
}

impl Part {
    /// Opens or creates the file, cuts it to at most `keep` bytes and hashes what stays; `advanced` is called with
    /// the number of bytes hashed so far.
    pub(crate) fn open(
        path: &Path,
        keep: u64,
        mut advanced: impl FnMut(u64) -> Result<(), StoreError>,
    ) -> Result<Part, StoreError> {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create(true)
            .truncate(false)
            .open(path)
            .map_err(StoreError::io("open", path))?;
        let length = file.metadata().map_err(StoreError::io("read", path))?.len();
        if length > keep {
            file.set_len(keep).map_err(StoreError::io("truncate", path))?;
        }
        let mut part = Part { path: path.into(), file, hash: Sha256::new(), len: 0 };
        let mut buffer = vec![0; CHUNK];
        loop {
            match part.file.read(&mut buffer).map_err(StoreError::io("read", path))? {
                0 => return Ok(part),
                n => {
                    part.hash.update(&buffer[..n]);
                    part.len += n as u64;
                    advanced(part.len)?;
                }
            }
        }
    }

    pub(crate) fn len(&self) -> u64 {
        self.len
    }

    pub(crate) fn append(&mut self, bytes: &[u8]) -> Result<(), StoreError> {
        self.file.write_all(bytes).map_err(StoreError::io("write", &self.path))?;
        self.hash.update(bytes);
        self.len += bytes.len() as u64;
        Ok(())
    }

    /// Throws away what is there.
    pub(crate) fn restart(&mut self) -> Result<(), StoreError> {
        self.file
            .set_len(0)
            .and_then(|()| self.file.seek(SeekFrom::Start(0)))
            .map_err(StoreError::io("truncate", &self.path))?;
        self.hash = Sha256::new();
        self.len = 0;
        Ok(())
    }

    /// Flushes the file to the disk and gives its SHA-256.
    pub(crate) fn finish(&self) -> Result<String, StoreError> {
        self.file.sync_all().map_err(StoreError::io("flush", &self.path))?;
        Ok(hex(&self.hash.clone().finalize()))
    }
}

/// Fails if the file system of `dir` has fewer than `needed` bytes (and some room to breathe) free.
pub(crate) fn require_space(dir: &Path, needed: u64) -> Result<(), StoreError> {
    const RESERVE: u64 = 64 << 20;
    let needed = needed.saturating_add(RESERVE);
    let available = fs4::available_space(dir).map_err(StoreError::io("measure", dir))?;
    if available < needed {
        return Err(StoreError::NoSpace { path: dir.into(), needed, available });
    }
    Ok(())
}
