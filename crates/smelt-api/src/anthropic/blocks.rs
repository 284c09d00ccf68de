//! Messages in blocks: Anthropic's way to tell of thinking, calls and results.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::message::{ChatMessage, Role, pair};
use crate::params::{Fields, Kind, Param, Support, param};

use Kind::{Any, Bool, Object, Text};
use Support::{Harmless, Required, Yes};

static TOOL_USE: &[Param] = &[
    param("type", Text, Required, "`tool_use`"),
    param("id", Text, Required, "by which the result is known"),
    param("name", Text, Required, "the tool's name"),
    param("input", Object, Required, "its arguments"),
    param("caller", Any, Harmless, "who asked for it"),
    param("cache_control", Any, Harmless, "the cache finds common beginnings by itself"),
];
static TOOL_RESULT: &[Param] = &[
    param("type", Text, Required, "`tool_result`"),
    param("tool_use_id", Text, Required, "of which call"),
    param("content", Any, Yes, "a string, or a list of text blocks"),
    param("is_error", Bool, Yes, "the tool failed"),
    param("cache_control", Any, Harmless, "the cache finds common beginnings by itself"),
];

/// Reads a conversation. A message of the user with results becomes one message per result, and one of what else it says.
///
/// # Errors
/// If the list is empty, or a message is malformed or needs what is not supported.
pub(super) fn read(messages: Vec<Value>) -> Result<Vec<ChatMessage>, ApiError> {
    if messages.is_empty() {
        return Err(ApiError::value("messages", "must hold at least one message"));
    }
    let mut read = Vec::with_capacity(messages.len());
    for (i, mut message) in messages.into_iter().enumerate() {
        let path = format!("messages[{i}]");
        let role = message.get("role").and_then(Value::as_str).map(str::to_owned);
        let mut blocks = Blocks::default();
        if let Some(Value::Array(content)) = message.get_mut("content") {
            for (i, block) in content.iter_mut().enumerate() {
                blocks.take(block, role.as_deref(), &format!("{path}.content[{i}]"))?;
            }
        }
        for result in blocks.results {
            read.push(ChatMessage::read(result, &path, &[Role::Tool])?);
        }
        let rest = message.get("content").and_then(Value::as_array);
        if blocks.only_results && rest.is_some_and(|rest| rest.iter().all(Value::is_null)) {
            continue;
        }
        if let Value::Object(fields) = &mut message {
            let mut set = |name: &str, value: Value| fields.insert(name.to_owned(), value);
            if !blocks.calls.is_empty() {
                set("tool_calls", blocks.calls.into());
            }
            if !blocks.thoughts.is_empty() {
                set("reasoning_content", blocks.thoughts.join("\n").into());
            }
        }
        read.push(ChatMessage::read(message, &path, &[Role::User, Role::Assistant, Role::System])?);
    }
    pair(&mut read);
    Ok(read)
}

/// Blocks of a message that are no text, in OpenAI's form.
#[derive(Default)]
struct Blocks {
    thoughts: Vec<String>,
    calls: Vec<Value>,
    results: Vec<Value>,
    only_results: bool,
}

impl Blocks {
    /// Takes a block out of its message; null, which counts as absent, stays in its place.
    fn take(&mut self, block: &mut Value, role: Option<&str>, path: &str) -> Result<(), ApiError> {
        let kind = block.get("type").and_then(Value::as_str).unwrap_or_default();
        match (kind, role) {
            ("thinking", Some("assistant")) => {
                self.thoughts.extend(block["thinking"].as_str().map(str::to_owned));
            }
            ("redacted_thinking", Some("assistant")) => {}
            ("tool_use", Some("assistant")) => {
                let mut fields = nested(block, TOOL_USE, path)?;
                let mut take = |name| fields.take(name).unwrap_or_default();
                let function = json!({"name": take("name"), "arguments": take("input")});
                self.calls.push(json!({"id": take("id"), "type": "function", "function": function}));
            }
            ("tool_result", Some("user")) => {
                let mut fields = nested(block, TOOL_RESULT, path)?;
                let mut content = fields.take("content").unwrap_or_default();
                if fields.bool("is_error") == Some(true) {
                    content = match content {
                        Value::String(text) => format!("Error: {text}").into(),
                        Value::Array(blocks) => [vec!["Error:".into()], blocks].concat().into(),
                        _ => "Error".into(),
                    };
                }
                let id = fields.take("tool_use_id").unwrap_or_default();
                self.results.push(json!({"role": "tool", "tool_call_id": id, "content": content}));
                self.only_results = true;
            }
            _ => return Ok(()),
        }
        *block = Value::Null;
        Ok(())
    }
}

fn nested(block: &Value, table: &'static [Param], path: &str) -> Result<Fields, ApiError> {
    let fields: Map<String, Value> = block.as_object().cloned().unwrap_or_default();
    Fields::nested(fields, &[table], path)
}
