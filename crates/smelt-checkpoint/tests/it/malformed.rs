//! Files that are wrong in one way each, and what the error says.

use smelt_checkpoint::{Checkpoint, Error};

use crate::raw::{ARRAY, BOOL, F32, I32, Q8_0, Raw, STRING, U16, U32};

/// A malformed file. The names in capitals are the classes of the hand-made files of llama.cpp's `test-gguf`.
struct Case {
    name: &'static str,
    file: Raw,
    /// What the message starts with after the file's name.
    error: &'static str,
}

fn case(name: &'static str, file: Raw, error: &'static str) -> Case {
    Case { name, file, error }
}

/// A file with one key.
fn one_key(key: &str, value_type: u32, value: &[u8]) -> Raw {
    Raw::new(0, 1).pair(key, value_type, value)
}

/// The start of a file of two tensors with this alignment.
fn alignment(found: u32) -> Raw {
    Raw::new(2, 1).pair("general.alignment", U32, &found.to_le_bytes())
}

/// A file of one tensor and 128 bytes of data.
fn one_tensor(dims: &[u64], tensor_type: u32) -> Raw {
    Raw::new(1, 0).tensor("t", dims, tensor_type, 0).pad(32).data(128)
}

fn header_cases() -> Vec<Case> {
    let version = |v: u32| Raw::default().bytes(b"GGUF").u32(v).u64(0).u64(0);
    vec![
        case(
            "HEADER_BAD_MAGIC",
            Raw::default().bytes(b"FUGG").u32(3).u64(0).u64(0),
            "byte 0: header: the file starts with FUGG, not with \"GGUF\"",
        ),
        case(
            "unprintable magic",
            Raw::default().bytes(b"PK\x03\x1b").u32(3).u64(0).u64(0),
            "byte 0: header: the file starts with PK\\x03\\x1b, not with \"GGUF\"",
        ),
        case("HEADER_BAD_VERSION_0", version(0), "byte 4: header: GGUF version 0 is unknown"),
        case("HEADER_BAD_VERSION_1", version(1), "byte 4: header: GGUF version 1 is too old"),
        case("HEADER_BAD_VERSION_FUTURE", version(4), "byte 4: header: GGUF version 4 is unknown"),
        case(
            "big-endian",
            version(3_u32.swap_bytes()),
            "byte 4: header: the file is big-endian (version 3); Smelt reads little-endian GGUF only",
        ),
        case(
            "HEADER_BAD_N_TENSORS",
            Raw::new(u64::MAX, 0),
            "byte 8: header: 18446744073709551615 tensors cannot fit into the 0 bytes that are left",
        ),
        case(
            "HEADER_BAD_N_KV",
            Raw::new(0, u64::MAX),
            "byte 16: header: 18446744073709551615 keys cannot fit into the 0 bytes that are left",
        ),
        case(
            "one key more than there are bytes for",
            Raw::new(0, 2).data(27),
            "byte 16: header: 2 keys cannot fit into the 27 bytes that are left",
        ),
        case(
            "one tensor more than there are bytes for",
            Raw::new(2, 0).data(49),
            "byte 8: header: 2 tensors cannot fit into the 49 bytes that are left",
        ),
    ]
}

fn key_cases() -> Vec<Case> {
    vec![
        case(
            "KV_BAD_KEY_SIZE",
            Raw::new(0, 1).u64(u64::MAX).bytes(b"my_key").u32(U32).u32(0),
            "byte 24: key number 0: the key is 18446744073709551615 bytes long; GGUF allows 65535",
        ),
        case(
            "a key longer than the file",
            Raw::new(0, 1).u64(60000).bytes(b"my_key").u32(U32).u32(0),
            "byte 32: key number 0: key takes 60000 bytes but the file has only 14 left",
        ),
        case("KV_EMPTY_KEY", one_key("", U32, &[0; 12]), "byte 24: key number 0: the key is empty"),
        case(
            "key of invalid UTF-8",
            Raw::new(0, 1).string(b"ab\xff").u32(U32).u32(0),
            "byte 32: key number 0: key is not valid UTF-8 from its byte 2 on",
        ),
        case("KV_BAD_TYPE", one_key("k", 13, &[0; 8]), "byte 33: key \"k\": value type 13 is unknown"),
        case(
            "KV_BAD_VALUE_SIZE",
            one_key("k", STRING, &u64::MAX.to_le_bytes()),
            "byte 45: key \"k\": the value takes 18446744073709551615 bytes but the file has only 0 left",
        ),
        case(
            "value of invalid UTF-8",
            Raw::new(0, 1).string("k").u32(STRING).string(b"\xc3("),
            "byte 45: key \"k\": the value is not valid UTF-8 from its byte 0 on",
        ),
        case("a bool of 2", one_key("k", BOOL, &[2]), "byte 37: key \"k\": a bool must be 0 or 1, not 2"),
        case(
            "KV_DUPLICATE_KEY",
            Raw::new(0, 2).pair("k", U32, &[0; 4]).pair("k", U16, &[0; 2]),
            "byte 41: key \"k\": appears twice",
        ),
        case(
            "KV_BAD_ALIGN",
            one_key("general.alignment", U32, &13_u32.to_le_bytes()),
            "byte 49: key \"general.alignment\": the alignment must be a power of two, not 13",
        ),
        case(
            "alignment zero",
            one_key("general.alignment", U32, &[0; 4]),
            "byte 49: key \"general.alignment\": the alignment must be a power of two, not 0",
        ),
        case(
            "KV_WRONG_TYPE_ALIGN",
            one_key("general.alignment", I32, &32_u32.to_le_bytes()),
            "byte 49: key \"general.alignment\": the alignment must be a u32, not i32",
        ),
        case(
            "control characters in a key",
            one_key("a\n\u{1b}[31m", 13, &[0; 8]),
            "byte 39: key \"a\\n\\u{1b}[31m\": value type 13 is unknown",
        ),
    ]
}

