//! `smelt run`: one answer, or a chat.

mod chat;
mod editor;
mod flags;
mod knobs;
mod printer;
mod remote;
mod session;
mod summary;

use std::io::{self, IsTerminal};

use anyhow::Result;
use smelt_engine::KvFormat;
use smelt_engine::chat::Message;
use smelt_engine::tokenizer::Special;

pub(crate) use self::flags::SamplingArgs;
use self::flags::{AnswerArgs, GrammarArgs};
use self::knobs::Knobs;
use self::printer::Style;
use self::remote::Remote;
use self::session::Session;
use super::load::{MachineArgs, ModelArg, load};
use crate::context::Context;
use crate::input;
use crate::report::{self, Interrupted, Usage};

/// Run a model: answer a prompt, or chat
///
/// The model is fetched first if it isn't here. The prompt is what stands behind MODEL, joined by spaces; text piped in
/// is appended to it. Without either, on a terminal, a chat begins: /help there says what can be done.
///
/// The answer goes to standard output as it comes, all else to standard error. Ctrl-C stops the answer, twice quits.
///
/// A conversation that outgrows the context loses its oldest turns, never its system message, and says so.
///
/// A server of this machine that has the model answers instead (`smelt ps` lists them), as long as no flag says how a model
/// is to be loaded and --local isn't given.
///
/// What a model file recommends about sampling (`smelt show` tells) replaces the defaults below; settings of the model or
/// a profile (`smelt config`) go before both, and flags before all.
#[derive(Debug, clap::Args)]
#[command(
    args_override_self = true,
    allow_negative_numbers = true,
    after_long_help = "Examples:
  smelt run smollm2:135m \"Why is the sky blue?\"
  smelt run gemma3:270m --system \"You are terse.\" --temp 0.2
  git diff | smelt run ./model.gguf \"Explain this change:\"
  smelt run ./model.gguf --raw --temp 0 --max-tokens 64 \"Once upon a time\"
  smelt run ./model.gguf --regex \"(yes|no)\" \"Is water wet?\"
  smelt run ./model.gguf --json --seed 1 \"A haiku, please.\" | jq -rj 'select(.event == \"text\").text'"
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// The prompt; several words need no quotes
    prompt: Vec<String>,
    #[command(flatten)]
    answer: AnswerArgs,
    #[command(flatten)]
    grammar: GrammarArgs,
    /// Continue the prompt as plain text: no chat template, nothing printed but the continuation
    #[arg(long, help_heading = "Answer")]
    raw: bool,
    /// With --raw: control tokens may be written in the prompt, such as <|im_end|>
    #[arg(long, requires = "raw", help_heading = "Answer")]
    special: bool,
    #[command(flatten)]
    sampling: SamplingArgs,
    /// Tokens that the conversation may have [default: as many as the model was trained on]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 24), help_heading = "Machine")]
    ctx: Option<u32>,
    /// Load the model here, also where a running server has it
    #[arg(long, help_heading = "Machine")]
    local: bool,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print events as JSON, one per line
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// End with the speeds, on standard error
    #[arg(short, long, help_heading = "Output")]
    verbose: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let config = context.config()?;
    let names = args.model.names(context);
    let args: &Args = &config.settle("run", &names)?;
    let mut knobs = flags::knobs(&args.sampling, &args.answer)?;
    knobs.structure = args.grammar.structure(context.quiet)?;
    let prompt = prompt(args, context.quiet)?;
    let chosen = config.chosen(&names);
    let mut session = match remote(args, &knobs, &chosen, context)? {
        Some(remote) => Session::there(remote, context.quiet),
        None => {
            let settings = args.machine.settings(args.ctx.map(|n| n as usize), KvFormat::F16);
            Session::here(load(&args.model, &settings, context)?, context.quiet)
        }
    };
    args.sampling.follow(session.model().recommended(), &mut knobs.sampler, &chosen, context.quiet);
    match prompt {
        Some(prompt) => once(args, &prompt, &knobs, &mut session),
        None => chat::run(&mut session, knobs, args.verbose, context),
    }
}

/// A server that can answer instead of this process.
///
/// # Errors
/// If one has the model, and fails.
fn remote(args: &Args, knobs: &Knobs, chosen: &[String], context: &Context) -> Result<Option<Remote>> {
    let file = if args.local { None } else { args.model.installed(context)? };
    let Some(file) = file else { return Ok(None) };
    let note = |text: &str| {
        if !context.quiet {
            report::note(text);
        }
    };
    let Some(remote) = Remote::find(&file, context)? else { return Ok(None) };
    let mut sampler = knobs.sampler.clone();
    args.sampling.follow(remote.model().recommended(), &mut sampler, chosen, true);
    let can = match args.sampling.given_of_loading() {
        Some(flag) => Err(format!("{flag} is for loading a model")),
        None => remote.check(&sampler, &knobs.stop, &knobs.dry_breakers),
    };
    match can {
        Ok(()) => {
            note(&format!("asking {}; --local runs the model here", remote.describe()));
            Ok(Some(remote))
        }
        Err(why) => {
            note(&format!("not asking {}: {why}", remote.describe()));
            Ok(None)
        }
    }
}

/// The prompt; `None` to chat.
///
/// # Errors
/// [`Usage`] if there is none and nobody to chat with.
fn prompt(args: &Args, quiet: bool) -> Result<Option<String>> {
    let mut prompt = args.prompt.join(" ");
    if io::stdin().is_terminal() {
        return match (args.prompt.is_empty(), args.raw || args.json) {
            (false, _) => Ok(Some(prompt)),
            (true, false) => Ok(None),
            (true, true) => Err(Usage("--raw and --json need a prompt".to_owned()).into()),
        };
    }
    let piped = input::text(quiet)?;
    // What a chat template gets has no line feed of an `echo` behind it; raw text is taken as it is.
    let piped = if args.raw { piped.as_str() } else { piped.trim_end_matches(['\n', '\r']) };
    if !prompt.is_empty() && !piped.is_empty() {
        prompt.push('\n');
    }
    prompt.push_str(piped);
    // Raw text that is empty on purpose lets a model with BOS begin on its own.
    if prompt.is_empty() && (args.prompt.is_empty() || !args.raw) {
        return Err(Usage("there is no prompt: write one behind MODEL, or pipe one in".to_owned()).into());
    }
    Ok(Some(prompt))
}

fn once(args: &Args, prompt: &str, knobs: &Knobs, session: &mut Session) -> Result<()> {
    let special = if args.special { Special::Parse } else { Special::Text };
    let fitted = match args.raw {
        true => session.fit_text(prompt, special, knobs)?,
        false => session.fit_chat(&[Message::new("user", prompt)], knobs)?,
    };
    let style = match (args.json, args.raw) {
        (true, _) => Style::Json,
        (false, true) => Style::Raw,
        (false, false) => Style::Text,
    };
    let answer = session.answer(fitted, knobs, style)?;
    if args.verbose {
        session.tell_speed(&answer.summary)?;
    }
    if answer.interrupted { Err(Interrupted.into()) } else { Ok(()) }
}
