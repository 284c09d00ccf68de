//! `bench-peers`: Smelt beside llama.cpp, on this machine, with the same files and the same number of threads.
//!
//! Numbers from other machines or other days don't compare; so both programs run here, in turn, and the table shows
//! medians with their spread.

mod llama_cpp;
mod perplexity;
mod process;
mod speed;
mod table;

use std::path::PathBuf;
use std::process::Command;

use anyhow::{Result, ensure};
use clap::ValueEnum;

use crate::{fetch, workspace};

/// The models that are compared, as `(short name, file)`.
static MODELS: &[(&str, &str)] =
    &[("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("gemma3", "gemma-3-270m-q4_k_m.gguf")];

/// What can be compared.
#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum What {
    /// Tokens per second of a prompt of 512 tokens and of an answer of 128.
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
    /// Models to compare on; all unless given.
    #[arg(long = "model", value_delimiter = ',', value_parser = model_names())]
    models: Vec<String>,
    /// How many times each program runs, in turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Threads of both programs.
    #[arg(long, short, default_value_t = 2, value_parser = clap::value_parser!(u32).range(1..))]
    threads: u32,
    /// Where llama.cpp is unpacked and built; target/peers unless given.
    #[arg(long)]
    peers_dir: Option<PathBuf>,
    /// A folder of llama.cpp's programs to use instead of building them.
    #[arg(long)]
    llama_bin: Option<PathBuf>,
    /// A `smelt` to use instead of building it.
    #[arg(long)]
    smelt: Option<PathBuf>,
}

fn model_names() -> Vec<&'static str> {
    MODELS.iter().map(|&(name, _)| name).collect()
}

/// The two programs and how to run them.
struct Setup {
    smelt: PathBuf,
    /// The folder of llama.cpp's programs.
    llama_bin: PathBuf,
    threads: u32,
    rounds: u32,
}

/// A model file to compare on.
struct Model {
    name: &'static str,
    path: PathBuf,
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

/// Prepares both programs, then prints one table for each thing to compare.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    fetch::run()?;
    let llama_bin = match &arguments.llama_bin {
        Some(folder) => folder.clone(),
        None => {
            let default = workspace::target().join("peers");
            llama_cpp::build(arguments.peers_dir.as_ref().unwrap_or(&default))?
        }
    };
    let smelt = match &arguments.smelt {
        Some(path) => path.clone(),
        None => build_smelt()?,
    };
    let setup = Setup { smelt, llama_bin, threads: arguments.threads, rounds: arguments.rounds };
    let models = selected_models(&arguments.models)?;
    for what in What::value_variants() {
        if !arguments.what.is_empty() && !arguments.what.contains(what) {
            continue;
        }
        match what {
            What::Speed => speed::compare(&setup, &models)?,
            What::Perplexity => perplexity::compare(&setup, &models)?,
            What::Startup => process::compare_startup(&setup, &models)?,
            What::Memory => process::compare_memory(&setup, &models)?,
        }
    }
    Ok(())
}

fn selected_models(names: &[String]) -> Result<Vec<Model>> {
    let chosen =
        MODELS.iter().filter(|(name, _)| names.is_empty() || names.iter().any(|chosen| chosen == name));
    let models: Vec<Model> = chosen.map(|&(name, file)| Model { name, path: fetch::model(file) }).collect();
    for model in &models {
        ensure!(model.path.is_file(), "{} is missing: run cargo xtask fetch", model.path.display());
    }
    Ok(models)
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
