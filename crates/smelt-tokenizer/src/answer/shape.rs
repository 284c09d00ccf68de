//! What calls look like, for a grammar that holds an answer to them.

use serde_json::{Map, Value, json};

use super::formats::{CallFormat, Syntax, Tags};
use super::tools::{Tool, ToolSet};

/// A set of texts.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// This text; a control token in it is one.
    Text(String),
    /// A JSON value by this schema.
    Json(Value),
    /// Any text, up to this one.
    Until(String),
    /// One after the other.
    Sequence(Vec<Shape>),
    /// One of them.
    OneOf(Vec<Shape>),
    /// This, or nothing.
    Optional(Box<Shape>),
    /// The first, and then any number of the second.
    Several(Box<Shape>, Box<Shape>),
}

use Shape::{Json, OneOf, Optional, Sequence, Several, Text, Until};

impl CallFormat {
    /// The texts that are calls of these tools: one call, or several.
    #[must_use]
    pub fn shape(&self, tools: &ToolSet, one_call: bool) -> Shape {
        let gap = self.gap;
        let (open, close) = self.written_marks();
        let marked = |body: Shape| match (open, close) {
            ("", "") => body,
            (_, "") => Sequence(vec![text(open), body]),
            _ => Sequence(vec![text(&[open, gap].concat()), body, text(&[gap, close].concat())]),
        };
        let several = |shape: Shape, between: &str| match one_call {
            true => shape,
            false => Several(Box::new(shape.clone()), Box::new(shape.behind(between))),
        };
        let call = OneOf(tools.tools().iter().map(|tool| self.syntaxes[0].shape(tool)).collect());
        let calls = match self.syntaxes[0] {
            Syntax::Json { list: true, .. } | Syntax::Python => {
                marked(Sequence(vec![text("["), several(call, ", "), text("]")]))
            }
            _ => several(marked(call), gap),
        };
        match self.section {
            ("", _) => calls,
            (open, close) => Sequence(vec![text(&[open, gap].concat()), calls, text(&[gap, close].concat())]),
        }
    }
}

impl Syntax {
    fn shape(&self, tool: &Tool) -> Shape {
        let name = &tool.name;
        let arguments = || Json(object(&tool.parameters));
        match self {
            Self::Json { keys: ("", _), .. } => {
                Sequence(vec![text(&format!("{{\"{name}\": ")), arguments(), text("}")])
            }
            Self::Json { keys, .. } => {
                let head = format!("{{\"{}\": \"{name}\", \"{}\": ", keys.0, keys.1);
                Sequence(vec![text(&head), arguments(), text("}")])
            }
            Self::Named { before, between, after } => {
                Sequence(vec![text(&[before, name.as_str(), between].concat()), arguments(), text(after)])
            }
            Self::Tagged(Tags { name: around, key, value, end }) => {
                let argument = |(name, schema, _): &Argument<'_>| {
                    let head = text(&[key.0, name, key.1, value.0].concat());
                    let value = Sequence(vec![plain(schema, value.1), text("\n")]);
                    Sequence(vec![head, value])
                };
                let optional = |argument: &Argument<'_>, shape| match argument.2 {
                    true => shape,
                    false => Optional(Box::new(shape)),
                };
                let all = arguments_of(tool);
                let mut parts = vec![text(&[around.0, name, around.1, "\n"].concat())];
                parts.extend(all.iter().map(|a| optional(a, argument(a))));
                parts.push(text(end));
                Sequence(parts)
            }
            Self::Python => {
                let argument = |(name, schema, _): &Argument<'_>| {
                    Sequence(vec![text(&format!("{name}=")), Json((*schema).clone())])
                };
                Sequence(vec![
                    text(&format!("{name}(")),
                    separated(&arguments_of(tool), ", ", argument),
                    text(")"),
                ])
            }
            Self::Braces { quotes } => {
                let argument = |(name, schema, _): &Argument<'_>| {
                    Sequence(vec![text(&format!("{name}:")), braced(schema, quotes[0])])
                };
                let arguments = separated(&arguments_of(tool), ",", argument);
                Sequence(vec![text(&format!("call:{name}{{")), arguments, text("}")])
            }
        }
    }
}

