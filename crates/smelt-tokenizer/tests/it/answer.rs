//! Answers are read as every family writes them.

use std::sync::Arc;

use serde_json::{Value, json};
use smelt_tokenizer::answer::{FORMATS, Part, Reader, ReaderOptions, ThinkTags, Tool, ToolSet};
use smelt_tokenizer::chat::{ChatTemplate, Declares, Message, RenderOptions, Replays};

use crate::chat::{messages, templates};

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

/// Family, what the model says, the content that it is, and how many of the calls of [`expected`].
const CALLS: &[(&str, &str, &str, usize)] = &[
    (
        "hermes",
        "Let me see.\n<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call>",
        "Let me see.",
        1,
    ),
    (
        "hermes",
        "<tool_call>{\"arguments\": {\"location\": \"Rome\"}, \"name\": \"get_weather\"}</tool_call>\n<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"location\": \"</tool_call>\", \"days\": 2}}</tool_call>",
        "",
        2,
    ),
    (
        "hermes",
        "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"location\\\": \\\"Rome\\\"}\"}",
        "",
        1,
    ),
    (
        "qwen-xml",
        "I look.\n\n<tool_call>\n<function=get_weather>\n<parameter=location>\nRome\n</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=get_weather>\n<parameter=location>\n</tool_call>\n</parameter>\n<parameter=days>\n2\n</parameter>\n</function>\n</tool_call>",
        "I look.",
        2,
    ),
    (
        "qwen-xml",
        "I look.\n<function=get_weather>\n<parameter=location>\nRome\n</parameter>\n</function>\n</tool_call>",
        "I look.",
        1,
    ),
    (
        "qwen-xml",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call>",
        "",
        1,
    ),
    (
        "seed",
        "<seed:tool_call>\n<function=get_weather>\n<parameter=location>Rome</parameter>\n</function>\n</seed:tool_call>",
        "",
        1,
    ),
    (
        "glm",
        "\n<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value>Rome</arg_value>\n</tool_call>\n<tool_call>get_weather\n<arg_key>location</arg_key>\n<arg_value></tool_call></arg_value>\n<arg_key>days</arg_key>\n<arg_value>2</arg_value>\n</tool_call>",
        "",
        2,
    ),
    (
        "minimax",
        "<minimax:tool_call>\n<invoke name=\"get_weather\">\n<parameter name=\"location\">Rome</parameter>\n</invoke>\n<invoke name=\"get_weather\">\n<parameter name=\"location\"></tool_call></parameter>\n<parameter name=\"days\">2</parameter>\n</invoke>\n</minimax:tool_call>",
        "",
        2,
    ),
    ("llama3", "{\"name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}", "", 1),
    (
        "llama3",
        "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}; {\"name\": \"get_weather\", \"parameters\": {\"location\": \"</tool_call>\", \"days\": 2}}",
        "",
        2,
    ),
    ("llama3", "<|python_tag|>get_weather.call(location=\"Rome\")", "", 1),
    ("llama3", "[get_weather(location='Rome'), get_weather(location='</tool_call>', days=2)]", "", 2),
    (
        "llama3",
        "{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}}",
        "",
        1,
    ),
    (
        "mistral",
        "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}, \"id\": \"abcdefghi\"}, {\"name\": \"get_weather\", \"arguments\": {\"location\": \"</tool_call>\", \"days\": 2}, \"id\": \"abcdefghj\"}]",
        "",
        2,
    ),
    (
        "mistral-args",
        "Sure.[TOOL_CALLS]get_weather[ARGS]{\"location\": \"Rome\"}[TOOL_CALLS]get_weather[CALL_ID]abcdefghi[ARGS]{\"location\": \"</tool_call>\", \"days\": 2}",
        "Sure.",
        2,
    ),
    (
        "gemma4",
        "<|tool_call>call:get_weather{location:<|\"|>Rome<|\"|>}<tool_call|><|tool_call>call:get_weather{days:2,location:<|\"|></tool_call><|\"|>}<tool_call|>",
        "",
        2,
    ),
    (
        "functiongemma",
        "<start_function_call>call:get_weather{location:<escape>Rome<escape>}<end_function_call>",
        "",
        1,
    ),
    (
        "phi",
        "<|tool_call|>[{\"type\": \"function\", \"function\": {\"name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}}]<|/tool_call|>",
        "",
        1,
    ),
    ("functools", "functools[{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}]", "", 1),
    (
        "lfm2",
        "<|tool_call_start|>[get_weather(location=\"Rome\"), get_weather(location=\"</tool_call>\", days=2)]<|tool_call_end|>Checking.",
        "Checking.",
        2,
    ),
    (
        "deepseek-r1",
        "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"location\": \"Rome\"}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>get_weather\n```json\n{\"location\": \"</tool_call>\", \"days\": 2}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "",
        2,
    ),
    (
        "deepseek-v3.1",
        "Yes.<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>get_weather<｜tool▁sep｜>{\"location\": \"Rome\"}<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
        "Yes.",
        1,
    ),
    (
        "deepseek-dsml",
        "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"get_weather\">\n<｜DSML｜parameter name=\"location\" string=\"true\">Rome</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>",
        "",
        1,
    ),
    (
        "kimi",
        "<|tool_calls_section_begin|><|tool_call_begin|>functions.get_weather:0<|tool_call_argument_begin|>{\"location\": \"Rome\"}<|tool_call_end|><|tool_call_begin|>functions.get_weather:1<|tool_call_argument_begin|>{\"location\": \"</tool_call>\", \"days\": 2}<|tool_call_end|><|tool_calls_section_end|>",
        "",
        2,
    ),
    ("granite", "<|tool_call|>[{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}]", "", 1),
    (
        "nemotron",
        "<TOOLCALL>[{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}]</TOOLCALL>",
        "",
        1,
    ),
    (
        "command-r",
        "<|START_ACTION|>[\n    {\"tool_call_id\": \"0\", \"tool_name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}\n]<|END_ACTION|>",
        "",
        1,
    ),
    ("apertus", "<|tools_prefix|>[{\"get_weather\": {\"location\": \"Rome\"}}]<|tools_suffix|>", "", 1),
    (
        "tool-calls-json",
        "<tool_calls>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"</tool_call>\", \"days\": 2}}\n</tool_calls>",
        "",
        2,
    ),
    ("functionary", "<function=get_weather>{\"location\": \"Rome\"}</function>", "", 1),
    (
        "gigachat3.1",
        "<|function_call|>{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}",
        "",
        1,
    ),
    (
        "generic",
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call>",
        "",
        1,
    ),
];

