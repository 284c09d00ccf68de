//! Anthropic: messages.

mod blocks;

use serde::Serialize;
use serde_json::Value;

use crate::error::ApiError;
use crate::message::{ChatMessage, Role, read_content};
use crate::params::{self, Kind, Param, Params, Support, param};
use crate::reasoning::{Reasoning, THINKING};
use crate::sampling::{Limits, MOST_STOPS, Sampling};
use crate::structure::{OUTPUT_CONFIG, OUTPUT_FORMAT, Structure};
use crate::tools::{ANTHROPIC_TOOL, Tools};

use Kind::{Any, Bool, Content, Fields, Integer, Items, Number, Text, Texts, Word};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;

static MESSAGE: &[Param] = &[
    param("role", Word(&["user", "assistant", "system"]), Required, "who speaks"),
    param(
        "content",
        Content,
        Required,
        "what is said: a text, or blocks of text, thought, calls and results",
    ),
];
static TOOL_CHOICE: &[Param] = &[
    param("type", Word(&["auto", "any", "tool", "none"]), Required, "what is to be called"),
    param("name", Text, Yes, "the tool, where it is one"),
    param("disable_parallel_tool_use", Bool, Yes, "true allows one call per answer"),
];

/// What counting tokens needs too.
static CONVERSATION: &[Param] = &[
    param("model", Text, Required, "the model's name"),
    param(
        "messages",
        Items(MESSAGE),
        Required,
        "the conversation; a last message of the assistant is continued",
    ),
    param("system", Any, Yes, "instructions: a string, or a list of text blocks"),
    param("tools", Items(ANTHROPIC_TOOL), Yes, "functions that the model may call"),
    param("tool_choice", Fields(TOOL_CHOICE), Yes, "auto, any, none, or the tool to call"),
    param("thinking", Fields(THINKING), Yes, "whether to think, and how many tokens at most"),
    param("output_config", Fields(OUTPUT_CONFIG), Yes, "`format`: a JSON schema that the answer must meet"),
    param("output_format", Fields(OUTPUT_FORMAT), Yes, "the same, in an older word"),
    param("mcp_servers", Any, Only(&["[]"]), "tools are functions that the client runs"),
    param("context_management", Any, Only(&[]), "the conversation is used as it is sent"),
    param("cache_control", Any, Harmless, "the cache finds common beginnings by itself"),
    param("betas", Any, Harmless, "features are asked for by their own parameters"),
];

static ANSWER: &[Param] = &[
    param("max_tokens", Integer(1, U31), Required, "tokens of the answer"),
    param("stop_sequences", Texts(MOST_STOPS), Yes, "strings that end the answer"),
    param("stream", Bool, Yes, "send the answer event by event"),
    param("temperature", Number(0.0, 1.0), Yes, "0 always takes the likeliest token"),
    param("top_p", Number(0.0, 1.0), Yes, "keep the likeliest tokens up to this sum of probabilities"),
    param("top_k", Integer(0, U31), Yes, "keep so many of the likeliest tokens; 0 keeps all"),
    param("metadata", Any, Harmless, "labels the request"),
    param("service_tier", Any, Only(&["\"auto\"", "\"standard_only\""]), "there is one tier"),
    param("container", Any, Only(&[]), "there are no containers"),
    param("inference_geo", Any, Only(&[]), "the model runs where this server does"),
    param("speed", Any, Only(&["\"standard\""]), "there is one speed"),
];

/// The parameters of messages.
pub static MESSAGES_PARAMS: &[Params] = &[CONVERSATION, ANSWER];
/// The parameters of counting tokens.
pub static COUNT_PARAMS: &[Params] = &[CONVERSATION];

/// What Claude Code puts in front of the instructions. It changes with every request, so that a cache of prompts would
/// never find a common beginning, and it tells the model nothing.
const VOLATILE: &str = "x-anthropic-billing-header:";

/// A conversation.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// The model asked for.
    pub model: String,
    /// The instructions, if any, and the messages.
    pub messages: Vec<ChatMessage>,
    /// What the model may call.
    pub tools: Tools,
    /// What it is to think.
    pub reasoning: Reasoning,
    /// What the answer must look like.
    pub structure: Option<Structure>,
    /// Blocks of the instructions that were left out, because they change with every request.
    pub volatile: usize,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl Conversation {
    /// Reads the body of a request to count tokens.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        Self::from_fields(&mut params::Fields::parse(body, COUNT_PARAMS)?)
    }

    fn from_fields(fields: &mut params::Fields) -> Result<Self, ApiError> {
        let (system, volatile) = instructions(fields.take("system"))?;
        let messages = fields.list("messages").unwrap_or_default();
        let messages = blocks::read(messages)?;
        let system = system.map(|text| ChatMessage::new(Role::System, text));
        Ok(Self {
            model: fields.text("model").unwrap_or_default(),
            messages: system.into_iter().chain(messages).collect(),
            tools: Tools::read_anthropic(fields)?,
            reasoning: Reasoning::read_anthropic(fields)?,
            structure: Structure::read_anthropic(fields)?,
            volatile,
            unknown: fields.unknown().to_vec(),
        })
    }

    /// Whether the answer goes on in the last message.
    #[must_use]
    pub fn continues(&self) -> bool {
        self.messages.last().is_some_and(|m| m.role == Role::Assistant)
    }
}