fn array_cases() -> Vec<Case> {
    let array = |of: u32, count: u64| Raw::new(0, 1).string("k").u32(ARRAY).u32(of).u64(count);
    vec![
        case(
            "array of arrays",
            array(ARRAY, 1).u32(U32).u64(0),
            "byte 37: key \"k\": an array of arrays, which no GGUF reader takes",
        ),
        case("array of an unknown type", array(13, 1), "byte 37: key \"k\": value type 13 is unknown"),
        case(
            "more numbers than bytes",
            array(U32, 3).u64(0),
            "byte 49: key \"k\": the array takes 12 bytes but the file has only 8 left",
        ),
        case(
            "an array length whose product overflows",
            array(U32, 1 << 62).data(64),
            "byte 49: key \"k\": the array takes 18446744073709551615 bytes but the file has only 64 left",
        ),
        case(
            "more strings than bytes",
            array(STRING, u64::MAX / 8).data(64),
            "byte 41: key \"k\": 2305843009213693951 strings cannot fit into the 64 bytes that are left",
        ),
        case(
            "a string of an array that is too long",
            array(STRING, 2).string("a").u64(9).bytes(b"a"),
            "byte 66: key \"k\": a string of the array takes 9 bytes but the file has only 1 left",
        ),
        case(
            "a bool of 255 in an array",
            array(BOOL, 3).bytes(&[0, 1, 255]),
            "byte 51: key \"k\": a bool must be 0 or 1, not 255",
        ),
    ]
}

fn tensor_cases() -> Vec<Case> {
    let long = "my_tensor_0_with_a_very_long_name_which_is_longer_than_what_is_allowed_for_ggml_tensors";
    vec![
        case(
            "TENSORS_BAD_NAME_SIZE",
            Raw::new(1, 0).tensor(long, &[32], F32, 0).pad(32).data(128),
            "byte 24: tensor number 0: the tensor name is 87 bytes long; GGUF allows 64",
        ),
        case(
            "an empty tensor name",
            Raw::new(1, 0).tensor("", &[32], F32, 0).pad(32).data(128),
            "byte 24: tensor number 0: the tensor name is empty",
        ),
        case(
            "TENSORS_BAD_OFFSET",
            Raw::new(1, 0).tensor("t", &[32], F32, u64::MAX).pad(32).data(128),
            "byte 49: tensor \"t\": the data offset 18446744073709551615 is no multiple of the alignment 32",
        ),
        case(
            "an offset past the end",
            Raw::new(1, 0).tensor("t", &[32], F32, 1 << 62).pad(32).data(128),
            "byte 49: tensor \"t\": the data offset is 4611686018427387904, but the data of the tensor before \
             ends at 0: they leave a gap",
        ),
        case(
            "overlapping tensors",
            Raw::new(2, 0).tensor("t", &[32], F32, 0).tensor("u", &[32], F32, 96).pad(32).data(256),
            "byte 82: tensor \"u\": the data offset is 96, but the data of the tensor before ends at 128: they overlap",
        ),
        case(
            "TENSORS_DUPLICATE_NAME",
            Raw::new(2, 0).tensor("t", &[32], F32, 0).tensor("t", &[32], F32, 128).pad(32).data(256),
            "byte 57: tensor \"t\": appears twice",
        ),
        case(
            "TENSORS_BAD_ALIGN",
            alignment(13).tensor("t", &[1], F32, 0).tensor("u", &[1], F32, 13).pad(13).data(17),
            "byte 49: key \"general.alignment\": the alignment must be a power of two, not 13",
        ),
        case(
            "TENSORS_INCONSISTENT_ALIGN",
            Raw::new(2, 0).tensor("t", &[1], F32, 0).tensor("u", &[1], F32, 4).data(8),
            "byte 82: tensor \"u\": the data offset 4 is no multiple of the alignment 32",
        ),
    ]
}

