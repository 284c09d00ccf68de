//! Every family's notation of calls, from a random model that a grammar makes write it, over every interface.

use serde_json::{Value, json};
use smelt_engine::tokenizer::answer::FORMATS;
use smelt_server::{ModelSource, Settings};

use super::demanded::{check_call, short_tools};
use super::{CHAT, MESSAGES, OLLAMA, joined, whole};
use crate::support::{Running, source, with};

/// A template that a model of each family might have: nothing but its signs tells them apart.
fn models() -> Vec<ModelSource> {
    let messages = "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}";
    let model = |signs: &[&str], name: &str| ModelSource {
        name: name.to_owned(),
        template: Some(format!("{{# {} #}}{messages}", signs.join(" "))),
        warm: false,
        ..source(2048)
    };
    FORMATS.iter().map(|format| model(format.signs()[0], format.name)).collect()
}

fn ask(model: &str, choice: Value) -> Value {
    json!({
        "model": model, "messages": [{"role": "user", "content": "How is the weather in Rome?"}], "temperature": 0,
        "max_tokens": 400, "tools": short_tools(), "tool_choice": choice, "parallel_tool_calls": false,
    })
}

#[test]
fn every_family_calls_what_it_must() {
    let server = Running::start(Settings::default(), models());
    for format in FORMATS {
        let name = format.name;
        for tool in ["get_weather", "get_time"] {
            let named = ask(name, json!({"type": "function", "function": {"name": tool}}));
            let answer = whole(&server.ask(CHAT, &named));
            let calls = answer["calls"].as_array().unwrap();
            assert_eq!((calls.len(), &answer["finish"]), (1, &json!("tool_calls")), "{name}: {answer}");
            assert_eq!((check_call(&calls[0]).as_str(), &answer["content"]), (tool, &json!("")), "{name}");
            let chunks = server.post(CHAT, &with(&named, json!({"stream": true}))).events();
            assert_eq!(joined(&chunks), answer, "{name}");
        }
        let any = whole(&server.ask(CHAT, &ask(name, json!("required"))));
        assert_eq!(
            (any["calls"].as_array().unwrap().len(), &any["finish"]),
            (1, &json!("tool_calls")),
            "{name}"
        );
        check_call(&any["calls"][0]);

        let tool = short_tools()[0]["function"].clone();
        let used = server.ask(MESSAGES, &json!({
            "model": name, "max_tokens": 400, "temperature": 0, "messages": ask(name, Value::Null)["messages"],
            "tools": [{"name": tool["name"], "input_schema": tool["parameters"]}],
            "tool_choice": {"type": "any", "disable_parallel_tool_use": true},
        }));
        assert_eq!(
            (&used["content"][0]["type"], &used["stop_reason"]),
            (&json!("tool_use"), &json!("tool_use")),
            "{name}"
        );
        let input = used["content"][0]["input"].to_string();
        check_call(&json!({"function": {"name": used["content"][0]["name"], "arguments": input}}));
    }
}

#[test]
fn every_familys_calls_may_be_left_out_or_cut_off() {
    let server = Running::start(Settings::default(), models());
    for format in FORMATS {
        let name = format.name;
        let none = whole(&server.ask(CHAT, &with(&ask(name, json!("none")), json!({"max_tokens": 3}))));
        assert_eq!((&none["calls"], &none["finish"]), (&json!([]), &json!("length")), "{name}");
        // What a random model says by itself is no call, and none of it is lost.
        let auto = with(&ask(name, json!("auto")), json!({"max_tokens": 20}));
        let told = whole(&server.ask(CHAT, &auto));
        assert_eq!(told["finish"], "length", "{name}: {told}");
        assert_eq!(
            joined(&server.post(CHAT, &with(&auto, json!({"stream": true}))).events()),
            told,
            "{name}"
        );
        let ollama = server.ask(
            OLLAMA,
            &json!({
                "model": name, "messages": auto["messages"], "tools": short_tools(), "stream": false,
                "options": {"temperature": 0, "num_predict": 20},
            }),
        );
        assert_eq!(ollama["message"]["content"], told["content"], "{name}");
        // However short it is cut, there is an answer.
        let forced = ask(name, json!("required"));
        for max_tokens in [1, 2, 5, 9, 14, 20, 27] {
            let cut = with(&forced, json!({"max_tokens": max_tokens}));
            let told = whole(&server.ask(CHAT, &cut));
            assert!(["length", "tool_calls"].contains(&told["finish"].as_str().unwrap()), "{name}: {told}");
            assert_eq!(
                joined(&server.post(CHAT, &with(&cut, json!({"stream": true}))).events()),
                told,
                "{name}"
            );
        }
    }
}
