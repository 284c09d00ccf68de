//! OpenAI: chat completions, completions, models.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::message::{ChatMessage, Role};
use crate::params::{Fields, Kind, Param, Params, Support, param, shown};
use crate::reasoning::{self, Reasoning};
use crate::sampling::{COMMON, EXTENSIONS, Limits, Sampling};
use crate::structure::{STRUCTURE, Structure};
use crate::tools::{self, Tools};

use Kind::{Any, Bool, Integer, List, Object, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Answers to one prompt.
pub const MOST_CHOICES: i64 = 128;
/// Alternatives per token.
pub const MOST_LOGPROBS: i64 = 20;
/// Prompts of one request for completions.
const MOST_PROMPTS: usize = 128;
const OLD_FUNCTIONS: &str = "use tools";

/// What chat completions and completions have in common.
static BOTH: &[Param] = &[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("n", Integer(1, MOST_CHOICES), Yes, "answers to the prompt"),
    param("stream", Bool, Yes, "send the answer piece by piece"),
    param("stream_options", Object, Yes, "`include_usage`: a last chunk tells the usage"),
    param("max_tokens", Integer(-1, U31), Yes, "tokens of the answer"),
    param("user", Any, Harmless, "labels the request"),
    param("metadata", Any, Harmless, "labels the request"),
    param("safety_identifier", Any, Harmless, "labels the request"),
    param("prompt_cache_key", Any, Harmless, "the cache finds common beginnings by itself"),
    param("prompt_cache_retention", Any, Harmless, "the cache keeps what there is room for"),
    param("service_tier", Any, Only(&["\"auto\"", "\"default\""]), "there is one tier"),
    param("store", Any, Only(&["false"]), "nothing is stored"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
];

/// What only chat completions have.
static CHAT: &[Param] = &[
    param("messages", List, Required, "the conversation"),
    param("max_completion_tokens", Integer(1, U31), Yes, "tokens of the answer; counts before max_tokens"),
    param("logprobs", Bool, Yes, "tell the probability of each token"),
    param("top_logprobs", Integer(0, MOST_LOGPROBS), Yes, "and those of so many alternatives"),
    param("chat_template_kwargs", Object, Yes, "variables for the chat template, such as `enable_thinking`"),
    param("continue_final_message", Bool, Yes, "go on in the last message, which must be the assistant's"),
    param("add_generation_prompt", Any, Only(&["true"]), "use continue_final_message"),
    param("functions", Any, Only(&["[]"]), OLD_FUNCTIONS),
    param("function_call", Any, Only(&["\"none\"", "\"auto\""]), OLD_FUNCTIONS),
    param("modalities", Any, Only(&["[\"text\"]"]), "models answer in text"),
    param("audio", Any, Only(&[]), "models answer in text"),
    param("prediction", Any, Only(&[]), "use a smaller max_tokens"),
    param("verbosity", Any, Only(&["\"medium\""]), "ask for it in the prompt"),
    param("web_search_options", Any, Only(&[]), "models have no web search"),
    param("echo", Any, Only(&["false"]), "use /v1/completions"),
    param("chat_template", Any, Only(&[]), "the model's own template is used"),
    param("documents", Any, Only(&["[]"]), "put documents into the messages"),
];

/// What only completions have.
static COMPLETION: &[Param] = &[
    param(
        "prompt",
        Any,
        Required,
        "a string, a list of strings, a list of token ids, or a list of such lists",
    ),
    param(
        "logprobs",
        Integer(0, MOST_LOGPROBS),
        Yes,
        "tell the probability of each token and of so many others",
    ),
    param("echo", Bool, Yes, "put the prompt in front of the answer"),
    param("suffix", Any, Only(&["\"\""]), "text can only be continued"),
    param("add_special_tokens", Bool, Yes, "false leaves out BOS, which the model's vocabulary may ask for"),
];

/// The parameters of chat completions.
pub static CHAT_PARAMS: &[Params] =
    &[BOTH, CHAT, tools::CHAT, reasoning::CHAT, STRUCTURE, COMMON, EXTENSIONS];
/// The parameters of completions.
pub static COMPLETION_PARAMS: &[Params] = &[BOTH, COMPLETION, STRUCTURE, COMMON, EXTENSIONS];

static STREAM_OPTIONS: &[Param] = &[
    param("include_usage", Bool, Yes, "a last chunk tells the usage"),
    param("include_obfuscation", Any, Only(&["false"]), "chunks are not padded"),
    param("continuous_usage_stats", Any, Only(&["false"]), "the last chunk tells the usage"),
];

/// The names of the greatest number of tokens.
const MAX_TOKENS: [&str; 3] = ["max_completion_tokens", "max_tokens", "n_predict"];

/// What chat completions and completions have in common, once read.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    /// The model asked for.
    pub model: Option<String>,
    /// How many answers.
    pub n: usize,
    /// Lower goes first.
    pub priority: i32,
    /// How to answer; `None` for in one piece.
    pub stream: Option<StreamOptions>,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Where answers end.
    pub limits: Limits,
    /// What answers must look like.
    pub structure: Option<Structure>,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

/// How an answer is streamed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct StreamOptions {
    /// Tell the usage in a last chunk without choices.
    pub include_usage: bool,
}

impl Common {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let mut unknown = fields.unknown().to_vec();
        let options = match fields.object("stream_options") {
            None => None,
            Some(options) => {
                if fields.bool("stream") != Some(true) {
                    return Err(ApiError::value(
                        "stream_options",
                        "is only for requests with \"stream\": true",
                    ));
                }
                let options = Fields::nested(options, &[STREAM_OPTIONS], "stream_options")?;
                unknown.extend_from_slice(options.unknown());
                Some(StreamOptions { include_usage: options.bool("include_usage").unwrap_or(false) })
            }
        };
        Ok(Self {
            model: fields.text("model"),
            n: fields.count("n").unwrap_or(1),
            priority: fields.integer("priority").and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
            stream: fields.bool("stream").unwrap_or(false).then(|| options.unwrap_or_default()),
            sampling: Sampling::read(fields)?,
            limits: Limits::read(fields, &MAX_TOKENS, "stop")?,
            structure: Structure::read(fields)?,
            unknown,
        })
    }
}

