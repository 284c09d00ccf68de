//! The tools that a model may call.

use serde_json::{Map, Value};

use super::cursor::{Cursor, Read, Stop};

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// The JSON schema of its arguments.
    pub parameters: Value,
}

/// A call that is complete.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ToolCall {
    /// The tool's name.
    pub name: String,
    /// A JSON object.
    pub arguments: String,
}

/// The tools of a request. What calls another one is no call.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct ToolSet(Vec<Tool>);

impl ToolSet {
    /// A set of these tools; of two with the same name, the first counts.
    #[must_use]
    pub fn new(tools: Vec<Tool>) -> Self {
        Self(tools)
    }

    /// The tools.
    #[must_use]
    pub fn tools(&self) -> &[Tool] {
        &self.0
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.iter().any(|tool| tool.name == name)
    }

    /// Takes the longest name that stands here.
    pub(super) fn name<'a>(&self, cursor: &mut Cursor<'a>) -> Read<&'a str> {
        let mut found = None;
        for tool in &self.0 {
            let mut ahead = cursor.clone();
            if ahead.has(&tool.name)? && found.is_none_or(|length| tool.name.len() > length) {
                found = Some(tool.name.len());
            }
        }
        let Some(length) = found else { return Err(Stop::Wrong) };
        let name = &cursor.rest()[..length];
        cursor.at += length;
        // Of a longer name this would be a part only.
        let goes_on = |c: char| c.is_alphanumeric() || c == '_' || c == '-';
        if !cursor.is_end() && goes_on(cursor.peek()?) { Err(Stop::Wrong) } else { Ok(name) }
    }

    /// Whether an argument that is written as plain text is a string, whatever the text is.
    pub(super) fn is_text(&self, tool: &str, key: &str) -> bool {
        let types = self.schema(tool, key).map(types).unwrap_or_default();
        types.contains(&"string") && !types.contains(&"null")
    }

    fn schema(&self, tool: &str, key: &str) -> Option<&Value> {
        self.0.iter().find(|t| t.name == tool).map(|t| &t.parameters["properties"][key])
    }

    /// The value of an argument that was written as plain text: what it is depends on the schema.
    pub(super) fn value(&self, tool: &str, key: &str, text: &str) -> Value {
        let parsed = serde_json::from_str::<Value>(text.trim()).ok().or_else(|| match text.trim() {
            "True" => Some(Value::Bool(true)),
            "False" => Some(Value::Bool(false)),
            "None" => Some(Value::Null),
            _ => None,
        });
        let types = self.schema(tool, key).map(types).unwrap_or_default();
        match parsed {
            // Where a string may stand, the text is one, but for a null that may stand there too.
            Some(Value::Null) if types.contains(&"null") || !types.contains(&"string") => Value::Null,
            Some(value) if !types.contains(&"string") && !value.is_string() => value,
            _ => Value::String(text.to_owned()),
        }
    }
}

/// The types that a schema allows, as far as it says; of alternatives all.
fn types(schema: &Value) -> Vec<&str> {
    let mut found: Vec<&str> = match &schema["type"] {
        Value::String(one) => vec![one],
        Value::Array(several) => several.iter().filter_map(Value::as_str).collect(),
        _ => Vec::new(),
    };
    for name in ["anyOf", "oneOf", "allOf"] {
        found.extend(schema[name].as_array().into_iter().flatten().flat_map(types));
    }
    let constants = schema["enum"].as_array().into_iter().flatten().chain(schema.get("const"));
    found.extend(constants.filter(|value| value.is_string()).map(|_| "string"));
    found
}

/// A call, if its arguments are a JSON object, or one that was written as a string.
pub(super) fn call(name: &str, arguments: Option<&str>) -> Read<ToolCall> {
    let is_object = |text: &str| serde_json::from_str::<Map<String, Value>>(text).is_ok();
    let arguments = match arguments {
        None | Some("null") => "{}".to_owned(),
        Some(text) if is_object(text) => text.to_owned(),
        Some(text) => {
            serde_json::from_str::<String>(text).ok().filter(|t| is_object(t)).ok_or(Stop::Wrong)?
        }
    };
    Ok(ToolCall { name: name.to_owned(), arguments })
}
