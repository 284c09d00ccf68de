//! Messages of a conversation, as every dialect means them.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::params::shown;

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
}

/// The roles by name.
static ROLES: &[(&str, Role)] = &[
    ("system", Role::System),
    ("developer", Role::Developer),
    ("user", Role::User),
    ("assistant", Role::Assistant),
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
    /// Who of several speakers.
    pub name: Option<String>,
    /// What the model thought before it said this, where the client sends it back.
    pub reasoning: Option<String>,
}

/// Names under which clients send reasoning back.
const REASONING: [&str; 3] = ["reasoning_content", "reasoning", "thinking"];
/// Fields of a message that need what is not supported.
const TOOL_FIELDS: [&str; 3] = ["tool_calls", "function_call", "images"];
const NO_TOOLS: &str = "tool calls are not implemented yet; send their text as ordinary messages";
const TEXT_ONLY: &str = "only text is understood";

impl ChatMessage {
    /// A message of a role and a text.
    pub fn new(role: Role, content: impl Into<String>) -> Self {
        Self { role, content: content.into(), name: None, reasoning: None }
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
        messages.into_iter().enumerate().map(read).collect()
    }

    fn read(message: Value, path: &str, roles: &[Role]) -> Result<Self, ApiError> {
        let Value::Object(fields) = message else {
            return Err(ApiError::value(path, format!("must be an object, not {}", shown(&message))));
        };
        let role = read_role(&fields, path, roles)?;
        for name in TOOL_FIELDS {
            let absent = |v: &Value| v.is_null() || v.as_array().is_some_and(Vec::is_empty);
            if fields.get(name).is_some_and(|v| !absent(v)) {
                let why = if name == "images" { TEXT_ONLY } else { NO_TOOLS };
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
        Ok(Self { role, content, name: text("name")?, reasoning })
    }
}

fn read_role(fields: &Map<String, Value>, path: &str, roles: &[Role]) -> Result<Role, ApiError> {
    let path = format!("{path}.role");
    let Some(name) = fields.get("role").filter(|v| !v.is_null()) else { return Err(ApiError::missing(path)) };
    if matches!(name.as_str(), Some("tool" | "function")) {
        return Err(ApiError::unsupported(path, NO_TOOLS));
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
        // A bare string among the parts is what some clients send.
        if let Value::String(text) = part {
            return Ok(Some(text.clone()));
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
