//! Tools that a model may call.

use serde_json::{Map, Value, json};

use crate::error::ApiError;
use crate::params::{Fields, Kind, Param, Support, param, shown};

use Kind::{Any, Bool, Items, Text};
use Support::{Harmless, Only, Required, Yes};

/// Tools of one request.
const MOST_TOOLS: usize = 512;
/// Characters of a tool's name.
const MOST_NAME: usize = 128;

/// A tool.
#[derive(Debug, Clone, PartialEq)]
pub struct Tool {
    /// Its name.
    pub name: String,
    /// What it does.
    pub description: Option<String>,
    /// The JSON schema of its arguments, an object.
    pub parameters: Value,
}

impl Tool {
    /// The tool in OpenAI's form, which chat templates read.
    #[must_use]
    pub fn to_json(&self) -> Value {
        let mut function = json!({"name": self.name});
        if let Some(description) = &self.description {
            function["description"] = description.as_str().into();
        }
        function["parameters"] = self.parameters.clone();
        json!({"type": "function", "function": function})
    }
}

/// What the model has to call.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum ToolChoice {
    /// What it finds right.
    #[default]
    Auto,
    /// Nothing.
    None,
    /// At least one tool.
    Required,
    /// This one.
    Named(String),
}

/// The tools of a request.
#[derive(Debug, Clone, PartialEq)]
pub struct Tools {
    /// The tools.
    pub list: Vec<Tool>,
    /// What is to be called.
    pub choice: ToolChoice,
    /// Whether one answer may have several calls.
    pub parallel: bool,
}

impl Default for Tools {
    fn default() -> Self {
        Self { list: Vec::new(), choice: ToolChoice::Auto, parallel: true }
    }
}

const NAME: Param = param("name", Text, Required, "the name");
const DESCRIPTION: Param = param("description", Text, Yes, "what it does");
const PARAMETERS: Param = param("parameters", Any, Yes, "the JSON schema of its arguments");
const FUNCTION_TYPE: Param =
    param("type", Any, Only(&["\"function\""]), "tools are functions that the client runs");
const STRICT: Param = param("strict", Bool, Harmless, "schemas are enforced, as far as they can be");
const DEFER_LOADING: Param = param("defer_loading", Any, Only(&["false"]), "all tools are told to the model");
const ALLOWED_CALLERS: Param =
    param("allowed_callers", Any, Only(&["[\"direct\"]"]), "tools are called by the model");

pub(crate) static TOOL: &[Param] =
    &[FUNCTION_TYPE, param("function", Kind::Fields(FUNCTION), Required, "the function")];
static FUNCTION: &[Param] = &[NAME, DESCRIPTION, PARAMETERS, STRICT];
pub(crate) static RESPONSES_TOOL: &[Param] = &[
    FUNCTION_TYPE,
    NAME,
    DESCRIPTION,
    PARAMETERS,
    STRICT,
    param("output_schema", Any, Harmless, "results are read as text"),
    DEFER_LOADING,
    ALLOWED_CALLERS,
    param("async", Any, Only(&["false"]), "a call ends the answer"),
];
pub(crate) static ANTHROPIC_TOOL: &[Param] = &[
    param("type", Any, Only(&["\"custom\""]), "tools are functions that the client runs"),
    NAME,
    DESCRIPTION,
    param("input_schema", Any, Yes, "the JSON schema of its arguments"),
    param("cache_control", Any, Harmless, "the cache finds common beginnings by itself"),
    STRICT,
    param("input_examples", Any, Harmless, "examples"),
    param("eager_input_streaming", Any, Harmless, "arguments come as they are said"),
    DEFER_LOADING,
    ALLOWED_CALLERS,
];

