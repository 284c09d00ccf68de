//! Bodies of requests, checked against tables of parameters.
//!
//! Null counts as absent everywhere, as in OpenAI's own interface.

use serde_json::{Map, Value, json};

use crate::error::{ApiError, Code};

/// What a parameter may hold.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number, both ends included. A float without a fraction is one too.
    Integer(i64, i64),
    /// A number, both ends included.
    Number(f64, f64),
    /// A string.
    Text,
    /// A string, or a list of at most so many.
    Texts(usize),
    /// A list.
    List,
    /// An object.
    Object,
    /// An object of these fields, which the reader of the request checks by this table.
    Fields(&'static [Param]),
    /// A list of such objects.
    Items(&'static [Param]),
    /// A list of token ids.
    Ids,
    /// One of these strings.
    Word(&'static [&'static str]),
    /// What a message says: a string, or a list of parts with text.
    Content,
    /// The reader of the request decides.
    Any,
}

/// What becomes of a parameter.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// It does what it says.
    Yes,
    /// It does, and a request without it is refused.
    Required,
    /// It is right to do nothing: it labels the request, or asks for what always holds.
    Harmless,
    /// Only these values, as JSON, which change nothing; another one is refused.
    Only(&'static [&'static str]),
}

/// A parameter of a request.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Param {
    /// The field's name.
    pub name: &'static str,
    /// What it holds.
    pub kind: Kind,
    /// What becomes of it.
    pub support: Support,
    /// What it does; of an unsupported one, what to do instead.
    pub about: &'static str,
}

/// A table of parameters.
pub type Params = &'static [Param];

/// One line of a table.
#[must_use]
pub const fn param(name: &'static str, kind: Kind, support: Support, about: &'static str) -> Param {
    Param { name, kind, support, about }
}

/// A request's fields after the check: every one has the type and range that its table says.
#[derive(Debug, Clone)]
pub struct Fields {
    fields: Map<String, Value>,
    /// Fields that no table knows.
    unknown: Vec<String>,
    path: String,
}

impl Fields {
    /// Reads the body of a request.
    ///
    /// # Errors
    /// If it is no JSON object, or a parameter is missing, of the wrong type, out of range or not supported.
    pub fn parse(body: &[u8], tables: &[Params]) -> Result<Self, ApiError> {
        let value: Value = serde_json::from_slice(body)
            .map_err(|e| ApiError::new(Code::InvalidJson, format!("the body is no valid JSON: {e}")))?;
        match value {
            Value::Object(fields) => Self::check(fields, tables, String::new()),
            _ => Err(ApiError::new(Code::InvalidJson, "the body must be a JSON object")),
        }
    }