fn shape_cases() -> Vec<Case> {
    vec![
        case(
            "TENSORS_BAD_N_DIMS",
            one_tensor(&[32, 1, 1, 1, 1], F32),
            "byte 33: tensor \"t\": 5 dimensions; GGUF allows at most 4",
        ),
        case(
            "TENSORS_BAD_SHAPE",
            one_tensor(&[u64::MAX], F32),
            "byte 37: tensor \"t\": dimension 0 is 18446744073709551615; it must be between 1 and 2^63-1",
        ),
        // llama.cpp takes a dimension of zero; no model has one, and nothing downstream should have to expect it.
        case(
            "TENSORS_ZERO_DIM",
            one_tensor(&[32, 0], F32),
            "byte 37: tensor \"t\": dimension 1 is 0; it must be between 1 and 2^63-1",
        ),
        case(
            "TENSORS_NE_TOO_BIG",
            one_tensor(&[4 * 0x7fff_ffff, 4 * 0x7fff_ffff], F32),
            "byte 37: tensor \"t\": the shape [8589934588, 8589934588] has more values or bytes than 63 bits",
        ),
        case(
            "TENSORS_NBYTES_TOO_BIG",
            one_tensor(&[1 << 31, 1 << 30], F32),
            "byte 37: tensor \"t\": the shape [2147483648, 1073741824] has more values or bytes than 63 bits",
        ),
        case(
            "bytes that overflow after the block",
            one_tensor(&[1 << 62], Q8_0),
            "byte 49: tensor \"t\": the data takes 4899916394579099648 bytes but the file has only 128 left",
        ),
        case(
            "a product of four that wraps to zero",
            one_tensor(&[1 << 16, 1 << 16, 1 << 16, 1 << 16], F32),
            "byte 37: tensor \"t\": the shape [65536, 65536, 65536, 65536] has more values or bytes than 63 bits",
        ),
        case(
            "TENSORS_BAD_TYPE",
            one_tensor(&[32], 42_000),
            "byte 45: tensor \"t\": tensor type 42000 is not one that Smelt reads",
        ),
        case(
            "a row that is no multiple of the block",
            one_tensor(&[33, 32], Q8_0),
            "byte 37: tensor \"t\": rows of 33 values cannot be Q8_0, which packs 32 at a time",
        ),
    ]
}

fn data_cases() -> Vec<Case> {
    vec![
        case(
            "DATA_NOT_ENOUGH_DATA",
            Raw::new(1, 0).tensor("t", &[32], F32, 0).pad(32).data(127),
            "byte 49: tensor \"t\": the data takes 128 bytes but the file has only 127 left",
        ),
        case(
            "no data at all, not even the padding",
            Raw::new(1, 0).tensor("t", &[32], F32, 0),
            "byte 49: tensor \"t\": the data takes 128 bytes but the file has only 0 left",
        ),
        case(
            "DATA_BAD_ALIGN",
            alignment(13).tensor("t", &[1], F32, 0).tensor("u", &[1], F32, 13).pad(13).data(26),
            "byte 49: key \"general.alignment\": the alignment must be a power of two, not 13",
        ),
        case(
            "DATA_INCONSISTENT_ALIGN",
            alignment(64).tensor("t", &[1], F32, 0).tensor("u", &[1], F32, 32).pad(64).data(128),
            "byte 115: tensor \"u\": the data offset 32 is no multiple of the alignment 64",
        ),
        case(
            "an alignment larger than the file",
            alignment(1 << 31).tensor("t", &[1], F32, 0).tensor("u", &[1], F32, 1 << 31).data(64),
            "byte 82: tensor \"t\": the data takes 4 bytes but the file has only 0 left",
        ),
        case(
            "DATA_MEM_SIZE_OVERFLOW",
            Raw::new(2, 0)
                .tensor("t", &[(1 << 61) - 32], F32, 0)
                .tensor("u", &[(1 << 61) - 32], F32, (1 << 63) - 128)
                .pad(32)
                .data(32),
            "byte 49: tensor \"t\": the data takes 9223372036854775680 bytes but the file has only 32 left",
        ),
        case(
            "data whose sum overflows",
            (0..3)
                .fold(Raw::new(3, 0), |raw, n: u64| {
                    raw.tensor(&format!("t{n}"), &[(1 << 61) - 32], F32, n * ((1 << 63) - 128))
                })
                .pad(32)
                .data(32),
            "byte 118: tensor \"t2\": the data takes 9223372036854775680 bytes but the file has only",
        ),
    ]
}

