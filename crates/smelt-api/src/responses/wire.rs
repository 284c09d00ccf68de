//! What a response looks like, whole and event by event.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::openai::ChatLogprob;

/// How far a response or an item is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// More comes.
    InProgress,
    /// The model ended it.
    Completed,
    /// A limit ended it.
    Incomplete,
    /// The server could not go on.
    Failed,
}

/// A response.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Response {
    /// By which it can be had again.
    pub id: String,
    /// `response`.
    pub object: &'static str,
    /// Seconds since 1970.
    pub created_at: u64,
    /// The same, of its end.
    pub completed_at: Option<u64>,
    /// How far it is.
    pub status: Status,
    /// Why it failed.
    pub error: Option<Failure>,
    /// Why it is not complete.
    pub incomplete_details: Option<IncompleteDetails>,
    /// The model's name.
    pub model: String,
    /// What the model thought, said and called.
    pub output: Vec<Item>,
    /// Tokens; known at its end.
    pub usage: Option<Usage>,
    /// What it repeats of its request.
    #[serde(flatten)]
    pub repeated: Map<String, Value>,
}

/// Why a response failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Failure {
    /// The word for programs.
    pub code: &'static str,
    /// What happened.
    pub message: String,
}

/// Why a response is not complete.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct IncompleteDetails {
    /// `max_output_tokens`, also where the context is full.
    pub reason: &'static str,
}

/// Tokens of a response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Usage {
    input_tokens: usize,
    input_tokens_details: InputDetails,
    output_tokens: usize,
    output_tokens_details: OutputDetails,
    total_tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct InputDetails {
    cached_tokens: usize,
    /// Always 0: the cache is not paid for.
    cache_write_tokens: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
struct OutputDetails {
    reasoning_tokens: usize,
}

impl Usage {
    /// Tokens of the prompt, those of them from the cache, those of the answer, and those of them that are reasoning.
    #[must_use]
    pub fn new(
        input_tokens: usize,
        cached_tokens: usize,
        output_tokens: usize,
        reasoning_tokens: usize,
    ) -> Self {
        Self {
            input_tokens,
            input_tokens_details: InputDetails { cached_tokens, cache_write_tokens: 0 },
            output_tokens,
            output_tokens_details: OutputDetails { reasoning_tokens },
            total_tokens: input_tokens + output_tokens,
        }
    }
}

/// A piece of what the model does.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
#[expect(missing_docs, reason = "OpenAI's names, explained in its documentation")]
pub enum Item {
    Message {
        id: String,
        status: Status,
        role: &'static str,
        content: Vec<Part>,
    },
    Reasoning {
        id: String,
        status: Status,
        summary: [(); 0],
        content: Vec<Part>,
        #[serde(skip_serializing_if = "Option::is_none")]
        encrypted_content: Option<String>,
    },
    FunctionCall {
        id: String,
        status: Status,
        call_id: String,
        name: String,
        arguments: String,
    },
}

impl Item {
    /// Its id.
    #[must_use]
    pub fn id(&self) -> &str {
        match self {
            Self::Message { id, .. } | Self::Reasoning { id, .. } | Self::FunctionCall { id, .. } => id,
        }
    }

    /// How far it is.
    pub fn status_mut(&mut self) -> &mut Status {
        match self {
            Self::Message { status, .. }
            | Self::Reasoning { status, .. }
            | Self::FunctionCall { status, .. } => status,
        }
    }
}

/// The content of an item.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum Part {
    /// What the model said.
    OutputText {
        /// The text.
        text: String,
        /// Always empty: no tool here cites.
        annotations: [(); 0],
        /// How likely it was, where that was asked for.
        logprobs: Vec<ChatLogprob>,
    },
    /// What the model thought.
    ReasoningText {
        /// The text.
        text: String,
    },
}

