//! Tokens per second of prompts and answers.

use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;

use super::table::{median, print, with_spread};
use super::{Model, Setup};
use crate::workspace;

const N_PROMPT: u32 = 512;
const N_GEN: u32 = 128;

/// One test of `llama-bench -o json`; `smelt bench --json` has the same shape.
#[derive(Deserialize)]
struct Test {
    n_prompt: u32,
    n_gen: u32,
    /// Tokens per second of each repetition.
    samples_ts: Vec<f64>,
    /// Bytes of the model's tensors; only llama-bench's is used.
    #[serde(default)]
    model_size: u64,
}

/// Tokens per second of one program on one model.
#[derive(Default)]
struct Samples {
    prompt: Vec<f64>,
    generation: Vec<f64>,
}

/// Runs both programs in turn on each model and prints the table.
pub(super) fn compare(setup: &Setup, models: &[Model]) -> Result<()> {
    let mut rows = Vec::new();
    for model in models {
        let (mut ours, mut theirs, mut model_size) = (Samples::default(), Samples::default(), 0);
        for round in 0..setup.rounds {
            eprintln!("speed: {} round {} of {}", model.name, round + 1, setup.rounds);
            // The order swaps each round, so that a machine that grows warm or busy treats both alike.
            let ours_first = round % 2 == 0;
            for is_ours in [ours_first, !ours_first] {
                if is_ours {
                    add(&mut smelt_bench(setup, model), &mut ours)?;
                } else {
                    model_size = add(&mut llama_bench(setup, model), &mut theirs)?;
                }
            }
        }
        // A token of an answer reads all weights once; a prompt shares the reading, so bytes say nothing there.
        let gigabytes = model_size as f64 / 1e9;
        let rate = |samples: &[f64]| format!("{:.1}", median(samples) * gigabytes);
        rows.push(line(model, &format!("pp{N_PROMPT}"), [&ours.prompt, &theirs.prompt], Default::default()));
        let rates = [rate(&ours.generation), rate(&theirs.generation)];
        rows.push(line(model, &format!("tg{N_GEN}"), [&ours.generation, &theirs.generation], rates));
    }
    print(
        &format!("Speed, {} threads, median of {} runs ± half range", setup.threads, setup.rounds),
        ["model", "test", "smelt tok/s", "llama.cpp tok/s", "ratio", "smelt GB/s", "llama.cpp GB/s"],
        &rows,
    );
    Ok(())
}

fn line(model: &Model, test: &str, [ours, theirs]: [&[f64]; 2], rates: [String; 2]) -> [String; 7] {
    let ratio = format!("{:.2}", median(ours) / median(theirs));
    let [our_rate, their_rate] = rates;
    [
        model.name.to_owned(),
        test.to_owned(),
        with_spread(ours, 1),
        with_spread(theirs, 1),
        ratio,
        our_rate,
        their_rate,
    ]
}

fn smelt_bench(setup: &Setup, model: &Model) -> Command {
    let mut command = setup.smelt(&["bench"], model);
    command.args(["-t", &setup.threads.to_string()]).args(sizes()).arg("--json");
    command
}

fn llama_bench(setup: &Setup, model: &Model) -> Command {
    let mut command = setup.llama("llama-bench", model);
    command.args(sizes()).args(["-o", "json"]);
    command
}

/// One repetition for each run: it is the rounds that repeat, and take turns.
fn sizes() -> [String; 6] {
    ["-p".into(), N_PROMPT.to_string(), "-n".into(), N_GEN.to_string(), "-r".into(), "1".into()]
}

/// Runs a benchmark, adds its samples, and gives the model's bytes that it states.
fn add(command: &mut Command, samples: &mut Samples) -> Result<u64> {
    let printed = workspace::output(command)?;
    let tests: Vec<Test> = serde_json::from_str(&printed)
        .with_context(|| format!("can't read what {} printed", workspace::describe(command)))?;
    for test in &tests {
        match (test.n_prompt, test.n_gen) {
            (N_PROMPT, 0) => samples.prompt.extend(&test.samples_ts),
            (0, N_GEN) => samples.generation.extend(&test.samples_ts),
            _ => {}
        }
    }
    ensure!(
        !samples.prompt.is_empty() && !samples.generation.is_empty(),
        "{} printed no test of {N_PROMPT} prompt tokens or of {N_GEN} answer tokens",
        workspace::describe(command)
    );
    Ok(tests.iter().map(|test| test.model_size).max().unwrap_or(0))
}
