//! Anthropic's routes.

use serde_json::{Value, json};

use crate::support::{MODEL, Running, with};

const MESSAGES: &str = "/v1/messages";

fn request() -> Value {
    json!({
        "model": MODEL, "max_tokens": 12, "temperature": 0, "system": "Be terse.",
        "messages": [{"role": "user", "content": [{"type": "text", "text": "Why is the sky blue?"}]}],
    })
}

#[test]
fn messages_are_answered() {
    let server = Running::new();
    let whole = server.ask(MESSAGES, &request());
    assert_eq!((&whole["type"], &whole["role"]), (&json!("message"), &json!("assistant")));
    let text = whole["content"][0]["text"].as_str().unwrap();
    let input = whole["usage"]["input_tokens"].as_u64().unwrap();
    let counted = server.ask(
        "/v1/messages/count_tokens",
        &json!({
            "model": MODEL, "system": "Be terse.", "messages": request()["messages"],
        }),
    );
    assert_eq!(counted, json!({"input_tokens": input}));

    let reply = server.post(MESSAGES, &with(&request(), json!({"stream": true})));
    assert_eq!(reply.header("content-type"), "text/event-stream");
    let lines: Vec<String> = reply.lines().collect();
    let mut events: Vec<(String, Value)> = Vec::new();
    for pair in lines.split(String::is_empty).filter(|pair| !pair.is_empty()) {
        let name = pair[0].strip_prefix("event: ").unwrap().to_owned();
        let data: Value = serde_json::from_str(pair[1].strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(data["type"], name);
        events.push((name, data));
    }
    let names: Vec<&str> = events.iter().map(|(name, _)| name.as_str()).collect();
    assert_eq!(names[..3], ["message_start", "ping", "content_block_start"]);
    assert_eq!(names[names.len() - 3..], ["content_block_stop", "message_delta", "message_stop"]);
    let deltas = events.iter().filter(|(name, _)| name == "content_block_delta");
    let streamed: String = deltas.map(|(_, data)| data["delta"]["text"].as_str().unwrap()).collect();
    assert_eq!(streamed, text);
    let usage = &events[0].1["message"]["usage"];
    let cached = usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(usage["input_tokens"].as_u64().unwrap() + cached, input);
    assert!(cached > 0, "the second request finds the first one's prompt");
    let end = &events[names.len() - 2].1;
    assert_eq!(end["usage"]["output_tokens"], whole["usage"]["output_tokens"]);
    assert_eq!(end["delta"]["stop_reason"], whole["stop_reason"]);
}

#[test]
fn answers_end_as_anthropic_says() {
    let server = Running::new();
    let whole = server.ask(MESSAGES, &request());
    let text = whole["content"][0]["text"].as_str().unwrap();
    assert_eq!(whole["stop_reason"], "max_tokens", "{whole}");
    let stop: String = text.chars().skip(text.chars().count() / 2).take(2).collect();
    let stopped = server.ask(MESSAGES, &with(&request(), json!({"stop_sequences": ["never", stop]})));
    assert_eq!((&stopped["stop_reason"], &stopped["stop_sequence"]), (&json!("stop_sequence"), &json!(stop)));
    // An answer that was begun goes on.
    let begun: String = text.chars().take(text.chars().count() / 2).collect();
    let messages =
        json!([{"role": "user", "content": "Why is the sky blue?"}, {"role": "assistant", "content": begun}]);
    server.ask(MESSAGES, &with(&request(), json!({"messages": messages})));
    let count = |messages: Value| {
        let body = json!({"model": MODEL, "messages": messages});
        server.ask("/v1/messages/count_tokens", &body)["input_tokens"].as_u64().unwrap()
    };
    let closed = json!([messages[0], messages[1], {"role": "user", "content": "x"}]);
    assert!(count(messages.clone()) < count(closed), "no turn ends behind what was begun");
    // What changes with every request is left out.
    let header = |n: u32| json!([{"type": "text", "text": format!("x-anthropic-billing-header: cch={n};")}, {"type": "text", "text": "Be terse."}]);
    server.ask(MESSAGES, &with(&request(), json!({"system": header(1)})));
    let again = server.ask(MESSAGES, &with(&request(), json!({"system": header(2)})));
    assert!(again["usage"]["cache_read_input_tokens"].as_u64().unwrap() > 0);
}

#[test]
fn errors_have_anthropics_shape() {
    let server = Running::new();
    let error = |body: &Value| {
        let reply = server.post(MESSAGES, body);
        let (status, id) = (reply.status, reply.header("request-id").to_owned());
        let body = reply.json();
        assert_eq!((&body["type"], &body["request_id"]), (&json!("error"), &json!(id)));
        (status, body["error"]["type"].as_str().unwrap().to_owned(), body["error"]["message"].to_string())
    };
    let (status, kind, message) =
        error(&with(&request(), json!({"tools": [{"type": "bash_20250124", "name": "bash"}]})));
    assert_eq!((status, kind.as_str()), (400, "invalid_request_error"));
    assert!(message.contains("tools[0].type"));
    let (status, kind, _) = error(&with(&request(), json!({"model": "claude"})));
    assert_eq!((status, kind.as_str()), (404, "not_found_error"));
    let long = json!([{"role": "user", "content": "word ".repeat(2000)}]);
    let (status, _, message) = error(&with(&request(), json!({"messages": long})));
    assert_eq!(status, 400);
    assert!(message.contains("prompt is too long: ") && message.contains("> 512 maximum"), "{message}");
}
