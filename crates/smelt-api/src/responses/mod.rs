//! OpenAI: responses.

mod items;
mod wire;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::message::ChatMessage;
use crate::openai::{Common, MOST_LOGPROBS, StreamOptions, silence};
use crate::params::{Fields, Kind, Param, Params, Support, param};
use crate::reasoning::{self, Reasoning};
use crate::sampling::{COMMON, EXTENSIONS, Limits, NARROWER, Sampling};
use crate::structure::{self, STRUCTURE, Structure};
use crate::tools::{self, Tools};

pub use items::{reference, with_id};
pub use wire::{
    Deleted, Event, Failure, IncompleteDetails, InputTokens, Item, ItemList, Numbered, Part, Response,
    Status, Usage,
};

use Kind::{Any, Bool, Integer, List, Object, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Labels that a request may have, and the characters of their names and values.
const MOST_LABELS: usize = 16;
const MOST_LABEL_NAME: usize = 64;
const MOST_LABEL: usize = 512;

/// What counting tokens needs too.
static CONVERSATION: &[Param] = &[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("input", Any, Required, "a text, or a list of messages, calls, results and reasoning"),
    param("instructions", Text, Yes, "what the system says; it is not taken over from earlier responses"),
    param("previous_response_id", Text, Yes, "the response behind which the conversation goes on"),
    param("reasoning", Kind::Fields(reasoning::RESPONSES), Yes, "`effort`: how much to think"),
    param("text", Kind::Fields(structure::TEXT), Yes, "`format`: what the answer must look like"),
    param("chat_template_kwargs", Object, Yes, "variables for the chat template, such as `enable_thinking`"),
    param("conversation", Any, Only(&[]), "use previous_response_id"),
    param("truncation", Any, Only(&["\"disabled\""]), "a prompt that is too long is refused, never cut"),
];

static ANSWER: &[Param] = &[
    param("store", Bool, Yes, "false keeps nothing of the response; else it is kept for a while in memory"),
    param("stream", Bool, Yes, "send the answer event by event"),
    param("stream_options", Kind::Fields(STREAM_OPTIONS), Yes, "how to send it"),
    param("max_output_tokens", Integer(1, U31), Yes, "tokens of the answer, reasoning included"),
    param("include", List, Yes, "`message.output_text.logprobs`, `reasoning.encrypted_content`"),
    param("top_logprobs", Integer(0, MOST_LOGPROBS), Yes, "tell the probability of so many alternatives"),
    param("metadata", Object, Yes, "labels, which the response has too"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
    param("user", Any, Harmless, "labels the request"),
    param("safety_identifier", Any, Harmless, "labels the request"),
    param("prompt_cache_key", Any, Harmless, "the cache finds common beginnings by itself"),
    param("prompt_cache_retention", Any, Harmless, "the cache keeps what there is room for"),
    param("prompt_cache_options", Any, Harmless, "the cache finds common beginnings by itself"),
    param("max_tool_calls", Any, Harmless, "it counts built-in tools, of which there are none"),
    param("service_tier", Any, Only(&["\"auto\"", "\"default\""]), "there is one tier"),
    param("background", Any, Only(&["false"]), "wait for the answer, or stream it"),
    param("prompt", Any, Only(&[]), "no prompts are kept here; send `instructions` and `input`"),
    param("context_management", Any, Only(&["[]"]), "the conversation is used as it is sent"),
    param("moderation", Any, Only(&[]), "nothing is moderated"),
    param("n", Any, Only(&["1"]), "send several requests"),
    param("messages", Any, Only(&[]), "use `input`"),
    param("max_tokens", Any, Only(&[]), "use `max_output_tokens`"),
    param("max_completion_tokens", Any, Only(&[]), "use `max_output_tokens`"),
];

/// The parameters of responses.
pub static RESPONSES_PARAMS: &[Params] =
    &[CONVERSATION, ANSWER, tools::RESPONSES, reasoning::BUDGETS, STRUCTURE, COMMON, EXTENSIONS, NARROWER];
/// The parameters of counting tokens.
pub static INPUT_TOKENS_PARAMS: &[Params] = &[CONVERSATION, tools::RESPONSES, reasoning::BUDGETS, STRUCTURE];

/// The parameters, in the query, of getting a response.
pub static RETRIEVE_PARAMS: &[Params] = &[&[
    param("stream", Any, Only(&["false"]), "a response that is kept is complete"),
    param("starting_after", Any, Only(&[]), "a response that is kept is complete"),
]];
/// The parameters, in the query, of listing a response's input.
pub static INPUT_ITEMS_PARAMS: &[Params] = &[&[
    param("limit", Integer(1, 100), Yes, "so many items; 20 otherwise"),
    param("order", Kind::Word(&["asc", "desc"]), Yes, "desc, with the last item first, or asc"),
    param("after", Text, Yes, "begin behind the item of this id"),
]];

static STREAM_OPTIONS: &[Param] =
    &[param("include_obfuscation", Any, Only(&["false"]), "events are not padded")];

/// What a response repeats of its request, and what it says where the request says nothing.
const REPEATED: &[(&str, &str)] = &[
    ("background", "false"),
    ("instructions", "null"),
    ("max_output_tokens", "null"),
    ("max_tool_calls", "null"),
    ("metadata", "{}"),
    ("parallel_tool_calls", "true"),
    ("previous_response_id", "null"),
    ("prompt_cache_key", "null"),
    ("reasoning", "{\"effort\": null, \"summary\": null}"),
    ("safety_identifier", "null"),
    ("service_tier", "\"default\""),
    ("store", "true"),
    ("temperature", "null"),
    ("text", "{\"format\": {\"type\": \"text\"}}"),
    ("tool_choice", "\"auto\""),
    ("tools", "[]"),
    ("top_logprobs", "0"),
    ("top_p", "null"),
    ("truncation", "\"disabled\""),
    ("user", "null"),
];

/// A conversation that a response answers.
#[derive(Debug, Clone, PartialEq)]
pub struct Conversation {
    /// The model asked for.
    pub model: Option<String>,
    /// What the system says.
    pub instructions: Option<String>,
    /// The response behind which it goes on.
    pub previous: Option<String>,
    /// Its items, in the form that [`with_id`] gives them.
    pub input: Vec<Value>,
    /// What the model may call.
    pub tools: Tools,
    /// What it is to think.
    pub reasoning: Reasoning,
    /// What the answer must look like.
    pub structure: Option<Structure>,
    /// Variables for the template.
    pub template_kwargs: Map<String, Value>,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl Conversation {
    /// Reads the body of a request to count tokens.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        Self::from_fields(&mut Fields::parse(body, INPUT_TOKENS_PARAMS)?)
    }

    fn from_fields(fields: &mut Fields) -> Result<Self, ApiError> {
        Ok(Self {
            model: fields.text("model"),
            instructions: fields.text("instructions"),
            previous: fields.text("previous_response_id"),
            input: items::read(fields.take("input").unwrap_or_default())?,
            tools: Tools::read_responses(fields)?,
            reasoning: Reasoning::read_responses(fields)?,
            structure: Structure::read_responses(fields)?,
            template_kwargs: fields.object("chat_template_kwargs").unwrap_or_default(),
            unknown: fields.unknown().to_vec(),
        })
    }

    /// The conversation's messages, with `before`: the items of what it goes on behind.
    ///
    /// # Errors
    /// If an item is malformed or needs what is not supported.
    pub fn messages(&mut self, before: Vec<Value>) -> Result<Vec<ChatMessage>, ApiError> {
        items::messages(self.instructions.take(), before, &self.input)
    }
}

/// A request for a response.
#[derive(Debug, Clone, PartialEq)]
pub struct ResponsesRequest {
    /// What is answered.
    pub conversation: Conversation,
    /// How; the conversation has the model, the structure, and what nobody knows.
    pub common: Common,
    /// Alternatives per token; `None` for no logprobs.
    pub top_logprobs: Option<usize>,
    /// Give reasoning as `encrypted_content` too.
    pub encrypted_reasoning: bool,
    /// Keep the response.
    pub store: bool,
    /// What the response repeats of its request.
    pub repeated: Map<String, Value>,
}

impl ResponsesRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, RESPONSES_PARAMS)?;
        let repeated = |(name, default): &(&str, &str)| {
            let value = fields.get(name).cloned();
            ((*name).to_owned(), value.unwrap_or_else(|| serde_json::from_str(default).unwrap_or_default()))
        };
        let repeated: Map<String, Value> = REPEATED.iter().map(repeated).collect();
        if let Some(labels) = fields.object("metadata") {
            check_labels(&labels)?;
        }
        let (mut logprobs, mut encrypted_reasoning) =
            (fields.count("top_logprobs").is_some_and(|n| n > 0), false);
        for (i, name) in fields.list("include").unwrap_or_default().iter().enumerate() {
            match name.as_str() {
                Some("message.output_text.logprobs") => logprobs = true,
                Some("reasoning.encrypted_content") => encrypted_reasoning = true,
                _ => {
                    let hint = format!("there is no {name} to include");
                    return Err(ApiError::unsupported(format!("include[{i}]"), hint));
                }
            }
        }
        let mut conversation = Conversation::from_fields(&mut fields)?;
        if let Some(options) = fields.object("stream_options") {
            let options = Fields::nested(options, &[STREAM_OPTIONS], "stream_options")?;
            conversation.unknown.extend_from_slice(options.unknown());
        }
        let common = Common {
            model: None,
            n: 1,
            priority: fields.integer("priority").and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
            stream: fields.bool("stream").unwrap_or(false).then(StreamOptions::default),
            sampling: Sampling::read(&mut fields)?,
            limits: Limits::read(&mut fields, &["max_output_tokens", "n_predict"], "stop")?,
            structure: None,
            timings_per_token: false,
            return_progress: false,
            fresh: fields.bool("cache_prompt") == Some(false),
            silence: silence(&fields),
            unknown: Vec::new(),
        };
        Ok(Self {
            conversation,
            common,
            top_logprobs: logprobs.then(|| fields.count("top_logprobs").unwrap_or(0)),
            encrypted_reasoning,
            store: fields.bool("store").unwrap_or(true),
            repeated,
        })
    }
}

