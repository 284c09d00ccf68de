//! What is compared on: two real models, and shapes filled with random weights.

use std::fs;
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use anyhow::{Context, Result, ensure};
use serde::Serialize;
use smelt_checkpoint::{Checkpoint, TensorInfo};

use crate::{fetch, synth};

/// The real models: `(short name, file, format)`.
static REAL: &[(&str, &str, &str)] = &[
    ("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf", "Q4_1"),
    ("gemma3", "gemma-3-270m-q4_k_m.gguf", "Q4_K_M"),
];

/// What is compared on unless something else is asked for.
static DEFAULT: &[&str] = &["smollm2", "gemma3", "llama-1b"];

/// Bytes of written model files that are kept; the oldest go first.
const KEPT_BYTES: u64 = 10_000_000_000;

/// A model file to compare on.
pub(super) struct Model {
    /// The short name, and how many layers it has if it lacks some.
    pub(super) name: String,
    pub(super) format: String,
    pub(super) path: PathBuf,
    /// Whether its weights are trained ones.
    pub(super) is_real: bool,
    pub(super) context: usize,
    pub(super) work: Work,
}

/// The names that can be asked for.
pub(super) fn names() -> Vec<&'static str> {
    REAL.iter().map(|(name, ..)| *name).chain(synth::SHAPES.iter().map(|shape| shape.name)).collect()
}

/// The models to compare on, and where the written ones go.
pub(super) struct Selection {
    /// `(name, format)`.
    pairs: Vec<(String, String)>,
    folder: PathBuf,
}

impl Selection {
    /// A real model has one format, the others those in `formats`.
    pub(super) fn new(names: &[String], formats: &[String], folder: PathBuf) -> Self {
        let names = match names {
            [] => DEFAULT.iter().map(|name| (*name).to_owned()).collect(),
            names => names.to_vec(),
        };
        let mut pairs = Vec::new();
        for name in names {
            match REAL.iter().find(|(real, ..)| *real == name) {
                Some((_, _, format)) => pairs.push((name, (*format).to_owned())),
                None => pairs.extend(formats.iter().map(|format| (name.clone(), format.clone()))),
            }
        }
        Self { pairs, folder }
    }

    /// The models, each prepared when its turn comes: not all need fit on the disk at once.
    pub(super) fn models(&self) -> impl Iterator<Item = Result<Model>> {
        self.pairs.iter().map(|(name, format)| prepare(name, format, &self.folder))
    }
}

/// Finds a model's file, or writes it into `folder`.
fn prepare(name: &str, format: &str, folder: &Path) -> Result<Model> {
    if let Some((_, file, _)) = REAL.iter().find(|(real, ..)| *real == name) {
        let path = fetch::model(file);
        ensure!(path.is_file(), "{} is missing: run cargo xtask fetch", path.display());
        return open(name.to_owned(), format, path, true);
    }
    let shape = synth::find(name).with_context(|| format!("no such model: {name}"))?;
    let layers = layers_that_fit(shape, format)?;
    let path = folder.join(format!("{name}-{format}-{layers}l.gguf"));
    if !path.is_file() {
        let bytes = synth::size(shape, format, layers)?;
        make_room(folder, bytes)?;
        eprintln!("peers: writing {} ({:.1} GB)", path.display(), bytes as f64 / 1e9);
        synth::write(shape, format, layers, &path)?;
    }
    let name = match layers == shape.layers {
        true => name.to_owned(),
        false => format!("{name} ({layers} of {} layers)", shape.layers),
    };
    open(name, format, path, false)
}

fn open(name: String, format: &str, path: PathBuf, is_real: bool) -> Result<Model> {
    let checkpoint = Checkpoint::open(&path)?;
    let family = checkpoint.metadata().require_str("general.architecture")?.to_owned();
    let context = checkpoint.metadata().require_u32(&format!("{family}.context_length"))? as usize;
    let work = Work::of(&checkpoint)?;
    Ok(Model { name, format: format.to_owned(), path, is_real, context, work })
}

/// How many layers fit: all programs map the file, and the peers may hold a repacked copy beside the map.
fn layers_that_fit(shape: &synth::Shape, format: &str) -> Result<usize> {
    let memory = available_memory().unwrap_or(u64::MAX);
    let most = (memory / 5 * 2).min(KEPT_BYTES);
    for layers in (1..=shape.layers).rev() {
        if synth::size(shape, format, layers)? <= most {
            return Ok(layers);
        }
    }
    anyhow::bail!("not one layer of {} in {format} fits into the memory that is free", shape.title)
}

