//! `smelt tokenize`.

use anyhow::Result;
use serde_json::json;
use smelt_checkpoint::Checkpoint;
use smelt_engine::Error;
use smelt_engine::chat::{Message, RenderOptions};
use smelt_engine::tokenizer::{Special, Tokenizer};

use super::load::ModelArg;
use super::prompt;
use crate::context::Context;
use crate::report::Usage;
use crate::{input, output};

/// Show how a model reads text
///
/// Prints the tokens of TEXT, or of standard input, each with its id; or with --decode the text of token ids. Only the
/// model's vocabulary is read, so this is fast and needs little memory.
///
/// The text is a person's: what looks like a control token is plain text, unless --special is given. With --chat it is
/// a user's message, and the tokens are the whole prompt that `smelt run` would make of it.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = "Examples:
  smelt tokenize smollm2:135m \"Hello, world\"
  smelt tokenize smollm2:135m --ids < book.txt
  smelt tokenize smollm2:135m --special --no-bos \"<|im_start|>user\"
  smelt tokenize smollm2:135m --chat \"Why is the sky blue?\"
  smelt tokenize smollm2:135m --decode \"19556 28 905\""
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// The text; standard input if there is none
    text: Option<String>,
    /// Print the ids as a list and nothing else
    #[arg(long, conflicts_with = "json")]
    ids: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Read control tokens in the text, such as <|im_end|>, as such; with --decode, show them
    #[arg(long)]
    special: bool,
    /// Add neither BOS nor EOS
    #[arg(long)]
    no_bos: bool,
    /// Take the text as a user's message, rendered by the model's chat template
    #[arg(long, conflicts_with_all = ["special", "no_bos", "decode"])]
    chat: bool,
    /// Turn ids, separated by spaces or commas, into text
    #[arg(long, conflicts_with_all = ["ids", "no_bos"])]
    decode: bool,
    /// Read a vocabulary with unknown rules by the usual ones
    #[arg(long)]
    force: bool,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let checkpoint = Checkpoint::open(&args.model.locate(context)?)?;
    let tokenizer = smelt_engine::tokenizer_of(&checkpoint, args.force)?;
    let text = match args.text {
        Some(ref text) => text.clone(),
        None => input::text(context.quiet)?,
    };
    if args.decode {
        return decode(args, &text, &tokenizer);
    }
    let special = if args.special { Special::Parse } else { Special::Text };
    let ids = match (args.chat, args.no_bos) {
        (true, _) => chat(&text, &checkpoint, &tokenizer)?,
        (false, true) => tokenizer.encode(&text, special, false),
        (false, false) => prompt::encode(&tokenizer, &text, special, context.quiet),
    };
    if args.ids {
        return output::line(serde_json::to_string(&ids)?);
    }
    if args.json {
        let token = |id: &u32| {
            json!({
                "id": id, "piece": tokenizer.piece(*id), "text": text_of(&tokenizer, *id),
                "special": tokenizer.is_special(*id),
            })
        };
        return output::json(
            &json!({"count": ids.len(), "tokens": ids.iter().map(token).collect::<Vec<_>>()}),
        );
    }
    ids.iter().try_for_each(|id| output::line(format!("{id:>7}  {:?}", text_of(&tokenizer, *id))))
}

/// The prompt of a conversation that begins with `text`, up to where the answer begins.
fn chat(text: &str, checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Vec<u32>> {
    let template = smelt_engine::template_of(checkpoint, tokenizer)?;
    let now = Some(jiff::Zoned::now().datetime());
    let options = RenderOptions { add_generation_prompt: true, now, ..RenderOptions::default() };
    let rendered = template
        .render(&[Message::new("user", text)], &options)
        .map_err(|source| Error::Template { file: checkpoint.path().into(), source })?;
    Ok(tokenizer.encode_rendered(&rendered))
}

/// The bytes of a token as text; what is no UTF-8 on its own becomes U+FFFD.
fn text_of(tokenizer: &Tokenizer, id: u32) -> String {
    String::from_utf8_lossy(tokenizer.token_bytes(id, true).unwrap_or_default()).into_owned()
}

fn decode(args: &Args, text: &str, tokenizer: &Tokenizer) -> Result<()> {
    let separators = |c: char| c.is_whitespace() || matches!(c, ',' | '[' | ']');
    let mut ids = Vec::new();
    for word in text.split(separators).filter(|word| !word.is_empty()) {
        let id = word.parse().ok().filter(|id| (*id as usize) < tokenizer.vocab_size());
        let last = tokenizer.vocab_size().saturating_sub(1);
        ids.push(
            id.ok_or_else(|| Usage(format!("{word:?} is no token id; ids are numbers from 0 to {last}")))?,
        );
    }
    let text = tokenizer.decode(&ids, args.special);
    match args.json {
        true => output::json(&json!({"count": ids.len(), "text": text})),
        false => output::line(text),
    }
}
