//! `synth-model`: model files with the exact shapes of well-known models, and random weights.
//!
//! How fast a model runs depends on its shapes and formats, not on its values; and its text is not read. So the
//! benchmarks need no downloads of gigabytes. Rules, template and special tokens come from a tiny test model, whose
//! vocabulary is filled up.

mod blocks;
mod mixes;
mod shapes;

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::fs;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use smelt_checkpoint::{Array, Checkpoint, GgufWriter, TensorWriter, Value};
use smelt_quant::Format;

use crate::{fetch, workspace};
use blocks::{Pool, Random};
use shapes::{Role, Tensor};

pub(crate) use mixes::names as formats;
pub(crate) use shapes::{SHAPES, Shape, find};

/// Options of `synth-model`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// The model whose shapes the file has.
    #[arg(value_parser = SHAPES.iter().map(|shape| shape.name).collect::<Vec<_>>())]
    shape: String,
    /// A format, or a mix of formats.
    #[arg(long, default_value = "Q4_K_M", value_parser = formats())]
    format: String,
    /// Only the first layers; all unless given.
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    layers: Option<u32>,
    /// The file to write.
    #[arg(long, short)]
    output: PathBuf,
}

/// Writes the file that the options ask for.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let shape = find(&arguments.shape).context("clap checked the name")?;
    let layers = arguments.layers.map_or(shape.layers, |layers| layers as usize);
    write(shape, &arguments.format, layers, &arguments.output)?;
    let bytes = fs::metadata(&arguments.output)?.len();
    println!(
        "{}: {} in {}, {layers} of {} layers, {:.2} GB",
        arguments.output.display(),
        shape.title,
        arguments.format,
        shape.layers,
        bytes as f64 / 1e9
    );
    Ok(())
}

/// Bytes of the tensors of such a file.
pub(crate) fn size(shape: &Shape, format: &str, layers: usize) -> Result<u64> {
    let mut bytes = 0;
    for tensor in shape.tensors(layers) {
        let format = mixes::format_of(format, &tensor, layers)?;
        bytes += (row_bytes(format, &tensor)? * rows(&tensor)) as u64;
    }
    Ok(bytes)
}

/// Writes a file; it is whole, or not there.
pub(crate) fn write(shape: &Shape, format: &str, layers: usize, path: &Path) -> Result<()> {
    let tensors = shape.tensors(layers);
    let formats: Vec<&'static Format> =
        tensors.iter().map(|tensor| mixes::format_of(format, tensor, layers)).collect::<Result<_>>()?;
    let mut writer = head(shape, format, layers)?;
    for (tensor, format) in tensors.iter().zip(&formats) {
        writer.tensor(&tensor.name, format, &tensor.shape)?;
    }
    let folder = path.parent().filter(|parent| !parent.as_os_str().is_empty()).unwrap_or(Path::new("."));
    fs::create_dir_all(folder).with_context(|| format!("can't create {}", folder.display()))?;
    let mut file = tempfile::NamedTempFile::new_in(folder)?;
    let mut data = writer.start(BufWriter::with_capacity(1 << 20, file.as_file_mut()))?;
    let mut pools: HashMap<u32, Pool> = HashMap::new();
    // The same file every time.
    let mut random = Random::new(1);
    for (tensor, format) in tensors.iter().zip(formats) {
        if let Role::Ones = tensor.role {
            let ones = 1f32.to_le_bytes().repeat(tensor.shape.iter().product());
            data.append(&tensor.name, &ones)?;
            continue;
        }
        let pool = match pools.entry(format.ggml_type) {
            Entry::Occupied(entry) => entry.into_mut(),
            Entry::Vacant(entry) => entry.insert(Pool::new(format, &mut random)?),
        };
        put(&mut data, tensor, row_bytes(format, tensor)?, pool, &mut random)?;
    }
    data.finish()?;
    fetch::make_readable(file.path())?;
    file.persist(path).with_context(|| format!("can't rename a new file to {}", path.display()))?;
    Ok(())
}

fn put<W: Write>(
    data: &mut TensorWriter<W>,
    tensor: &Tensor,
    row_bytes: usize,
    pool: &Pool,
    random: &mut Random,
) -> Result<()> {
    const ROWS_AT_ONCE: usize = 256;
    let mut left = rows(tensor);
    while left > 0 {
        let n = left.min(ROWS_AT_ONCE);
        let mut bytes = vec![0; n * row_bytes];
        pool.fill(&mut bytes, row_bytes, random);
        data.append(&tensor.name, &bytes)?;
        left -= n;
    }
    Ok(())
}

fn rows(tensor: &Tensor) -> usize {
    tensor.shape[1..].iter().product()
}

fn row_bytes(format: &Format, tensor: &Tensor) -> Result<usize> {
    let bytes = format.row_bytes(tensor.shape[0]);
    bytes.with_context(|| {
        format!("{}: rows of {} are no whole {} blocks", tensor.name, tensor.shape[0], format.name)
    })
}

/// The donor's keys with the shape's sizes and a vocabulary of its size.
fn head(shape: &Shape, format: &str, layers: usize) -> Result<GgufWriter> {
    let donor = Checkpoint::open(&workspace::root().join("tests/data/tiny").join(shape.donor))?;
    let family = donor.metadata().require_str("general.architecture")?.to_owned();
    let mut writer = GgufWriter::new();
    for (key, value) in donor.metadata().iter() {
        let value = match key {
            "tokenizer.ggml.tokens" | "tokenizer.ggml.token_type" => fill_up(value, shape.vocab),
            _ => value.clone(),
        };
        writer.set(key, value)?;
    }
    for (key, value) in shape.keys(layers) {
        writer.set(&format!("{family}.{key}"), value)?;
    }
    writer
        .set("general.name", format!("{} shape, {format}, {layers} layers, random weights", shape.title))?;
    Ok(writer)
}

/// A vocabulary's list with as many ordinary tokens more as it takes.
fn fill_up(value: &Value, vocab: usize) -> Value {
    /// GGUF's type of a token without a special meaning.
    const NORMAL: i32 = 1;
    match value {
        Value::Array(Array::String(tokens)) => {
            let more = (tokens.len()..vocab).map(|id| format!("filler{id}"));
            Value::Array(Array::String(tokens.iter().cloned().chain(more).collect()))
        }
        Value::Array(Array::I32(kinds)) => {
            let mut kinds = kinds.clone();
            kinds.resize(vocab, NORMAL);
            Value::Array(Array::I32(kinds))
        }
        other => other.clone(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shapes_have_the_sizes_of_their_models() {
        // Parameters of the models, from their cards, in billions.
        for (name, billions) in
            [("llama-1b", 1.24), ("qwen3-4b", 4.02), ("llama-8b", 8.03), ("qwen3-30b-a3b", 30.5)]
        {
            let shape = find(name).expect("a shape");
            let values = size(shape, "F32", shape.layers).expect("a size") / 4;
            assert!((values as f64 / 1e9 / billions - 1.0).abs() < 0.005, "{name}: {values}");
        }
    }

    #[test]
    fn a_file_is_what_was_planned() {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("one.gguf");
        let shape = find("llama-1b").expect("a shape");
        write(shape, "Q2_K", 1, &path).expect("written");
        let checkpoint = Checkpoint::open(&path).expect("readable");
        assert_eq!(checkpoint.tensor_bytes(), size(shape, "Q2_K", 1).expect("a size"));
        assert_eq!(
            checkpoint.metadata().require_str_array("tokenizer.ggml.tokens").expect("tokens").len(),
            128_256
        );
    }
}