/// The calls of [`CALLS`]: the second one holds a mark in its text.
fn expected(n: usize) -> Vec<(&'static str, Value)> {
    let mut calls = vec![
        ("get_weather", json!({"location": "Rome"})),
        ("get_weather", json!({"location": "</tool_call>", "days": 2})),
    ];
    calls.truncate(n);
    calls
}

#[test]
fn every_family_is_read_however_it_is_cut() {
    for (format, text, content, n) in CALLS {
        let mut options = options(format);
        check(&options, text, &Answer::new("", content, &expected(*n)));
        // Thinking comes first, by itself or because the prompt has begun it.
        let whole = Answer::new("Rome?\n <tool_call>", content, &expected(*n));
        check(&options, &format!("<think>\nRome?\n <tool_call>\n</think>\n\n{text}"), &whole);
        options.thinking_is_open = true;
        check(&options, &format!(" Rome?\n <tool_call></think>{text}"), &whole);
        // Of several calls only the first is told.
        let one = ReaderOptions { one_call: true, ..self::options(format) };
        check(&one, text, &Answer::new("", content.trim_end_matches("Checking."), &expected(1)));
        // Told as they come, they are the same.
        check(
            &ReaderOptions { calls_are_certain: true, ..self::options(format) },
            text,
            &Answer::new("", content, &expected(*n)),
        );
    }
    let tested = |format: &&str| CALLS.iter().any(|(name, ..)| name == format);
    let untested: Vec<&str> = FORMATS.iter().map(|f| f.name).filter(|name| !tested(name)).collect();
    assert_eq!(untested, ["deepseek-dsml-v4", "minicpm"], "what is read back below");
}

