//! Tools, calls and their results in the form that a template takes.
//!
//! Templates differ: most take a call's arguments as an object, some as text; some take one call per message, some ids
//! of nine characters, some know of tools in the system message only, and some know nothing of tools. Which of these a
//! template is, is found by rendering small conversations and looking what came of them.

use serde_json::{Map, Value as Json, json};

use super::{ChatTemplate, Message, RenderOptions};
use crate::answer::{CallFormat, ThinkTags};

/// What a template makes of tools and reasoning.
#[derive(Debug)]
pub struct Abilities {
    /// How the model writes calls.
    pub calls: &'static CallFormat,
    /// The marks around the model's reasoning, if it reasons.
    pub thinking: Option<&'static ThinkTags>,
    /// How the template declares tools.
    pub declares: Declares,
    /// How it tells calls and results of earlier turns.
    pub replays: Replays,
    /// Whether it takes a system message.
    takes_system: bool,
    /// Whether it takes one call per message only.
    one_call: bool,
    /// Whether it takes ids of nine letters and digits only.
    short_ids: bool,
}

/// How tools reach the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Declares {
    /// The template writes them.
    Itself,
    /// It writes the field `tools` of the system message.
    FromSystem,
    /// It doesn't: the system message tells of them in words.
    Not,
}

/// How calls of earlier turns reach the prompt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Replays {
    /// The template takes their arguments as objects.
    Objects,
    /// It takes them as JSON text.
    Texts,
    /// It drops them: they are told as the text that they were.
    Not,
}

/// Words that stand in no template.
const TOOL: &str = "probe_tool";
const KEY: &str = "probe_key";
const VALUES: [&str; 2] = ["probe-value", "probe-other"];
const RESULT: &str = "probe-result";
/// Length of an id where it matters.
const SHORT: usize = 9;

/// What a model is told of tools whose template says nothing of them.
const INSTRUCTIONS: [&str; 3] = [
    "You may call these tools, described by JSON:\n<tools>\n",
    "</tools>\nTo call a tool, answer with nothing but this:\n",
    "\nIts result comes in <tool_response> marks.",
];

impl Abilities {
    pub(super) fn new(template: &ChatTemplate) -> Self {
        let source = template.source();
        let tool = json!({"type": "function", "function": {"name": TOOL, "description": "", "parameters": {
            "type": "object", "properties": {KEY: {"type": "string", "description": ""}}, "required": [KEY],
        }}});
        let user = || Message::new("user", "Hello");
        let shows = |messages: &[Message], tools: bool, words: &[&str], not: &str| {
            let options = RenderOptions {
                tools: tools.then(|| vec![tool.clone()]),
                add_generation_prompt: true,
                now: Some(jiff::civil::date(2025, 1, 1).at(0, 0, 0, 0)),
                ..RenderOptions::default()
            };
            let text = template.render(messages, &options).map(|rendered| rendered.text).unwrap_or_default();
            words.iter().all(|word| text.contains(word)) && !text.contains(not)
        };
        let never = "\0";
        let takes_system = shows(&[Message::new("system", RESULT), user()], false, &[RESULT], never);
        let mut system = Message::new("system", "");
        system.fields_mut().insert("tools".to_owned(), json!([tool["function"]]).to_string().into());
        let declares = if shows(&[user()], true, &[TOOL], never) {
            Declares::Itself
        } else if shows(&[system, user()], false, &[TOOL], never) {
            Declares::FromSystem
        } else {
            Declares::Not
        };
        let with_tools = declares == Declares::Itself;
        let turn = |as_text: bool, n: usize| {
            let call = |i: usize| {
                let arguments = json!({KEY: VALUES[i]});
                let arguments = if as_text { arguments.to_string().into() } else { arguments };
                json!({"id": format!("probecal{i}"), "type": "function", "function": {"name": TOOL, "arguments": arguments}})
            };
            let mut assistant = Message::new("assistant", "");
            assistant.fields_mut().insert("tool_calls".to_owned(), (0..n).map(call).collect());
            let result = |i: usize| {
                let mut result = Message::new("tool", RESULT);
                result.fields_mut().insert("tool_call_id".to_owned(), format!("probecal{i}").into());
                result.fields_mut().insert("name".to_owned(), TOOL.into());
                result
            };
            [user(), assistant].into_iter().chain((0..n).map(result)).collect::<Vec<_>>()
        };
        let words = [TOOL, VALUES[0], RESULT];
        // An object printed in Python's way, or text encoded a second time, is none that a model knows.
        let replays = if shows(&turn(false, 1), with_tools, &words, &format!("'{KEY}'")) {
            Replays::Objects
        } else if shows(&turn(true, 1), with_tools, &words, &format!("\\\"{KEY}")) {
            Replays::Texts
        } else {
            Replays::Not
        };
        let both = [VALUES[0], VALUES[1]];
        let takes_both = || shows(&turn(replays == Replays::Texts, 2), with_tools, &both, never);
        Self {
            calls: CallFormat::of_template(source),
            thinking: ThinkTags::of_template(source),
            declares,
            replays,
            takes_system,
            one_call: replays != Replays::Not && !takes_both(),
            short_ids: source.contains("length != 9"),
        }
    }