#[test]
fn each_malformed_file_is_refused_with_its_reason() {
    let mut wrong = Vec::new();
    let cases = [header_cases(), key_cases(), array_cases(), tensor_cases(), shape_cases(), data_cases()];
    for Case { name, file, error } in cases.into_iter().flatten() {
        match Checkpoint::from_bytes(file.0) {
            Err(found) => {
                let found = found.to_string();
                if !found.strip_prefix("(memory): ").is_some_and(|found| found.starts_with(error)) {
                    wrong.push(format!("{name}:\n   found {found}\nexpected (memory): {error}"));
                }
            }
            Ok(_) => wrong.push(format!("{name}: loads")),
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n\n"));
}

/// The hand-made files of llama.cpp's `test-gguf` that must load.
#[test]
fn well_formed_files_load() {
    let custom = || alignment(1).tensor("t", &[3], F32, 0).tensor("u", &[1], F32, 12);
    for (name, file, n_tensors) in [
        ("HEADER_EMPTY", Raw::new(0, 0), 0),
        ("version 2", Raw::default().bytes(b"GGUF").u32(2).u64(0).u64(0), 0),
        ("KV_SUCCESS", one_key("k", STRING, &[0; 8]), 0),
        ("TENSORS_SUCCESS", one_tensor(&[32], F32), 1),
        ("a scalar", one_tensor(&[], F32), 1),
        ("TENSORS_CUSTOM_ALIGN", custom().data(16), 2),
        ("DATA_CUSTOM_ALIGN", custom().data(64), 2),
    ] {
        let checkpoint = Checkpoint::from_bytes(file.0).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert_eq!(checkpoint.tensors().len(), n_tensors, "{name}");
    }
}

/// A file with every section: keys of several types, an array of strings, three tensors.
fn complete() -> Raw {
    Raw::new(3, 5)
        .pair("general.architecture", STRING, Raw::default().string("llama").0.as_slice())
        .pair("llama.block_count", U32, &2_u32.to_le_bytes())
        .pair("llama.flag", BOOL, &[1])
        .pair("tokens", ARRAY, &Raw::default().u32(STRING).u64(3).string("a").string("").string("▁b").0)
        .pair("types", ARRAY, &Raw::default().u32(I32).u64(3).u32(1).u32(2).u32(3).0)
        .tensor("a", &[8, 2], F32, 0)
        .tensor("b", &[64], Q8_0, 64)
        .tensor("c", &[1], F32, 160)
        .pad(32)
        .data(164)
}

/// The error must say that bytes are missing.
fn assert_truncated(len: usize, result: Result<Checkpoint, Error>) {
    let error = result.expect_err("a cut file must not load").to_string();
    assert!(error.contains(" left"), "cut to {len} bytes: {error}");
}

#[test]
fn a_file_cut_anywhere_is_refused() {
    let whole = complete().0;
    let loaded = Checkpoint::from_bytes(whole.clone()).unwrap();
    assert_eq!((loaded.metadata().len(), loaded.tensors().len()), (5, 3));
    for len in 0..whole.len() {
        assert_truncated(len, Checkpoint::from_bytes(whole[..len].to_vec()));
    }
}

#[test]
fn a_file_on_disk_cut_anywhere_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("cut.gguf");
    let whole = complete().0;
    for len in (0..whole.len()).step_by(7) {
        std::fs::write(&path, &whole[..len]).unwrap();
        assert_truncated(len, Checkpoint::open(&path));
    }
}

/// Any one byte set to any value: a checkpoint or an error, no panic, and tensors inside the file.
#[test]
fn any_byte_may_be_wrong() {
    let whole = complete().0;
    for at in 0..whole.len() - 164 {
        for value in 0..=u8::MAX {
            let mut file = whole.clone();
            file[at] = value;
            if let Ok(checkpoint) = Checkpoint::from_bytes(file) {
                for info in checkpoint.tensors() {
                    assert_eq!(checkpoint.require(&info.name).unwrap().bytes.len(), info.byte_len);
                }
            }
        }
    }
}

#[test]
fn tiny_files_are_refused() {
    for len in 0..64 {
        for fill in [0, 0xff, b'G'] {
            assert!(Checkpoint::from_bytes(vec![fill; len]).is_err(), "{len} bytes of {fill}");
        }
        let mut file = b"GGUF\x03\0\0\0".to_vec();
        file.resize(file.len().max(len), 0xff);
        assert!(Checkpoint::from_bytes(file).is_err(), "{len} bytes");
    }
}

#[test]
fn what_is_no_file_is_refused() {
    let directory = tempfile::tempdir().unwrap();
    let missing = directory.path().join("missing.gguf");
    assert!(matches!(Checkpoint::open(&missing), Err(Error::Open { .. })));
    assert!(matches!(Checkpoint::open(directory.path()), Err(Error::NotAFile { .. })));
}