#[test]
fn what_is_no_call_stays_text() {
    let call = "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}";
    let cases = [
        ("hermes", "Use <tool_call> and </tool_call>, or <tool".to_owned()),
        ("hermes", "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": }}\n</tool_call> so".to_owned()),
        ("hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Ro".to_owned()),
        ("hermes", "<tool_call>{\"name\": \"get_weather\", \"arguments\": [1]}</tool_call>".to_owned()),
        ("hermes", "<tool_call>{\"name\": \"unknown\", \"arguments\": {}}</tool_call>".to_owned()),
        ("hermes", "<tool_call></tool_call>".to_owned()),
        ("hermes", "a  \n".to_owned()),
        ("hermes", call.to_owned()),
        ("llama3", "{\"city\": \"Rome\"}".to_owned()),
        ("llama3", "[1] is {not} a call".to_owned()),
        ("llama3", format!("So: {call}")),
        ("llama3", "<|python_tag|>print(1)".to_owned()),
        ("mistral", "[TOOL_CALLS][]".to_owned()),
        ("mistral-args", "[TOOL_CALLS]get_weather and so on, for longer than any id that could stand between the two[ARGS]{}".to_owned()),
        ("mistral-args", "[TOOL_CALLS]get_weathers[ARGS]{}".to_owned()),
        ("lfm2", format!("<|tool_call_start|>[get_weather(a={})]<|tool_call_end|>", "[".repeat(99))),
        ("lfm2", "<|tool_call_start|>[get_weather(location=Rome)]<|tool_call_end|>".to_owned()),
        ("deepseek-r1", "<｜tool▁calls▁begin｜><｜tool▁calls▁end｜>".to_owned()),
        ("qwen-xml", "<tool_call>\n<function=get_weather>\n<parameter=location>\nRo".to_owned()),
        ("hermes", format!("<tool_call>{}", "{\"a\":".repeat(500))),
    ];
    for (format, text) in &cases {
        check(&options(format), text, &Answer::new("", text, &[]));
    }
    // A call behind what is none is one; and without tools there is none at all.
    let text = format!("<tool_call> <tool_call>{call}</tool_call>\n\nDone. ");
    check(&options("hermes"), &text, &Answer::new("", "<tool_call>Done. ", &expected(1)));
    check(&ReaderOptions::default(), &text, &Answer::new("", &text, &[]));
    // Without marks of thinking there is none; a block that isn't closed is all there is.
    check(&ReaderOptions::default(), "<think>a</think>b", &Answer::new("", "<think>a</think>b", &[]));
    check(&options("hermes"), " <think> a </think", &Answer::new("a </think", "", &[]));
    check(&options("hermes"), "a <think>b</think>", &Answer::new("", "a <think>b</think>", &[]));
}

#[test]
fn values_take_the_type_of_their_parameter() {
    let text = |key: &str, value: &str| {
        format!(
            "<tool_call>\n<function=get_weather>\n<parameter={key}>\n{value}\n</parameter>\n</function>\n</tool_call>"
        )
    };
    let cases = [
        ("location", "12", json!("12")),
        ("location", " a\n\nb ", json!(" a\n\nb ")),
        ("location", "null", json!("null")),
        ("days", "12", json!(12)),
        ("days", "many", json!("many")),
        ("exact", "True", json!(true)),
        ("limits", "[1, \"a\"]", json!([1, "a"])),
        ("note", "null", json!(null)),
        ("note", "true", json!("true")),
        ("where", "{\"a\": 1}", json!({"a": 1})),
        ("other", "plain", json!("plain")),
        ("other", "7", json!(7)),
    ];
    for (key, value, want) in cases {
        check(
            &options("qwen-xml"),
            &text(key, value),
            &Answer::new("", "", &[("get_weather", json!({key: want}))]),
        );
    }
    let python = "<|tool_call_start|>[get_weather(location='a\\n\\'b\\' \\x41\\u00e9\\q', days=-2, exact=False, limits=(1, [None], {'a': 1.5}), note=None)]<|tool_call_end|>";
    let want = json!({"location": "a\n'b' Aé\\q", "days": -2, "exact": false, "limits": [1, [null], {"a": 1.5}], "note": null});
    check(&options("lfm2"), python, &Answer::new("", "", &[("get_weather", want)]));
    let gemma = "<|tool_call>call:get_weather{limits:[1,{a:<|\"|>x\"y<|\"|>}],where:{b:null}}<tool_call|>";
    let want = json!({"limits": [1, {"a": "x\"y"}], "where": {"b": null}});
    check(&options("gemma4"), gemma, &Answer::new("", "", &[("get_weather", want)]));
    check(
        &options("hermes"),
        "<tool_call>{\"name\": \"get\"}</tool_call>",
        &Answer::new("", "", &[("get", json!({}))]),
    );
}