    /// A conversation in the form that the template takes. `messages` and `tools` are in OpenAI's form.
    pub(super) fn adapt(&self, messages: &[Message], tools: &[Json]) -> (Vec<Message>, Option<Vec<Json>>) {
        let mut out: Vec<Message> = Vec::with_capacity(messages.len() + 1);
        for message in messages {
            match message.role() {
                "assistant" if !message.calls().is_empty() => self.add_calls(message, &mut out),
                "tool" => self.add_result(message, messages, &mut out),
                _ => out.push(message.clone()),
            }
        }
        if self.one_call {
            out = one_call_each(out);
        }
        if self.short_ids {
            out.iter_mut().for_each(shorten_ids);
        }
        let tools: Vec<Json> = tools.iter().map(complete).collect();
        if tools.is_empty() {
            return (out, None);
        }
        match self.declares {
            Declares::Itself => return (out, Some(tools)),
            Declares::FromSystem => {
                let list: Vec<&Json> = tools.iter().map(|tool| &tool["function"]).collect();
                let list = json!(list).to_string();
                system(&mut out).fields_mut().insert("tools".to_owned(), list.into());
            }
            Declares::Not => {
                let [before, between, behind] = INSTRUCTIONS;
                let list: String = tools.iter().map(|tool| format!("{tool}\n")).collect();
                let example = json!({"parameter": "value"});
                let example = self.calls.write(&[("name", example.as_object().unwrap_or(&Map::new()))]);
                let text = format!("{before}{list}{between}{example}{behind}");
                let is_user = |m: &&mut Message| m.role() == "user";
                match out.iter_mut().find(is_user).filter(|_| !self.takes_system) {
                    Some(user) => user.prepend(&text),
                    None => system(&mut out).append(&text),
                }
            }
        }
        (out, None)
    }

    fn add_calls(&self, message: &Message, out: &mut Vec<Message>) {
        let mut message = message.clone();
        if self.replays == Replays::Not {
            let function = |call: &Json| {
                let arguments = object(&call["function"]["arguments"]);
                (call["function"]["name"].clone(), arguments.as_object().cloned().unwrap_or_default())
            };
            let calls: Vec<(Json, Map<String, Json>)> = message.calls().iter().map(function).collect();
            let calls: Vec<_> =
                calls.iter().map(|(name, a)| (name.as_str().unwrap_or_default(), a)).collect();
            let text = self.calls.write(&calls);
            message.fields_mut().remove("tool_calls");
            message.append(&text);
        } else if let Some(Json::Array(calls)) = message.fields_mut().get_mut("tool_calls") {
            for call in calls {
                let arguments = &mut call["function"]["arguments"];
                *arguments = match (self.replays, &*arguments) {
                    (Replays::Objects, given) => object(given),
                    (_, Json::String(text)) => Json::String(text.clone()),
                    (_, given) => given.to_string().into(),
                };
            }
        }
        out.push(message);
    }

    fn add_result(&self, message: &Message, all: &[Message], out: &mut Vec<Message>) {
        let mut message = message.clone();
        if self.replays == Replays::Not {
            let text = format!("<tool_response>\n{}\n</tool_response>", message.text());
            match out.last_mut() {
                Some(last) if last.role() == "user" && last.text().ends_with("</tool_response>") => {
                    last.append(&text);
                }
                _ => out.push(Message::new("user", text)),
            }
            return;
        }
        let id = message.fields().get("tool_call_id").cloned();
        if id.is_some() && !message.fields().get("name").is_some_and(Json::is_string) {
            let called = all.iter().flat_map(Message::calls).find(|call| call.get("id") == id.as_ref());
            if let Some(name) = called.map(|call| call["function"]["name"].clone()) {
                message.fields_mut().insert("name".to_owned(), name);
            }
        }
        out.push(message);
    }
}

