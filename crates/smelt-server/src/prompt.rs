//! From messages and texts to tokens, and from a request's wishes to the sampler's settings.

use std::sync::Arc;

use serde_json::{Map, Value};
use smelt_api::{ApiError, ChatMessage, Code, Role, Sampling};
use smelt_engine::chat::{Message, RenderOptions};
use smelt_engine::sampler::{SamplerSettings, Stage};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::chat::TemplateError;
use smelt_engine::{Error, Model};

use crate::models::Loaded;

/// How a conversation becomes a prompt.
#[derive(Debug, Clone, Default)]
pub(crate) struct ChatPrompt {
    pub(crate) messages: Vec<ChatMessage>,
    /// Variables for the template.
    pub(crate) kwargs: Map<String, Value>,
    /// Go on in the last message, which is the assistant's.
    pub(crate) continues: bool,
    /// End with the message, and not where an answer begins.
    pub(crate) closed: bool,
}

/// Variables that are the template's own.
const RESERVED: [&str; 6] =
    ["messages", "tools", "documents", "add_generation_prompt", "bos_token", "eos_token"];

/// Does what takes long, such as tokenizing a long text, beside the tasks of other requests.
pub(crate) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |e| ApiError::new(Code::Internal, format!("the request's preparation failed: {e}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// The tokens of a conversation. What a message says never becomes a control token.
pub(crate) async fn chat(model: &Arc<Loaded>, prompt: ChatPrompt) -> Result<Vec<u32>, ApiError> {
    let model = model.clone();
    beside(move || encode_chat(model.model(), prompt)).await
}

fn encode_chat(model: &Model, mut prompt: ChatPrompt) -> Result<Vec<u32>, ApiError> {
    let template = model.template().map_err(|e| ApiError::new(Code::Internal, e.to_string()))?;
    let mut options = RenderOptions {
        add_generation_prompt: !prompt.closed,
        now: Some(jiff::Zoned::now().datetime()),
        ..RenderOptions::default()
    };
    if let Some(name) = RESERVED.iter().find(|name| prompt.kwargs.contains_key(**name)) {
        return Err(ApiError::value(format!("chat_template_kwargs.{name}"), "is set by the server"));
    }
    if let Some(Value::Bool(thinking)) = prompt.kwargs.get("enable_thinking") {
        options.enable_thinking = Some(*thinking);
    }
    options.extra = prompt.kwargs;
    let begun = if prompt.continues { prompt.messages.pop() } else { None };
    let messages = to_template(prompt.messages, template.source().contains("developer"));
    let mut rendered = template.render(&messages, &options).map_err(|e| refused(&e))?;
    if let Some(begun) = begun {
        // What the answer begins with is text like any other.
        let start = rendered.text.len();
        rendered.text.push_str(begun.content.trim_end());
        rendered.user.extend((start < rendered.text.len()).then_some(start..rendered.text.len()));
    }
    Ok(model.tokenizer().encode_rendered(&rendered))
}

/// Messages as a template reads them. Few know the role `developer`, and none more than one message of instructions at
/// the beginning.
fn to_template(messages: Vec<ChatMessage>, knows_developer: bool) -> Vec<Message> {
    let mut merged: Vec<ChatMessage> = Vec::with_capacity(messages.len());
    for mut message in messages {
        if message.role == Role::Developer && !knows_developer {
            message.role = Role::System;
        }
        match merged.as_mut_slice() {
            [first] if first.role == Role::System && message.role == Role::System => {
                let gap = if first.content.is_empty() || message.content.is_empty() { "" } else { "\n\n" };
                first.content = [first.content.as_str(), gap, message.content.as_str()].concat();
            }
            _ => merged.push(message),
        }
    }
    let to_message = |message: ChatMessage| {
        let mut out = Message::new(message.role.name(), message.content);
        let mut set = |name: &str, value: Option<String>| {
            if let Some(value) = value {
                out.fields_mut().insert(name.into(), value.into());
            }
        };
        set("name", message.name);
        set("reasoning_content", message.reasoning);
        out
    };
    merged.into_iter().map(to_message).collect()
}

/// What a template says about messages that it can't render is the client's to know.
fn refused(error: &TemplateError) -> ApiError {
    match error {
        TemplateError::Syntax { .. } => ApiError::new(Code::Internal, error.to_string()),
        _ => ApiError {
            param: Some("messages".into()),
            ..ApiError::new(Code::InvalidValue, error.to_string())
        },
    }
}

/// The tokens of a raw text, in which control tokens are what they look like. Where it begins with BOS, none is added.
pub(crate) fn encode_text(model: &Model, text: &str, add_special: bool) -> Vec<u32> {
    let tokenizer = model.tokenizer();
    let mut ids = tokenizer.encode(text, Special::Parse, add_special);
    let bos = tokenizer.bos().filter(|_| add_special && tokenizer.adds_bos());
    if bos.is_some_and(|bos| ids.starts_with(&[bos, bos])) {
        ids.remove(0);
    }
    ids
}

/// Checks ids against the vocabulary.
pub(crate) fn check_ids(model: &Model, ids: &[u32], param: &str) -> Result<(), ApiError> {
    let size = model.tokenizer().vocab_size();
    match ids.iter().find(|id| **id as usize >= size) {
        None => Ok(()),
        Some(id) => Err(ApiError::value(
            param,
            format!("has the token {id}, but the vocabulary ends at {}", size - 1),
        )),
    }
}

/// The sampler's settings: the request's wishes, over what the model's file recommends, over Smelt's own.
///
/// # Errors
/// If a wish names a token that isn't there, or doesn't go with another one.
pub(crate) fn sampler(model: &Model, wishes: &Sampling) -> Result<SamplerSettings, ApiError> {
    let mut settings = SamplerSettings::default();
    model.recommended().apply(&mut settings, |_| false);
    settings.seed = wishes.seed;
    settings.logit_bias.clone_from(&wishes.logit_bias);
    // A stage that is asked for must run, whatever order the file recommends.
    let stages = [
        (wishes.temperature, Stage::Temperature),
        (wishes.top_p, Stage::TopP),
        (wishes.top_k.map(|_| 0.0), Stage::TopK),
        (wishes.min_p, Stage::MinP),
        (wishes.typical_p, Stage::Typical),
        (wishes.top_n_sigma, Stage::TopNSigma),
        (wishes.xtc_probability, Stage::Xtc),
    ];
    let asked = |stage: &Stage| stages.iter().any(|(wish, of)| wish.is_some() && of == stage);
    if Stage::DEFAULT_CHAIN.iter().any(|stage| asked(stage) && !settings.chain.contains(stage)) {
        settings.chain = Stage::DEFAULT_CHAIN.to_vec();
    }
    if Stage::DEFAULT_CHAIN.iter().any(|stage| asked(stage) && *stage != Stage::Temperature) {
        settings.mirostat = None;
    }
    let numbers = [
        (&mut settings.temperature, wishes.temperature),
        (&mut settings.top_p, wishes.top_p),
        (&mut settings.min_p, wishes.min_p),
        (&mut settings.typical_p, wishes.typical_p),
        (&mut settings.top_n_sigma, wishes.top_n_sigma),
        (&mut settings.repeat_penalty, wishes.repeat_penalty),
        (&mut settings.presence_penalty, wishes.presence_penalty),
        (&mut settings.frequency_penalty, wishes.frequency_penalty),
        (&mut settings.dry_multiplier, wishes.dry_multiplier),
        (&mut settings.dry_base, wishes.dry_base),
        (&mut settings.xtc_probability, wishes.xtc_probability),
        (&mut settings.xtc_threshold, wishes.xtc_threshold),
        (&mut settings.dynatemp_range, wishes.dynatemp_range),
        (&mut settings.dynatemp_exponent, wishes.dynatemp_exponent),
    ];
    for (setting, wish) in numbers {
        *setting = wish.unwrap_or(*setting);
    }
    settings.top_k = wishes.top_k.unwrap_or(settings.top_k);
    settings.penalty_last_n = wishes.repeat_last_n.unwrap_or(settings.penalty_last_n);
    settings.dry_allowed_length = wishes.dry_allowed_length.unwrap_or(settings.dry_allowed_length);
    settings.dry_last_n = wishes.dry_last_n.unwrap_or(settings.dry_last_n);
    let size = model.facts().vocab_size;
    let invalid = |e| ApiError::new(Code::InvalidValue, Error::Sampler(e).to_string());
    settings.validate().map_err(invalid)?;
    match settings.logit_bias.iter().find(|(id, _)| *id as usize >= size) {
        None => Ok(settings),
        Some((id, _)) => {
            Err(ApiError::value("logit_bias", format!("has the token {id}, but the model has {size} tokens")))
        }
    }
}