#[test]
fn certain_arguments_are_told_as_they_come() {
    let text =
        "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call>";
    let mut reader = Reader::new(ReaderOptions { calls_are_certain: true, ..options("hermes") });
    let parts: Vec<Part> = text.split_inclusive(|_| true).flat_map(|piece| reader.push(piece)).collect();
    assert_eq!(parts[0], Part::Call("get_weather".to_owned()));
    assert!(parts.len() > 15, "{parts:?}");
    // One that the end cuts off is told as far as it came.
    let mut reader = Reader::new(ReaderOptions { calls_are_certain: true, ..options("hermes") });
    let mut parts = reader.push(&text[..text.len() - 17]);
    parts.extend(reader.finish());
    assert_eq!(
        parts,
        [Part::Call("get_weather".to_owned()), Part::Arguments("{\"location\": \"Rom".to_owned())]
    );
    // Of a further one whose name the end cuts off there is nothing to tell, and its marks are no content.
    for rest in ["\n", "\n<tool", "<tool_call>", "<tool_call>\n{\"name\": \"get_w"] {
        let mut reader = Reader::new(ReaderOptions { calls_are_certain: true, ..options("hermes") });
        let mut parts = reader.push(&format!("{text}{rest}"));
        parts.extend(reader.finish());
        assert!(parts.iter().all(|part| !matches!(part, Part::Content(_))), "{parts:?}");
    }
}

#[test]
fn long_calls_are_read_in_linear_time() {
    // Whatever the model writes: characters at which a call may end, in a string that goes on for ever. Were each of these
    // pieces to have the call read anew, this would take hours.
    let pieces = ["{}", "})]", "/>`", "\\\"]", " x]"].iter().cycle().take(30_000);
    let long: String = pieces.copied().collect();
    for (format, text, ..) in CALLS {
        let (head, tail) = text.split_at(text.find("Rome").unwrap_or(text.len()));
        for calls_are_certain in [false, true] {
            let mut reader = Reader::new(ReaderOptions { calls_are_certain, ..options(format) });
            let mut told = 0;
            let mut count = |parts: Vec<Part>| {
                told += parts
                    .iter()
                    .map(|part| match part {
                        Part::Arguments(text) | Part::Content(text) | Part::Reasoning(text) => text.len(),
                        Part::Call(_) => 0,
                    })
                    .sum::<usize>();
            };
            count(reader.push(head));
            let mut rest = long.as_str();
            while !rest.is_empty() {
                let (piece, behind) = rest.split_at(rest.len().min(3));
                count(reader.push(piece));
                rest = behind;
            }
            count(reader.push(tail));
            count(reader.finish());
            assert!(told > long.len() / 2, "{format}: {told} bytes were told");
        }
    }
}

#[test]
fn what_is_written_is_read() {
    let arguments = json!({"location": "a b", "days": -2, "exact": true, "limits": [1, {"a": "é"}], "where": {"b": null}});
    let arguments = arguments.as_object().unwrap();
    for format in FORMATS {
        let text = format.write(&[("get_weather", arguments), ("get", &serde_json::Map::new())]);
        let want = [("get_weather", Value::Object(arguments.clone())), ("get", json!({}))];
        let want = Answer::new("", "", &want[..]);
        // A family without marks can't tell two calls apart where the first is not at the beginning.
        assert_eq!(read(&options(format.name), [text.as_str()]), want, "{}: {text}", format.name);
    }
}

/// Pieces of which hostile answers are made.
const SHARDS: &[&str] = &[
    "<tool_call>",
    "</tool_call>",
    "<think>",
    "</think>",
    "{\"name\": \"get\"",
    "{\"name\": \"get_weather\", ",
    "\"arguments\": {",
    "\"parameters\": ",
    "}",
    "]",
    "[",
    ")",
    "(",
    "get_weather",
    "get",
    "location=",
    "\"",
    "'",
    "\\",
    "\n",
    " ",
    ", ",
    ";",
    ":",
    "{",
    "1",
    "null",
    "é",
    "🦙",
    "<",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    "<function=",
    ">",
    "</function>",
    "<parameter=",
    "</parameter>",
    "<|tool_call_start|>",
    "<|tool_call_end|>",
    "call:",
    "<|\"|>",
    "<|tool_call>",
    "<tool_call|>",
    "<｜tool▁calls▁begin｜>",
    "<｜tool▁call▁begin｜>",
    "<｜tool▁sep｜>",
    "<｜tool▁call▁end｜>",
    "<｜tool▁calls▁end｜>",
    "word",
];

