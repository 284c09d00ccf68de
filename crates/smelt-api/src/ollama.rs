//! Ollama: chat, generate, tags, show, ps, version.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::keep_alive::KeepAlive;
use crate::message::{ChatMessage, MESSAGE, Role};
use crate::params::{Fields, Kind, Param, Params, Support, param};
use crate::reasoning::Reasoning;
use crate::sampling::{COMMON, Limits, Sampling};
use crate::structure::Structure;
use crate::tools::{TOOL, Tools};

use Kind::{Any, Bool, Integer, Object, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;

static BOTH: &[Param] = &[
    param("model", Text, Required, "the model's name; `:latest` may follow"),
    param("stream", Bool, Yes, "send the answer piece by piece; on"),
    param("options", Object, Yes, "how tokens are chosen and where the answer ends"),
    param("format", Any, Yes, "`json`, or a JSON schema that the answer must meet"),
    param("think", Any, Yes, "whether to think, or how much: low, medium, high"),
    param(
        "keep_alive",
        Any,
        Yes,
        "how long the model is kept when nobody uses it: seconds or `5m`; 0 unloads it, −1 keeps it",
    ),
    param("logprobs", Any, Only(&["false"]), "use /v1/chat/completions"),
    param("top_logprobs", Any, Only(&["0"]), "use /v1/chat/completions"),
    param("truncate", Any, Only(&["false"]), "a prompt that is too long is refused, never cut"),
    param("shift", Any, Only(&["false"]), "an answer ends where the context is full"),
];

static CHAT: &[Param] = &[
    param(
        "messages",
        Kind::Items(MESSAGE),
        Yes,
        "the conversation; without messages, the model is only loaded",
    ),
    param("tools", Kind::Items(TOOL), Yes, "functions that the model may call"),
];

static GENERATE: &[Param] = &[
    param("prompt", Text, Yes, "the text; without it, the model is only loaded"),
    param("system", Text, Yes, "instructions"),
    param("raw", Bool, Yes, "continue the text, without the chat template"),
    param("suffix", Text, Yes, "text behind the answer, for models that fill text in"),
    param("template", Any, Only(&["\"\""]), "the model's own template is used"),
    param("context", Any, Only(&["[]"]), "use /api/chat to go on with a conversation"),
    param("images", Any, Only(&["[]"]), "only text is understood"),
];

static OPTIONS: &[Param] = &[
    param("num_predict", Integer(-2, U31), Yes, "tokens of the answer; negative is without limit"),
    param(
        "num_ctx",
        Integer(1, U31),
        Yes,
        "tokens of prompt and answer together; at most the server's context",
    ),
    param("num_keep", Any, Harmless, "nothing is dropped from a context"),
    param("num_batch", Any, Harmless, "a choice of the server, which changes no answer"),
    param("num_gpu", Any, Harmless, "a choice of the server, which changes no answer"),
    param("main_gpu", Any, Harmless, "a choice of the server, which changes no answer"),
    param("num_thread", Any, Harmless, "a choice of the server, which changes no answer"),
    param("use_mmap", Any, Harmless, "a choice of the server, which changes no answer"),
    param("use_mlock", Any, Harmless, "a choice of the server, which changes no answer"),
    param("low_vram", Any, Harmless, "a choice of the server, which changes no answer"),
    param("numa", Any, Harmless, "a choice of the server, which changes no answer"),
    param("tfs_z", Any, Only(&["1", "1.0"]), "use top_p or min_p"),
    param("penalize_newline", Any, Only(&["true"]), "line breaks are tokens like others"),
];

/// The parameters of chats.
pub static CHAT_PARAMS: &[Params] = &[BOTH, CHAT];
/// The parameters of generations.
pub static GENERATE_PARAMS: &[Params] = &[BOTH, GENERATE];
/// The parameters of questions about a model.
pub static SHOW_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name"),
    param("name", Text, Yes, "the same, in an older word"),
    param("verbose", Any, Harmless, "everything is told"),
]];