/// A request for chat completions.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// What completions have too.
    pub common: Common,
    /// The conversation.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Tools,
    /// What it is to think.
    pub reasoning: Reasoning,
    /// Alternatives per token; `None` for no logprobs.
    pub top_logprobs: Option<usize>,
    /// Variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// Go on in the last message.
    pub continue_final_message: bool,
}

impl ChatRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, CHAT_PARAMS)?;
        let logprobs = fields.bool("logprobs").unwrap_or(false);
        let top = fields.count("top_logprobs");
        if top.is_some_and(|n| n > 0) && !logprobs {
            return Err(ApiError::value("top_logprobs", "is only for requests with \"logprobs\": true"));
        }
        let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
        let messages = fields.list("messages").unwrap_or_default();
        let messages = ChatMessage::read_all(messages, "messages", &roles)?;
        let continue_final_message = fields.bool("continue_final_message").unwrap_or(false);
        if continue_final_message && messages.last().is_some_and(|m| m.role != Role::Assistant) {
            return Err(ApiError::value("continue_final_message", "needs a last message of the assistant"));
        }
        Ok(Self {
            messages,
            tools: Tools::read(&mut fields)?,
            reasoning: Reasoning::read(&mut fields)?,
            top_logprobs: logprobs.then(|| top.unwrap_or(0)),
            template_kwargs: fields.object("chat_template_kwargs").unwrap_or_default(),
            continue_final_message,
            common: Common::read(&mut fields)?,
        })
    }
}

/// A prompt of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text; what looks like a control token in it is one, as with other engines.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
}

/// A request for completions.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// What chats have too.
    pub common: Common,
    /// The prompts, each of which gets `n` answers.
    pub prompts: Vec<Prompt>,
    /// Alternatives per token; `None` for no logprobs.
    pub logprobs: Option<usize>,
    /// Repeat the prompt in front of the answer.
    pub echo: bool,
    /// Add BOS where the vocabulary asks for it.
    pub add_special: bool,
}

impl CompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, COMPLETION_PARAMS)?;
        let prompts = prompts(fields.take("prompt").unwrap_or_default())?;
        let (logprobs, echo) = (fields.count("logprobs"), fields.bool("echo").unwrap_or(false));
        let mut common = Common::read(&mut fields)?;
        // OpenAI's own default for completions.
        common.limits.max_tokens = common.limits.max_tokens.or((!fields.unlimited()).then_some(16));
        Ok(Self {
            prompts,
            logprobs,
            echo,
            add_special: fields.bool("add_special_tokens").unwrap_or(true),
            common,
        })
    }
}

impl Fields {
    /// Whether a request says in so many words that an answer may have any length.
    fn unlimited(&self) -> bool {
        MAX_TOKENS.iter().any(|name| self.integer(name) == Some(-1))
    }
}

fn prompts(value: Value) -> Result<Vec<Prompt>, ApiError> {
    let wrong = |value: &Value| {
        let wanted =
            "must be a string, a list of strings, a list of token ids, or a list of lists of token ids";
        ApiError::value("prompt", format!("{wanted}, not {}", shown(value)))
    };
    let tokens = |items: &[Value]| -> Option<Vec<u32>> {
        items.iter().map(|item| item.as_u64().and_then(|id| u32::try_from(id).ok())).collect()
    };
    match value {
        Value::String(text) => Ok(vec![Prompt::Text(text)]),
        Value::Array(items) if items.is_empty() => {
            Err(ApiError::value("prompt", "must not be an empty list"))
        }
        Value::Array(items) => {
            if let Some(ids) = tokens(&items) {
                return Ok(vec![Prompt::Tokens(ids)]);
            }
            if items.len() > MOST_PROMPTS {
                let problem = format!("has {} prompts, but at most {MOST_PROMPTS} are taken", items.len());
                return Err(ApiError::value("prompt", problem));
            }
            let prompt = |item: Value| match item {
                Value::String(text) => Ok(Prompt::Text(text)),
                Value::Array(ref ids) => tokens(ids).map(Prompt::Tokens).ok_or_else(|| wrong(&item)),
                other => Err(wrong(&other)),
            };
            items.into_iter().map(prompt).collect()
        }
        other => Err(wrong(&other)),
    }
}

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
}

/// More about the prompt's tokens.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct PromptDetails {
    /// Taken from the cache.
    pub cached_tokens: usize,
}

impl Usage {
    /// The usage of a request.
    #[must_use]
    pub fn new(prompt_tokens: usize, cached_tokens: usize, completion_tokens: usize) -> Self {
        Self {
            prompt_tokens,
            completion_tokens,
            total_tokens: prompt_tokens + completion_tokens,
            prompt_tokens_details: PromptDetails { cached_tokens },
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
