//! `bench-peers`: Smelt beside llama.cpp and ik_llama.cpp, on this machine, with the same files and the same number of
//! threads.
//!
//! Numbers from other machines or other days don't compare; so all programs run here, in turn, and the tables show
//! medians with their spread. `docs/benchmarks.md` says how to read them.

mod ik;
pub(crate) mod llama_cpp;
mod models;
mod perplexity;
mod process;
mod programs;
mod speed;
pub(crate) mod table;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{fetch, synth, workspace};
use ik::Ik;
use models::{Model, Selection};
use programs::{Program, TESTS};

/// What can be compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Tokens per second of prompts and answers.
    Speed,
    /// Perplexity over the same text, context and chunks.
    Perplexity,
    /// Time from the start of the process to the first token of the answer.
    Startup,
    /// Peak resident memory of a run.
    Memory,
}

/// Options of `bench-peers`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// What to compare; everything unless given.
    #[arg(long, value_enum, value_delimiter = ',')]
    what: Vec<What>,
    /// Models to compare on: real ones, and shapes filled with random weights [default: smollm2,gemma3,llama-1b]
    #[arg(long = "model", value_delimiter = ',', value_parser = models::names())]
    models: Vec<String>,
    /// Formats of the models that are filled with random weights.
    #[arg(
        long = "format",
        value_delimiter = ',',
        default_value = "Q4_K_M",
        value_parser = synth::formats(),
        hide_possible_values = true
    )]
    formats: Vec<String>,
    /// Tests of speed: prompts (pp), answers (tg), behind 4096 tokens (@) or of 8 sequences (x); all unless given.
    #[arg(long = "test", value_delimiter = ',', value_parser = TESTS.iter().map(|test| test.name).collect::<Vec<_>>())]
    tests: Vec<String>,
    /// Programs whose speed Smelt's is compared with; all unless given.
    #[arg(long = "peer", value_enum, value_delimiter = ',')]
    peers: Vec<Program>,
    /// Write the speeds of every round to this file.
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
    /// How many times each program runs, in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Threads of every program.
    #[arg(long, short, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Where the peers and the written models go; target/peers unless given.
    #[arg(long)]
    peers_dir: Option<PathBuf>,
    /// A folder of llama.cpp's programs to use instead of building them.
    #[arg(long)]
    llama_bin: Option<PathBuf>,
    /// A `smelt` to use instead of building it.
    #[arg(long)]
    smelt: Option<PathBuf>,
}

/// The programs and how to run them.
struct Setup {
    smelt: PathBuf,
    /// The folder of llama.cpp's programs.
    llama_bin: PathBuf,
    /// Absent unless it takes part.
    ik: Option<Ik>,
    threads: u32,
    rounds: u32,
}

impl Setup {
    /// `smelt WORDS… MODEL`.
    fn smelt(&self, words: &[&str], model: &Model) -> Command {
        let mut command = Command::new(&self.smelt);
        command.args(words).arg(&model.path);
        command
    }

    /// `PROGRAM -m MODEL -t THREADS`.
    fn llama(&self, program: &str, model: &Model) -> Command {
        let mut command = Command::new(self.llama_bin.join(program));
        command.arg("-m").arg(&model.path).arg("-t").arg(self.threads.to_string());
        command
    }
}

/// Prepares the programs, then prints one table for each thing to compare.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    fetch::run()?;
    let peers_dir = arguments.peers_dir.clone().unwrap_or_else(|| workspace::target().join("peers"));
    let wants = |what| arguments.what.is_empty() || arguments.what.contains(&what);
    let takes_part = |program: &Program| {
        // Smelt measures the machine, so it always takes part.
        arguments.peers.is_empty() || *program == Program::Smelt || arguments.peers.contains(program)
    };
    let programs: Vec<Program> = Program::ALL.into_iter().filter(takes_part).collect();
    let ik = match wants(What::Speed) && programs.contains(&Program::Ik) {
        true => Some(Ik::prepare(&peers_dir)?),
        false => None,
    };
    let llama_bin = match &arguments.llama_bin {
        Some(folder) => folder.clone(),
        None => llama_cpp::build(&peers_dir, &llama_cpp::BENCHMARKS)?,
    };
    let smelt = match &arguments.smelt {
        Some(path) => path.clone(),
        None => build_smelt()?,
    };
    let setup = Setup { smelt, llama_bin, ik, threads: arguments.threads, rounds: arguments.rounds };
    let selection = Selection::new(&arguments.models, &arguments.formats, peers_dir.join("models"));
    if wants(What::Speed) {
        let is_wanted = |name: &str| arguments.tests.is_empty() || arguments.tests.iter().any(|t| t == name);
        let tests = TESTS.iter().filter(|test| is_wanted(test.name)).collect();
        let json = arguments.json.as_deref();
        speed::compare(&setup, &speed::Plan { selection: &selection, tests, programs, json })?;
    }
    if wants(What::Perplexity) {
        perplexity::compare(&setup, &selection)?;
    }
    if wants(What::Startup) {
        process::compare_startup(&setup, &selection)?;
    }
    if wants(What::Memory) {
        process::compare_memory(&setup, &selection)?;
    }
    Ok(())
}

/// Builds `smelt` as a user gets it.
fn build_smelt() -> Result<PathBuf> {
    workspace::run(workspace::cargo().args(["build", "--release", "--package", "smelt-cli"]))?;
    let path = workspace::target().join("release").join(format!("smelt{}", std::env::consts::EXE_SUFFIX));
    ensure!(path.is_file(), "cargo left no {}: is another target folder set?", path.display());
    Ok(path)
}

/// The text that perplexity and memory are measured on.
fn text() -> PathBuf {
    workspace::root().join("tests/data/text/britannica11_shakespeare.txt")
}