/// The parameters of pulls.
pub static PULL_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name"),
    param("name", Text, Yes, "the same, in an older word"),
    param("stream", Bool, Yes, "tell the progress piece by piece; on"),
    param("insecure", Any, Only(&["false"]), "what is pulled is checked"),
]];

/// What chats and generations have in common.
#[derive(Debug, Clone, PartialEq)]
pub struct Common {
    /// The model asked for.
    pub model: String,
    /// Send it piece by piece.
    pub stream: bool,
    /// What it is to think.
    pub reasoning: Reasoning,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Where the answer ends.
    pub limits: Limits,
    /// What the answer must look like.
    pub structure: Option<Structure>,
    /// Tokens of prompt and answer together.
    pub num_ctx: Option<usize>,
    /// How long the model is kept when nobody uses it any more.
    pub keep_alive: Option<KeepAlive>,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

/// How long a request wants its model kept.
pub(crate) fn keep_alive(fields: &mut Fields) -> Result<Option<KeepAlive>, ApiError> {
    fields.take("keep_alive").map(|value| KeepAlive::read(&value)).transpose()
}

/// Reads the options of a request.
pub(crate) fn options(fields: &mut Fields) -> Result<Fields, ApiError> {
    Fields::nested(fields.object("options").unwrap_or_default(), &[OPTIONS, COMMON], "options")
}

impl Common {
    fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let mut options = options(fields)?;
        let unknown = [fields.unknown(), options.unknown()].concat();
        Ok(Self {
            model: fields.text("model").unwrap_or_default(),
            stream: fields.bool("stream").unwrap_or(true),
            reasoning: Reasoning::read_ollama(fields)?,
            sampling: Sampling::read(&mut options)?,
            limits: Limits::read(&mut options, &["num_predict"], "stop")?,
            structure: Structure::read_format(fields)?,
            num_ctx: options.count("num_ctx"),
            keep_alive: keep_alive(fields)?,
            unknown,
        })
    }
}

/// A request for a chat.
#[derive(Debug, Clone, PartialEq)]
pub struct ChatRequest {
    /// What generations have too.
    pub common: Common,
    /// The conversation; empty to load the model.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Tools,
}

impl ChatRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, CHAT_PARAMS)?;
        let roles = [Role::System, Role::User, Role::Assistant, Role::Tool];
        let messages = match fields.list("messages") {
            Some(messages) if !messages.is_empty() => ChatMessage::read_all(messages, "messages", &roles)?,
            _ => Vec::new(),
        };
        Ok(Self { tools: Tools::read(&mut fields)?, common: Common::read(&mut fields)?, messages })
    }
}

/// A request to generate.
#[derive(Debug, Clone, PartialEq)]
pub struct GenerateRequest {
    /// What chats have too.
    pub common: Common,
    /// The text; empty to load the model.
    pub prompt: String,
    /// Instructions.
    pub system: Option<String>,
    /// Without the chat template.
    pub raw: bool,
    /// What stands behind the answer.
    pub suffix: Option<String>,
}

impl GenerateRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, GENERATE_PARAMS)?;
        let request = Self {
            prompt: fields.text("prompt").unwrap_or_default(),
            system: fields.text("system").filter(|s| !s.is_empty()),
            raw: fields.bool("raw").unwrap_or(false),
            suffix: fields.text("suffix").filter(|s| !s.is_empty()),
            common: Common::read(&mut fields)?,
        };
        match (request.raw, &request.suffix, &request.system) {
            (true, _, Some(_)) => Err(ApiError::value("system", "has no place in a raw prompt")),
            (_, Some(_), Some(_)) => Err(ApiError::value("system", "has no place beside a suffix")),
            _ => Ok(request),
        }
    }
}

