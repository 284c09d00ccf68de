//! `smelt show`.

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::{Context as _, Result};
use serde::Serialize;
use serde_json::{Value as Json, json};
use smelt_checkpoint::{Array, Checkpoint, Value};
use smelt_engine::sampler::Recommended;
use smelt_engine::{CacheSize, KvFormat, KvFormats};
use smelt_store::{Installed, Manifest, Reference};

use super::load::{CacheArgs, names};
use crate::context::{Context, parse_reference};
use crate::output;

/// Show what a model file holds
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// An installed model or a file
    #[arg(value_parser = parse_reference)]
    model: Reference,
    #[command(flatten)]
    cache: CacheArgs,
    /// List every tensor
    #[arg(long)]
    tensors: bool,
    /// List every metadata key
    #[arg(long)]
    metadata: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// What is told about a model. Absent keys are `None`: a vocabulary-only file has no context length, say.
#[derive(Debug, Serialize)]
struct Description {
    reference: String,
    path: PathBuf,
    name: Option<String>,
    architecture: Option<String>,
    parameters: u64,
    context_length: Option<u64>,
    embedding_length: Option<u64>,
    layers: Option<u64>,
    vocabulary: Option<usize>,
    chat_template: bool,
    /// What the file recommends about sampling.
    sampling: Vec<String>,
    licence: Option<String>,
    file_bytes: u64,
    /// What keys and values take; `None` if Smelt can't run the model.
    cache: Option<Cache>,
    /// Per format: how many tensors, parameters and bytes.
    formats: BTreeMap<&'static str, Share>,
    #[serde(skip_serializing_if = "Option::is_none")]
    metadata: Option<serde_json::Map<String, Json>>,
    #[serde(skip_serializing_if = "Option::is_none")]
    tensors: Option<Vec<TensorLine>>,
    manifest: Option<Manifest>,
}

#[derive(Debug, Serialize)]
struct Cache {
    key_format: &'static str,
    value_format: &'static str,
    bytes_per_token: usize,
    /// Tokens of the context that a model has unless it is told otherwise.
    context: usize,
    /// Bytes of a sequence that fills it.
    bytes: u64,
}

impl Cache {
    fn of(checkpoint: &Checkpoint, formats: KvFormats) -> Option<Self> {
        let size = CacheSize::of(checkpoint, formats).ok()?;
        Some(Self {
            key_format: formats.k.name(),
            value_format: formats.v.name(),
            bytes_per_token: size.bytes_per_token,
            context: size.context,
            bytes: size.bytes(),
        })
    }
}

impl std::fmt::Display for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { key_format, value_format, context, .. } = self;
        let (token, all) = (output::bytes(self.bytes_per_token as u64), output::bytes(self.bytes));
        match key_format == value_format {
            true => write!(f, "{token} a token in {key_format}")?,
            false => write!(f, "{token} a token in {key_format} and {value_format}")?,
        }
        write!(f, ", {all} for {context} tokens")
    }
}

#[derive(Debug, Default, Serialize)]
struct Share {
    tensors: u64,
    parameters: u64,
    bytes: u64,
}

#[derive(Debug, Serialize)]
struct TensorLine {
    name: String,
    format: &'static str,
    /// ggml's order, the length of a row first.
    shape: Vec<usize>,
    bytes: usize,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let args: Args = context.config()?.settle("show", &names(&args.model, context))?;
    let installed = context.store.show(&args.model)?;
    let checkpoint =
        Checkpoint::open(&installed.path).with_context(|| format!("cannot show {}", args.model))?;
    let description = describe(&args, installed, &checkpoint)?;
    match args.json {
        true => output::json(&description),
        false => print(&description),
    }
}

