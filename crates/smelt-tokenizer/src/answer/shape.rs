//! What calls look like, for a grammar that holds an answer to them.

use serde_json::{Map, Value, json};

use super::formats::{CallFormat, Marks, NONE, Syntax, Tags, Unmarked, head};
use super::tools::{Tool, ToolSet};

/// A set of texts.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// This text; a control token in it is one.
    Text(String),
    /// This text, letter by letter: a control token in it is none.
    Letters(String),
    /// What a regular expression matches.
    Pattern(String),
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

use Shape::{Json, Letters, OneOf, Optional, Pattern, Sequence, Several, Text, Until};

impl CallFormat {
    /// The texts that are calls of these tools, and nothing else: one call, or several.
    #[must_use]
    pub fn shape(&self, tools: &ToolSet, one_call: bool) -> Shape {
        let unit = self.one_shape(tools, one_call);
        if one_call || !self.section.0.is_empty() || self.syntaxes[0].is_list() {
            return unit;
        }
        let gap = (!self.gap.is_empty()).then(|| Optional(Box::new(text(self.gap))));
        let next = Sequence(gap.into_iter().chain([unit.clone()]).collect());
        Several(Box::new(unit), Box::new(next))
    }

    /// What begins with one of [`Self::triggers`]: a call, or a section or list of calls.
    #[must_use]
    pub fn one_shape(&self, tools: &ToolSet, one_call: bool) -> Shape {
        let marked = (!self.mark().is_empty()).then_some(self.call);
        let unmarked = (self.unmarked != Unmarked::Never).then_some(NONE);
        let units = [marked, unmarked].into_iter().flatten();
        OneOf(units.map(|marks| self.unit(tools, one_call, marks)).collect())
    }

    /// A call between these marks, or a section or list of calls.
    fn unit(&self, tools: &ToolSet, one_call: bool, marks: Marks) -> Shape {
        let gap = self.gap;
        let several = |shape: Shape, between: &str| if one_call { shape } else { several(shape, between) };
        let call = OneOf(tools.tools().iter().map(|tool| self.syntaxes[0].shape(tool)).collect());
        let body = match self.syntaxes[0].is_list() {
            true => Sequence(vec![text("["), several(call, ", "), text("]")]),
            false => call,
        };
        match self.section {
            ("", _) => between(marks, gap, body),
            section => between(section, gap, several(between(marks, gap, body), gap)),
        }
    }
}

/// A mark, in control tokens or letter by letter.
fn mark(mark: &str) -> [Shape; 2] {
    [text(mark), Letters(mark.to_owned())]
}

/// What stands between marks, with or without the family's white space within them.
fn between((open, close): Marks, gap: &str, body: Shape) -> Shape {
    let mut parts = Vec::new();
    if !open.is_empty() {
        parts.push(OneOf(mark(open).into()));
        // Where no mark closes, the family writes no white space behind the opening one either.
        parts.extend((!gap.is_empty() && !close.is_empty()).then(|| Optional(Box::new(text(gap)))));
    }
    parts.push(body);
    if !close.is_empty() {
        // Of one piece with the mark: the lexer must tell it from the gap in front of a next call.
        let mut closings = mark(&[gap, close].concat()).to_vec();
        closings.extend((!gap.is_empty()).then(|| mark(close)).into_iter().flatten());
        parts.push(OneOf(closings));
    }
    Sequence(parts)
}

fn several(shape: Shape, between: &str) -> Shape {
    Several(Box::new(shape.clone()), Box::new(shape.behind(between)))
}

impl Syntax {
    /// Whether a list holds all calls.
    fn is_list(&self) -> bool {
        matches!(self, Self::Json { list: true, .. } | Self::Python)
    }

    fn shape(&self, tool: &Tool) -> Shape {
        let name = &tool.name;
        let arguments = || Json(object(&tool.parameters));
        match self {
            Self::Json { keys, .. } => Sequence(vec![text(&head(*keys, name)), arguments(), text("}")]),
            Self::Named { before, id, between, after } => {
                let between = match id.1 {
                    "" => text(between),
                    pattern => {
                        let numbered = Sequence(vec![text(id.0), Pattern(pattern.to_owned()), text(between)]);
                        OneOf(vec![text(between), numbered])
                    }
                };
                Sequence(vec![text(&[before, name.as_str()].concat()), between, arguments(), text(after)])
            }
            Self::Tagged(tags) => tagged(tool, tags),
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

fn tagged(tool: &Tool, tags: &Tags) -> Shape {
    let Tags { name, key, kinds, value, end } = tags;
    let argument = |(name, schema, is_required): &Argument<'_>| {
        let kind = if strings(schema) { kinds.0 } else { kinds.1 };
        let head = text(&[key.0, name, key.1, kind, value.0].concat());
        let tag = Sequence(vec![head, plain(schema, value.1, true), text("\n")]);
        if *is_required { tag } else { Optional(Box::new(tag)) }
    };
    let mut parts = vec![text(&[name.0, &tool.name, name.1, "\n"].concat())];
    parts.extend(arguments_of(tool).iter().map(argument));
    parts.push(text(end));
    Sequence(parts)
}

impl Shape {
    /// This, with a text in front that is of one piece with its own: a lexer that has begun with one text can't take up
    /// another one in its middle.
    fn behind(self, text: &str) -> Self {
        match self {
            Text(own) => Text([text, &own].concat()),
            Letters(own) => Letters([text, &own].concat()),
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

/// A value as plain text up to `close`, by its schema; lines of its own may hold it, where the notation has them.
fn plain(schema: &Value, close: &str, has_lines: bool) -> Shape {
    let line = || has_lines.then(|| Optional(Box::new(text("\n"))));
    let value = match (strings(schema), &schema["enum"]) {
        (true, Value::Array(values)) if values.iter().all(Value::is_string) => {
            OneOf(values.iter().map(|value| text(value.as_str().unwrap_or_default())).collect())
        }
        (true, _) => return Until(close.to_owned()),
        (false, _) => Json(schema.clone()),
    };
    Sequence(line().into_iter().chain([value]).chain(line()).chain([text(close)]).collect())
}

fn braced(schema: &Value, quote: &str) -> Shape {
    match strings(schema) {
        true => Sequence(vec![text(quote), plain(schema, quote, false)]),
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
