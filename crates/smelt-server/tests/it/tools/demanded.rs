//! Calls that the model must make.

use serde_json::{Value, json};

use super::{CHAT, MESSAGES, joined, say, server, start, whole};
use crate::support::{MODEL, with};

/// Tools of which every call ends soon, whoever makes it.
pub(super) fn short_tools() -> Value {
    let weather = json!({
        "type": "object",
        "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
        "required": ["city", "days"], "additionalProperties": false,
    });
    let time = json!({"type": "object", "properties": {}, "additionalProperties": false});
    json!([
        {"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": weather}},
        {"type": "function", "function": {"name": "get_time", "description": "The time of day", "parameters": time}},
    ])
}

pub(super) fn check_call(call: &Value) -> String {
    let name = call["function"]["name"].as_str().unwrap();
    let arguments: Value = serde_json::from_str(call["function"]["arguments"].as_str().unwrap()).unwrap();
    match name {
        "get_weather" => {
            assert!(["Rome", "Oslo"].contains(&arguments["city"].as_str().unwrap()), "{call}");
            assert!((1..=9).contains(&arguments["days"].as_i64().unwrap()), "{call}");
        }
        other => assert_eq!((other, arguments), ("get_time", json!({}))),
    }
    name.to_owned()
}

#[test]
fn a_real_model_calls_what_it_must() {
    let file = smelt_testdata::fetched("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let server = start(file, 2048);
    let named = |name: &str| json!({"type": "function", "function": {"name": name}});
    let ask = |choice: Value| {
        let question =
            json!([{"role": "user", "content": "What will the weather be in Oslo for the next three days?"}]);
        json!({
            "model": MODEL, "messages": question, "temperature": 0, "max_tokens": 200, "tools": short_tools(),
            "tool_choice": choice,
        })
    };
    for name in ["get_weather", "get_time"] {
        let answer = server.ask(CHAT, &ask(named(name)));
        let want = whole(&answer);
        let calls = want["calls"].as_array().unwrap();
        assert_eq!(
            (calls.len(), &want["content"], &want["finish"]),
            (1, &json!(""), &json!("tool_calls")),
            "{answer}"
        );
        assert_eq!(check_call(&calls[0]), name);
        let chunks = server.post(CHAT, &with(&ask(named(name)), json!({"stream": true}))).events();
        assert_eq!(joined(&chunks), want);
        // Arguments that are certain come piece by piece.
        let pieces = chunks
            .iter()
            .filter(|c| !c["choices"][0]["delta"]["tool_calls"][0]["function"]["arguments"].is_null());
        assert!(pieces.count() > 1 + usize::from(name == "get_weather"), "{chunks:?}");
    }
    let one = with(&ask(json!("required")), json!({"parallel_tool_calls": false}));
    let answer = whole(&server.ask(CHAT, &one));
    assert_eq!((answer["calls"].as_array().unwrap().len(), &answer["finish"]), (1, &json!("tool_calls")));
    check_call(&answer["calls"][0]);
    let several = whole(&server.ask(CHAT, &ask(json!("required"))));
    assert!(!several["calls"].as_array().unwrap().is_empty(), "{several}");
    // One that is cut off is told as far as it came.
    let cut = whole_text(&server.ask(CHAT, &with(&ask(named("get_weather")), json!({"max_tokens": 20}))));
    assert!(cut.0 == "length" && serde_json::from_str::<Value>(&cut.1).is_err(), "{cut:?}");
    // What can't be enforced is named.
    let mut bad = ask(json!("required"));
    bad["tools"][1]["function"]["parameters"] = json!({"type": "object", "not": {"required": ["x"]}});
    let reply = server.post(CHAT, &bad);
    let (status, error) = (reply.status, reply.json()["error"].clone());
    assert_eq!((status, &error["param"]), (400, &json!("tools[1]")));
    assert!(error["message"].as_str().unwrap().contains("`not`"), "{error}");
    let tools = json!([{"name": "get_weather", "input_schema": short_tools()[0]["function"]["parameters"]}]);
    let claude = json!({
        "model": MODEL, "max_tokens": 200, "temperature": 0, "tools": tools, "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        "messages": [{"role": "user", "content": "How is the weather in Rome?"}],
    });
    let answer = server.ask(MESSAGES, &claude);
    let used = &answer["content"][0];
    assert_eq!(
        (&used["type"], &used["name"], &answer["stop_reason"]),
        (&json!("tool_use"), &json!("get_weather"), &json!("tool_use")),
        "{answer}"
    );
}

/// Why an answer ended, and the arguments of its call.
fn whole_text(answer: &Value) -> (String, String) {
    let choice = &answer["choices"][0];
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&choice["finish_reason"]), text(&choice["message"]["tool_calls"][0]["function"]["arguments"]))
}

#[test]
fn a_demanded_call_comes_behind_thoughts() {
    let server = server();
    let body = with(
        &say("A"),
        json!({
            "tools": short_tools(), "tool_choice": {"type": "function", "function": {"name": "get_time"}}, "max_tokens": 200,
        }),
    );
    // White space is this model's to choose.
    let ask = |more: Value| {
        let answer = whole(&server.ask(CHAT, &with(&body, more)));
        assert_eq!(answer["calls"].as_array().unwrap().len(), 1, "{answer}");
        assert_eq!((check_call(&answer["calls"][0]).as_str(), &answer["content"]), ("get_time", &json!("")));
        answer["reasoning"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(json!({"reasoning_effort": "none"})), "");
    assert_eq!(ask(json!({"reasoning_effort": "high"})), "one two three four five six seven.");
    assert_eq!(ask(json!({"thinking_budget": 2})), "one two");
}
