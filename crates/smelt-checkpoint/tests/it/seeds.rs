//! The seeds of the fuzz target, which were not made by the writer of this crate, load.

use std::path::Path;

use smelt_checkpoint::{Array, Checkpoint, Value};

fn seed(name: &str) -> Checkpoint {
    let seeds = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/seeds/gguf");
    Checkpoint::open(&seeds.join(name)).unwrap()
}

#[test]
fn empty() {
    let checkpoint = seed("empty.gguf");
    assert!(checkpoint.metadata().is_empty());
    assert_eq!((checkpoint.tensors().len(), checkpoint.tensor_bytes()), (0, 0));
}

#[test]
fn scalars() {
    let checkpoint = seed("scalars.gguf");
    let found: Vec<_> = checkpoint.metadata().iter().collect();
    let expected: [(&str, Value); 12] = [
        ("k.u8", 200_u8.into()),
        ("k.i8", (-3_i8).into()),
        ("k.u16", 65535_u16.into()),
        ("k.i16", (-300_i16).into()),
        ("k.u32", 7_u32.into()),
        ("k.i32", (-9_i32).into()),
        ("k.f32", 1.5_f32.into()),
        ("k.bool", true.into()),
        ("k.u64", (1_u64 << 40).into()),
        ("k.i64", (-1_i64 << 40).into()),
        ("k.f64", 0.1_f64.into()),
        ("k.str", "héllo".into()),
    ];
    assert_eq!(found.len(), expected.len());
    for (found, (key, value)) in found.into_iter().zip(&expected) {
        assert_eq!(found, (*key, value));
    }
}

#[test]
fn arrays() {
    let checkpoint = seed("arrays.gguf");
    let metadata = checkpoint.metadata();
    assert_eq!(metadata.str_array("a.str").unwrap().unwrap(), ["a", "", "▁b"]);
    assert_eq!(metadata.f32_array("a.f32").unwrap().unwrap(), [1.5, 1.5]);
    assert_eq!(metadata.bool_array("a.bool").unwrap().unwrap(), [true, true]);
    assert_eq!(metadata.i32_array("a.i16").unwrap().unwrap(), [-300, -300]);
    assert_eq!(metadata.get("a.i64"), Some(&Value::Array(Array::I64(vec![-1 << 40; 2]))));
    assert_eq!(metadata.get("a.f64"), Some(&vec![0.1_f64; 2].into()));
}

#[test]
fn tensors() {
    let checkpoint = seed("tensors.gguf");
    let found: Vec<_> =
        checkpoint.tensors().map(|t| (t.name.as_str(), t.format.name, t.shape.as_slice())).collect();
    let expected: [(&str, &str, &[usize]); 4] =
        [("a", "F32", &[8]), ("b", "Q8_0", &[32, 2]), ("c", "F32", &[]), ("d", "F32", &[1, 2, 3, 1])];
    assert_eq!(found, expected);
    for info in checkpoint.tensors() {
        let bytes = checkpoint.require(&info.name).unwrap().bytes;
        assert!(bytes.iter().enumerate().all(|(i, &b)| b == i as u8), "{}", info.name);
    }
}

#[test]
fn other_alignments_and_versions() {
    for name in ["align1.gguf", "align64_v2.gguf", "split.gguf"] {
        let checkpoint = seed(name);
        let tensor = checkpoint.require("a").unwrap();
        assert_eq!(&*tensor.bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11], "{name}");
    }
}