impl Message {
    /// The calls of an assistant's message.
    fn calls(&self) -> &[Json] {
        self.fields().get("tool_calls").and_then(Json::as_array).map_or(&[], Vec::as_slice)
    }

    fn text(&self) -> &str {
        self.fields().get("content").and_then(Json::as_str).unwrap_or_default()
    }

    /// Adds text in a paragraph of its own.
    fn append(&mut self, text: &str) {
        let content = paragraphs(self.text(), text);
        self.fields_mut().insert("content".to_owned(), content.into());
    }

    fn prepend(&mut self, text: &str) {
        let content = paragraphs(text, self.text());
        self.fields_mut().insert("content".to_owned(), content.into());
    }
}

fn paragraphs(first: &str, second: &str) -> String {
    let gap = if first.is_empty() || second.is_empty() { "" } else { "\n\n" };
    [first, gap, second].concat()
}

/// The system message, which is the first one.
fn system(messages: &mut Vec<Message>) -> &mut Message {
    if !messages.first().is_some_and(|m| matches!(m.role(), "system" | "developer")) {
        messages.insert(0, Message::new("system", ""));
    }
    &mut messages[0]
}

/// Arguments as an object, where they are one.
fn object(arguments: &Json) -> Json {
    let parsed = arguments.as_str().and_then(|text| serde_json::from_str::<Map<String, Json>>(text).ok());
    parsed.map_or_else(|| arguments.clone(), Json::Object)
}

/// A tool with all fields that templates read.
fn complete(tool: &Json) -> Json {
    let mut tool = tool.clone();
    if let Some(function) = tool.get_mut("function").and_then(Json::as_object_mut) {
        let mut fill = |name: &str, value: Json| {
            if function.get(name).is_none_or(Json::is_null) {
                function.insert(name.to_owned(), value);
            }
        };
        fill("description", "".into());
        fill("parameters", json!({"type": "object", "properties": {}}));
    }
    tool
}

/// Messages with several calls as several with one each, each in front of its result.
fn one_call_each(messages: Vec<Message>) -> Vec<Message> {
    let mut out: Vec<Message> = Vec::with_capacity(messages.len());
    let mut waiting: Vec<Message> = Vec::new();
    for message in messages {
        if message.role() != "tool" {
            out.append(&mut waiting);
        }
        let id = |call: &Json| call.get("id").cloned();
        match message.calls() {
            calls if calls.len() > 1 => {
                for (i, call) in calls.iter().enumerate() {
                    let mut one = if i == 0 { message.clone() } else { Message::new("assistant", "") };
                    one.fields_mut().insert("tool_calls".to_owned(), json!([call]));
                    waiting.push(one);
                }
            }
            _ => {
                let wanted = message.fields().get("tool_call_id");
                let asked = waiting
                    .iter()
                    .position(|m| wanted.is_some() && m.calls().first().and_then(id).as_ref() == wanted);
                if let Some(at) = asked {
                    out.push(waiting.remove(at));
                }
                out.push(message);
            }
        }
    }
    out.append(&mut waiting);
    out
}

fn shorten_ids(message: &mut Message) {
    if let Some(id) = message.fields_mut().get_mut("tool_call_id") {
        shorten(id);
    }
    if let Some(Json::Array(calls)) = message.fields_mut().get_mut("tool_calls") {
        calls.iter_mut().filter_map(|call| call.get_mut("id")).for_each(shorten);
    }
}

/// An id of nine letters and digits in place of another one: the same for the same (FNV-1a).
fn shorten(id: &mut Json) {
    let Some(text) =
        id.as_str().filter(|t| t.len() != SHORT || !t.bytes().all(|b| b.is_ascii_alphanumeric()))
    else {
        return;
    };
    let step = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    let mut hash = text.bytes().fold(0xcbf2_9ce4_8422_2325, step);
    let digits = b"abcdefghijklmnopqrstuvwxyz0123456789";
    let short: String = (0..SHORT)
        .map(|_| {
            let digit = digits[(hash % digits.len() as u64) as usize];
            hash /= digits.len() as u64;
            char::from(digit)
        })
        .collect();
    *id = short.into();
}
