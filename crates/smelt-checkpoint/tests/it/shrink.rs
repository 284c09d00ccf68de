//! A file that shrinks or grows while it is mapped.

use std::fs::{File, OpenOptions};
use std::path::{Path, PathBuf};

use smelt_checkpoint::{Checkpoint, Error};

use crate::raw::{F32, Raw};

/// Bytes of the one tensor: many pages, whatever the page size.
const DATA: usize = 1 << 20;

fn model(directory: &Path) -> PathBuf {
    let path = directory.join("model.gguf");
    let raw = Raw::new(1, 0).tensor("t", &[DATA as u64 / 4], F32, 0).pad(32).data(DATA);
    std::fs::write(&path, raw.0).unwrap();
    path
}

fn resize(path: &Path, len: u64) {
    let file: File = OpenOptions::new().write(true).open(path).unwrap();
    file.set_len(len).unwrap();
}

#[test]
fn a_file_that_shrinks_gives_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = model(directory.path());
    let checkpoint = Checkpoint::open(&path).unwrap();
    let len = checkpoint.file_bytes();
    let tensor = checkpoint.require("t").unwrap();
    assert_eq!(tensor.bytes[DATA - 1], ((DATA - 1) % 251) as u8);
    checkpoint.check_intact().unwrap();

    resize(&path, 4096);
    // Several threads touch every lost page at once.
    let sum: u64 = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..4)
            .map(|_| scope.spawn(|| tensor.bytes[1 << 16..].iter().map(|&b| u64::from(b)).sum::<u64>()))
            .collect();
        threads.into_iter().map(|thread| thread.join().unwrap()).sum()
    });
    assert_eq!(sum, 0, "lost pages read as zeros");
    match checkpoint.check_intact() {
        Err(Error::Truncated { file, expected, found }) => {
            assert_eq!((file, expected, found), (path.clone(), len, 4096));
        }
        other => panic!("{other:?}"),
    }

    // Cut and grown again: the length is right, the bytes that were read were not.
    resize(&path, len);
    assert!(matches!(checkpoint.check_intact(), Err(Error::Unreadable { .. })));
}

#[test]
fn a_file_that_grows_gives_an_error() {
    let directory = tempfile::tempdir().unwrap();
    let path = model(directory.path());
    let checkpoint = Checkpoint::open(&path).unwrap();
    resize(&path, checkpoint.file_bytes() + 1);
    let error = checkpoint.check_intact().unwrap_err().to_string();
    assert!(error.contains("changed while it was in use"), "{error}");
}

#[test]
fn another_map_is_not_blamed() {
    let directory = tempfile::tempdir().unwrap();
    let other = tempfile::tempdir().unwrap();
    let (path, cut) = (model(directory.path()), model(other.path()));
    let (whole, shrunk) = (Checkpoint::open(&path).unwrap(), Checkpoint::open(&cut).unwrap());
    resize(&cut, 4096);
    assert_eq!(shrunk.require("t").unwrap().bytes[DATA - 1], 0);
    assert!(shrunk.check_intact().is_err());
    whole.check_intact().unwrap();
    drop(shrunk);
    assert_eq!(whole.require("t").unwrap().bytes[DATA - 1], ((DATA - 1) % 251) as u8);
}
