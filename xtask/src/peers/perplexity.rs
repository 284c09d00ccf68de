//! Perplexity over the same text, by llama.cpp's protocol.

use anyhow::{Context, Result};
use serde::Deserialize;

use super::models::Selection;
use super::table::print;
use super::{Model, Setup, process, text};
use crate::workspace;

const CONTEXT: &str = "512";
const CHUNKS: &str = "8";

/// What `smelt eval perplexity --json` prints, as far as it is read here.
#[derive(Deserialize)]
struct Evaluation {
    perplexity: f64,
}

/// Evaluates each model with both programs and prints the table.
pub(super) fn compare(setup: &Setup, selection: &Selection) -> Result<()> {
    let mut rows = Vec::new();
    for model in selection.models() {
        let model = &model?;
        if !model.is_real {
            // Random weights make any text equally unlikely.
            continue;
        }
        eprintln!("perplexity: {}", model.name);
        let (ours, theirs) = (smelt(setup, model)?, llama(setup, model)?);
        let difference = (ours / theirs - 1.0) * 100.0;
        rows.push([
            model.name.clone(),
            format!("{ours:.4}"),
            format!("{theirs:.4}"),
            format!("{difference:+.3} %"),
        ]);
    }
    let title = format!("Perplexity of {CHUNKS} chunks of {CONTEXT} tokens");
    print(&title, ["model", "smelt", "llama.cpp", "difference"], &rows);
    Ok(())
}

fn smelt(setup: &Setup, model: &Model) -> Result<f64> {
    let mut command = setup.smelt(&["eval", "perplexity"], model);
    command.arg(text()).args(["--ctx", CONTEXT, "--chunks", CHUNKS, "--json"]);
    let printed = workspace::output(&mut command)?;
    let evaluation: Evaluation =
        serde_json::from_str(&printed).context("can't read what smelt eval perplexity printed")?;
    Ok(evaluation.perplexity)
}

fn llama(setup: &Setup, model: &Model) -> Result<f64> {
    let mut command = setup.llama("llama-perplexity", model);
    command.arg("-f").arg(text()).args(["-c", CONTEXT, "--chunks", CHUNKS]);
    let run = process::measure(&mut command)?;
    // The result is logged, and which stream the log goes to depends on the version.
    let printed = run.stdout + &run.stderr;
    let estimate = printed.split("PPL = ").nth(1).and_then(|rest| rest.split_whitespace().next());
    let estimate = estimate.context("llama-perplexity printed no final estimate")?;
    estimate.parse().with_context(|| format!("llama-perplexity's estimate {estimate:?} is no number"))
}