impl Tools {
    /// Reads `tools`, `tool_choice` and `parallel_tool_calls` as OpenAI means them; Ollama has the first of them.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let list = read_list(fields, |tool, path| {
            let mut tool = Fields::nested(tool, &[TOOL], path)?;
            let path = tool.path("function");
            let Some(Value::Object(function)) = tool.take("function") else {
                return Err(ApiError::value(path, "must be an object"));
            };
            let mut function = Fields::nested(function, &[FUNCTION], &path)?;
            read_tool(&mut function, "parameters")
        })?;
        Self::read_choice(list, fields, "/function/name")
    }

    /// Reads the same as responses have them, without a `function` around names.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub(crate) fn read_responses(fields: &mut Fields) -> Result<Self, ApiError> {
        let list = read_list(fields, |tool, path| {
            let mut tool = Fields::nested(tool, &[RESPONSES_TOOL], path)?;
            match tool.take("type") {
                Some(_) => read_tool(&mut tool, "parameters"),
                None => Err(ApiError::missing(tool.path("type"))),
            }
        })?;
        Self::read_choice(list, fields, "/name")
    }

    /// Reads the choice, in which `pointer` leads to the function's name.
    fn read_choice(list: Vec<Tool>, fields: &mut Fields, pointer: &str) -> Result<Self, ApiError> {
        let path = fields.path("tool_choice");
        let choice = match fields.take("tool_choice") {
            None => ToolChoice::Auto,
            Some(Value::String(word)) => match word.as_str() {
                "auto" => ToolChoice::Auto,
                "none" => ToolChoice::None,
                "required" => ToolChoice::Required,
                _ => return Err(ApiError::value(path, "must be auto, none, required or a function's name")),
            },
            Some(choice) => {
                match (choice["type"].as_str(), choice.pointer(pointer).and_then(Value::as_str)) {
                    (Some("function"), Some(name)) => ToolChoice::Named(name.to_owned()),
                    (Some("function") | None, _) => {
                        return Err(ApiError::missing(format!("{path}{}", pointer.replace('/', "."))));
                    }
                    (Some(other), _) => {
                        return Err(ApiError::unsupported(
                            format!("{path}.type"),
                            format!("it is {other:?}; name a function"),
                        ));
                    }
                }
            }
        };
        let parallel = fields.bool("parallel_tool_calls").unwrap_or(true);
        Self { list, choice, parallel }.check(&path)
    }

    /// Reads `tools` and `tool_choice` as Anthropic means them.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub(crate) fn read_anthropic(fields: &mut Fields) -> Result<Self, ApiError> {
        let list = read_list(fields, |tool, path| {
            read_tool(&mut Fields::nested(tool, &[ANTHROPIC_TOOL], path)?, "input_schema")
        })?;
        let path = fields.path("tool_choice");
        let Some(choice) = fields.take("tool_choice") else {
            return Self { list, ..Self::default() }.check(&path);
        };
        let parallel = match &choice["disable_parallel_tool_use"] {
            Value::Null => true,
            Value::Bool(disable) => !disable,
            other => {
                let problem = format!("must be true or false, not {}", shown(other));
                return Err(ApiError::value(format!("{path}.disable_parallel_tool_use"), problem));
            }
        };
        let choice = match (choice["type"].as_str(), choice["name"].as_str()) {
            (Some("auto"), _) => ToolChoice::Auto,
            (Some("none"), _) => ToolChoice::None,
            (Some("any"), _) => ToolChoice::Required,
            (Some("tool"), Some(name)) => ToolChoice::Named(name.to_owned()),
            (Some("tool"), None) => return Err(ApiError::missing(format!("{path}.name"))),
            _ => return Err(ApiError::value(format!("{path}.type"), "must be auto, any, tool or none")),
        };
        Self { list, choice, parallel }.check(&path)
    }

    fn check(self, path: &str) -> Result<Self, ApiError> {
        for (i, tool) in self.list.iter().enumerate() {
            if self.list[..i].iter().any(|other| other.name == tool.name) {
                return Err(ApiError::value("tools", format!("has two tools of the name {:?}", tool.name)));
            }
        }
        match &self.choice {
            ToolChoice::Required if self.list.is_empty() => {
                Err(ApiError::value(path, "asks for a call, but there are no `tools`"))
            }
            ToolChoice::Named(name) if !self.list.iter().any(|tool| tool.name == *name) => {
                Err(ApiError::value(path, format!("names {name:?}, which is none of the `tools`")))
            }
            _ => Ok(self),
        }
    }

    /// The tools that the model is told of: none where it may call none.
    #[must_use]
    pub fn offered(&self) -> &[Tool] {
        if self.choice == ToolChoice::None { &[] } else { &self.list }
    }
}

fn read_list(
    fields: &mut Fields,
    read: impl Fn(Map<String, Value>, &str) -> Result<Tool, ApiError>,
) -> Result<Vec<Tool>, ApiError> {
    let path = fields.path("tools");
    let tools = fields.list("tools").unwrap_or_default();
    if tools.len() > MOST_TOOLS {
        return Err(ApiError::value(
            path,
            format!("has {} tools, but at most {MOST_TOOLS} are taken", tools.len()),
        ));
    }
    let read = |(i, tool)| {
        let path = format!("{path}[{i}]");
        match tool {
            Value::Object(tool) => read(tool, &path),
            other => Err(ApiError::value(path, format!("must be an object, not {}", shown(&other)))),
        }
    };
    tools.into_iter().enumerate().map(read).collect()
}

fn read_tool(fields: &mut Fields, schema: &str) -> Result<Tool, ApiError> {
    let name = fields.text("name").unwrap_or_default();
    let is_plain = |c: char| c.is_alphanumeric() || "_-.:/".contains(c);
    if !(1..=MOST_NAME).contains(&name.chars().count()) || !name.chars().all(is_plain) {
        let problem = format!("must be 1 to {MOST_NAME} letters, digits or any of _ - . : /");
        return Err(ApiError::value(fields.path("name"), problem));
    }
    let path = fields.path(schema);
    let parameters = match fields.take(schema) {
        None => json!({"type": "object", "properties": {}}),
        Some(Value::Object(schema)) => {
            let is_object = |kind: &Value| kind == "object";
            let allows_objects = match &schema.get("type") {
                None | Some(Value::Null) => true,
                Some(Value::Array(kinds)) => kinds.iter().any(is_object),
                Some(kind) => is_object(kind),
            };
            if !allows_objects {
                return Err(ApiError::value(path, "must be a schema of objects, as arguments have names"));
            }
            Value::Object(schema)
        }
        Some(other) => {
            return Err(ApiError::value(path, format!("must be an object, not {}", shown(&other))));
        }
    };
    Ok(Tool { name, description: fields.text("description"), parameters })
}

/// The parameters of chat completions about tools.
pub(crate) static CHAT: &[Param] =
    &[param("tools", Items(TOOL), Yes, "functions that the model may call"), CHOICE, PARALLEL];
/// The same of responses.
pub(crate) static RESPONSES: &[Param] =
    &[param("tools", Items(RESPONSES_TOOL), Yes, "functions that the model may call"), CHOICE, PARALLEL];
const CHOICE: Param = param("tool_choice", Any, Yes, "auto, none, required, or the function to call");
const PARALLEL: Param = param("parallel_tool_calls", Bool, Yes, "false allows one call per answer");
