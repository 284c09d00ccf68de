//! What an answer must look like, under the names of OpenAI, vLLM, llama.cpp, SGLang, Anthropic and Ollama.

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::params::{self, Kind, Param, Support, param, shown};

use Kind::{Any, Bool, Fields, Text, Word};
use Support::{Harmless, Only, Required, Yes};

/// What an answer must look like, and the parameter that says so.
#[derive(Debug, Clone, PartialEq)]
pub struct Structure {
    /// Where it stands in the request.
    pub param: String,
    /// What it is.
    pub form: Form,
}

/// The forms of what an answer must look like.
#[derive(Debug, Clone, PartialEq)]
pub enum Form {
    /// Any JSON object.
    JsonObject,
    /// A value that a JSON schema allows.
    Schema(Value),
    /// A text that a regular expression matches.
    Regex(String),
    /// One of several texts.
    Choice(Vec<String>),
    /// A grammar, as GBNF or Lark.
    Grammar(String),
}

/// The parameters of OpenAI's routes.
pub static STRUCTURE: &[Param] = &[
    param(
        "response_format",
        Fields(RESPONSE_FORMAT),
        Yes,
        "`text`, `json_object`, or `json_schema` with a schema, which is always enforced",
    ),
    param(
        "structured_outputs",
        Fields(STRUCTURED_OUTPUTS),
        Yes,
        "vLLM's: one of `json`, `regex`, `choice`, `grammar`, `json_object`",
    ),
    param("guided_json", Any, Yes, "a JSON schema, or its text"),
    param("guided_regex", Text, Yes, "a regular expression that matches the whole answer"),
    param("guided_choice", Any, Yes, "texts, of which the answer is one"),
    param("guided_grammar", Text, Yes, "a grammar, in GBNF or Lark"),
    param("json_schema", Any, Yes, "a JSON schema"),
    param("grammar", Text, Yes, "a grammar, in GBNF or Lark"),
    param("regex", Text, Yes, "a regular expression that matches the whole answer"),
    param("ebnf", Text, Yes, "a grammar, in GBNF or Lark"),
    param("grammar_lazy", Any, Only(&["false"]), "a grammar holds from the answer's beginning"),
    param("guided_decoding_backend", Any, Harmless, "there is one, and it enforces what it accepts"),
    param(
        "guided_whitespace_pattern",
        Any,
        Only(&[]),
        "a space or an indented line stands between JSON's tokens",
    ),
    param("structural_tag", Any, Only(&[]), "use a grammar"),
];

/// What an answer may be in OpenAI's words.
const FORMATS: &[&str] = &["text", "json_object", "json_schema"];

static RESPONSE_FORMAT: &[Param] = &[
    param("type", Word(FORMATS), Required, "what it is"),
    param("json_schema", Fields(JSON_SCHEMA), Yes, "the schema, with a name"),
    param("schema", Any, Yes, "the schema, as llama.cpp has it"),
];

pub(crate) static TEXT: &[Param] = &[
    param("format", Fields(TEXT_FORMAT), Yes, "`text`, `json_object`, or `json_schema` with a schema"),
    param("verbosity", Any, Only(&["\"medium\""]), "ask for it in the instructions"),
];

static TEXT_FORMAT: &[Param] = &[
    param("type", Word(FORMATS), Required, "what it is"),
    param("name", Any, Harmless, "labels the schema"),
    param("description", Any, Harmless, "labels the schema"),
    param("strict", Bool, Harmless, "a schema is always enforced"),
    param("schema", Any, Yes, "the schema"),
];

static JSON_SCHEMA: &[Param] = &[
    param("name", Any, Harmless, "labels the schema"),
    param("description", Any, Harmless, "labels the schema"),
    param("strict", Bool, Harmless, "a schema is always enforced"),
    param("schema", Any, Required, "the schema"),
];

static STRUCTURED_OUTPUTS: &[Param] = &[
    param("json", Any, Yes, "a JSON schema, or its text"),
    param("regex", Text, Yes, "a regular expression that matches the whole answer"),
    param("choice", Any, Yes, "texts, of which the answer is one"),
    param("grammar", Text, Yes, "a grammar, in GBNF or Lark"),
    param("json_object", Bool, Yes, "any JSON object"),
    param("structural_tag", Any, Only(&[]), "use a grammar"),
    param("disable_fallback", Any, Harmless, "there is no fallback"),
    param(
        "disable_any_whitespace",
        Any,
        Only(&["false"]),
        "a space or an indented line stands between JSON's tokens",
    ),
    param("disable_additional_properties", Any, Only(&["false"]), "say so in the schema"),
    param("whitespace_pattern", Any, Only(&[]), "a space or an indented line stands between JSON's tokens"),
];