impl Shape {
    /// This, with a text in front that is of one piece with its own: a lexer that has begun with one text can't take up
    /// another one in its middle.
    fn behind(self, text: &str) -> Self {
        match self {
            Text(own) => Text([text, &own].concat()),
            OneOf(options) => OneOf(options.into_iter().map(|option| option.behind(text)).collect()),
            Sequence(mut parts) if !parts.is_empty() => {
                let first = parts.remove(0).behind(text);
                parts.insert(0, first);
                Sequence(parts)
            }
            other => Sequence(vec![Text(text.to_owned()), other]),
        }
    }
}

fn text(text: &str) -> Shape {
    Text(text.to_owned())
}

/// An argument's name, its schema, and whether it must be there.
type Argument<'a> = (&'a String, &'a Value, bool);

/// The arguments of a tool, those that must be there first.
fn arguments_of(tool: &Tool) -> Vec<Argument<'_>> {
    let required = tool.parameters["required"].as_array().map_or(&[][..], Vec::as_slice);
    let is_required = |name: &String| required.iter().any(|r| r.as_str() == Some(name));
    let properties = tool.parameters["properties"].as_object();
    let all = properties.into_iter().flatten().map(|(name, schema)| (name, schema, is_required(name)));
    let (mut first, rest): (Vec<Argument<'_>>, Vec<Argument<'_>>) = all.partition(|(.., required)| *required);
    first.extend(rest);
    first
}

/// Arguments with a text between. Where none must be there, any of them may be the first.
fn separated(arguments: &[Argument<'_>], between: &str, shape: impl Fn(&Argument<'_>) -> Shape) -> Shape {
    let behind = |argument: &Argument<'_>| {
        let part = Sequence(vec![text(between), shape(argument)]);
        if argument.2 { part } else { Optional(Box::new(part)) }
    };
    let from = |i: usize| {
        let rest = arguments[i + 1..].iter().map(behind);
        Sequence(std::iter::once(shape(&arguments[i])).chain(rest).collect())
    };
    match arguments.first() {
        None => text(""),
        Some((.., true)) => from(0),
        Some(_) => Optional(Box::new(OneOf((0..arguments.len()).map(from).collect()))),
    }
}

/// A value as plain text up to `close`, by its schema.
fn plain(schema: &Value, close: &str) -> Shape {
    match (strings(schema), &schema["enum"]) {
        (true, Value::Array(values)) if values.iter().all(Value::is_string) => {
            let value = |value: &Value| text(value.as_str().unwrap_or_default());
            Sequence(vec![OneOf(values.iter().map(value).collect()), text(close)])
        }
        (true, _) => Until(close.to_owned()),
        (false, _) => Sequence(vec![Json(schema.clone()), text(close)]),
    }
}

fn braced(schema: &Value, quote: &str) -> Shape {
    match strings(schema) {
        true => Sequence(vec![text(quote), plain(schema, quote)]),
        false => Json(schema.clone()),
    }
}

/// Whether a value by this schema is a string, or may be one.
fn strings(schema: &Value) -> bool {
    let is_string = |kind: &Value| kind.as_str() == Some("string");
    let listed = |name: &str| schema[name].as_array().is_some_and(|all| all.iter().any(strings));
    let constants = schema["enum"].as_array().is_some_and(|all| all.iter().all(Value::is_string));
    match &schema["type"] {
        Value::Array(kinds) => kinds.iter().any(is_string),
        Value::Null => constants || listed("anyOf") || listed("oneOf"),
        kind => is_string(kind),
    }
}

/// A schema of arguments, which are an object whether it says so or not.
fn object(schema: &Value) -> Value {
    let mut schema = schema.clone();
    match schema.as_object_mut().filter(|fields| !fields.contains_key("type")) {
        Some(fields) => {
            let mut typed = Map::new();
            typed.insert("type".to_owned(), json!("object"));
            typed.append(fields);
            typed.into()
        }
        None => schema,
    }
}
