//! What answers look like.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::timings::{Progress, Timings};

/// Why an answer ended, in OpenAI's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum FinishReason {
    /// The model ended it, or a stop string did.
    Stop,
    /// `max_tokens`, or the context is full.
    Length,
    /// The model ended it, and called tools.
    ToolCalls,
}

/// Tokens of a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Usage {
    /// Of the prompt.
    pub prompt_tokens: usize,
    /// Of the answers.
    pub completion_tokens: usize,
    /// Both.
    pub total_tokens: usize,
    /// More about the prompt's.
    pub prompt_tokens_details: PromptDetails,
    /// More about the answers'.
    pub completion_tokens_details: CompletionDetails,
}

/// More about the answers' tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct CompletionDetails {
    /// Of thought.
    pub reasoning_tokens: usize,
}

/// More about the prompt's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PromptDetails {
    /// Taken from the cache.
    pub cached_tokens: usize,
}

impl Usage {
    /// The usage of a request: tokens of the prompt, those of them from the cache, those of the answers, and those of
    /// them that are thought.
    #[must_use]
    pub fn new(
        prompt_tokens: usize,
        cached_tokens: usize,
        completion_tokens: usize,
        reasoning_tokens: usize,
    ) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens },
            completion_tokens_details: CompletionDetails { reasoning_tokens },
        }
    }
}

/// A token and its probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenLogprob {
    /// Its text; bytes that are no UTF-8 become U+FFFD.
    pub token: String,
    /// The logarithm of its probability, as the model has it.
    pub logprob: f32,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
}

/// The least logarithm that is told: JSON has no infinity, and OpenAI's interface uses this number.
pub const LEAST_LOGPROB: f32 = -9999.0;

impl TokenLogprob {
    /// Of a token's bytes.
    #[must_use]
    pub fn new(bytes: &[u8], logprob: f32) -> Self {
        let token = String::from_utf8_lossy(bytes).into_owned();
        Self { token, logprob: logprob.max(LEAST_LOGPROB), bytes: bytes.to_vec() }
    }
}

/// A token of an answer, its probability, and those of others in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprob {
    /// The token.
    #[serde(flatten)]
    pub token: TokenLogprob,
    /// The likeliest in its place.
    pub top_logprobs: Vec<TokenLogprob>,
}

/// The probabilities of an answer's tokens.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatLogprobs {
    /// In order.
    pub content: Vec<ChatLogprob>,
    /// Models here have no separate refusals.
    pub refusal: Option<()>,
}

/// A chat completion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatCompletion {
    /// Of the request.
    pub id: String,
    /// `chat.completion`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What decides about the bits of an answer.
    pub system_fingerprint: String,
    /// The answers.
    pub choices: Vec<ChatChoice>,
    /// Tokens.
    pub usage: Usage,
    /// How long it took, as llama.cpp tells it.
    pub timings: Timings,
    /// What was asked of the model, if asked for.
    #[serde(rename = "__verbose", skip_serializing_if = "Option::is_none")]
    pub verbose: Option<Verbose>,
}

/// What was asked of the model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Verbose {
    /// The prompt, as the chat template made it.
    pub prompt: String,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChoice {
    /// Which.
    pub index: usize,
    /// What the model said.
    pub message: AssistantMessage,
    /// How likely it was.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended.
    pub finish_reason: FinishReason,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AssistantMessage {
    /// `assistant`.
    pub role: &'static str,
    /// The text; null where the model only calls tools.
    pub content: Option<String>,
    /// Always null: models here don't refuse in a field of its own.
    pub refusal: Option<()>,
    /// What it thought before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// The tools that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Call>,
}

/// A call of a tool, or in a chunk the beginning of one.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Call {
    /// Which of the answer's calls, in a chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub index: Option<usize>,
    /// By which its result is known; only where the call begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<String>,
    /// `function`; only where the call begins.
    #[serde(rename = "type", skip_serializing_if = "Option::is_none")]
    pub kind: Option<&'static str>,
    /// What is called.
    pub function: CalledFunction,
}

/// The function of a call.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct CalledFunction {
    /// Its name; only where the call begins.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Its arguments as JSON; in a chunk a piece of them.
    pub arguments: String,
}