pub(crate) static OUTPUT_CONFIG: &[Param] = &[
    param("format", Fields(OUTPUT_FORMAT), Yes, "the form of the answer"),
    param("effort", Text, Yes, "how much to think: low, medium, high, xhigh, max"),
];

pub(crate) static OUTPUT_FORMAT: &[Param] = &[
    param("type", Word(&["json_schema"]), Required, "what it is"),
    param("schema", Any, Required, "the schema"),
    param("name", Any, Harmless, "labels the schema"),
];

/// How a parameter's value is read.
type Read = fn(Value, &str) -> Result<Option<Form>, ApiError>;

/// The parameters that hold a form themselves, outside and inside of `structured_outputs`.
const PLAIN: &[(&str, Read)] = &[
    ("guided_json", schema),
    ("guided_regex", regex),
    ("guided_choice", choice),
    ("guided_grammar", grammar),
    ("json_schema", schema),
    ("grammar", grammar),
    ("regex", regex),
    ("ebnf", grammar),
];
const NESTED: &[(&str, Read)] = &[
    ("json", schema),
    ("regex", regex),
    ("choice", choice),
    ("grammar", grammar),
    ("json_object", json_object),
];

impl Structure {
    /// Takes what [`STRUCTURE`] names out of a request.
    ///
    /// # Errors
    /// If a value is malformed, or the answer must look like two things at once.
    pub fn read(fields: &mut params::Fields) -> Result<Option<Self>, ApiError> {
        Self::read_beside(Vec::new(), fields)
    }

    /// The same, and the `text` of responses.
    ///
    /// # Errors
    /// As [`Self::read`].
    pub(crate) fn read_responses(fields: &mut params::Fields) -> Result<Option<Self>, ApiError> {
        let mut found = Vec::new();
        if let Some(text) = fields.object("text") {
            let mut text = params::Fields::nested(text, &[TEXT], "text")?;
            if let Some(format) = text.object("format") {
                found.extend(text_format(params::Fields::nested(format, &[TEXT_FORMAT], "text.format")?)?);
            }
        }
        Self::read_beside(found, fields)
    }

    fn read_beside(mut found: Vec<Self>, fields: &mut params::Fields) -> Result<Option<Self>, ApiError> {
        if let Some(format) = fields.object("response_format") {
            found.extend(response_format(format)?);
        }
        if let Some(outputs) = fields.object("structured_outputs") {
            let mut outputs = params::Fields::nested(outputs, &[STRUCTURED_OUTPUTS], "structured_outputs")?;
            take(&mut outputs, NESTED, &mut found)?;
        }
        take(fields, PLAIN, &mut found)?;
        match found.as_slice() {
            [first, second, ..] => Err(ApiError::value(
                second.param.clone(),
                format!("can't be had together with `{}`", first.param),
            )),
            _ => Ok(found.pop()),
        }
    }

    /// Reads Anthropic's `output_config`, or the older `output_format`.
    ///
    /// # Errors
    /// If they are malformed.
    pub fn read_anthropic(fields: &mut params::Fields) -> Result<Option<Self>, ApiError> {
        let newer = match fields.object("output_config") {
            Some(config) => {
                params::Fields::nested(config, &[OUTPUT_CONFIG], "output_config")?.object("format")
            }
            None => None,
        };
        let (format, path) = match (newer, fields.object("output_format")) {
            (None, None) => return Ok(None),
            (Some(format), None) => (format, "output_config.format"),
            (None, Some(format)) => (format, "output_format"),
            (Some(_), Some(_)) => {
                let problem = "can't be had together with `output_config.format`";
                return Err(ApiError::value("output_format", problem));
            }
        };
        let mut format = params::Fields::nested(format, &[OUTPUT_FORMAT], path)?;
        let form = Form::Schema(format.take("schema").unwrap_or_default());
        Ok(Some(Self { param: format.path("schema"), form }))
    }

