//! Answers are read as every family writes them.

mod calls;
mod streams;
mod templates;

use std::sync::Arc;

use serde_json::{Value, json};
use smelt_tokenizer::answer::{FORMATS, Part, Reader, ReaderOptions, ThinkTags, Tool, ToolSet};

/// An answer, read.
#[derive(Debug, Default, PartialEq)]
struct Answer {
    reasoning: String,
    content: String,
    calls: Vec<(String, Value)>,
}

impl Answer {
    fn new(reasoning: &str, content: &str, calls: &[(&str, Value)]) -> Self {
        let calls = calls.iter().map(|(name, arguments)| ((*name).to_owned(), arguments.clone())).collect();
        Self { reasoning: reasoning.to_owned(), content: content.to_owned(), calls }
    }
}

fn collect(parts: impl IntoIterator<Item = Part>) -> Answer {
    let mut answer = Answer::default();
    let mut arguments: Vec<(String, String)> = Vec::new();
    for part in parts {
        match part {
            Part::Reasoning(text) => answer.reasoning.push_str(&text),
            Part::Content(text) => answer.content.push_str(&text),
            Part::Call(name) => arguments.push((name, String::new())),
            Part::Arguments(text) => arguments.last_mut().unwrap().1.push_str(&text),
        }
    }
    let parse = |text: &str| serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    answer.calls = arguments.into_iter().map(|(name, text)| (name, parse(&text))).collect();
    answer
}

fn read<'a>(options: &ReaderOptions, pieces: impl IntoIterator<Item = &'a str>) -> Answer {
    let mut reader = Reader::new(options.clone());
    let mut parts: Vec<Part> = pieces.into_iter().flat_map(|piece| reader.push(piece)).collect();
    parts.extend(reader.finish());
    collect(parts)
}

fn tools() -> Arc<ToolSet> {
    let tool = |name: &str, properties: Value| Tool {
        name: name.to_owned(),
        parameters: json!({"type": "object", "properties": properties}),
    };
    Arc::new(ToolSet::new(vec![
        tool("get", json!({})),
        tool(
            "get_weather",
            json!({
                "location": {"type": "string"}, "days": {"type": "integer"}, "exact": {"type": "boolean"},
                "limits": {"type": "array"}, "note": {"type": ["string", "null"]}, "where": {"type": "object"},
            }),
        ),
    ]))
}

/// What a model with calls in `format`, which thinks, answers.
fn options(format: &str) -> ReaderOptions {
    let format = FORMATS.iter().find(|f| f.name == format).unwrap_or_else(|| panic!("no {format}"));
    let thinking = ThinkTags::of_template("</think>");
    ReaderOptions { thinking, calls: Some((format, tools())), ..ReaderOptions::default() }
}

/// Reads a text whole, cut in two at every place, and character by character.
fn check(options: &ReaderOptions, text: &str, want: &Answer) {
    assert_eq!(read(options, [text]), *want, "{text:?}");
    for (at, _) in text.char_indices() {
        assert_eq!(read(options, [&text[..at], &text[at..]]), *want, "{text:?} cut at {at}");
    }
    assert_eq!(read(options, text.split_inclusive(|_| true)), *want, "{text:?} by character");
}