#[test]
fn any_text_is_read_alike_however_it_is_cut() {
    let mut random = fastrand::Rng::with_seed(7);
    for round in 0..4000 {
        let format = &FORMATS[random.usize(..FORMATS.len())];
        let (_, good, ..) = CALLS.iter().find(|(name, ..)| *name == format.name).unwrap_or(&CALLS[0]);
        let mut text = String::new();
        for _ in 0..random.usize(1..12) {
            match random.u8(..10) {
                0 => text.push_str(good),
                1 => {
                    let cut = (0..random.usize(..=good.len()))
                        .rev()
                        .find(|at| good.is_char_boundary(*at))
                        .unwrap_or(0);
                    text.push_str(&good[..cut]);
                }
                _ => text.push_str(SHARDS[random.usize(..SHARDS.len())]),
            }
        }
        let options = ReaderOptions {
            thinking: ThinkTags::of_template("</think>").filter(|_| random.bool()),
            thinking_is_open: random.bool(),
            calls: Some((format, tools())),
            one_call: random.u8(..4) == 0,
            calls_are_certain: false,
        };
        let whole = read(&options, [text.as_str()]);
        let mut pieces = Vec::new();
        let mut rest = text.as_str();
        while !rest.is_empty() {
            let at = (1..=random.usize(1..=rest.len().min(9)))
                .rev()
                .find(|at| rest.is_char_boundary(*at))
                .unwrap_or(rest.chars().next().unwrap().len_utf8());
            pieces.push(&rest[..at]);
            rest = &rest[at..];
        }
        assert_eq!(read(&options, pieces), whole, "round {round}, {}: {text:?}", format.name);
        // Whatever it is, no character of it is lost, where there are no calls and all may be told.
        if whole.calls.is_empty() && !options.one_call {
            let squeezed = |text: &str| text.chars().filter(|c| !c.is_whitespace()).collect::<String>();
            let told = squeezed(&(whole.reasoning + &whole.content));
            let said = squeezed(&text);
            assert!(
                told == said
                    || said.replacen("<think>", "", 1).replacen("</think>", "", 1) == told
                    || said.replacen("</think>", "", 1) == told
                    || said.replacen("<think>", "", 1) == told,
                "{text:?}: {told:?}"
            );
        }
    }
}

/// Templates whose calls are not read: newer notations, and templates that want variables of their own.
const UNREAD: &[&str] = &[
    "CohereForAI-c4ai-command-r-plus-tool_use.jinja",
    "GigaChat3-10B-A1.8B.jinja",
    "Kimi-K3.jinja",
    "MiniMax-M3.jinja",
    "fireworks-ai-llama-3-firefunction-v2.jinja",
    "llm-jp-llm-jp-4.1-8b-thinking.jinja",
    "meetkai-functionary-medium-v3.2.jinja",
    "muse-glimmer.jinja",
    "openai-gpt-oss-120b.jinja",
    "tencent-Hy3.jinja",
    "upstage-Solar-Open-100B.jinja",
];

/// The calls of a conversation that this template has rendered, results behind them.
fn replayed(template: &ChatTemplate, calls: &[Value]) -> Option<Vec<(String, Value)>> {
    let declared = json!([{"type": "function", "function": {
        "name": "get_weather", "parameters": {"type": "object", "properties": {"location": {"type": "string"}}},
    }}]);
    let call = |(i, arguments): (usize, &Value)| {
        let function = json!({"name": "get_weather", "arguments": arguments.to_string()});
        json!({"id": format!("call_{i}"), "type": "function", "function": function})
    };
    let list: Vec<Value> = calls.iter().enumerate().map(call).collect();
    let conversation = json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": "", "tool_calls": list},
        {"role": "tool", "tool_call_id": "call_0", "content": "sunny-21"},
        {"role": "tool", "tool_call_id": "call_1", "content": "rainy-12"},
    ]);
    let conversation = messages(&json!({"messages": conversation}));
    let render = |messages: &[Message], add_generation_prompt: bool| {
        let now = Some(jiff::civil::date(2025, 3, 9).at(14, 5, 6, 0));
        let tools = declared.as_array().cloned();
        let options = RenderOptions { tools, add_generation_prompt, now, ..RenderOptions::default() };
        template.render_chat(messages, &options).map(|rendered| rendered.text)
    };
    let whole = render(&conversation, true).ok()?;
    for word in ["get_weather", "Paris", "Rome", "sunny-21", "rainy-12"] {
        assert!(whole.contains(word), "no {word} in {whole}");
    }
    let prompt = render(&conversation[..1], false).ok()?;
    let answer = whole.strip_prefix(prompt.trim_end()).unwrap_or(&whole);
    let format = template.abilities().calls;
    // Without a mark, a call begins where a turn does.
    let turns: Vec<&str> = match format.name {
        "llama3" => answer.split("<|end_header_id|>").collect(),
        _ => vec![answer],
    };
    let options = ReaderOptions { calls: Some((format, tools())), ..ReaderOptions::default() };
    Some(turns.into_iter().flat_map(|turn| read(&options, [turn]).calls).collect())
}