    /// Reads Ollama's `format`: `"json"`, or a schema.
    ///
    /// # Errors
    /// If it is neither.
    pub fn read_format(fields: &mut params::Fields) -> Result<Option<Self>, ApiError> {
        let Some(value) = fields.take("format") else { return Ok(None) };
        let param = "format".to_owned();
        match value {
            Value::String(text) if text.is_empty() => Ok(None),
            Value::String(text) if text == "json" => Ok(Some(Self { param, form: Form::JsonObject })),
            Value::Object(_) => Ok(Some(Self { param, form: Form::Schema(value) })),
            other => {
                Err(ApiError::value(param, format!("must be \"json\" or a schema, not {}", shown(&other))))
            }
        }
    }
}

fn take(
    fields: &mut params::Fields,
    readers: &[(&str, Read)],
    found: &mut Vec<Structure>,
) -> Result<(), ApiError> {
    for (name, read) in readers {
        let Some(value) = fields.take(name) else { continue };
        let param = fields.path(name);
        found.extend(read(value, &param)?.map(|form| Structure { param, form }));
    }
    Ok(())
}

fn response_format(format: Map<String, Value>) -> Result<Option<Structure>, ApiError> {
    let mut format = params::Fields::nested(format, &[RESPONSE_FORMAT], "response_format")?;
    let kind = format.text("type").unwrap_or_default();
    let own = format.take("schema").map(|schema| ("response_format.schema", schema));
    let path = "response_format.json_schema";
    if kind != "json_schema" && format.get("json_schema").is_some() {
        return Err(ApiError::value(path, "is only for the type json_schema"));
    }
    if own.is_some() && format.get("json_schema").is_some() {
        return Err(ApiError::value(path, "can't be had together with `response_format.schema`"));
    }
    let (param, form) = match (kind.as_str(), own) {
        ("text", None) => return Ok(None),
        ("text", Some((param, _))) => return Err(ApiError::value(param, "is not for the type text")),
        ("json_object", None) => ("response_format", Form::JsonObject),
        ("json_object" | "json_schema", Some((param, schema))) => (param, Form::Schema(schema)),
        ("json_schema", None) => {
            let schema = format.object("json_schema");
            let schema = schema.ok_or_else(|| ApiError::missing(path))?;
            let mut schema = params::Fields::nested(schema, &[JSON_SCHEMA], path)?;
            ("response_format.json_schema.schema", Form::Schema(schema.take("schema").unwrap_or_default()))
        }
        // The table knows these three.
        _ => return Ok(None),
    };
    Ok(Some(Structure { param: param.into(), form }))
}

fn text_format(mut format: params::Fields) -> Result<Option<Structure>, ApiError> {
    let kind = format.text("type").unwrap_or_default();
    let (param, form) = match (kind.as_str(), format.take("schema")) {
        ("text", None) => return Ok(None),
        ("json_object", None) => ("text.format", Form::JsonObject),
        ("json_schema", Some(schema)) => ("text.format.schema", Form::Schema(schema)),
        ("json_schema", None) => return Err(ApiError::missing("text.format.schema")),
        ("text" | "json_object", Some(_)) => {
            return Err(ApiError::value("text.format.schema", "is only for the type json_schema"));
        }
        // The table knows these three.
        _ => return Ok(None),
    };
    Ok(Some(Structure { param: param.into(), form }))
}

/// A schema, or the text of one.
fn schema(value: Value, param: &str) -> Result<Option<Form>, ApiError> {
    match value {
        Value::String(text) => {
            let problem = |e| ApiError::value(param, format!("is no valid JSON: {e}"));
            serde_json::from_str(&text).map(|schema| Some(Form::Schema(schema))).map_err(problem)
        }
        value => Ok(Some(Form::Schema(value))),
    }
}

fn regex(value: Value, _: &str) -> Result<Option<Form>, ApiError> {
    Ok(value.as_str().map(|text| Form::Regex(text.to_owned())))
}

/// A grammar; an empty one is none, as in llama.cpp.
fn grammar(value: Value, _: &str) -> Result<Option<Form>, ApiError> {
    Ok(value.as_str().filter(|text| !text.is_empty()).map(|text| Form::Grammar(text.to_owned())))
}

fn choice(value: Value, param: &str) -> Result<Option<Form>, ApiError> {
    let texts = value
        .as_array()
        .and_then(|texts| texts.iter().map(|text| text.as_str().map(str::to_owned)).collect());
    match texts {
        Some(texts) => Ok(Some(Form::Choice(texts))),
        None => Err(ApiError::value(param, format!("must be a list of strings, not {}", shown(&value)))),
    }
}

fn json_object(value: Value, _: &str) -> Result<Option<Form>, ApiError> {
    Ok((value == Value::Bool(true)).then_some(Form::JsonObject))
}