/// An event of a streamed response.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(tag = "type")]
#[expect(missing_docs, reason = "OpenAI's names, explained in its documentation")]
pub enum Event {
    #[serde(rename = "response.created")]
    Created { response: Response },
    #[serde(rename = "response.in_progress")]
    InProgress { response: Response },
    #[serde(rename = "response.output_item.added")]
    ItemAdded { output_index: usize, item: Item },
    #[serde(rename = "response.content_part.added")]
    PartAdded { item_id: String, output_index: usize, content_index: usize, part: Part },
    #[serde(rename = "response.output_text.delta")]
    TextDelta {
        item_id: String,
        output_index: usize,
        content_index: usize,
        delta: String,
        logprobs: Vec<ChatLogprob>,
    },
    #[serde(rename = "response.output_text.done")]
    TextDone {
        item_id: String,
        output_index: usize,
        content_index: usize,
        text: String,
        logprobs: Vec<ChatLogprob>,
    },
    #[serde(rename = "response.reasoning_text.delta")]
    ReasoningDelta { item_id: String, output_index: usize, content_index: usize, delta: String },
    #[serde(rename = "response.reasoning_text.done")]
    ReasoningDone { item_id: String, output_index: usize, content_index: usize, text: String },
    #[serde(rename = "response.content_part.done")]
    PartDone { item_id: String, output_index: usize, content_index: usize, part: Part },
    #[serde(rename = "response.function_call_arguments.delta")]
    ArgumentsDelta { item_id: String, output_index: usize, delta: String },
    #[serde(rename = "response.function_call_arguments.done")]
    ArgumentsDone { item_id: String, output_index: usize, name: String, arguments: String },
    #[serde(rename = "response.output_item.done")]
    ItemDone { output_index: usize, item: Item },
    #[serde(rename = "response.completed")]
    Completed { response: Response },
    #[serde(rename = "response.incomplete")]
    Incomplete { response: Response },
    #[serde(rename = "response.failed")]
    Failed { response: Response },
}

impl Event {
    /// The event's name on the wire.
    #[must_use]
    pub fn name(&self) -> &'static str {
        match self {
            Self::Created { .. } => "response.created",
            Self::InProgress { .. } => "response.in_progress",
            Self::ItemAdded { .. } => "response.output_item.added",
            Self::PartAdded { .. } => "response.content_part.added",
            Self::TextDelta { .. } => "response.output_text.delta",
            Self::TextDone { .. } => "response.output_text.done",
            Self::ReasoningDelta { .. } => "response.reasoning_text.delta",
            Self::ReasoningDone { .. } => "response.reasoning_text.done",
            Self::PartDone { .. } => "response.content_part.done",
            Self::ArgumentsDelta { .. } => "response.function_call_arguments.delta",
            Self::ArgumentsDone { .. } => "response.function_call_arguments.done",
            Self::ItemDone { .. } => "response.output_item.done",
            Self::Completed { .. } => "response.completed",
            Self::Incomplete { .. } => "response.incomplete",
            Self::Failed { .. } => "response.failed",
        }
    }
}

/// An event with its number in the stream.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Numbered {
    /// From 0 on.
    pub sequence_number: usize,
    /// The event.
    #[serde(flatten)]
    pub event: Event,
}

/// That a response is not kept any more.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Deleted {
    /// Its id.
    pub id: String,
    /// `response`.
    pub object: &'static str,
    /// True.
    pub deleted: bool,
}

/// Items of a response's input.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct ItemList {
    /// `list`.
    pub object: &'static str,
    /// Some of them, in the order asked for.
    pub data: Vec<Value>,
    /// The first one's id.
    pub first_id: Option<String>,
    /// The last one's.
    pub last_id: Option<String>,
    /// Whether more follow.
    pub has_more: bool,
}

/// How many tokens a conversation has.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct InputTokens {
    /// `response.input_tokens`.
    pub object: &'static str,
    /// Tokens of the prompt.
    pub input_tokens: usize,
}
