//! Messages of a conversation, as every dialect means them.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::params::{Kind, Param, Support, param, shown};

use Kind::{Any, Content, Fields, Items, Text, Word};
use Support::{Required, Yes};

/// Who speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Role {
    /// Instructions.
    System,
    /// Instructions, in OpenAI's newer word.
    Developer,
    /// The person.
    User,
    /// The model.
    Assistant,
    /// What a tool found.
    Tool,
}

/// The roles by name.
static ROLES: &[(&str, Role)] = &[
    ("system", Role::System),
    ("developer", Role::Developer),
    ("user", Role::User),
    ("assistant", Role::Assistant),
    ("tool", Role::Tool),
];

impl Role {
    /// Its name on the wire.
    #[must_use]
    pub fn name(self) -> &'static str {
        ROLES.iter().find(|(_, role)| *role == self).map_or("", |(name, _)| name)
    }
}

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ChatMessage {
    /// Who speaks.
    pub role: Role,
    /// What was said; the text parts of a list are joined by line breaks. Null and absent are empty.
    pub content: String,
    /// Who of several speakers; the name of a result's tool.
    pub name: Option<String>,
    /// What the model thought before it said this, where the client sends it back.
    pub reasoning: Option<String>,
    /// The tools that the model called.
    pub tool_calls: Vec<ToolCall>,
    /// Of which call this is the result.
    pub tool_call_id: Option<String>,
}

/// A call of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct ToolCall {
    /// By which its result is known.
    pub id: String,
    /// The tool's name.
    pub name: String,
    /// Its arguments, as JSON.
    pub arguments: String,
}

/// A message of OpenAI's and Ollama's chats, as their clients write it; [`ChatMessage::read`] takes a little more.
pub(crate) static MESSAGE: &[Param] = &[
    param("role", Word(&["system", "developer", "user", "assistant", "tool"]), Required, "who speaks"),
    param("content", Content, Yes, "what is said"),
    param("name", Text, Yes, "who of several speakers; the name of a result's tool"),
    param("reasoning_content", Text, Yes, "what the model thought before"),
    param("tool_calls", Items(CALL), Yes, "the tools that the model called"),
    param("tool_call_id", Text, Yes, "of which call this is the result"),
];
static CALL: &[Param] = &[
    param("id", Text, Yes, "by which the result is known"),
    param("type", Word(&["function"]), Yes, "what is called"),
    param("function", Fields(CALLED), Required, "the call"),
];
static CALLED: &[Param] = &[
    param("name", Text, Required, "the tool's name"),
    param("arguments", Any, Yes, "its arguments: JSON in a string, or an object"),
];

/// Names under which clients send reasoning back.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];
/// Fields of a message that need what is not supported.
const UNSUPPORTED: [&str; 2] = ["function_call", "images"];
const OLD_FUNCTIONS: &str = "use tool_calls, and results in messages of the role tool";
const TEXT_ONLY: &str = "only text is understood";

impl ChatMessage {
    /// A message of a role and a text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self {
            role,
            content: content.into(),
            name: None,
            reasoning: None,
            tool_calls: Vec::new(),
            tool_call_id: None,
        }
    }

    /// Reads the messages of a request.
    ///
    /// # Errors
    /// If the list is empty, or a message is malformed or needs what is not supported.
    pub fn read_all(messages: Vec<Value>, path: &str, roles: &[Role]) -> Result<Vec<Self>, ApiError> {
        if messages.is_empty() {
            return Err(ApiError::value(path, "must hold at least one message"));
        }
        let read = |(index, message)| Self::read(message, &format!("{path}[{index}]"), roles);
        let mut messages = messages.into_iter().enumerate().map(read).collect::<Result<Vec<_>, _>>()?;
        pair(&mut messages);
        Ok(messages)
    }

    /// Reads one message.
    ///
    /// # Errors
    /// As [`Self::read_all`].
    pub(crate) fn read(message: Value, path: &str, roles: &[Role]) -> Result<Self, ApiError> {
        let Value::Object(fields) = message else {
            return Err(ApiError::value(path, format!("must be an object, not {}", shown(&message))));
        };
        let role = read_role(&fields, path, roles)?;
        for name in UNSUPPORTED {
            let absent = |v: &Value| v.is_null() || v.as_array().is_some_and(Vec::is_empty);
            if fields.get(name).is_some_and(|v| !absent(v)) {
                let why = if name == "images" { TEXT_ONLY } else { OLD_FUNCTIONS };
                return Err(ApiError::unsupported(format!("{path}.{name}"), why));
            }
        }
        let text = |name: &str| match fields.get(name) {
            None | Some(Value::Null) => Ok(None),
            Some(Value::String(text)) => Ok(Some(text.clone())),
            Some(other) => Err(ApiError::value(
                format!("{path}.{name}"),
                format!("must be a string, not {}", shown(other)),
            )),
        };
        let mut reasoning = None;
        for name in REASONING {
            reasoning = reasoning.or(text(name)?);
        }
        let content = read_content(fields.get("content"), &format!("{path}.content"), role)?;
        let tool_calls = read_calls(fields.get("tool_calls"), &format!("{path}.tool_calls"), role)?;
        let (name, tool_call_id) = (text("name")?.or(text("tool_name")?), text("tool_call_id")?);
        Ok(Self { role, content, name, reasoning, tool_calls, tool_call_id })
    }
}

