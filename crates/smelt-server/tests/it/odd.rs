//! Odd tools, odd histories, odd limits: each is answered, or refused by the name of what is wrong. Nothing in between.

use std::io::{Read, Write};
use std::net::TcpStream;

use serde_json::{Value, json};

use crate::scripted;
use crate::support::{MODEL, Running, source, with};

const CHAT: &str = "/v1/chat/completions";

fn ask() -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": "Weather?"}], "temperature": 0, "max_tokens": 24})
}

fn tool(name: &str, parameters: Value) -> Value {
    json!({"type": "function", "function": {"name": name, "parameters": parameters}})
}

fn plain() -> Value {
    json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false})
}

/// A case: what is asked for, and the parameter that is to blame, if it is refused.
type Case = (Value, Option<&'static str>);

fn tools() -> Vec<Case> {
    let demanded = |tools: Value| json!({"tools": tools, "tool_choice": "required"});
    let one = |parameters: Value| demanded(json!([tool("f", parameters)]));
    let named = |tools: Value, name: &str| json!({"tools": tools, "tool_choice": {"type": "function", "function": {"name": name}}});
    let node = json!({
        "type": "object", "required": ["v", "n"], "additionalProperties": false,
        "properties": {"v": {"type": "integer", "minimum": 0, "maximum": 9}, "n": {"anyOf": [{"$ref": "#/$defs/N"}, {"type": "null"}]}},
    });
    let nested = json!({
        "$defs": {"N": node}, "type": "object", "properties": {"root": {"$ref": "#/$defs/N"}}, "required": ["root"],
        "additionalProperties": false,
    });
    let dangling = json!({"type": "object", "properties": {"x": {"$ref": "#/$defs/Z"}}});
    let names = json!({
        "type": "object", "properties": {"a b": {"const": 1}, "ü\"": {"const": 1}, "": {"type": "null"}},
        "required": ["a b", "ü\"", ""], "additionalProperties": false,
    });
    let many = |n: usize| (0..n).map(|i| tool(&format!("f{i}"), plain())).collect::<Value>();
    vec![
        (demanded(json!([{"type": "function", "function": {"name": "f"}}])), None),
        (one(Value::Null), None),
        (one(json!({})), None),
        (one(json!({"type": ["object", "null"]})), None),
        (one(nested), None),
        (one(names), None),
        (one(json!({"type": "array"})), Some("tools[0].function.parameters")),
        (one(json!({"type": "string"})), Some("tools[0].function.parameters")),
        (one(json!(true)), Some("tools[0].function.parameters")),
        (one(dangling.clone()), Some("tools[0]")),
        // Nothing is enforced where the model chooses.
        (json!({"tools": [tool("f", dangling)]}), None),
        (demanded(many(16)), None),
        (json!({"tools": many(513)}), Some("tools")),
        (named(json!([tool("Get", plain()), tool("get", plain())]), "get"), None),
        (named(json!([tool("Get", plain())]), "get"), Some("tool_choice")),
        (demanded(json!([tool("get", plain()), tool("get_b", plain()), tool("get_b_c", plain())])), None),
        (demanded(json!([tool("wetter_für_東京", plain())])), None),
        (demanded(json!([tool("f🙂", plain())])), Some("tools[0].function.name")),
        (demanded(json!([tool("", plain())])), Some("tools[0].function.name")),
        (demanded(json!([tool("f", plain()), tool("f", plain())])), Some("tools")),
        (json!({"tools": [null]}), Some("tools[0]")),
        (json!({"tool_choice": "required"}), Some("tool_choice")),
        (json!({"tools": many(1), "tool_choice": ["f0"]}), Some("tool_choice.function.name")),
        // What goes with tools.
        (with(&demanded(many(2)), json!({"n": 3, "temperature": 1, "seed": 5})), None),
        (with(&demanded(many(2)), json!({"n": 2, "parallel_tool_calls": false})), None),
        (with(&demanded(many(2)), json!({"stop": ["\"", "}"]})), None),
        (with(&demanded(many(2)), json!({"logprobs": true, "top_logprobs": 2})), None),
        (with(&demanded(many(2)), json!({"ignore_eos": true})), None),
        (with(&demanded(many(2)), json!({"max_tokens": 0})), None),
        (with(&demanded(many(2)), json!({"max_tokens": 1})), None),
    ]
}

fn histories() -> Vec<Case> {
    let call = |id: &str, arguments: Value| json!({"id": id, "type": "function", "function": {"name": "f", "arguments": arguments}});
    let calls = |calls: &[&Value]| json!({"role": "assistant", "content": null, "tool_calls": calls});
    let result = |id: &str| json!({"role": "tool", "tool_call_id": id, "content": "sunny"});
    let user = || json!({"role": "user", "content": "Weather?"});
    let (one, two) = (call("1", json!("{\"a\": \"x\"}")), call("2", json!({"a": "y"})));
    let told = |messages: Value| (json!({"messages": messages, "tools": [tool("f", plain())]}), None);
    let silent = |role: &str| json!({"role": role, "content": null});
    let mut cases = vec![
        told(json!([user(), result("none")])),
        told(json!([{"role": "tool", "content": "sunny"}])),
        told(json!([user(), calls(&[&one])])),
        told(json!([user(), calls(&[&one]), user()])),
        told(json!([silent("system"), silent("user"), silent("assistant"), silent("user")])),
        told(json!([user(), calls(&[&one, &two]), result("2"), result("1")])),
        told(json!([user(), calls(&[&one]), result("1"), result("1")])),
        told(json!([user(), calls(&[&one, &one]), result("1")])),
        told(json!([user(), calls(&[&call("1", json!("{oops"))]), result("1")])),
        told(json!([user(), calls(&[&call("1", json!(""))]), result("1")])),
        told(json!([user(), calls(&[&call("1", json!("[1]"))]), result("1")])),
        told(json!([silent("assistant")])),
        told(json!([silent("system")])),
        told(json!([user(), user()])),
        told(json!([user(), calls(&[&one]), {"role": "tool", "tool_call_id": "1", "content": null}])),
    ];
    let blamed = |messages: Value, param| (json!({"messages": messages}), Some(param));
    cases.extend([
        blamed(
            json!([user(), calls(&[&call("1", json!(3))])]),
            "messages[1].tool_calls[0].function.arguments",
        ),
        blamed(json!([{"role": "user", "tool_calls": [one]}]), "messages[0].tool_calls"),
        blamed(json!([]), "messages"),
        blamed(json!([silent("wizard")]), "messages[0].role"),
        blamed(json!([{"role": "user", "content": 3}]), "messages[0].content"),
    ]);
    cases
}

#[test]
fn odd_requests_are_answered_or_refused_by_name() {
    let server = Running::with(smelt_server::Settings::default(), 4096);
    for (more, param) in tools().into_iter().chain(histories()) {
        let body = with(&ask(), more);
        let reply = server.post(CHAT, &body);
        let (status, answer) = (reply.status, reply.json());
        if let Some(param) = param {
            assert_eq!((status, answer["error"]["param"].as_str()), (400, Some(param)), "{body}: {answer}");
            continue;
        }
        assert_eq!(status, 200, "{body}: {answer}");
        for choice in answer["choices"].as_array().unwrap() {
            for call in choice["message"]["tool_calls"].as_array().into_iter().flatten() {
                let arguments = call["function"]["arguments"].as_str().unwrap();
                let is_object = serde_json::from_str::<Value>(arguments).is_ok_and(|value| value.is_object());
                assert!(
                    is_object || body["stop"].is_array() || choice["finish_reason"] == "length",
                    "{answer}"
                );
            }
        }
        // The stream ends as well, and tells no error.
        let chunks = server.post(CHAT, &with(&body, json!({"stream": true}))).events();
        assert!(chunks.iter().all(|chunk| chunk.get("error").is_none()), "{body}");
    }
}

#[test]
fn budgets_and_limits_have_their_ranges() {
    let server = scripted_server();
    let think = |more: Value| server.post(CHAT, &with(&ask(), more));
    for (budget, is_fine) in [
        (json!(0), true),
        (json!(-1), true),
        (json!(1_000_000), true),
        (json!(5.0), true),
        (json!(-2), false),
        (json!(1_u64 << 31), false),
        (json!(1.5), false),
        (json!("9"), false),
    ] {
        let reply = think(json!({"thinking_budget": budget, "max_tokens": 4}));
        let (status, answer) = (reply.status, reply.json());
        assert_eq!(status == 200, is_fine, "{budget}: {answer}");
        if !is_fine {
            assert_eq!(answer["error"]["param"], "thinking_budget");
        }
    }
    // A limit on tokens ends thoughts too, however many are allowed.
    let cut = think(json!({"thinking_budget": 99, "max_tokens": 2})).json();
    assert_eq!(
        (&cut["choices"][0]["finish_reason"], &cut["usage"]["completion_tokens"]),
        (&json!("length"), &json!(2))
    );
    assert_eq!(cut["usage"]["completion_tokens_details"]["reasoning_tokens"], 2);
    for name in ["max_completion_tokens", "n"] {
        assert_eq!(think(json!({name: 0})).status, 400);
    }
}

#[test]
fn an_answer_ends_with_its_only_call() {
    let server = scripted_server();
    let tool =
        |name: &str| tool(name, json!({"type": "object", "properties": {"location": {"type": "string"}}}));
    let messages = json!([{"role": "user", "content": "Weather? E"}]);
    let body = with(&ask(), json!({"messages": messages, "tools": [tool("get_weather"), tool("get_time")]}));
    let tokens = |more: Value| server.ask(CHAT, &with(&body, more))["usage"]["completion_tokens"].clone();
    // The script's first token is a whole call; two more make another one.
    assert_eq!(tokens(json!({})), 3);
    assert_eq!(tokens(json!({"parallel_tool_calls": false})), 1);
    assert_eq!(tokens(json!({"parallel_tool_calls": false, "n": 2})), 2);
    let one = with(&body, json!({"parallel_tool_calls": false, "stream": true}));
    let chunks = server.post(CHAT, &one).events();
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
    server.wait(|| server.metric("smelt_requests_running{model_name=\"tiny:latest\"} ") < 0.5);
}

#[test]
fn who_goes_away_in_the_middle_of_a_call_is_not_computed_for() {
    let server = Running::with(smelt_server::Settings::default(), 4096);
    let endless = json!({"type": "object", "properties": {"a": {"type": "string"}}, "required": ["a"]});
    let more = json!({"tools": [tool("f", endless)], "tool_choice": "required", "stream": true, "max_tokens": 4000, "ignore_eos": true});
    let body = with(&ask(), more).to_string();
    for chunks in 1..8 {
        let mut connection = TcpStream::connect(server.address).unwrap();
        let head =
            format!("POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n", body.len());
        connection.write_all((head + &body).as_bytes()).unwrap();
        let (mut told, mut buffer) = (String::new(), [0; 512]);
        while told.matches("data:").count() < chunks {
            let length = connection.read(&mut buffer).unwrap();
            assert!(length > 0, "{told}");
            told.push_str(&String::from_utf8_lossy(&buffer[..length]));
        }
    }
    server.wait(|| server.metric("smelt_requests_running{model_name=\"tiny:latest\"} ") < 0.5);
    server.wait(|| server.metric("smelt_kv_pages_used{model_name=\"tiny:latest\"} ") < 0.5);
}

fn scripted_server() -> Running {
    let model = smelt_server::ModelSource { file: scripted::model(), ..source(4096) };
    let running = Running::start(smelt_server::Settings::default(), vec![model]);
    running.wait(|| running.get("/health").status == 200);
    running
}

#[test]
fn a_path_that_is_no_text_is_an_error_like_any_other() {
    let server = Running::new();
    for path in ["/v1/models/%ff", "/v1/responses/%ff", "/v1/responses/%ff/input_items", "/page/%ff"] {
        let mut stream = TcpStream::connect(server.address).unwrap();
        write!(stream, "GET {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).unwrap();
        let (head, body) = reply.split_once("\r\n\r\n").unwrap();
        assert!(head.starts_with("HTTP/1.1 404"), "{path}: {head}");
        let error: Value = serde_json::from_str(body).unwrap();
        assert_eq!(error["error"]["code"], "not_found", "{path}: {body}");
    }
}
