//! Prompts that are texts or tokens, in all forms that OpenAI's and llama.cpp's clients give them.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::params::{Fields, Kind, Param, Support, param, shown};

use Kind::{Any, List, Text};
use Support::{Only, Required, Yes};

/// A prompt of a completion.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Prompt {
    /// Text; what looks like a control token in it is one, as with other engines.
    Text(String),
    /// Token ids.
    Tokens(Vec<u32>),
    /// Both, one behind the other, as llama.cpp takes them.
    Mixed(Vec<Piece>),
}

/// A piece of a mixed prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Piece {
    /// Text.
    Text(String),
    /// A token's id.
    Token(u32),
}

/// llama.cpp's form of a text that pictures may stand in.
static OBJECT: &[Param] = &[
    param("prompt_string", Text, Yes, "the text"),
    param("content", List, Yes, "parts of type `text`"),
    param("multimodal_data", Any, Only(&["[]"]), "prompts are text"),
];

static PART: &[Param] = &[
    param("type", Any, Only(&["\"text\""]), "prompts are text"),
    param("text", Text, Required, "a piece of the text"),
];

const FORMS: &str =
    "must be a string, a list of strings, a list of token ids, or a list of lists of token ids";

/// Reads a parameter that is a prompt, or a list of at most `most`. A list that holds a number is one prompt.
pub(crate) fn prompts(param: &str, value: Value, most: usize) -> Result<Vec<Prompt>, ApiError> {
    match value {
        Value::Array(items) if items.is_empty() => Err(ApiError::value(param, "must not be an empty list")),
        Value::Array(items) if items.iter().any(Value::is_number) => Ok(vec![sequence(param, items)?]),
        Value::Array(items) if items.len() > most => {
            let problem = format!("has {} entries, but at most {most} are taken", items.len());
            Err(ApiError::value(param, problem))
        }
        Value::Array(items) => items.into_iter().map(|item| prompt(param, item)).collect(),
        one => Ok(vec![prompt(param, one)?]),
    }
}

fn prompt(param: &str, value: Value) -> Result<Prompt, ApiError> {
    match value {
        Value::String(text) => Ok(Prompt::Text(text)),
        Value::Array(items) => sequence(param, items),
        Value::Object(fields) => object(param, fields),
        other => Err(wrong(param, &other)),
    }
}

fn wrong(param: &str, value: &Value) -> ApiError {
    ApiError::value(param, format!("{FORMS}, not {}", shown(value)))
}

/// Tokens, with or without texts among them.
fn sequence(param: &str, items: Vec<Value>) -> Result<Prompt, ApiError> {
    let id = |item: &Value| item.as_u64().and_then(|id| u32::try_from(id).ok());
    if let Some(tokens) = items.iter().map(id).collect() {
        return Ok(Prompt::Tokens(tokens));
    }
    let piece = |item: Value| match (id(&item), item) {
        (Some(id), _) => Ok(Piece::Token(id)),
        (None, Value::String(text)) => Ok(Piece::Text(text)),
        (None, other) => Err(wrong(param, &other)),
    };
    items.into_iter().map(piece).collect::<Result<_, _>>().map(Prompt::Mixed)
}

fn object(param: &str, fields: Map<String, Value>) -> Result<Prompt, ApiError> {
    let mut fields = Fields::nested(fields, &[OBJECT], param)?;
    match (fields.text("prompt_string"), fields.list("content")) {
        (Some(text), None) => Ok(Prompt::Text(text)),
        (None, Some(parts)) => {
            let path = fields.path("content");
            let text = |part: Value| match part {
                Value::Object(part) => {
                    Ok(Fields::nested(part, &[PART], &path)?.text("text").unwrap_or_default())
                }
                other => Err(ApiError::value(&path, format!("must hold objects, not {}", shown(&other)))),
            };
            parts.into_iter().map(text).collect::<Result<_, _>>().map(Prompt::Text)
        }
        _ => Err(ApiError::missing(fields.path("prompt_string"))),
    }
}
