//! Calls of every family.

use serde_json::{Value, json};
use smelt_tokenizer::answer::{FORMATS, Held, ReaderOptions};

use super::{Answer, check, options, read};

/// Family, what the model says, the content that it is, and how many of the calls of [`expected`].
pub(super) const CALLS: &[(&str, &str, &str, usize)] = &[
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
        for held in [Held::Calls, Held::OnlyCalls] {
            let options = ReaderOptions { held, ..self::options(format) };
            check(&options, text, &Answer::new("", content, &expected(*n)));
        }
    }
    let tested = |format: &&str| CALLS.iter().any(|(name, ..)| name == format);
    let untested: Vec<&str> = FORMATS.iter().map(|f| f.name).filter(|name| !tested(name)).collect();
    assert_eq!(untested, ["deepseek-dsml-v4", "minicpm"], "what is read back below");
}

#[test]
fn other_spellings_are_read_too() {
    let rome = || json!({"location": "Rome"});
    let cases = [
        ("hermes", "<tool_call>{\"name\": \"get\"}</tool_call>", "get", json!({})),
        ("hermes", "<tool_call>{\"name\": \"get\", \"arguments\": null}</tool_call>", "get", json!({})),
        (
            "hermes",
            "<tool_call>{\"arguments\": {\"location\": \"Rome\"}, \"name\": \"get_weather\"}</tool_call>",
            "get_weather",
            rome(),
        ),
        (
            "hermes",
            "<tool_call>{\"name\": \"get_weather\", \"arguments\": \"{\\\"location\\\": \\\"Rome\\\"}\"}</tool_call>",
            "get_weather",
            rome(),
        ),
        ("llama3", "{\"name\": \"get\"}", "get", json!({})),
        (
            "llama3",
            "{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}",
            "get_weather",
            rome(),
        ),
        (
            "llama3",
            "{\"type\": \"function\", \"name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}",
            "get_weather",
            rome(),
        ),
        (
            "llama3",
            "{\"type\": \"function\", \"function\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}",
            "get_weather",
            rome(),
        ),
        (
            "llama3",
            "<|python_tag|>{\"name\": \"get_weather\", \"parameters\": {\"location\": \"Rome\"}}",
            "get_weather",
            rome(),
        ),
        ("llama3", "<|python_tag|>get_weather.call(location=\"Rome\")", "get_weather", rome()),
        ("llama3", "<|python_tag|>get_weather(location=\"Rome\")", "get_weather", rome()),
        (
            "mistral-args",
            "[TOOL_CALLS][{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}]",
            "get_weather",
            rome(),
        ),
    ];
    for (format, text, name, arguments) in cases {
        check(&options(format), text, &Answer::new("", "", &[(name, arguments)]));
    }
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
