//! Chat templates: messages to a prompt, with the user's text told apart from the template's.
//!
//! A checkpoint's template is Jinja2 as Hugging Face's `transformers` runs it. Rendering gives a [`Rendered`]: the
//! text, character for character what Jinja2 prints, and the ranges of it that came from the messages, tools and
//! documents. A tokenizer recognises special tokens outside of these ranges only, so that a user who types
//! `<|im_end|>` has typed ten characters and ended nothing.
//!
//! # How provenance is kept
//!
//! Marking a user's strings with extra characters would change what templates compute (`content.split('</think>')`,
//! `content|length`, `content == ''`), and could be imitated by a user. So the evaluator here has strings that carry
//! their user ranges beside their characters (`text.rs`), and each of its operations moves the ranges with the
//! characters. Comparisons never see them: a template takes the same branches as on plain strings, and one rendering
//! suffices. The template is parsed by `minijinja`; it is evaluated here, because a general engine's strings have no
//! room for marks, and because templates rely on Python's behaviour in printing, slicing and arithmetic.
//!
//! # What a template may use
//!
//! Templates are untrusted. Work is metered (a template that takes too long stops with an error), strings have a
//! largest size, values and calls a deepest nesting, and nothing can be reached but the values passed in. The library
//! reads no clock: the date for `strftime_now` comes from the caller.

mod ast;
mod error;
mod eval;
mod expr;
mod families;
mod filters;
mod format;
mod functions;
mod message;
mod methods;
mod number;
mod parse;
mod rendered;
mod tests;
mod text;
mod tools;
mod value;

use std::sync::{Arc, OnceLock};

use jiff::civil::DateTime;
use serde_json::{Map, Value as Json};

pub use error::TemplateError;
pub use families::{FAMILIES, Family, family_for};
pub use message::Message;
pub use rendered::{Rendered, Segment};
pub use tools::{Abilities, Declares, Replays};

use eval::{Evaluator, Scope};
use value::Value;

/// Work a rendering may do before it counts as hanging: a fraction of a second, and a hundred times what templates need.
const BASE_FUEL: u64 = 5_000_000;
/// Further work for every byte of the messages, tools and documents.
const FUEL_PER_BYTE: u64 = 64;
/// Stack of the thread that compiles and renders; only what is touched is used.
const STACK: usize = 64 << 20;

/// The variable in which templates of Llama 3 look for today's date, and its form: without it they name a day of 2024.
const TODAY: (&str, &str) = ("date_string", "%d %b %Y");

/// A compiled chat template. It can be shared between threads.
#[derive(Debug)]
pub struct ChatTemplate {
    program: ast::Block,
    source: String,
    bos: String,
    eos: String,
    abilities: OnceLock<Abilities>,
}

/// What a rendering depends on beside the messages.
#[derive(Debug, Clone, Default)]
pub struct RenderOptions {
    /// Tool declarations, in the form that the template expects (usually OpenAI's).
    pub tools: Option<Vec<Json>>,
    /// Documents for retrieval: objects, usually with `title` and `text`.
    pub documents: Option<Vec<Json>>,
    /// End with the header of an assistant message, so that the model answers.
    pub add_generation_prompt: bool,
    /// For models with a switch for reasoning; absent leaves the template's default.
    pub enable_thinking: Option<bool>,
    /// Any other variables. Their strings count as a user's.
    pub extra: Map<String, Json>,
    /// Local date and time for `strftime_now`.
    pub now: Option<DateTime>,
}

impl RenderOptions {
    /// The same with the date and time that it is now: for `strftime_now`, and in the variable where templates of Llama 3 look
    /// for it, unless there is one already.
    #[must_use]
    pub fn at(mut self, now: DateTime) -> Self {
        let (name, format) = TODAY;
        self.extra.entry(name).or_insert_with(|| now.strftime(format).to_string().into());
        Self { now: Some(now), ..self }
    }
}

