//! The typed getters.

use smelt_checkpoint::{Checkpoint, GgufWriter, Value};

fn checkpoint(pairs: &[(&str, Value)]) -> Checkpoint {
    let mut writer = GgufWriter::new();
    pairs.iter().for_each(|(key, value)| writer.set(key, value.clone()).unwrap());
    Checkpoint::from_bytes(writer.start(Vec::new()).unwrap().finish().unwrap()).unwrap()
}

#[test]
fn integers_of_any_type_that_fit() {
    let values: [Value; 8] = [
        7_u8.into(),
        7_i8.into(),
        7_u16.into(),
        7_i16.into(),
        7_u32.into(),
        7_i32.into(),
        7_u64.into(),
        7_i64.into(),
    ];
    for value in values {
        let checkpoint = checkpoint(&[("k", value)]);
        let metadata = checkpoint.metadata();
        assert_eq!(metadata.u32("k").unwrap(), Some(7));
        assert_eq!(metadata.u64("k").unwrap(), Some(7));
        assert_eq!(metadata.i32("k").unwrap(), Some(7));
        assert_eq!(metadata.require_u32("k").unwrap(), 7);
    }
}

#[test]
fn arrays_of_any_integer_type_that_fit() {
    let checkpoint = checkpoint(&[("k", vec![1_i64, 2].into()), ("n", vec![-1_i8].into())]);
    let metadata = checkpoint.metadata();
    assert_eq!(metadata.u32_array("k").unwrap().unwrap(), [1, 2]);
    assert_eq!(metadata.i32_array("n").unwrap().unwrap(), [-1]);
    let error = metadata.u32_array("n").unwrap_err().to_string();
    assert_eq!(error, "(memory): key \"n\" must be an array of u32, but -1 does not fit");
}

#[test]
fn absent_keys_are_none_unless_required() {
    let checkpoint = checkpoint(&[]);
    let metadata = checkpoint.metadata();
    assert!(metadata.is_empty() && metadata.get("k").is_none());
    assert_eq!(metadata.u32("k").unwrap(), None);
    assert_eq!(metadata.str("k").unwrap(), None);
    assert_eq!(metadata.f32_array("k").unwrap(), None);
    let missing = "(memory): key \"k\" is missing: the file is incomplete or of another architecture";
    assert_eq!(metadata.require_u32("k").unwrap_err().to_string(), missing);
    assert_eq!(metadata.require_f32("k").unwrap_err().to_string(), missing);
    assert_eq!(metadata.require_str("k").unwrap_err().to_string(), missing);
    assert_eq!(metadata.require_str_array("k").unwrap_err().to_string(), missing);
    let error = checkpoint.require("output.weight").unwrap_err().to_string();
    assert!(error.starts_with("(memory): tensor \"output.weight\" is missing"), "{error}");
}

#[test]
fn other_types_are_named() {
    let checkpoint = checkpoint(&[
        ("text", "x".into()),
        ("texts", vec!["x".to_owned()].into()),
        ("float", 1.5_f32.into()),
        ("double", 1.5_f64.into()),
        ("big", u64::MAX.into()),
        ("flags", vec![true, false].into()),
    ]);
    let metadata = checkpoint.metadata();
    assert_eq!(metadata.f32("double").unwrap(), Some(1.5));
    assert_eq!(metadata.bool_array("flags").unwrap().unwrap(), [true, false]);
    let errors = [
        (metadata.u32("text").err(), "key \"text\" must be a u32, but holds string"),
        (metadata.u32("float").err(), "key \"float\" must be a u32, but holds f32"),
        (metadata.u32("big").err(), "key \"big\" must be a u32, but 18446744073709551615 does not fit"),
        (metadata.f32("big").err(), "key \"big\" must be an f32, but holds u64"),
        (metadata.bool("flags").err(), "key \"flags\" must be a bool, but holds array of bool"),
        (metadata.str("texts").err(), "key \"texts\" must be a string, but holds array of string"),
        (metadata.str_array("text").err(), "key \"text\" must be an array of strings, but holds string"),
        (metadata.f32_array("flags").err(), "key \"flags\" must be an array of f32, but holds array of bool"),
    ];
    for (error, expected) in errors {
        assert_eq!(error.unwrap().to_string(), format!("(memory): {expected}"));
    }
}
