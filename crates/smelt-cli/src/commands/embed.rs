//! `smelt embed`.

use std::ops::ControlFlow;
use std::sync::mpsc;

use anyhow::{Result, bail};
use serde::Serialize;
use smelt_engine::scheduler::{Event, MAX_TEXTS, PoolRequest, Scheduler, SchedulerSettings, Task, Text};
use smelt_engine::tokenizer::Special;
use smelt_engine::{EUCLIDEAN, KvFormat, Pooling, normalize};

use super::load::{MachineArgs, ModelArg, load};
use crate::context::Context;
use crate::report::Usage;
use crate::{input, output};

/// Make vectors of texts
///
/// Prints a line for each TEXT, or for each line of standard input: its embedding, as a JSON list of numbers. Texts of
/// like meaning have embeddings of like direction; their length is 1. Any model has some; those that are made for it,
/// such as BERT's kind, are best at it. With --pooling none it is the list of the tokens' states, as they are.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  smelt embed ./all-MiniLM-L6-v2.gguf \"The cat sits on the mat.\"
  smelt embed ./all-MiniLM-L6-v2.gguf --json < sentences.txt")]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// The texts; the lines of standard input if there are none
    #[arg(value_name = "TEXT")]
    texts: Vec<String>,
    /// Keep so many of the first values, and make them of length 1 again: for models that are trained for it
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..))]
    dimensions: Option<u32>,
    /// How the states of a text's tokens become its embedding; without it, as the file says
    #[arg(long, value_name = "HOW", value_parser = Pooling::ALL.map(Pooling::name))]
    pooling: Option<String>,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print a JSON object for each text, with its index and how many tokens it has
    #[arg(long, help_heading = "Output")]
    json: bool,
}

/// What is printed of a text with `--json`.
#[derive(Serialize)]
struct Line {
    index: usize,
    tokens: usize,
    embedding: Embedding,
}

#[derive(Serialize)]
#[serde(untagged)]
enum Embedding {
    OfText(Vec<f32>),
    OfTokens(Vec<Vec<f32>>),
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let lines = match args.texts.is_empty() {
        true => input::text(context.quiet)?.lines().map(str::to_owned).collect(),
        false => args.texts.clone(),
    };
    let engine = load(&args.model, &args.machine.settings(None, KvFormat::F16), context)?;
    let (tokenizer, hidden_dim) = (engine.tokenizer().clone(), engine.facts().hidden_dim);
    let pooling = args.pooling.as_ref().and_then(|name| Pooling::ALL.into_iter().find(|p| p.name() == name));
    let pooling = pooling.unwrap_or(engine.facts().pooling);
    let dimensions = args.dimensions.map_or(hidden_dim, |n| n as usize);
    if dimensions > hidden_dim {
        let message =
            format!("--dimensions is {dimensions}, but this model's embeddings have {hidden_dim} values");
        return Err(Usage(message).into());
    }
    let texts: Vec<Text> =
        lines.iter().map(|line| tokenizer.encode(line, Special::Text, true).into()).collect();
    let scheduler = Scheduler::start(engine, &SchedulerSettings::default())?;
    for (first, texts) in texts.chunks(MAX_TEXTS).enumerate().map(|(i, part)| (i * MAX_TEXTS, part)) {
        for (i, mut values) in pool(&scheduler, texts.to_vec(), pooling)?.into_iter().enumerate() {
            let embedding = match pooling {
                Pooling::None => Embedding::OfTokens(
                    values.chunks(hidden_dim).map(|state| state[..dimensions].into()).collect(),
                ),
                _ => {
                    values.truncate(dimensions);
                    normalize(&mut values, EUCLIDEAN);
                    Embedding::OfText(values)
                }
            };
            let (index, tokens) = (first + i, texts[i].tokens.len());
            match args.json {
                true => output::event(&Line { index, tokens, embedding })?,
                false => output::event(&embedding)?,
            }
        }
    }
    Ok(())
}

fn pool(scheduler: &Scheduler, texts: Vec<Text>, pooling: Pooling) -> Result<Vec<Vec<f32>>> {
    let mut all = vec![Vec::new(); texts.len()];
    let (events, received) = mpsc::channel();
    let sink = move |event| match events.send(event) {
        Ok(()) => ControlFlow::Continue(()),
        Err(_) => ControlFlow::Break(()),
    };
    let request = PoolRequest { texts, task: Task::Embedding(pooling), priority: 0 };
    let _ticket = scheduler.handle().pool(request, Box::new(sink))?;
    for event in received {
        match event {
            Event::Pooled { index, values } => all[index] = values,
            Event::Done => return Ok(all),
            Event::Failed(failure) => return Err(failure.into()),
            _ => {}
        }
    }
    bail!("the engine ended before all texts were done")
}