/// The line `MemAvailable:   12345 kB` of /proc/meminfo in bytes; `None` on other systems.
fn available_memory() -> Option<u64> {
    let text = fs::read_to_string("/proc/meminfo").ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Deletes the oldest written files until `bytes` more are within [`KEPT_BYTES`].
fn make_room(folder: &Path, bytes: u64) -> Result<()> {
    let mut files: Vec<(SystemTime, u64, PathBuf)> = Vec::new();
    let Ok(entries) = fs::read_dir(folder) else { return Ok(()) };
    for entry in entries {
        let entry = entry?;
        let facts = entry.metadata()?;
        if facts.is_file() && entry.path().extension().is_some_and(|end| end == "gguf") {
            files.push((facts.modified()?, facts.len(), entry.path()));
        }
    }
    files.sort();
    let mut total = bytes + files.iter().map(|(_, len, _)| len).sum::<u64>();
    for (_, len, path) in files {
        if total <= KEPT_BYTES {
            break;
        }
        fs::remove_file(&path).with_context(|| format!("can't delete {}", path.display()))?;
        total -= len;
    }
    Ok(())
}

/// What a model's weights cost: bytes to read and products to sum. Attention's own work is not counted.
#[derive(Debug, Clone, Copy, Default, Serialize)]
pub(super) struct Work {
    /// Bytes of the weights that every step reads: layers without their experts, and the output.
    dense_bytes: f64,
    /// Bytes of all experts.
    expert_bytes: f64,
    /// The share of the experts that one token uses.
    used_experts: f64,
    /// Products that a prompt's token takes: a prompt has one row of logits, so the output is left out.
    macs_per_prompt_token: f64,
    /// Whether most weights are floats, which are multiplied as such.
    pub(super) is_float: bool,
}

impl Work {
    fn of(checkpoint: &Checkpoint) -> Result<Self> {
        let metadata = checkpoint.metadata();
        let family = metadata.require_str("general.architecture")?;
        let experts = metadata.u32(&format!("{family}.expert_count"))?;
        let used = metadata.u32(&format!("{family}.expert_used_count"))?;
        let used_experts = experts.zip(used).map_or(0.0, |(all, used)| f64::from(used) / f64::from(all));
        let mut work = Self { used_experts, ..Self::default() };
        let (mut float_bytes, mut embedding, mut output) = (0.0, 0.0, None);
        for tensor in checkpoint.tensors().filter(|tensor| tensor.shape.len() > 1) {
            let (bytes, macs) = (tensor.byte_len as f64, tensor.shape.iter().product::<usize>() as f64);
            match tensor.name.as_str() {
                "token_embd.weight" => embedding = bytes,
                "output.weight" => output = Some(bytes),
                _ if is_expert(tensor) => {
                    work.expert_bytes += bytes;
                    work.macs_per_prompt_token += macs * used_experts;
                    float_bytes += if is_float(tensor) { bytes } else { 0.0 };
                }
                _ => {
                    work.dense_bytes += bytes;
                    work.macs_per_prompt_token += macs;
                    float_bytes += if is_float(tensor) { bytes } else { 0.0 };
                }
            }
        }
        work.is_float = float_bytes * 2.0 > work.dense_bytes + work.expert_bytes;
        work.dense_bytes += output.unwrap_or(embedding);
        Ok(work)
    }

    /// Bytes that a step of one token for each of `sequences` reads. Which experts they share is chance: the number is
    /// what is expected if all are equally likely.
    pub(super) fn bytes_per_step(&self, sequences: u32) -> f64 {
        let touched = 1.0 - (1.0 - self.used_experts).powi(sequences as i32);
        self.dense_bytes + self.expert_bytes * touched
    }

    /// 10⁹ products that a prompt's token takes.
    pub(super) fn gmac_per_prompt_token(&self) -> f64 {
        self.macs_per_prompt_token / 1e9
    }
}

fn is_expert(tensor: &TensorInfo) -> bool {
    tensor.shape.len() > 2
}

fn is_float(tensor: &TensorInfo) -> bool {
    tensor.format.block_len == 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_touches_more_experts_than_a_token_but_not_all() {
        let work = Work { dense_bytes: 100.0, expert_bytes: 1_000.0, used_experts: 0.25, ..Work::default() };
        assert_eq!(work.bytes_per_step(1), 350.0);
        assert_eq!(work.bytes_per_step(2), 537.5);
    }

    #[test]
    fn real_models_have_one_format() {
        let names = ["smollm2".to_owned(), "llama-1b".to_owned()];
        let formats = ["Q4_0".to_owned(), "Q8_0".to_owned()];
        let selected = Selection::new(&names, &formats, PathBuf::new());
        let pairs: Vec<(&str, &str)> = selected.pairs.iter().map(|(n, f)| (n.as_str(), f.as_str())).collect();
        assert_eq!(pairs, [("smollm2", "Q4_1"), ("llama-1b", "Q4_0"), ("llama-1b", "Q8_0")]);
    }
}