impl ChatTemplate {
    /// Compiles `source`. `bos` and `eos` are the texts of the vocabulary's tokens, empty where it has none.
    ///
    /// # Errors
    /// When it is not valid Jinja, or larger or deeper than any real template.
    pub fn new(source: &str, bos: &str, eos: &str) -> Result<Self, TemplateError> {
        let program = on_deep_stack(|| parse::compile(source))??;
        let (source, bos, eos) = (source.to_owned(), bos.to_owned(), eos.to_owned());
        Ok(Self { program, source, bos, eos, abilities: OnceLock::new() })
    }

    /// What it makes of tools and reasoning. Found out once.
    pub fn abilities(&self) -> &Abilities {
        self.abilities.get_or_init(|| Abilities::new(self))
    }

    /// Renders a conversation in OpenAI's form whatever the template makes of tools: calls, results and
    /// [`RenderOptions::tools`] take the form that it knows.
    ///
    /// # Errors
    /// As [`Self::render`].
    pub fn render_chat(
        &self,
        messages: &[Message],
        options: &RenderOptions,
    ) -> Result<Rendered, TemplateError> {
        let given = options.tools.as_deref().unwrap_or_default();
        let (messages, tools) = self.abilities().adapt(messages, given);
        self.render(&messages, &RenderOptions { tools, ..options.clone() })
    }

    /// The template's text.
    pub fn source(&self) -> &str {
        &self.source
    }

    /// Renders a conversation.
    ///
    /// Keys of messages whose value is null are left out, and reasoning given as `reasoning`, `thinking` or
    /// `reasoning_content` is found under each name that templates read, both as `transformers` does.
    ///
    /// # Errors
    /// [`TemplateError::Raised`] when the template refuses the messages; otherwise what failed, and in which line.
    pub fn render(&self, messages: &[Message], options: &RenderOptions) -> Result<Rendered, TemplateError> {
        on_deep_stack(|| {
            let scope = Scope::root(self.variables(messages, options));
            let input: u64 = scope.weight();
            let fuel = BASE_FUEL.saturating_add(input.saturating_mul(16 * FUEL_PER_BYTE));
            let mut evaluator = Evaluator::new(fuel, options.now);
            let text = evaluator.run(&self.program, &scope).map_err(|fault| fault.at(evaluator.line))?;
            let (text, user) = text.into_parts();
            Ok(Rendered { text, user })
        })?
    }

    fn variables(&self, messages: &[Message], options: &RenderOptions) -> Vec<(Arc<str>, Value)> {
        let list = |items: &Option<Vec<Json>>| match items {
            Some(items) => Value::list(items.iter().map(Value::from_json).collect()),
            None => Value::None,
        };
        let mut vars: Vec<(Arc<str>, Value)> = vec![
            ("messages".into(), Value::list(messages.iter().map(Message::to_value).collect())),
            ("tools".into(), list(&options.tools)),
            ("documents".into(), list(&options.documents)),
            ("add_generation_prompt".into(), Value::Bool(options.add_generation_prompt)),
            ("bos_token".into(), Value::template(&*self.bos)),
            ("eos_token".into(), Value::template(&*self.eos)),
        ];
        if let Some(thinking) = options.enable_thinking {
            vars.push(("enable_thinking".into(), Value::Bool(thinking)));
        }
        for (name, value) in &options.extra {
            vars.retain(|(n, _)| **n != **name);
            vars.push((name.as_str().into(), Value::from_json(value)));
        }
        vars
    }
}

/// Runs `f` on a thread with a deep stack: expressions nest as deep as a template wants, within the limits.
fn on_deep_stack<T: Send>(f: impl FnOnce() -> T + Send) -> Result<T, TemplateError> {
    let failed = |message: String| TemplateError::Limit { line: 1, message };
    std::thread::scope(|threads| {
        let thread = std::thread::Builder::new()
            .name("chat-template".to_owned())
            .stack_size(STACK)
            .spawn_scoped(threads, f)
            .map_err(|e| failed(format!("no thread to render on: {e}")))?;
        thread.join().map_err(|panic| std::panic::resume_unwind(panic))
    })
}
