//! What several test modules need.

use smelt_checkpoint::{Checkpoint, GgufWriter};
use smelt_engine::{BackendChoice, Engine, KvFormat, Settings};
use smelt_testdata::{Array, data};
use std::path::Path;
use tempfile::NamedTempFile;

/// Settings of exact tests: nothing is rounded but what the kernels round.
pub(crate) fn exact() -> Settings {
    Settings { kv_formats: KvFormat::F32.into(), logit_rows: 64, threads: Some(2), ..Settings::default() }
}

/// The same on the reference backend.
pub(crate) fn reference() -> Settings {
    Settings { backend: BackendChoice::Reference, ..exact() }
}

/// Logits behind every token, `[tokens, vocab_size]`.
pub(crate) fn logits(engine: &mut Engine, tokens: &[u32]) -> Array<f32> {
    let mut values = Vec::new();
    let mut sink = |_: usize, row: &[f32]| {
        values.extend_from_slice(row);
        Ok(())
    };
    engine.logits(tokens, &mut sink).unwrap();
    let width = values.len() / tokens.len();
    Array { shape: vec![tokens.len(), width], values }
}

/// The tiny llama with some of its keys changed.
pub(crate) fn changed(change: impl FnOnce(&mut GgufWriter)) -> NamedTempFile {
    let good = Checkpoint::open(&data("tiny/llama/llama-f16.gguf")).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in good.metadata().iter() {
        writer.set(key, value.clone()).unwrap();
    }
    change(&mut writer);
    for tensor in good.tensors() {
        writer.tensor(&tensor.name, tensor.format, &tensor.shape).unwrap();
    }
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    let mut out = writer.start(file.as_file()).unwrap();
    for tensor in good.tensors() {
        out.append(&tensor.name, &good.require(&tensor.name).unwrap().bytes).unwrap();
    }
    out.finish().unwrap();
    file
}

/// Loads a file.
pub(crate) fn load(path: &Path, settings: &Settings) -> Engine {
    Engine::load(path, settings).unwrap_or_else(|e| panic!("{}: {e}", path.display()))
}

/// The ids of a reference file.
pub(crate) fn ids(values: &[i32]) -> Vec<u32> {
    values.iter().map(|t| *t as u32).collect()
}

/// The folders of `tests/data/tiny` that hold a text model.
pub(crate) fn models() -> Vec<String> {
    let folders = std::fs::read_dir(data("tiny")).unwrap();
    let names = folders.map(|f| f.unwrap().file_name().into_string().unwrap());
    let mut names: Vec<String> = names.filter(|n| n != "quants" && !n.ends_with(".md")).collect();
    names.sort();
    assert!(names.len() >= 16, "{names:?}");
    names
}
