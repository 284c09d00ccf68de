//! Items of a conversation: messages, calls, results, reasoning.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::message::{ChatMessage, Role, ToolCall, pair, read_content};
use crate::params::{Fields, Kind, Param, Support, param, shown};

use Kind::{Any, Text};
use Support::{Harmless, Required, Yes};

const ROLES: [Role; 4] = [Role::System, Role::Developer, Role::User, Role::Assistant];

static FUNCTION_CALL: &[Param] = &[
    param("type", Text, Required, "`function_call`"),
    param("id", Text, Yes, "the item's id"),
    param("call_id", Text, Required, "by which the result is known"),
    param("name", Text, Required, "the tool's name"),
    param("arguments", Text, Required, "its arguments, as JSON"),
    param("status", Any, Harmless, "whether it is complete"),
];
static FUNCTION_CALL_OUTPUT: &[Param] = &[
    param("type", Text, Required, "`function_call_output`"),
    param("id", Text, Yes, "the item's id"),
    param("call_id", Text, Required, "of which call"),
    param("output", Any, Required, "a text, or a list of parts"),
    param("status", Any, Harmless, "whether it is complete"),
];
static REASONING: &[Param] = &[
    param("type", Text, Required, "`reasoning`"),
    param("id", Text, Yes, "the item's id"),
    param("summary", Any, Yes, "read where there is nothing else"),
    param("content", Any, Yes, "what was thought"),
    param("encrypted_content", Text, Yes, "the same, as this server gives it"),
    param("status", Any, Harmless, "whether it is complete"),
];

/// The kinds of items: the word, what ids of theirs begin with.
const KINDS: &[(&str, &str)] =
    &[("message", "msg_"), ("function_call", "fc_"), ("function_call_output", "fco_"), ("reasoning", "rs_")];

fn kind(item: &Value) -> &str {
    item.get("type").and_then(Value::as_str).unwrap_or("message")
}

/// The items of an `input`.
pub(super) fn read(input: Value) -> Result<Vec<Value>, ApiError> {
    match input {
        Value::String(text) => Ok(vec![json!({"type": "message", "role": "user", "content": text})]),
        Value::Array(items) if items.is_empty() => {
            Err(ApiError::value("input", "must hold at least one item"))
        }
        Value::Array(items) => Ok(items),
        other => {
            let problem = format!("must be a string or a list of items, not {}", shown(&other));
            Err(ApiError::value("input", problem))
        }
    }
}

/// The id that an item refers to, if it is but a reference.
#[must_use]
pub fn reference(item: &Value) -> Option<&str> {
    (kind(item) == "item_reference").then(|| item.get("id").and_then(Value::as_str).unwrap_or_default())
}

/// An item in the form in which it is kept and listed: with an id, which otherwise ends with `tail`, and with its content
/// as parts.
#[must_use]
pub fn with_id(mut item: Value, tail: &str) -> Value {
    let kind = kind(&item).to_owned();
    let prefix = KINDS.iter().find(|(word, _)| *word == kind).map_or("item_", |(_, prefix)| *prefix);
    if item.get("id").is_none_or(Value::is_null) {
        item["id"] = format!("{prefix}{tail}").into();
    }
    item["type"] = kind.as_str().into();
    item["status"] = "completed".into();
    if kind == "message" {
        let is_answer = item["role"] == "assistant";
        let part = |text: &Value| match is_answer {
            true => json!({"type": "output_text", "text": text, "annotations": []}),
            false => json!({"type": "input_text", "text": text}),
        };
        item["content"] = match &item["content"] {
            Value::Array(parts) => {
                // Bare strings and parts of chats mean the same.
                let parts = parts.iter().filter(|given| !given.is_null());
                let parts = parts.map(|given| match given["type"].as_str() {
                    None if given.is_string() => part(given),
                    Some("text" | "input_text") => part(&given["text"]),
                    _ => given.clone(),
                });
                parts.collect()
            }
            Value::Null => json!([]),
            text => json!([part(text)]),
        };
    }
    item
}

/// The messages of a conversation: what the system says, what was there `before`, and its `input`.
pub(super) fn messages(
    instructions: Option<String>,
    before: Vec<Value>,
    input: &[Value],
) -> Result<Vec<ChatMessage>, ApiError> {
    let mut turns = Turns::default();
    turns.messages.extend(instructions.map(|text| ChatMessage::new(Role::System, text)));
    for item in before {
        turns.add(item, "previous_response_id")?;
    }
    for (i, item) in input.iter().enumerate() {
        turns.add(item.clone(), &format!("input[{i}]"))?;
    }
    turns.settle();
    pair(&mut turns.messages);
    Ok(turns.messages)
}