fn describe(args: &Args, installed: Installed, checkpoint: &Checkpoint) -> Result<Description> {
    let metadata = checkpoint.metadata();
    let text = |key: &str| metadata.str(key).map(|value| value.map(String::from));
    let architecture = text("general.architecture")?;
    let of_architecture = |key: &str| match &architecture {
        Some(name) => metadata.u64(&format!("{name}.{key}")),
        None => Ok(None),
    };
    let mut formats: BTreeMap<&'static str, Share> = BTreeMap::new();
    let mut parameters = 0;
    for tensor in checkpoint.tensors() {
        let count = tensor.shape.iter().map(|&n| n as u64).product::<u64>();
        let share = formats.entry(tensor.format.name).or_default();
        share.tensors += 1;
        share.parameters += count;
        share.bytes += tensor.byte_len as u64;
        parameters += count;
    }
    let catalogued = installed.manifest.as_ref().and_then(|m| m.licence.clone());
    let tensors = checkpoint.tensors().map(|t| TensorLine {
        name: t.name.clone(),
        format: t.format.name,
        shape: t.shape.clone(),
        bytes: t.byte_len,
    });
    let keys = metadata.iter().map(|(key, value)| (key.to_owned(), to_json(value)));
    Ok(Description {
        reference: args.model.to_string(),
        name: text("general.name")?,
        parameters,
        context_length: of_architecture("context_length")?,
        embedding_length: of_architecture("embedding_length")?,
        layers: of_architecture("block_count")?,
        vocabulary: metadata.str_array("tokenizer.ggml.tokens")?.map(<[String]>::len),
        chat_template: metadata.str("tokenizer.chat_template")?.is_some(),
        sampling: Recommended::read(metadata).settings.iter().map(ToString::to_string).collect(),
        licence: catalogued.or(text("general.license")?),
        file_bytes: checkpoint.file_bytes(),
        cache: Cache::of(checkpoint, args.cache.formats(KvFormat::F16)),
        formats,
        metadata: args.metadata.then(|| keys.collect()),
        tensors: args.tensors.then(|| tensors.collect()),
        path: installed.path,
        manifest: installed.manifest,
        architecture,
    })
}

fn print(description: &Description) -> Result<()> {
    let unknown = || "unknown".to_owned();
    let number = |n: Option<u64>| n.map_or_else(unknown, |n| n.to_string());
    let d = description;
    let mut rows = vec![
        ["model".into(), d.reference.clone()],
        ["name".into(), d.name.clone().unwrap_or_else(unknown)],
        ["architecture".into(), d.architecture.clone().unwrap_or_else(unknown)],
        ["parameters".into(), count(d.parameters)],
        ["context length".into(), number(d.context_length)],
        ["embedding length".into(), number(d.embedding_length)],
        ["layers".into(), number(d.layers)],
        ["vocabulary".into(), number(d.vocabulary.map(|n| n as u64))],
        ["chat template".into(), if d.chat_template { "yes" } else { "none in the file" }.into()],
        ["licence".into(), d.licence.clone().unwrap_or_else(unknown)],
        ["size".into(), output::bytes(d.file_bytes)],
        ["cache".into(), d.cache.as_ref().map_or_else(unknown, ToString::to_string)],
        ["file".into(), d.path.display().to_string()],
    ];
    if !d.sampling.is_empty() {
        rows.push(["sampling".into(), d.sampling.join(", ")]);
    }
    if let Some(manifest) = &d.manifest {
        rows.push(["source".into(), manifest.source.clone()]);
        rows.push(["pulled".into(), output::ago(manifest.pulled)]);
    }
    output::table(&rows)?;
    output::line("")?;
    let mut rows = vec![["format", "tensors", "parameters", "bytes"].map(String::from)];
    rows.extend(d.formats.iter().map(|(name, share)| {
        let bytes = output::bytes(share.bytes);
        [(*name).to_owned(), share.tensors.to_string(), count(share.parameters), bytes]
    }));
    output::table(&rows)?;
    if let Some(metadata) = &d.metadata {
        output::line("")?;
        let rows: Vec<_> = metadata.iter().map(|(key, value)| [key.clone(), value.to_string()]).collect();
        output::table(&rows)?;
    }
    if let Some(tensors) = &d.tensors {
        output::line("")?;
        let mut rows = vec![["tensor", "format", "shape", "bytes"].map(String::from)];
        rows.extend(tensors.iter().map(|t| {
            let shape: Vec<_> = t.shape.iter().map(ToString::to_string).collect();
            [t.name.clone(), t.format.into(), shape.join(" x "), t.bytes.to_string()]
        }));
        output::table(&rows)?;
    }
    Ok(())
}

/// A count of parameters as people say it.
fn count(n: u64) -> String {
    let n_float = n as f64;
    match n {
        1_000_000_000.. => format!("{:.2} B", n_float / 1e9),
        1_000_000.. => format!("{:.1} M", n_float / 1e6),
        1_000.. => format!("{:.1} k", n_float / 1e3),
        _ => n.to_string(),
    }
}

/// A metadata value as JSON; of an array only type and length, as vocabularies are long.
fn to_json(value: &Value) -> Json {
    match value {
        Value::Bool(b) => json!(b),
        Value::String(s) => json!(s),
        Value::F32(x) => json!(x),
        Value::F64(x) => json!(x),
        Value::Array(array) => {
            let plural = if matches!(array, Array::String(_)) { "s" } else { "" };
            json!(format!("[{} of {}{plural}]", array.len(), array.type_name()))
        }
        Value::U64(n) => json!(n),
        // Every other type is an integer that an i64 holds.
        other => other.as_integer().and_then(|n| i64::try_from(n).ok()).map_or(Json::Null, Json::from),
    }
}
