//! `smelt eval`: what a model computes, for comparison with other engines.

use std::fs::File;
use std::io::{self, BufWriter};
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use npyz::WriterBuilder;
use serde_json::json;
use smelt_engine::{Engine, KvFormat, Settings};

use super::load::{MachineArgs, ModelArg, load};
use crate::context::Context;
use crate::wait::Bar;
use crate::{output, report};

/// Evaluate a model: perplexity, logits
///
/// These commands keep keys and values in f32 unless --cache-type says otherwise, so that only the model's own
/// arithmetic is measured.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    Perplexity(PerplexityArgs),
    Logits(LogitsArgs),
}

/// How well a model predicts a text
///
/// The protocol is llama.cpp's, so that numbers compare: the text is cut into chunks of --ctx tokens, each begins with
/// BOS where the model has one, and the second half of each chunk counts.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = "Examples:
  smelt eval perplexity smollm2:135m wiki.test.raw
  smelt eval perplexity ./model.gguf book.txt --ctx 2048 --chunks 20 --json"
)]
struct PerplexityArgs {
    #[command(flatten)]
    model: ModelArg,
    /// The text
    file: PathBuf,
    /// Tokens of a chunk
    #[arg(long, value_name = "N", default_value_t = 512, value_parser = clap::value_parser!(u32).range(4..=1 << 24))]
    ctx: u32,
    /// Chunks to compute [default: all]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    chunks: Option<u32>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print JSON
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// The logits behind each of the given tokens
///
/// Writes a NumPy file: f32, one row per token, one column per token of the vocabulary. BOS is not added.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = "Examples:
  smelt eval logits smollm2:135m --tokens 1,2,3 --out logits.npy
  smelt eval logits ./model.gguf --backend reference --tokens 1,2,3 --out exact.npy"
)]
struct LogitsArgs {
    #[command(flatten)]
    model: ModelArg,
    /// Token ids, separated by commas
    #[arg(long, value_name = "ID,…", required = true, value_delimiter = ',', value_parser = parse_id)]
    tokens: Vec<u32>,
    /// The file to write
    #[arg(short, long, value_name = "FILE.npy")]
    out: PathBuf,
    #[command(flatten)]
    machine: MachineArgs,
}

/// Rows of logits per step: many, as every row is wanted here.
const LOGIT_ROWS: usize = 64;

pub(crate) fn run(args: Args, context: &Context) -> Result<()> {
    match args.what {
        What::Perplexity(args) => perplexity(&args, context),
        What::Logits(args) => logits(&args, context),
    }
}

/// A token id; people write a space behind a comma.
fn parse_id(text: &str) -> Result<u32, String> {
    text.trim().parse().map_err(|_| "a token id is a whole number, and not negative".to_owned())
}

fn settings(machine: &MachineArgs, context: usize) -> Settings {
    Settings { logit_rows: LOGIT_ROWS, ..machine.settings(Some(context), KvFormat::F32) }
}

fn perplexity(args: &PerplexityArgs, context: &Context) -> Result<()> {
    let text = std::fs::read_to_string(&args.file)
        .with_context(|| format!("cannot read {}", args.file.display()))?;
    let ctx = args.ctx as usize;
    let mut engine = load(&args.model, &settings(&args.machine, ctx), context)?;
    let mut bar = (!context.quiet).then(|| Bar::new("chunks"));
    let chunks = args.chunks.map(|n| n as usize);
    let result = engine.perplexity(&text, ctx, chunks, &mut |state| {
        if let Some(bar) = &mut bar {
            bar.update(state.chunks, state.total, || format!("PPL = {:.4}", state.value()));
        }
        true
    });
    drop(bar);
    let result = match result {
        Err(error @ smelt_engine::Error::TextTooShort { .. }) => {
            return Err(error).with_context(|| args.file.display().to_string());
        }
        other => other?,
    };
    match args.json {
        true => output::json(&json!({
            "perplexity": result.value(), "error": result.error(), "nll": result.nll, "chunks": result.chunks,
            "tokens": result.tokens, "ctx": ctx,
        })),
        false => {
            output::line(format!("Final estimate: PPL = {:.4} +/- {:.5}", result.value(), result.error()))
        }
    }
}

fn logits(args: &LogitsArgs, context: &Context) -> Result<()> {
    let mut engine = load(&args.model, &settings(&args.machine, args.tokens.len()), context)?;
    let vocab_size = engine.facts().vocab_size;
    let cannot = || format!("cannot write {}", args.out.display());
    let same =
        |a: &Path, b: &Path| a.canonicalize().ok().zip(b.canonicalize().ok()).is_some_and(|(a, b)| a == b);
    if same(&args.out, engine.model().file()) {
        return Err(report::Usage(format!("--out {} is the model itself", args.out.display())).into());
    }
    if args.out.metadata().is_ok_and(|m| !m.is_file()) {
        // A pipe or a device stays what it is.
        let file = File::options().write(true).open(&args.out).with_context(cannot)?;
        write(&mut engine, &args.tokens, vocab_size, &file)?.with_context(cannot)?;
    } else {
        // Written beside its place and moved there when it is whole.
        let folder = args.out.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
        let file = tempfile::NamedTempFile::new_in(folder).map_err(|e| e.kind()).map_err(io::Error::from);
        let file = file.with_context(cannot)?;
        write(&mut engine, &args.tokens, vocab_size, file.as_file())?.with_context(cannot)?;
        file.persist(&args.out).map_err(|e| e.error).with_context(cannot)?;
    }
    if !context.quiet {
        let rows = args.tokens.len();
        report::note(&format!("{rows} × {vocab_size} logits are in {}", args.out.display()));
    }
    Ok(())
}

/// Writes the logits behind `tokens`. The outer result is the engine's, whose errors have no place for a full disk.
fn write(
    engine: &mut Engine,
    tokens: &[u32],
    vocab_size: usize,
    file: &File,
) -> Result<io::Result<()>, smelt_engine::Error> {
    let shape = [tokens.len() as u64, vocab_size as u64];
    let options = npyz::WriteOptions::new().default_dtype().shape(&shape);
    let mut writer = match options.writer(BufWriter::new(file)).begin_nd() {
        Ok(writer) => writer,
        Err(failure) => return Ok(Err(failure)),
    };
    let mut written = Ok(());
    engine.logits(tokens, &mut |_, row| {
        if written.is_ok() {
            written = row.iter().try_for_each(|value| writer.push(value));
        }
        Ok(())
    })?;
    Ok(written.and_then(|()| writer.finish()))
}