/// The model that a question is about.
///
/// # Errors
/// If the body is malformed or names none.
pub fn read_show(body: &[u8]) -> Result<String, ApiError> {
    let mut fields = Fields::parse(body, SHOW_PARAMS)?;
    fields.text("model").or(fields.text("name")).ok_or_else(|| ApiError::missing("model"))
}

/// A request to pull a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PullRequest {
    /// The model asked for.
    pub model: String,
    /// Tell the progress.
    pub stream: bool,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl PullRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, PULL_PARAMS)?;
        let model = fields.text("model").or(fields.text("name")).ok_or_else(|| ApiError::missing("model"))?;
        let stream = fields.bool("stream").unwrap_or(true);
        Ok(Self { model, stream, unknown: fields.unknown().to_vec() })
    }
}

/// How far a pull is.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct Pulled {
    /// `success` at the end.
    pub status: String,
    /// Of the file that is fetched, `sha256:…`, where it is known before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Its bytes, where they are known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub total: Option<u64>,
    /// Those that are here.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completed: Option<u64>,
}

/// A piece of an answer, or all of it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Answer {
    /// The model's name.
    pub model: String,
    /// Now, in RFC 3339.
    pub created_at: String,
    /// Of a chat.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message: Option<AnswerMessage>,
    /// Of a generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub response: Option<String>,
    /// What the model thought, of a generation.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// Whether it is the last piece.
    pub done: bool,
    /// How it went, in the last piece.
    #[serde(flatten)]
    pub end: Option<End>,
}

/// What the model said.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct AnswerMessage {
    /// `assistant`.
    pub role: &'static str,
    /// The text.
    pub content: String,
    /// What it thought before.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub thinking: Option<String>,
    /// The tools that it calls.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<Call>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Call {
    /// By which its result is known.
    pub id: String,
    /// What is called.
    pub function: CalledFunction,
}

/// The function of a call.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CalledFunction {
    /// Which of the answer's calls.
    pub index: usize,
    /// Its name.
    pub name: String,
    /// Its arguments, an object.
    pub arguments: Value,
}

/// How an answer went; durations in nanoseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct End {
    /// `stop`, `length` or `load`.
    pub done_reason: &'static str,
    /// From the request's arrival.
    pub total_duration: u64,
    /// Models are loaded before they are asked.
    pub load_duration: u64,
    /// Tokens of the prompt.
    pub prompt_eval_count: usize,
    /// To the first token.
    pub prompt_eval_duration: u64,
    /// Tokens of the answer.
    pub eval_count: usize,
    /// From the first token to the last.
    pub eval_duration: u64,
}

/// What a model is.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Details {
    /// Empty: models are not derived from one another.
    pub parent_model: String,
    /// `gguf`.
    pub format: &'static str,
    /// The architecture.
    pub family: String,
    /// The same, as a list.
    pub families: Vec<String>,
    /// As people write it: `135M`.
    pub parameter_size: String,
    /// The weights' format, as people write it.
    pub quantization_level: String,
}

/// A model in a list.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedModel {
    /// Its name.
    pub name: String,
    /// The same.
    pub model: String,
    /// In RFC 3339.
    pub modified_at: String,
    /// Bytes.
    pub size: u64,
    /// Empty where it was not computed.
    pub digest: String,
    /// What it is.
    pub details: Details,
    /// Tokens of its context, of a running model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub context_length: Option<usize>,
    /// Until when it stays loaded, of a running model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// Bytes on a GPU, of a running model.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub size_vram: Option<u64>,
}

/// A list of models.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Models {
    /// The models.
    pub models: Vec<ListedModel>,
}

/// What is known of a model.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Show {
    /// The chat template.
    pub template: String,
    /// What it is.
    pub details: Details,
    /// Keys of the model's file, by its names.
    pub model_info: Map<String, Value>,
    /// What it can do.
    pub capabilities: Vec<&'static str>,
    /// In RFC 3339.
    pub modified_at: String,
}

/// The version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Version {
    /// As in `0.1.0`.
    pub version: &'static str,
}