fn instructions(system: Option<Value>) -> Result<(Option<String>, usize), ApiError> {
    let Some(mut system) = system else { return Ok((None, 0)) };
    let mut volatile = 0;
    if let Value::Array(blocks) = &mut system {
        let before = blocks.len();
        let text = |block: &Value| block.get("text").and_then(Value::as_str).unwrap_or_default().to_owned();
        blocks.retain(|block| !text(block).starts_with(VOLATILE));
        volatile = before - blocks.len();
    }
    let text = read_content(Some(&system), "system", Role::System)?;
    Ok(((!text.is_empty()).then_some(text), volatile))
}

/// A request for an answer.
#[derive(Debug, Clone, PartialEq)]
pub struct MessagesRequest {
    /// The conversation.
    pub conversation: Conversation,
    /// Send it event by event.
    pub stream: bool,
    /// How tokens are chosen.
    pub sampling: Sampling,
    /// Where the answer ends.
    pub limits: Limits,
}

impl MessagesRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = params::Fields::parse(body, MESSAGES_PARAMS)?;
        Ok(Self {
            conversation: Conversation::from_fields(&mut fields)?,
            stream: fields.bool("stream").unwrap_or(false),
            sampling: Sampling::read(&mut fields)?,
            limits: Limits::read(&mut fields, &["max_tokens"], "stop_sequences")?,
        })
    }
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopReason {
    /// The model ended it.
    EndTurn,
    /// `max_tokens`.
    MaxTokens,
    /// A stop string.
    StopSequence,
    /// The model ended it, and called tools.
    ToolUse,
    /// The context is full.
    ModelContextWindowExceeded,
}

/// Tokens of a request; what came from the cache is not counted as input again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    /// Of the prompt, computed.
    pub input_tokens: usize,
    /// Of the prompt, taken from the cache.
    pub cache_read_input_tokens: usize,
    /// Always 0: the cache is not paid for.
    pub cache_creation_input_tokens: usize,
    /// Of the answer.
    pub output_tokens: usize,
}

impl Usage {
    /// The usage of a request.
    #[must_use]
    pub fn new(prompt: usize, cached: usize, output_tokens: usize) -> Self {
        let input_tokens = prompt.saturating_sub(cached);
        Self { input_tokens, cache_read_input_tokens: cached, cache_creation_input_tokens: 0, output_tokens }
    }
}

/// A piece of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "Anthropic's names, explained in its documentation")]
pub enum Block {
    Text { text: String },
    Thinking { thinking: String, signature: String },
    ToolUse { id: String, name: String, input: Value },
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct MessageResponse {
    /// Of the request.
    pub id: String,
    /// `message`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// `assistant`.
    pub role: &'static str,
    /// The model's name.
    pub model: String,
    /// What it said.
    pub content: Vec<Block>,
    /// Why it ended.
    pub stop_reason: Option<StopReason>,
    /// Which stop string ended it.
    pub stop_sequence: Option<String>,
    /// Tokens.
    pub usage: Usage,
}

/// An event of a streamed answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "Anthropic's names, explained in its documentation")]
pub enum Event {
    MessageStart { message: MessageResponse },
    ContentBlockStart { index: usize, content_block: Block },
    Ping,
    ContentBlockDelta { index: usize, delta: BlockDelta },
    ContentBlockStop { index: usize },
    MessageDelta { delta: MessageEnd, usage: Usage },
    MessageStop,
}

impl Event {
    /// The event's name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::MessageStart { .. } => "message_start",
            Self::ContentBlockStart { .. } => "content_block_start",
            Self::Ping => "ping",
            Self::ContentBlockDelta { .. } => "content_block_delta",
            Self::ContentBlockStop { .. } => "content_block_stop",
            Self::MessageDelta { .. } => "message_delta",
            Self::MessageStop => "message_stop",
        }
    }
}

/// More of a block.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "Anthropic's names, explained in its documentation")]
pub enum BlockDelta {
    TextDelta { text: String },
    ThinkingDelta { thinking: String },
    InputJsonDelta { partial_json: String },
}

/// How an answer ended.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct MessageEnd {
    /// Why.
    pub stop_reason: StopReason,
    /// Which stop string.
    pub stop_sequence: Option<String>,
}

/// How many tokens a conversation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Count {
    /// Tokens of the prompt.
    pub input_tokens: usize,
}
