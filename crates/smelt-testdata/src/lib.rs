//! Test helpers: where test data lives, and a reader of NumPy's files. A dev-dependency only, so it panics freely.

use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

/// A file of `tests/data`.
///
/// # Panics
/// If it isn't there.
#[must_use]
pub fn data(path: &str) -> PathBuf {
    let file = root().join("tests/data").join(path);
    assert!(file.exists(), "tests/data/{path} is missing: it belongs in the repository");
    file
}

/// A file that `cargo xtask fetch` brings.
///
/// # Panics
/// If it isn't there.
#[must_use]
pub fn fetched(path: &str) -> PathBuf {
    let file = root().join("target/fetched").join(path);
    assert!(file.exists(), "target/fetched/{path} is missing: run cargo xtask fetch");
    file
}

/// A JSON file of `tests/data`.
///
/// # Panics
/// If it isn't there or isn't JSON.
#[must_use]
pub fn json(path: &str) -> serde_json::Value {
    let text = std::fs::read_to_string(data(path)).expect("readable");
    serde_json::from_str(&text).unwrap_or_else(|e| panic!("{path}: {e}"))
}

/// A GGUF file with more keys, which are counts.
///
/// # Panics
/// If `gguf` is none.
#[must_use]
pub fn with_keys(gguf: &[u8], keys: &[(&str, u32)]) -> Vec<u8> {
    const ALIGNMENT: usize = 32;
    let text = |bytes: &mut Vec<u8>, text: &str| {
        bytes.extend((text.len() as u64).to_le_bytes());
        bytes.extend(text.as_bytes());
    };
    let mut added = Vec::new();
    for (key, value) in keys {
        text(&mut added, key);
        added.extend(4_u32.to_le_bytes());
        added.extend(value.to_le_bytes());
    }
    // A last one, a string, is as long as it must be for tensors to lie as they lay.
    text(&mut added, "filler");
    added.extend(8_u32.to_le_bytes());
    let length = (added.len() + 8).next_multiple_of(ALIGNMENT) - added.len() - 8;
    text(&mut added, &" ".repeat(length));
    let (head, rest) = gguf.split_at(24);
    let count = u64::from_le_bytes(head[16..].try_into().expect("eight bytes")) + keys.len() as u64 + 1;
    [&head[..16], &count.to_le_bytes(), &added, rest].concat()
}

/// An array: its shape and its values, the last dimension fastest.
#[derive(Debug, Clone, PartialEq)]
pub struct Array<T> {
    /// Dimensions.
    pub shape: Vec<usize>,
    /// Values.
    pub values: Vec<T>,
}

impl<T> Array<T> {
    /// Row `i` of a matrix.
    #[must_use]
    pub fn row(&self, i: usize) -> &[T] {
        let width = self.shape[1..].iter().product::<usize>();
        &self.values[i * width..][..width]
    }
}

/// An archive of arrays (`.npz`).
#[derive(Debug)]
pub struct Npz(PathBuf);

impl Npz {
    /// An archive of `tests/data`.
    #[must_use]
    pub fn open(path: &str) -> Self {
        Self(data(path))
    }

    fn array<T>(&self, name: &str, read: impl Fn(npyz::NpyFile<&[u8]>) -> Vec<T>) -> Array<T> {
        let file = std::fs::File::open(&self.0).expect("readable");
        let mut archive = zip::ZipArchive::new(file).expect("a .npz file");
        let mut bytes = Vec::new();
        let mut entry = archive
            .by_name(&format!("{name}.npy"))
            .unwrap_or_else(|e| panic!("{}: no array {name}: {e}", self.0.display()));
        std::io::Read::read_to_end(&mut entry, &mut bytes).expect("readable");
        let file = npyz::NpyFile::new(&bytes[..]).expect("a .npy file");
        let shape = file.shape().iter().map(|n| *n as usize).collect();
        Array { shape, values: read(file) }
    }

    /// An array of f32.
    ///
    /// # Panics
    /// If there is none of that name and type.
    #[must_use]
    pub fn f32(&self, name: &str) -> Array<f32> {
        self.array(name, |file| file.into_vec().expect("f32 values"))
    }

    /// An array of i32.
    ///
    /// # Panics
    /// If there is none of that name and type.
    #[must_use]
    pub fn i32(&self, name: &str) -> Array<i32> {
        self.array(name, |file| file.into_vec().expect("i32 values"))
    }
}

/// How one row of logits differs from the right one.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Difference {
    /// Kullback-Leibler divergence of the softmaxes, right to found.
    pub kl: f64,
    /// Largest |difference| over the range of the right logits.
    pub max: f32,
}

/// Compares one row of logits with the right one.
///
/// # Panics
/// If their lengths differ.
#[must_use]
pub fn compare_logits(found: &[f32], right: &[f32]) -> Difference {
    assert_eq!(found.len(), right.len());
    let log_softmax = |x: &[f32]| {
        let max = x.iter().fold(f64::MIN, |m, v| m.max(f64::from(*v)));
        let sum: f64 = x.iter().map(|v| (f64::from(*v) - max).exp()).sum();
        x.iter().map(|v| f64::from(*v) - max - sum.ln()).collect::<Vec<f64>>()
    };
    let (p, q) = (log_softmax(right), log_softmax(found));
    let kl = p.iter().zip(&q).map(|(p, q)| p.exp() * (p - q)).sum();
    let (low, high) = right.iter().fold((f32::MAX, f32::MIN), |(l, h), v| (l.min(*v), h.max(*v)));
    let max = found.iter().zip(right).fold(0f32, |m, (f, r)| m.max((f - r).abs()));
    Difference { kl, max: max / (high - low) }
}
