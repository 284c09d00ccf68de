//! OpenAI: chat completions, completions, models.

mod prompt;
mod wire;

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::message::{ChatMessage, MESSAGE, Role};
use crate::params::{self, Kind, Param, Params, Support, param};
use crate::reasoning::{self, Reasoning};
use crate::sampling::{COMMON, EXTENSIONS, Limits, NARROWER, Sampling};
use crate::structure::{STRUCTURE, Structure};
use crate::tools::{self, Tools};

pub(crate) use prompt::prompts;
pub use prompt::{Piece, Prompt};
pub use wire::*;

use Kind::{Any, Bool, Fields, Integer, Items, Object, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Answers to one prompt.
pub const MOST_CHOICES: i64 = 128;
/// Alternatives per token.
pub const MOST_LOGPROBS: i64 = 20;
/// Prompts of one request for completions.
pub(crate) const MOST_PROMPTS: usize = 128;
const OLD_FUNCTIONS: &str = "use tools";

/// What chat completions and completions have in common.
static BOTH: &[Param] = &[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("n", Integer(1, MOST_CHOICES), Yes, "answers to the prompt"),
    param("stream", Bool, Yes, "send the answer piece by piece"),
    param("stream_options", Fields(STREAM_OPTIONS), Yes, "`include_usage`: a last chunk tells the usage"),
    param("max_tokens", Integer(-1, U31), Yes, "tokens of the answer"),
    param("user", Any, Harmless, "labels the request"),
    param("metadata", Any, Harmless, "labels the request"),
    param("safety_identifier", Any, Harmless, "labels the request"),
    param("prompt_cache_key", Any, Harmless, "the cache finds common beginnings by itself"),
    param("prompt_cache_retention", Any, Harmless, "the cache keeps what there is room for"),
    param("service_tier", Any, Only(&["\"auto\"", "\"default\""]), "there is one tier"),
    param("store", Any, Only(&["false"]), "nothing is stored"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
    param(
        "timings_per_token",
        Bool,
        Yes,
        "llama.cpp's: tell the timings in every chunk of a stream, not in the last one only",
    ),
    param("return_progress", Bool, Yes, "llama.cpp's: tell in a stream how far the prompt is"),
];

/// What only chat completions have.
static CHAT: &[Param] = &[
    param("messages", Items(MESSAGE), Required, "the conversation"),
    param("max_completion_tokens", Integer(1, U31), Yes, "tokens of the answer; counts before max_tokens"),
    param("logprobs", Bool, Yes, "tell the probability of each token"),
    param("top_logprobs", Integer(0, MOST_LOGPROBS), Yes, "and those of so many alternatives"),
    param("chat_template_kwargs", Object, Yes, "variables for the chat template, such as `enable_thinking`"),
    param("continue_final_message", Bool, Yes, "go on in the last message, which must be the assistant's"),
    param(
        "add_generation_prompt",
        Bool,
        Yes,
        "false ends the prompt behind the last message, not where an answer begins; on, unless that is continued",
    ),
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
    param("verbose", Bool, Yes, "llama.cpp's: tell the prompt, in `__verbose`"),
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
    param("suffix", Text, Yes, "text behind the answer, for models that fill text in"),
    param("add_special_tokens", Bool, Yes, "false leaves out BOS, which the model's vocabulary may ask for"),
];

/// The parameters of chat completions.
pub static CHAT_PARAMS: &[Params] =
    &[BOTH, CHAT, tools::CHAT, reasoning::CHAT, reasoning::BUDGETS, STRUCTURE, COMMON, EXTENSIONS, NARROWER];
/// The parameters of completions.
pub static COMPLETION_PARAMS: &[Params] = &[BOTH, COMPLETION, STRUCTURE, COMMON, EXTENSIONS, NARROWER];

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
    /// Tell the timings in every chunk.
    pub timings_per_token: bool,
    /// Tell how far the prompt is; only of a stream.
    pub return_progress: bool,
    /// Compute the prompt even where the cache has it.
    pub fresh: bool,
    /// How long a stream may tell nothing before it gives a sign; `None` is the server's choice.
    pub silence: Option<Duration>,
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
    /// Reads what they share.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub(crate) fn read(fields: &mut params::Fields) -> Result<Self, ApiError> {
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
                let options = params::Fields::nested(options, &[STREAM_OPTIONS], "stream_options")?;
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
            timings_per_token: fields.bool("timings_per_token").unwrap_or(false),
            return_progress: fields.bool("return_progress").unwrap_or(false)
                && fields.bool("stream") == Some(true),
            fresh: fields.bool("cache_prompt") == Some(false),
            silence: silence(fields),
            unknown,
        })
    }
}

/// How long a stream may tell nothing, where a request says it.
pub(crate) fn silence(fields: &params::Fields) -> Option<Duration> {
    fields.integer("sse_ping_interval").map(|seconds| match u64::try_from(seconds) {
        Ok(0) | Err(_) => Duration::MAX,
        Ok(seconds) => Duration::from_secs(seconds),
    })
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
    /// End the prompt where an answer begins.
    pub add_generation_prompt: bool,
    /// Tell the prompt.
    pub verbose: bool,
}

impl ChatRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = params::Fields::parse(body, CHAT_PARAMS)?;
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
        let add_generation_prompt = fields.bool("add_generation_prompt");
        if continue_final_message && add_generation_prompt == Some(true) {
            let problem = "can't be had together with `continue_final_message`";
            return Err(ApiError::value("add_generation_prompt", problem));
        }
        Ok(Self {
            messages,
            add_generation_prompt: add_generation_prompt.unwrap_or(true),
            verbose: fields.bool("verbose").unwrap_or(false),
            tools: Tools::read(&mut fields)?,
            reasoning: Reasoning::read(&mut fields)?,
            top_logprobs: logprobs.then(|| top.unwrap_or(0)),
            template_kwargs: fields.object("chat_template_kwargs").unwrap_or_default(),
            continue_final_message,
            common: Common::read(&mut fields)?,
        })
    }
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
    /// What stands behind the answer.
    pub suffix: Option<String>,
}

impl CompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = params::Fields::parse(body, COMPLETION_PARAMS)?;
        let prompts = prompts("prompt", fields.take("prompt").unwrap_or_default(), MOST_PROMPTS)?;
        let (logprobs, echo) = (fields.count("logprobs"), fields.bool("echo").unwrap_or(false));
        let suffix = fields.text("suffix").filter(|text| !text.is_empty());
        if suffix.is_some() && echo {
            return Err(ApiError::value("echo", "doesn't go with `suffix`"));
        }
        if suffix.is_some() && !prompts.iter().all(|prompt| matches!(prompt, Prompt::Text(_))) {
            return Err(ApiError::value("suffix", "needs a prompt that is text"));
        }
        let mut common = Common::read(&mut fields)?;
        // OpenAI's own default for completions.
        common.limits.max_tokens = common.limits.max_tokens.or((!fields.unlimited()).then_some(16));
        Ok(Self {
            prompts,
            logprobs,
            echo,
            add_special: fields.bool("add_special_tokens").unwrap_or(true),
            suffix,
            common,
        })
    }
}

impl params::Fields {
    /// Whether a request says in so many words that an answer may have any length.
    fn unlimited(&self) -> bool {
        MAX_TOKENS.iter().any(|name| self.integer(name) == Some(-1))
    }
}
