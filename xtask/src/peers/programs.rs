//! The programs that take part, and one run of one test by each.

use std::process::Command;

use anyhow::{Context, Result};
use clap::ValueEnum;
use serde::{Deserialize, Serialize};

use super::ik::Ik;
use super::models::Model;
use super::{Setup, process};
use crate::workspace;

/// A program that takes part.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(super) enum Program {
    Smelt,
    #[value(name = "llama.cpp")]
    LlamaCpp,
    Ik,
}

impl Program {
    pub(super) const ALL: [Self; 3] = [Self::Smelt, Self::LlamaCpp, Self::Ik];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Smelt => "smelt",
            Self::LlamaCpp => "llama.cpp",
            Self::Ik => "ik",
        }
    }
}

/// Something to time: a prompt, or answers of some sequences, behind tokens that are not timed.
#[derive(Debug, Clone, Copy, Serialize)]
pub(super) struct Test {
    pub(super) name: &'static str,
    pub(super) n_prompt: u32,
    pub(super) n_gen: u32,
    pub(super) depth: u32,
    pub(super) sequences: u32,
}

const fn prompt(name: &'static str, n_prompt: u32) -> Test {
    Test { name, n_prompt, n_gen: 0, depth: 0, sequences: 1 }
}

/// Every test, in the order of the table.
pub(super) static TESTS: &[Test] = &[
    prompt("pp128", 128),
    prompt("pp512", 512),
    prompt("pp2048", 2048),
    Test { name: "tg64", n_prompt: 0, n_gen: 64, depth: 0, sequences: 1 },
    Test { name: "tg64@4096", n_prompt: 0, n_gen: 64, depth: 4096, sequences: 1 },
    // llama-batched-bench wants a prompt for each sequence.
    Test { name: "tg64x8", n_prompt: 0, n_gen: 64, depth: 32, sequences: 8 },
];

impl Test {
    pub(super) fn fits(&self, model: &Model) -> bool {
        (self.n_prompt + self.n_gen + self.depth) as usize <= model.context
    }
}

/// What the machine can do at best, as `smelt bench --machine-limits` measured it right before a test.
#[derive(Debug, Clone, Copy, Deserialize, Serialize)]
pub(super) struct Limits {
    pub(super) read_gb_per_s: f64,
    pub(super) int8_gmac_per_s: f64,
    pub(super) f32_gmac_per_s: f64,
}

/// What one run gives.
pub(super) struct Outcome {
    /// Tokens per second, of all sequences together.
    pub(super) rate: f64,
    /// Only Smelt measures them.
    pub(super) limits: Option<Limits>,
}

/// One test of `llama-bench -o json`; `smelt bench --json` and the script have the same shape.
#[derive(Deserialize)]
struct Record {
    samples_ts: Vec<f64>,
    machine: Option<Limits>,
}

impl Record {
    fn outcome(self) -> Result<Outcome> {
        let rate = self.samples_ts.first().copied().context("it printed no sample")?;
        Ok(Outcome { rate, limits: self.machine })
    }
}

/// What `llama-batched-bench --output-format jsonl` prints, as far as it is read here.
#[derive(Deserialize)]
struct BatchedRecord {
    speed_tg: f64,
}

/// Runs `test` once with `program`; `ik_attention` is whether ik's flash attention is used.
pub(super) fn run(
    setup: &Setup,
    program: Program,
    model: &Model,
    test: &Test,
    ik_attention: bool,
) -> Result<Outcome> {
    match program {
        Program::Smelt => first_record(&mut smelt(setup, model, test)),
        Program::LlamaCpp if test.sequences == 1 => first_record(&mut llama(setup, model, test)),
        Program::LlamaCpp => batched(&mut llama_batched(setup, model, test)),
        Program::Ik => {
            let ik = setup.ik.as_ref().context("ik_llama.cpp was not prepared")?;
            let printed = workspace::output(&mut ik_command(ik, setup, model, test, ik_attention))?;
            serde_json::from_str::<Record>(&printed).context("can't read what ik_bench.py printed")?.outcome()
        }
    }
}

/// One repetition for each run: it is the rounds that repeat, and take turns.
fn sizes(command: &mut Command, test: &Test) {
    for (flag, n) in [("-p", test.n_prompt), ("-n", test.n_gen), ("-d", test.depth), ("-r", 1)] {
        command.arg(flag).arg(n.to_string());
    }
}

fn smelt(setup: &Setup, model: &Model, test: &Test) -> Command {
    let mut command = setup.smelt(&["bench"], model);
    sizes(&mut command, test);
    command.args(["-t", &setup.threads.to_string(), "--parallel", &test.sequences.to_string()]);
    command.args(["--json", "--machine-limits"]);
    command
}

fn llama(setup: &Setup, model: &Model, test: &Test) -> Command {
    let mut command = setup.llama("llama-bench", model);
    sizes(&mut command, test);
    command.args(["-o", "json"]);
    command
}

fn llama_batched(setup: &Setup, model: &Model, test: &Test) -> Command {
    let mut command = setup.llama("llama-batched-bench", model);
    let context = (test.depth + test.n_gen) * test.sequences;
    let numbers = [
        ("-npp", test.depth),
        ("-ntg", test.n_gen),
        ("-npl", test.sequences),
        ("-c", context),
        ("-tb", setup.threads),
    ];
    for (flag, n) in numbers {
        command.arg(flag).arg(n.to_string());
    }
    command.args(["--output-format", "jsonl"]);
    command
}

fn ik_command(ik: &Ik, setup: &Setup, model: &Model, test: &Test, attention: bool) -> Command {
    let mut command = ik.command();
    command.arg(&model.path);
    let numbers =
        [setup.threads, test.n_prompt, test.n_gen, test.depth, test.sequences, u32::from(attention)];
    command.args(numbers.map(|n| n.to_string()));
    // It would start a debugger to report a failed assertion.
    command.env("GGML_NO_BACKTRACE", "1");
    command
}

fn first_record(command: &mut Command) -> Result<Outcome> {
    let printed = workspace::output(command)?;
    let records: Vec<Record> = serde_json::from_str(&printed)
        .with_context(|| format!("can't read what {} printed", workspace::describe(command)))?;
    let record = records.into_iter().next();
    record.with_context(|| format!("{} printed no test", workspace::describe(command)))?.outcome()
}

fn batched(command: &mut Command) -> Result<Outcome> {
    let run = process::measure(command)?;
    // The result is logged, and which stream the log goes to depends on the version.
    let printed = run.stdout + &run.stderr;
    let record = printed.lines().find_map(|line| serde_json::from_str::<BatchedRecord>(line.trim()).ok());
    let record = record.context("llama-batched-bench printed no result")?;
    Ok(Outcome { rate: record.speed_tg, limits: None })
}