fn check_labels(labels: &Map<String, Value>) -> Result<(), ApiError> {
    if labels.len() > MOST_LABELS {
        let problem = format!("has {} labels, but at most {MOST_LABELS} are taken", labels.len());
        return Err(ApiError::value("metadata", problem));
    }
    for (name, value) in labels {
        let fits = value.as_str().is_some_and(|text| text.chars().count() <= MOST_LABEL);
        if name.chars().count() > MOST_LABEL_NAME || !fits {
            let problem = format!(
                "must map names of at most {MOST_LABEL_NAME} characters to strings of at most {MOST_LABEL}"
            );
            return Err(ApiError::value("metadata", problem));
        }
    }
    Ok(())
}

/// Which items of a response's input to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listing {
    /// At most so many.
    pub limit: usize,
    /// The last item first.
    pub newest_first: bool,
    /// Begin behind the item of this id.
    pub after: Option<String>,
}

impl Listing {
    /// Reads a query.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(query: &[(String, String)]) -> Result<Self, ApiError> {
        let mut fields = Fields::query(query, INPUT_ITEMS_PARAMS)?;
        let newest_first = fields.text("order").as_deref() != Some("asc");
        Ok(Self { limit: fields.count("limit").unwrap_or(20), newest_first, after: fields.text("after") })
    }
}
