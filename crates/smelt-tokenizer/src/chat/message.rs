//! One message of a conversation.

use serde_json::{Map, Value as Json};

use super::error::TemplateError;
use super::text::Text;
use super::value::{Dict, Value};

/// Roles that templates build control tokens from (`'<|' + role + '|>'`). Any other role is a user's text.
const ROLES: &[&str] = &[
    "assistant",
    "context",
    "critic",
    "developer",
    "document",
    "documents",
    "environment",
    "function",
    "ipython",
    "model",
    "observation",
    "root",
    "system",
    "tool",
    "tool_call",
    "tool_response",
    "user",
];
/// Names under which reasoning is passed; templates read the first, or the second.
const REASONING: [&str; 3] = ["reasoning_content", "thinking", "reasoning"];

/// A message: an object with a `role`, usually `content`, and whatever else the template reads.
#[derive(Debug, Clone, PartialEq)]
pub struct Message(Map<String, Json>);

impl Message {
    /// A message of plain text.
    pub fn new(role: &str, content: impl Into<String>) -> Self {
        let mut fields = Map::new();
        fields.insert("role".to_owned(), role.into());
        fields.insert("content".to_owned(), content.into().into());
        Self(fields)
    }

    /// A message in OpenAI's form: `content` as a string or list of parts, `tool_calls`, `tool_call_id`, `name`,
    /// `reasoning_content` …; `index` is its place in the list, for the error.
    ///
    /// # Errors
    /// When it is not an object, or has no `role` that is a string.
    pub fn from_json(index: usize, json: Json) -> Result<Self, TemplateError> {
        match json {
            Json::Object(fields) => match fields.get("role") {
                Some(Json::String(_)) => Ok(Self(fields)),
                Some(_) => Err(TemplateError::Message { index, problem: "its role must be a string" }),
                None => Err(TemplateError::Message { index, problem: "it has no role" }),
            },
            _ => {
                Err(TemplateError::Message { index, problem: "it must be an object with a role and content" })
            }
        }
    }

    /// Who speaks.
    pub fn role(&self) -> &str {
        self.0.get("role").and_then(Json::as_str).unwrap_or_default()
    }

    /// All fields.
    pub fn fields(&self) -> &Map<String, Json> {
        &self.0
    }

    /// The fields, to change them. A message without a role renders as templates treat a missing role.
    pub fn fields_mut(&mut self) -> &mut Map<String, Json> {
        &mut self.0
    }

    pub(super) fn to_value(&self) -> Value {
        let mut pairs = Dict::new();
        let reasoning = REASONING.iter().find_map(|name| self.0.get(*name).filter(|v| !v.is_null()));
        for (key, value) in self.0.iter().filter(|(_, v)| !v.is_null()) {
            let value = match (key.as_str(), value) {
                ("role", Json::String(role)) if ROLES.contains(&role.as_str()) => {
                    Value::template(role.as_str())
                }
                _ => Value::from_json(value),
            };
            pairs.push((Value::Str(Text::user(key.as_str())), value));
        }
        if let Some(reasoning) = reasoning {
            let value = Value::from_json(reasoning);
            let name = |n: &str| Value::Str(Text::user(n));
            if super::value::lookup_str(&pairs, REASONING[1]).is_none() {
                pairs.insert(0, (name(REASONING[1]), value.clone()));
            }
            super::value::insert(&mut pairs, name(REASONING[0]), value);
        }
        Value::dict(pairs)
    }
}