/// Items on their way to messages. What the model says in one turn, reasoning, text and calls, is one message.
#[derive(Default)]
struct Turns {
    messages: Vec<ChatMessage>,
    /// Reasoning whose turn has not said anything yet.
    thoughts: Option<String>,
}

impl Turns {
    fn add(&mut self, item: Value, path: &str) -> Result<(), ApiError> {
        let Value::Object(fields) = item else {
            return Err(ApiError::value(path, format!("must be an object, not {}", shown(&item))));
        };
        let nested = |table: &'static [Param]| Fields::nested(fields.clone(), &[table], path);
        match fields.get("type").and_then(Value::as_str).unwrap_or("message") {
            "message" => self.message(fields, path),
            "function_call" => {
                let mut call = nested(FUNCTION_CALL)?;
                let mut text = |name| call.text(name).unwrap_or_default();
                let call = ToolCall { id: text("call_id"), name: text("name"), arguments: text("arguments") };
                self.turn().tool_calls.push(call);
                Ok(())
            }
            "function_call_output" => {
                let mut result = nested(FUNCTION_CALL_OUTPUT)?;
                let output = result.take("output");
                let content = read_content(output.as_ref(), &result.path("output"), Role::Tool)?;
                self.settle();
                let id = result.text("call_id");
                self.messages.push(ChatMessage { tool_call_id: id, ..ChatMessage::new(Role::Tool, content) });
                Ok(())
            }
            "reasoning" => {
                let thought = thought(&mut nested(REASONING)?);
                match &mut self.thoughts {
                    Some(thoughts) => *thoughts = format!("{thoughts}\n{thought}"),
                    None => self.thoughts = Some(thought),
                }
                Ok(())
            }
            other => {
                let hint = format!(
                    "it is {other:?}; there are messages, function calls, their outputs, and reasoning"
                );
                Err(ApiError::unsupported(format!("{path}.type"), hint))
            }
        }
    }

    fn message(&mut self, fields: Map<String, Value>, path: &str) -> Result<(), ApiError> {
        let message = ChatMessage::read(fields.into(), path, &ROLES)?;
        if message.role != Role::Assistant {
            self.settle();
            self.messages.push(message);
            return Ok(());
        }
        match self.messages.last_mut() {
            // What is said behind calls whose results are not there yet is said in the same turn.
            Some(last) if last.role == Role::Assistant && !last.tool_calls.is_empty() => {
                let gap = if last.content.is_empty() { "" } else { "\n" };
                last.content = [last.content.as_str(), gap, message.content.as_str()].concat();
            }
            _ => {
                let reasoning = self.thoughts.take().or(message.reasoning);
                self.messages.push(ChatMessage { reasoning, ..message });
            }
        }
        Ok(())
    }

    /// The model's turn: the one that it is in, or a new one.
    fn turn(&mut self) -> &mut ChatMessage {
        let goes_on =
            self.thoughts.is_none() && self.messages.last().is_some_and(|m| m.role == Role::Assistant);
        if !goes_on {
            let message = ChatMessage::new(Role::Assistant, "");
            self.messages.push(ChatMessage { reasoning: self.thoughts.take(), ..message });
        }
        let last = self.messages.len() - 1;
        &mut self.messages[last]
    }

    /// Ends a turn in which there was nothing but reasoning.
    fn settle(&mut self) {
        if self.thoughts.is_some() {
            self.turn();
        }
    }
}

/// What was thought: in plain text, else as this server gives it where it is to be encrypted, else its summary.
fn thought(fields: &mut Fields) -> String {
    let texts = |parts: Option<Value>| {
        let text = |part: &Value| part.get("text").and_then(Value::as_str).map(str::to_owned);
        let parts = parts.unwrap_or_default();
        parts.as_array().into_iter().flatten().filter_map(text).collect::<Vec<_>>().join("\n")
    };
    let (content, summary) = (texts(fields.take("content")), texts(fields.take("summary")));
    let encrypted = fields.text("encrypted_content").unwrap_or_default();
    [content, encrypted, summary].into_iter().find(|text| !text.is_empty()).unwrap_or_default()
}
