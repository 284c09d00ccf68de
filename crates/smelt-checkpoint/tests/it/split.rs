//! Models in several files.

use std::path::{Path, PathBuf};

use smelt_checkpoint::{Checkpoint, Error};

use crate::raw::{F32, I32, Raw, U16, U32};

/// Writes part `number` (from 0) of 3 that says it is part `says`, with one tensor, and gives its path.
fn part(directory: &Path, number: u16, says: u16, tensor: &str) -> PathBuf {
    let raw = Raw::new(1, 4)
        .pair("split.no", U16, &says.to_le_bytes())
        .pair("split.count", U16, &3_u16.to_le_bytes())
        .pair("split.tensors.count", I32, &3_u32.to_le_bytes())
        .pair("only.in", U32, &u32::from(number).to_le_bytes())
        .tensor(tensor, &[2], F32, 0)
        .pad(32)
        .bytes(&[number as u8; 8]);
    let path = directory.join(format!("m-{:05}-of-00003.gguf", number + 1));
    std::fs::write(&path, raw.0).unwrap();
    path
}

fn parts(directory: &Path) -> Vec<PathBuf> {
    (0..3).map(|n| part(directory, n, n, ["a", "b", "c"][usize::from(n)])).collect()
}

#[test]
fn opening_any_part_opens_all() {
    let directory = tempfile::tempdir().unwrap();
    for path in parts(directory.path()) {
        let checkpoint = Checkpoint::open(&path).unwrap();
        assert_eq!(checkpoint.path(), path);
        let names: Vec<_> = checkpoint.tensors().map(|t| t.name.as_str()).collect();
        assert_eq!(names, ["a", "b", "c"]);
        assert_eq!(&*checkpoint.require("c").unwrap().bytes, [2; 8]);
        assert_eq!(checkpoint.metadata().u32("only.in").unwrap(), Some(0), "the first part's keys hold");
        assert_eq!(checkpoint.tensor_bytes(), 24);
        checkpoint.check_intact().unwrap();
    }
}

#[test]
fn a_missing_part_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let paths = parts(directory.path());
    std::fs::remove_file(&paths[1]).unwrap();
    for opened in [&paths[0], &paths[2]] {
        let error = Checkpoint::open(opened).unwrap_err();
        assert!(matches!(error, Error::PartMissing { part: 2, count: 3, .. }));
        assert!(error.to_string().contains("m-00002-of-00003.gguf"), "{error}");
    }
}

#[test]
fn a_damaged_part_is_named() {
    let directory = tempfile::tempdir().unwrap();
    let paths = parts(directory.path());
    std::fs::write(&paths[1], b"GGUF").unwrap();
    let error = Checkpoint::open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains("m-00002-of-00003.gguf: byte 4: header: the version takes 4 bytes"), "{error}");
}

#[test]
fn parts_that_do_not_belong_together_are_refused() {
    let directory = tempfile::tempdir().unwrap();
    let paths = parts(directory.path());
    part(directory.path(), 1, 2, "b");
    let error = Checkpoint::open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains("m-00002-of-00003.gguf: key \"split.no\" is 2 but must be 1"), "{error}");
    part(directory.path(), 1, 1, "a");
    let error = Checkpoint::open(&paths[0]).unwrap_err().to_string();
    assert!(error.contains("m-00002-of-00003.gguf: tensor \"a\" is also in "), "{error}");
}

#[test]
fn the_number_of_tensors_is_checked() {
    let directory = tempfile::tempdir().unwrap();
    let paths = parts(directory.path());
    let more = Raw::new(2, 2)
        .pair("split.no", U16, &[1, 0])
        .pair("split.count", U16, &[3, 0])
        .tensor("d", &[2], F32, 0)
        .tensor("e", &[2], F32, 32)
        .pad(32)
        .data(64);
    std::fs::write(&paths[1], more.0).unwrap();
    let error = Checkpoint::open(&paths[0]).unwrap_err().to_string();
    assert!(
        error.contains("m-00001-of-00003.gguf: key \"split.tensors.count\" is 3 but must be 4"),
        "{error}"
    );
}

#[test]
fn names_and_keys_must_agree() {
    let directory = tempfile::tempdir().unwrap();
    let paths = parts(directory.path());
    let renamed = directory.path().join("renamed.gguf");
    std::fs::copy(&paths[1], &renamed).unwrap();
    let error = Checkpoint::open(&renamed).unwrap_err().to_string();
    assert!(error.contains("part 2 of 3, so its name must end in -00002-of-00003.gguf"), "{error}");

    let bare = directory.path().join("bare-00001-of-00002.gguf");
    std::fs::write(&bare, Raw::new(0, 0).0).unwrap();
    let error = Checkpoint::open(&bare).unwrap_err().to_string();
    assert!(error.contains("says part 1 of 2, but the file has no such key"), "{error}");

    // Repositories name single files so.
    let single = directory.path().join("single-00001-of-00001.gguf");
    std::fs::write(&single, Raw::new(0, 0).0).unwrap();
    Checkpoint::open(&single).unwrap();
}