fn read_calls(calls: Option<&Value>, path: &str, role: Role) -> Result<Vec<ToolCall>, ApiError> {
    let calls = match calls {
        None | Some(Value::Null) => return Ok(Vec::new()),
        Some(Value::Array(calls)) => calls,
        Some(other) => return Err(ApiError::value(path, format!("must be a list, not {}", shown(other)))),
    };
    if !calls.is_empty() && role != Role::Assistant {
        return Err(ApiError::value(path, "is only for messages of the assistant"));
    }
    let read = |(i, call): (usize, &Value)| {
        let path = format!("{path}[{i}].function");
        let function = &call["function"];
        let Some(name) = function["name"].as_str() else {
            return Err(ApiError::missing(format!("{path}.name")));
        };
        let arguments = match &function["arguments"] {
            Value::Null => "{}".to_owned(),
            Value::String(text) => text.clone(),
            object @ Value::Object(_) => object.to_string(),
            other => {
                let problem = format!("must be JSON in a string, or an object, not {}", shown(other));
                return Err(ApiError::value(format!("{path}.arguments"), problem));
            }
        };
        let id = call["id"].as_str().unwrap_or_default().to_owned();
        Ok(ToolCall { id, name: name.to_owned(), arguments })
    };
    calls.iter().enumerate().map(read).collect()
}

/// Gives calls and results ids where the client, as Ollama's, sent none: results come in the order of the calls.
pub(crate) fn pair(messages: &mut [ChatMessage]) {
    let mut open: Vec<(String, String)> = Vec::new();
    let mut calls = 0;
    for message in messages {
        for call in &mut message.tool_calls {
            if call.id.is_empty() {
                call.id = format!("call_{calls}");
            }
            calls += 1;
            open.push((call.id.clone(), call.name.clone()));
        }
        if message.role != Role::Tool {
            continue;
        }
        let answers = |(id, name): &(String, String)| match (&message.tool_call_id, &message.name) {
            (Some(wanted), _) => wanted == id,
            (None, Some(wanted)) => wanted == name,
            (None, None) => true,
        };
        if let Some(at) = open.iter().position(answers) {
            let (id, name) = open.remove(at);
            message.tool_call_id.get_or_insert(id);
            message.name.get_or_insert(name);
        }
    }
}

fn read_role(fields: &Map<String, Value>, path: &str, roles: &[Role]) -> Result<Role, ApiError> {
    let path = format!("{path}.role");
    let Some(name) = fields.get("role").filter(|v| !v.is_null()) else { return Err(ApiError::missing(path)) };
    if name.as_str() == Some("function") {
        return Err(ApiError::unsupported(path, OLD_FUNCTIONS));
    }
    let known = ROLES.iter().filter(|(_, role)| roles.contains(role));
    known.clone().find(|(known, _)| name.as_str() == Some(known)).map(|(_, role)| *role).ok_or_else(|| {
        let names: Vec<&str> = known.map(|(name, _)| *name).collect();
        ApiError::value(path, format!("is {}, which is none of {}", shown(name), names.join(", ")))
    })
}

/// The text of `content`: null, a string, or a list of parts.
///
/// # Errors
/// If a part is malformed, or is no text.
pub(crate) fn read_content(content: Option<&Value>, path: &str, role: Role) -> Result<String, ApiError> {
    let parts = match content {
        None | Some(Value::Null) => return Ok(String::new()),
        Some(Value::String(text)) => return Ok(text.clone()),
        Some(Value::Array(parts)) => parts,
        Some(other) => {
            let problem = format!("must be null, a string or a list of parts, not {}", shown(other));
            return Err(ApiError::value(path, problem));
        }
    };
    let part = |(index, part): (usize, &Value)| {
        let path = format!("{path}[{index}]");
        match part {
            // A bare string among the parts is what some clients send.
            Value::String(text) => return Ok(Some(text.clone())),
            Value::Null => return Ok(None),
            _ => {}
        }
        let kind = part.get("type").and_then(Value::as_str);
        match (kind, part.get("text")) {
            (Some("text" | "input_text" | "output_text"), Some(Value::String(text))) => {
                Ok(Some(text.clone()))
            }
            (Some("text" | "input_text" | "output_text"), _) => {
                Err(ApiError::missing(format!("{path}.text")))
            }
            (Some("refusal"), _) if role == Role::Assistant => {
                Ok(part.get("refusal").and_then(Value::as_str).map(str::to_owned))
            }
            // What a reasoning model thought in an earlier turn is no part of what it said.
            (Some("thinking" | "redacted_thinking"), _) if role == Role::Assistant => Ok(None),
            (Some(other), _) => {
                let hint = format!("it is {other:?}, and {TEXT_ONLY}");
                Err(ApiError::unsupported(format!("{path}.type"), hint))
            }
            (None, _) => Err(ApiError::missing(format!("{path}.type"))),
        }
    };
    let texts: Result<Vec<Option<String>>, ApiError> = parts.iter().enumerate().map(part).collect();
    Ok(texts?.into_iter().flatten().collect::<Vec<_>>().join("\n"))
}