#[test]
fn what_templates_write_is_read_back() {
    let calls = [
        json!({"location": "Paris", "days": 2, "exact": true, "limits": [1, 2.5], "note": "é <x>"}),
        json!({"location": "Rome"}),
    ];
    let want: Vec<(String, Value)> = calls.iter().map(|a| ("get_weather".to_owned(), a.clone())).collect();
    let mut unread = Vec::new();
    for (name, source) in templates().into_iter().filter(|(name, _)| !name.starts_with("language/")) {
        let template = ChatTemplate::new(&source, "<BOS>", "<EOS>").unwrap();
        if replayed(&template, &calls).is_none_or(|read| read != want) {
            unread.push(name);
        }
    }
    assert_eq!(unread, UNREAD);
}

#[test]
fn templates_show_what_they_can() {
    let (itself, not) = (Declares::Itself, Declares::Not);
    let cases = [
        ("Qwen-Qwen3-0.6B.jinja", "hermes", Some("</think>"), itself, Replays::Objects),
        ("Qwen3-Coder.jinja", "qwen-xml", None, itself, Replays::Objects),
        ("meta-llama-Llama-3.2-3B-Instruct.jinja", "llama3", None, itself, Replays::Objects),
        ("mistralai-Mistral-Nemo-Instruct-2407.jinja", "mistral", None, itself, Replays::Objects),
        (
            "mistralai-Ministral-3-14B-Reasoning-2512.jinja",
            "mistral-args",
            Some("[/THINK]"),
            itself,
            Replays::Objects,
        ),
        ("google-gemma-4-31B-it.jinja", "gemma4", Some("<channel|>"), itself, Replays::Objects),
        ("google-gemma-2-2b-it.jinja", "generic", None, not, Replays::Not),
        ("LFM2-8B-A1B.jinja", "lfm2", None, itself, Replays::Not),
        ("meetkai-functionary-medium-v3.2.jinja", "generic", None, itself, Replays::Texts),
        ("deepseek-ai-DeepSeek-V3.1.jinja", "deepseek-v3.1", Some("</think>"), not, Replays::Objects),
    ];
    let templates = templates();
    for (name, format, close, declares, replays) in cases {
        let template = ChatTemplate::new(&templates[name], "<BOS>", "<EOS>").unwrap();
        let found = template.abilities();
        assert_eq!(found.calls.name, format, "{name}");
        let close_found = found.thinking.map(|tags| tags.close);
        assert_eq!((close_found, found.declares, found.replays), (close, declares, replays), "{name}");
    }
    // Phi-4-mini's way: the system message has the tools.
    let phi = "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tools %}<|tool|>{{ m.tools }}<|/tool|>{% endif %}<|end|>{% endfor %}";
    let template = ChatTemplate::new(phi, "", "").unwrap();
    assert_eq!(
        (template.abilities().declares, template.abilities().calls.name),
        (Declares::FromSystem, "phi")
    );
    let tools = json!([{"type": "function", "function": {"name": "get"}}]);
    let options = RenderOptions { tools: tools.as_array().cloned(), ..RenderOptions::default() };
    let rendered = template.render_chat(&[Message::new("user", "Hi")], &options).unwrap();
    assert!(rendered.text.starts_with("<|system|><|tool|>[{\"name\":\"get\""), "{}", rendered.text);
    // What a user says opens no think block, and marks in arguments are text.
    let (tags, open) = (ThinkTags::of_template("</think>").unwrap(), "<|im_start|>assistant\n<think>\n");
    assert!(tags.is_open(open) && !tags.is_open("<think></think>\n\n"));
}