    /// Reads a query, whose values are texts: a number or `true` among them is what the table says it is.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn query(pairs: &[(String, String)], tables: &[Params]) -> Result<Self, ApiError> {
        let typed = |(name, text): &(String, String)| {
            let kind = tables.iter().copied().flatten().find(|p| p.name == name).map(|p| (p.kind, p.support));
            let value = match kind {
                Some((Kind::Text | Kind::Texts(_) | Kind::Word(_), Support::Yes | Support::Required))
                | None => None,
                Some(_) => serde_json::from_str(text).ok(),
            };
            (name.clone(), value.unwrap_or_else(|| text.as_str().into()))
        };
        Self::check(pairs.iter().map(typed).collect(), tables, String::new())
    }

    /// Checks an object within a request; `path` is where it stands.
    ///
    /// # Errors
    /// As [`Self::parse`].
    pub fn nested(fields: Map<String, Value>, tables: &[Params], path: &str) -> Result<Self, ApiError> {
        Self::check(fields, tables, format!("{path}."))
    }

    fn check(mut fields: Map<String, Value>, tables: &[Params], path: String) -> Result<Self, ApiError> {
        fields.retain(|_, value| !value.is_null());
        let mut unknown = Vec::new();
        let find = |name: &str| tables.iter().copied().flatten().find(|p| p.name == name);
        for (name, value) in &fields {
            match find(name) {
                Some(param) => param.check(value, &format!("{path}{name}"))?,
                None => unknown.push(format!("{path}{name}")),
            }
        }
        // What was not checked is never read.
        fields.retain(|name, _| find(name).is_some());
        let missing = tables
            .iter()
            .copied()
            .flatten()
            .find(|param| param.support == Support::Required && !fields.contains_key(param.name));
        match missing {
            Some(param) => Err(ApiError::missing(format!("{path}{}", param.name))),
            None => Ok(Self { fields, unknown, path }),
        }
    }

    /// The path of a field, for errors.
    #[must_use]
    pub fn path(&self, name: &str) -> String {
        format!("{}{name}", self.path)
    }

    /// The fields that no table knows, as paths.
    #[must_use]
    pub fn unknown(&self) -> &[String] {
        &self.unknown
    }

    /// A field as it was sent.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.fields.get(name)
    }

    /// Takes a field out.
    pub fn take(&mut self, name: &str) -> Option<Value> {
        self.fields.remove(name)
    }

    /// A [`Kind::Bool`].
    #[must_use]
    pub fn bool(&self, name: &str) -> Option<bool> {
        self.fields.get(name)?.as_bool()
    }

    /// A [`Kind::Integer`].
    #[must_use]
    pub fn integer(&self, name: &str) -> Option<i64> {
        integer(self.fields.get(name)?)
    }

    /// A [`Kind::Integer`] whose range has no negative numbers.
    #[must_use]
    pub fn count(&self, name: &str) -> Option<usize> {
        usize::try_from(self.integer(name)?).ok()
    }

    /// A [`Kind::Number`].
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "settings are f32; ranges are far within it")]
    pub fn number(&self, name: &str) -> Option<f32> {
        Some(self.fields.get(name)?.as_f64()? as f32)
    }

    /// A [`Kind::Text`].
    pub fn text(&mut self, name: &str) -> Option<String> {
        match self.take(name)? {
            Value::String(text) => Some(text),
            _ => None,
        }
    }

    /// A [`Kind::Texts`].
    pub fn texts(&mut self, name: &str) -> Vec<String> {
        match self.take(name) {
            Some(Value::String(text)) => vec![text],
            Some(Value::Array(items)) => items
                .into_iter()
                .filter_map(|item| match item {
                    Value::String(text) => Some(text),
                    _ => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    /// A [`Kind::List`].
    pub fn list(&mut self, name: &str) -> Option<Vec<Value>> {
        match self.take(name)? {
            Value::Array(items) => Some(items),
            _ => None,
        }
    }

    /// A [`Kind::Object`].
    pub fn object(&mut self, name: &str) -> Option<Map<String, Value>> {
        match self.take(name)? {
            Value::Object(fields) => Some(fields),
            _ => None,
        }
    }
}

/// A whole number that fits.
#[expect(clippy::cast_possible_truncation, reason = "checked to be whole and within 2^53")]
fn integer(value: &Value) -> Option<i64> {
    let whole = |x: &f64| x.fract() == 0.0 && x.abs() <= 9_007_199_254_740_992.0;
    value.as_i64().or_else(|| value.as_f64().filter(whole).map(|x| x as i64))
}

impl Param {
    fn check(&self, value: &Value, path: &str) -> Result<(), ApiError> {
        if let Support::Only(allowed) = self.support {
            let is_neutral = |text: &&str| serde_json::from_str::<Value>(text).is_ok_and(|v| v == *value);
            return match allowed.iter().any(is_neutral) {
                true => Ok(()),
                false => Err(ApiError::unsupported(path, self.about)),
            };
        }
        let wrong =
            |wanted: &str| Err(ApiError::value(path, format!("must be {wanted}, not {}", shown(value))));
        match self.kind {
            Kind::Bool if !value.is_boolean() => wrong("true or false"),
            Kind::Text if !value.is_string() => wrong("a string"),
            Kind::List | Kind::Items(_) | Kind::Ids if !value.is_array() => wrong("a list"),
            Kind::Object | Kind::Fields(_) if !value.is_object() => wrong("an object"),
            Kind::Word(words) if !words.iter().any(|word| value == word) => {
                wrong(&format!("one of {}", words.join(", ")))
            }
            Kind::Integer(low, high) if !integer(value).is_some_and(|n| (low..=high).contains(&n)) => {
                wrong(&format!("a whole number from {low} to {high}"))
            }
            Kind::Number(low, high) if !value.as_f64().is_some_and(|x| (low..=high).contains(&x)) => {
                wrong(&format!("a number from {low} to {high}"))
            }
            Kind::Texts(most) => match value {
                Value::String(_) => Ok(()),
                Value::Array(items) if items.len() > most => Err(ApiError::value(
                    path,
                    format!("has {} strings, but at most {most} are taken", items.len()),
                )),
                Value::Array(items) if items.iter().all(Value::is_string) => Ok(()),
                _ => wrong("a string or a list of strings"),
            },
            _ => Ok(()),
        }
    }

    /// Its JSON schema.
    #[must_use]
    pub fn schema(&self) -> Value {
        let mut schema = match self.kind {
            Kind::Fields(table) => schema(&[table]),
            Kind::Items(table) => json!({"type": "array", "items": schema(&[table])}),
            Kind::Ids => json!({"type": "array", "items": {"type": "integer", "minimum": 0}}),
            Kind::Word(words) => json!({"type": "string", "enum": words}),
            Kind::Content => json!({"anyOf": [
                {"type": "string"}, {"type": "array", "items": {"type": "object", "required": ["type"]}},
            ]}),
            Kind::Bool => json!({"type": "boolean"}),
            Kind::Integer(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
            Kind::Number(low, high) => json!({"type": "number", "minimum": low, "maximum": high}),
            Kind::Text => json!({"type": "string"}),
            Kind::Texts(most) => json!({"anyOf": [
                {"type": "string"}, {"type": "array", "items": {"type": "string"}, "maxItems": most},
            ]}),
            Kind::List => json!({"type": "array", "items": {}}),
            Kind::Object => json!({"type": "object"}),
            Kind::Any => json!({}),
        };
        if let Support::Only(allowed) = self.support {
            let values = allowed.iter().filter_map(|text| serde_json::from_str::<Value>(text).ok());
            schema = json!({"enum": values.collect::<Vec<_>>()});
        }
        if self.support != Support::Required {
            allow_null(&mut schema);
        }
        schema["description"] = self.about.into();
        schema
    }
}

/// Lets a schema take null too, which counts as absent.
fn allow_null(schema: &mut Value) {
    if let Some(kind) = schema.get("type").cloned() {
        schema["type"] = json!([kind, "null"]);
    }
    if let Some(Value::Array(options)) = schema.get_mut("anyOf") {
        options.push(json!({"type": "null"}));
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.push(Value::Null);
    }
}

/// The JSON schema of a body.
#[must_use]
pub fn schema(tables: &[Params]) -> Value {
    let params = || tables.iter().copied().flatten();
    let properties: Map<String, Value> = params().map(|p| (p.name.to_owned(), p.schema())).collect();
    let required: Vec<&str> = params().filter(|p| p.support == Support::Required).map(|p| p.name).collect();
    json!({"type": "object", "properties": properties, "required": required})
}

/// A value for an error message: its text if that is short, else its type.
pub(crate) fn shown(value: &Value) -> String {
    match value {
        Value::Array(_) => "a list".into(),
        Value::Object(_) => "an object".into(),
        Value::String(text) if text.chars().count() > 40 => "a string".into(),
        short => short.to_string(),
    }
}