impl Call {
    /// A call that begins: of a whole answer without `index`, of a chunk with it.
    #[must_use]
    pub fn new(index: Option<usize>, id: String, name: String, arguments: String) -> Self {
        let function = CalledFunction { name: Some(name), arguments };
        Self { index, id: Some(id), kind: Some("function"), function }
    }

    /// More arguments of a call.
    #[must_use]
    pub fn more(index: usize, arguments: String) -> Self {
        Self { index: Some(index), id: None, kind: None, function: CalledFunction { name: None, arguments } }
    }
}

/// A piece of a streamed chat completion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatChunk {
    /// Of the request.
    pub id: String,
    /// `chat.completion.chunk`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What decides about the bits of an answer.
    pub system_fingerprint: String,
    /// At most one; none in the chunk that tells the usage.
    pub choices: Vec<ChatDelta>,
    /// With `include_usage`, null in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// How long it took, as llama.cpp tells it; of a stream in the last chunk, or if asked for in all behind the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// How far the prompt is, in a chunk that tells nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<Progress>,
    /// What was asked of the model, if asked for, in the first chunk.
    #[serde(rename = "__verbose", skip_serializing_if = "Option::is_none")]
    pub verbose: Option<Verbose>,
}

/// What a chunk adds to an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ChatDelta {
    /// Which answer.
    pub index: usize,
    /// What is new.
    pub delta: Delta,
    /// How likely it was.
    pub logprobs: Option<ChatLogprobs>,
    /// Why it ended, in its last chunk.
    pub finish_reason: Option<FinishReason>,
}

/// New text; in the first chunk the role.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Delta {
    /// `assistant`, in the first chunk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub role: Option<&'static str>,
    /// Text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content: Option<String>,
    /// What the model thinks.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning_content: Option<String>,
    /// Calls of tools.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Call>,
}

/// A completion, or a piece of a streamed one.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completion {
    /// Of the request.
    pub id: String,
    /// `text_completion`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created: u64,
    /// The model's name.
    pub model: String,
    /// What decides about the bits of an answer.
    pub system_fingerprint: String,
    /// The answers.
    pub choices: Vec<TextChoice>,
    /// With `include_usage`, null in all chunks but the last.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<Option<Usage>>,
    /// How long it took, as llama.cpp tells it; of a stream in the last chunk, or if asked for in all behind the prompt.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// How far the prompt is, in a chunk that tells nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<Progress>,
}

/// An answer of a completion.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextChoice {
    /// Which.
    pub index: usize,
    /// The text.
    pub text: String,
    /// How likely it was.
    pub logprobs: Option<TextLogprobs>,
    /// Why it ended; null in all chunks but an answer's last.
    pub finish_reason: Option<FinishReason>,
    /// The stop string that ended it, as vLLM tells it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<String>,
}

/// The probabilities of a completion's tokens, as parallel lists.
#[derive(Debug, Clone, PartialEq, Default, Serialize)]
pub struct TextLogprobs {
    /// Their texts; bytes that are no UTF-8 are written as `bytes:\x..`.
    pub tokens: Vec<String>,
    /// The logarithms of their probabilities; null for the first token of a prompt, which nothing precedes.
    pub token_logprobs: Vec<Option<f32>>,
    /// The likeliest in each place.
    pub top_logprobs: Vec<Option<Map<String, Value>>>,
    /// Where each begins in the text, in characters.
    pub text_offset: Vec<usize>,
}

/// A token's text in [`TextLogprobs`], where a map's keys must differ for different bytes.
#[must_use]
pub fn token_text(bytes: &[u8]) -> String {
    match std::str::from_utf8(bytes) {
        Ok(text) => text.to_owned(),
        Err(_) => bytes.iter().fold("bytes:".to_owned(), |text, byte| format!("{text}\\x{byte:02x}")),
    }
}

/// A model.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Model {
    /// Its name.
    pub id: String,
    /// Other names by which it may be asked for.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub aliases: Vec<String>,
    /// `model`.
    pub object: &'static str,
    /// When it was loaded, in seconds since 1970.
    pub created: u64,
    /// `smelt`.
    pub owned_by: &'static str,
    /// The name of what it was made from; routers read it.
    pub root: String,
    /// Tokens of its context.
    pub max_model_len: usize,
}

/// A list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// `list`.
    pub object: &'static str,
    /// Its items.
    pub data: Vec<T>,
}
