//! The list of formats.

use crate::data::crate_dir;
use smelt_quant::{FORMATS, by_ggml_type, by_name};
use std::collections::BTreeSet;

#[test]
fn every_file_is_registered() {
    let dir = crate_dir().join("src/formats");
    let files: BTreeSet<String> = std::fs::read_dir(dir)
        .unwrap()
        .map(|entry| entry.unwrap().path().file_stem().unwrap().to_str().unwrap().to_owned())
        .filter(|stem| stem != "mod")
        .collect();
    let registered: BTreeSet<String> = FORMATS.iter().map(|f| f.name.to_lowercase()).collect();
    assert_eq!(files, registered);
}

#[test]
fn formats_ascend_by_type_id() {
    assert!(FORMATS.is_sorted_by(|a, b| a.ggml_type < b.ggml_type));
}

#[test]
fn formats_are_found_by_id_and_name() {
    for format in FORMATS {
        assert_eq!(by_ggml_type(format.ggml_type), Some(*format));
        assert_eq!(by_name(&format.name.to_lowercase()).map(|f| f.name), Some(format.name));
    }
    assert_eq!(by_ggml_type(4), None, "Q4_2 is gone from GGUF");
    assert!(by_name("Q4_2").is_none());
}

#[test]
fn rows_are_whole_blocks() {
    for format in FORMATS {
        assert_eq!(format.row_bytes(format.block_len * 3), Some(format.block_bytes * 3), "{}", format.name);
        assert_eq!(format.row_bytes(0), Some(0));
        if format.block_len > 1 {
            assert_eq!(format.row_bytes(format.block_len + 1), None);
        }
        let huge = usize::MAX / format.block_len * format.block_len;
        if format.block_bytes > format.block_len {
            assert_eq!(format.row_bytes(huge), None);
        }
    }
}
