//! OpenAI's responses.

use serde_json::{Value, json};
use smelt_server::{ApiKey, Settings};

use crate::scripted;
use crate::support::{MODEL, Reply, Running, source, with};

const RESPONSES: &str = "/v1/responses";

fn server() -> Running {
    start(Settings::default())
}

fn start(settings: Settings) -> Running {
    let model = smelt_server::ModelSource { file: scripted::model(), ..source(4096) };
    let running = Running::start(settings, vec![model]);
    running.wait(|| running.get("/health").status == 200);
    running
}

/// A text that ends with `last`, which chooses the script.
fn say(last: &str) -> Value {
    json!({"model": MODEL, "input": format!("Weather? {last}"), "temperature": 0})
}

fn ask(last: &str) -> Value {
    let parameters = json!({"type": "object", "properties": {"location": {"type": "string"}}});
    let tool =
        |name: &str| json!({"type": "function", "name": name, "parameters": parameters, "strict": false});
    with(&say(last), json!({"tools": [tool("get_weather"), tool("get_time")]}))
}

/// The events of a stream, each of which has its name and its number.
pub(crate) fn events(reply: Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"));
    let text = reply.text();
    let blocks = text.split("\n\n").filter(|block| !block.is_empty() && !block.starts_with(':'));
    let event = |(i, block): (usize, &str)| {
        let (name, data) = block.split_once('\n').unwrap();
        let data: Value = serde_json::from_str(data.strip_prefix("data: ").unwrap()).unwrap();
        assert_eq!(name.strip_prefix("event: "), data["type"].as_str());
        assert_eq!(data["sequence_number"], i);
        data
    };
    blocks.enumerate().map(event).collect()
}

/// Follows a stream as clients do: every item is added, filled and done, and the end repeats all of them.
pub(crate) fn follow(events: &[Value]) -> Value {
    let kinds: Vec<&str> = events.iter().map(|e| e["type"].as_str().unwrap()).collect();
    assert_eq!(kinds[..2], ["response.created", "response.in_progress"]);
    assert_eq!(events[0]["response"]["status"], "in_progress");
    let (last, middle) = events[2..].split_last().unwrap();
    let mut items: Vec<Value> = Vec::new();
    let mut is_open = false;
    for event in middle {
        let index = usize::try_from(event["output_index"].as_u64().unwrap()).unwrap();
        let kind = event["type"].as_str().unwrap();
        assert_eq!(is_open, kind != "response.output_item.added", "{event}");
        if !is_open {
            assert_eq!((index, &event["item"]["status"]), (items.len(), &json!("in_progress")));
            items.push(event["item"].clone());
            is_open = true;
            continue;
        }
        assert_eq!(index + 1, items.len());
        let item = &mut items[index];
        assert!(event["item_id"] == item["id"] || event["item"]["id"] == item["id"], "{event}");
        let grow = |text: &mut Value| {
            *text = format!("{}{}", text.as_str().unwrap(), event["delta"].as_str().unwrap()).into()
        };
        match kind {
            "response.content_part.added" => item["content"] = json!([event["part"]]),
            "response.output_text.delta" | "response.reasoning_text.delta" => {
                grow(&mut item["content"][0]["text"])
            }
            "response.function_call_arguments.delta" => grow(&mut item["arguments"]),
            "response.output_text.done" | "response.reasoning_text.done" => {
                assert_eq!(event["text"], item["content"][0]["text"]);
            }
            "response.function_call_arguments.done" => {
                assert_eq!((&event["arguments"], &event["name"]), (&item["arguments"], &item["name"]));
            }
            "response.content_part.done" => assert_eq!(event["part"]["text"], item["content"][0]["text"]),
            "response.output_item.done" => {
                item["status"] = event["item"]["status"].clone();
                let told = |item: &Value| {
                    (item["content"][0]["text"].clone(), item["arguments"].clone(), item["status"].clone())
                };
                assert_eq!(told(item), told(&event["item"]));
                *item = event["item"].clone();
                is_open = false;
            }
            other => panic!("{other} in the middle"),
        }
    }
    assert!(!is_open);
    assert_eq!(last["type"], format!("response.{}", last["response"]["status"].as_str().unwrap()));
    assert_eq!(last["response"]["output"], json!(items));
    last["response"].clone()
}

/// What a response says, without its ids and times.
pub(crate) fn told(response: &Value) -> Value {
    let item = |item: &Value| match item["type"].as_str().unwrap() {
        "function_call" => {
            assert!(item["call_id"].as_str().unwrap().starts_with("call_"));
            json!([item["name"], item["arguments"], item["status"]])
        }
        kind => json!([kind, item["content"][0]["text"], item["status"]]),
    };
    let output: Vec<Value> = response["output"].as_array().unwrap().iter().map(item).collect();
    json!([response["status"], output])
}

#[test]
fn streamed_and_whole_responses_are_the_same() {
    let server = server();
    let rome = json!(["get_weather", "{\"location\": \"Rome\"}", "completed"]);
    let done = |output: Value| json!(["completed", output]);
    for (body, want, reasoning) in [
        (say("A"), done(json!([["message", "Hello there.", "completed"]])), 0),
        (
            say("B"),
            done(json!([["reasoning", "Let me see.", "completed"], ["message", "42", "completed"]])),
            3,
        ),
        (ask("C"), done(json!([["message", "I look.", "completed"], rome])), 0),
        (
            ask("E"),
            done(json!([
                ["get_weather", "{\"location\": \"Oslo\"}", "completed"],
                ["get_time", "{}", "completed"],
            ])),
            0,
        ),
        (
            with(&say("B"), json!({"max_output_tokens": 2})),
            json!(["incomplete", [["reasoning", "Let me", "incomplete"]]]),
            2,
        ),
        (
            with(&say("A"), json!({"max_output_tokens": 2})),
            json!(["incomplete", [["message", "Hello there", "incomplete"]]]),
            0,
        ),
        (with(&say("A"), json!({"stop": "Hello"})), done(json!([["message", "", "completed"]])), 0),
    ] {
        let whole = server.ask(RESPONSES, &body);
        let streamed = follow(&events(server.post(RESPONSES, &with(&body, json!({"stream": true})))));
        for response in [whole, streamed] {
            assert_eq!(told(&response), want, "{body}");
            let usage = &response["usage"];
            assert_eq!(usage["output_tokens_details"]["reasoning_tokens"], reasoning, "{body}");
            let sum = usage["input_tokens"].as_u64().unwrap() + usage["output_tokens"].as_u64().unwrap();
            assert_eq!(usage["total_tokens"], sum);
            let is_cut = response["status"] == "incomplete";
            assert_eq!(response["incomplete_details"]["reason"] == "max_output_tokens", is_cut);
            assert_eq!(response["completed_at"].is_null(), is_cut);
        }
    }
    // The request is repeated.
    let body =
        with(&ask("A"), json!({"instructions": "Be terse.", "metadata": {"a": "b"}, "tool_choice": "auto"}));
    let response = server.ask(RESPONSES, &body);
    for name in ["instructions", "metadata", "tool_choice", "tools", "temperature"] {
        assert_eq!(response[name], body[name], "{name}");
    }
    assert_eq!(
        (&response["truncation"], &response["text"]),
        (&json!("disabled"), &json!({"format": {"type": "text"}}))
    );
}

#[test]
fn log_probabilities_are_those_of_the_text() {
    let server = server();
    let body = with(
        &say("A"),
        json!({"include": ["message.output_text.logprobs"], "top_logprobs": 2, "stream": true}),
    );
    let events = events(server.post(RESPONSES, &body));
    let part = follow(&events)["output"][0]["content"][0].clone();
    let text = |tokens: &Value| -> String {
        tokens.as_array().unwrap().iter().map(|token| token["token"].as_str().unwrap()).collect()
    };
    assert_eq!(text(&part["logprobs"]), "Hello there.");
    for event in events.iter().filter(|event| event["type"] == "response.output_text.delta") {
        assert_eq!(text(&event["logprobs"]), event["delta"].as_str().unwrap());
        assert_eq!(event["logprobs"][0]["top_logprobs"].as_array().unwrap().len(), 2);
    }
    // Of thoughts there are none.
    let thoughtful = server.ask(RESPONSES, &with(&say("B"), json!({"top_logprobs": 1})));
    assert_eq!(text(&thoughtful["output"][1]["content"][0]["logprobs"]), "42");
}

#[test]
fn conversations_go_on_behind_what_is_kept() {
    let server = server();
    let tokens = |body: &Value| server.ask("/v1/responses/input_tokens", body)["input_tokens"].clone();
    let first = server.ask(RESPONSES, &with(&ask("F"), json!({"instructions": "Be terse."})));
    let call = &first["output"][1];
    let result = json!({"type": "function_call_output", "call_id": call["call_id"], "output": "sunny A"});
    let more = json!({"tools": ask("A")["tools"], "input": [result], "previous_response_id": first["id"]});
    let second = server.ask(RESPONSES, &with(&more, json!({"temperature": 0})));
    assert_eq!(told(&second)[1], json!([["message", "Hello there.", "completed"]]));
    // The same, sent whole: with all items, with references to them, and as a chat.
    let user = json!({"role": "user", "content": "Weather? F"});
    let items = json!([user, first["output"][0], call, result]);
    let reference = |item: &Value| json!({"type": "item_reference", "id": item["id"]});
    let referring = json!([user, reference(&first["output"][0]), reference(call), result]);
    let encrypted =
        server.ask(RESPONSES, &with(&ask("F"), json!({"include": ["reasoning.encrypted_content"]})));
    let mut secret = encrypted["output"][0].clone();
    secret.as_object_mut().unwrap().remove("content");
    let secret = json!([user, secret, call, result]);
    for input in [items, referring, secret] {
        let whole = json!({"tools": ask("A")["tools"], "input": input});
        assert_eq!(tokens(&whole), second["usage"]["input_tokens"], "{input}");
    }
    let call = json!({"id": "c", "type": "function", "function": {"name": call["name"], "arguments": call["arguments"]}});
    let chat = json!([
        user,
        {"role": "assistant", "reasoning_content": "Rome, I think.", "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c", "content": "sunny A"},
    ]);
    let tools: Vec<Value> = ["get_weather", "get_time"].iter().map(|name| {
        json!({"type": "function", "function": {"name": name, "parameters": ask("A")["tools"][0]["parameters"]}})
    }).collect();
    let chat = server.ask("/tokenize", &json!({"messages": chat, "tools": tools}));
    assert_eq!(chat["count"], second["usage"]["input_tokens"]);

    // What is kept can be had again, listed and forgotten.
    let path = |response: &Value| format!("{RESPONSES}/{}", response["id"].as_str().unwrap());
    assert_eq!(server.get(&path(&second)).json(), second);
    let list = server.get(&format!("{}/input_items?order=asc&limit=3", path(&second))).json();
    let kinds = |list: &Value| -> Vec<Value> {
        list["data"].as_array().unwrap().iter().map(|i| i["type"].clone()).collect()
    };
    assert_eq!(
        (kinds(&list), &list["has_more"]),
        (vec!["message".into(), "reasoning".into(), "function_call".into()], &json!(true))
    );
    assert_eq!(list["data"][0]["content"], json!([{"type": "input_text", "text": "Weather? F"}]));
    let after = list["last_id"].as_str().unwrap();
    let rest = server.get(&format!("{}/input_items?order=asc&after={after}", path(&second))).json();
    assert_eq!((kinds(&rest), &rest["has_more"]), (vec!["function_call_output".into()], &json!(false)));
    let newest = server.get(&format!("{}/input_items?limit=1", path(&second))).json();
    assert_eq!(newest["data"], rest["data"]);
    assert_eq!(server.delete(&path(&second)).json()["deleted"], true);
    let unkept = server.ask(RESPONSES, &with(&say("A"), json!({"store": false})));
    for id in [path(&second), path(&unkept), format!("{RESPONSES}/resp_none")] {
        let reply = server.get(&id);
        assert_eq!(reply.status, 404);
        assert!(
            reply.json()["error"]["message"]
                .as_str()
                .unwrap()
                .contains("as long as there is room and the server runs")
        );
    }
    let reply = server.post(RESPONSES, &with(&say("A"), json!({"previous_response_id": unkept["id"]})));
    assert_eq!((reply.status, &reply.json()["error"]["param"]), (404, &json!("previous_response_id")));
}

#[test]
fn what_is_kept_belongs_to_a_key() {
    let keys = ["first", "second"].map(ApiKey::new).to_vec();
    let server = start(Settings { api_keys: keys, ..Settings::default() });
    let key = |key: &str| format!("Bearer {key}");
    let (first, second) = (key("first"), key("second"));
    let made = server.post_text(RESPONSES, &say("A").to_string(), &[("authorization", &first)]).json();
    let path = format!("{RESPONSES}/{}", made["id"].as_str().unwrap());
    assert_eq!(server.get_with(&path, &[("authorization", &second)]).status, 404);
    assert_eq!(server.get_with(&path, &[("authorization", &first)]).status, 200);
    assert_eq!(server.get(&path).status, 401);
}

#[test]
fn what_is_not_supported_is_refused() {
    let server = server();
    let part = |kind: &str| json!({"input": [{"role": "user", "content": [{"type": kind}]}]});
    for (more, param) in [
        (json!({"background": true}), "background"),
        (json!({"conversation": "conv_1"}), "conversation"),
        (json!({"truncation": "auto"}), "truncation"),
        (json!({"max_tokens": 9}), "max_tokens"),
        (json!({"prompt": {"id": "p"}}), "prompt"),
        (json!({"include": ["file_search_call.results"]}), "include[0]"),
        (json!({"tools": [{"type": "web_search"}]}), "tools[0].type"),
        (json!({"tool_choice": {"type": "allowed_tools", "mode": "auto", "tools": []}}), "tool_choice.type"),
        (json!({"text": {"verbosity": "low"}}), "text.verbosity"),
        (json!({"reasoning": {"mode": "pro"}}), "reasoning.mode"),
        (part("input_image"), "input[0].content[0].type"),
        (json!({"input": [{"type": "computer_call"}]}), "input[0].type"),
    ] {
        let reply = server.post(RESPONSES, &with(&say("A"), more));
        let (status, error) = (reply.status, reply.json()["error"].clone());
        assert_eq!(
            (status, &error["code"], &error["param"]),
            (400, &json!("unsupported_parameter"), &json!(param)),
            "{error}"
        );
    }
    for (more, param) in [
        (json!({"input": []}), "input"),
        (json!({"input": 3}), "input"),
        (json!({"input": [3]}), "input[0]"),
        (json!({"input": [{"type": "function_call", "name": "f", "arguments": "{}"}]}), "input[0].call_id"),
        (
            json!({"input": [{"type": "function_call_output", "call_id": "c", "output": 3}]}),
            "input[0].output",
        ),
        (json!({"tools": [{"name": "f"}]}), "tools[0].type"),
        (json!({"tools": ask("A")["tools"], "tool_choice": {"type": "function"}}), "tool_choice.name"),
        (json!({"text": {"format": {"type": "json_schema", "name": "n"}}}), "text.format.schema"),
        (json!({"text": {"format": {"type": "text", "schema": {}}}}), "text.format.schema"),
        (json!({"metadata": {"a": 1}}), "metadata"),
        (json!({"reasoning": {"effort": "huge"}}), "reasoning.effort"),
        (json!({"max_output_tokens": 0}), "max_output_tokens"),
    ] {
        let reply = server.post(RESPONSES, &with(&say("A"), more.clone()));
        let (status, error) = (reply.status, reply.json()["error"].clone());
        assert_eq!((status, &error["param"]), (400, &json!(param)), "{more}: {error}");
    }
    let reply = server.post(RESPONSES, &json!({"model": MODEL}));
    assert_eq!(reply.json()["error"]["code"], "missing_required_parameter");
    let made = server.ask(RESPONSES, &say("A"))["id"].clone();
    let path = format!("{RESPONSES}/{}", made.as_str().unwrap());
    for query in ["?stream=true", "/input_items?limit=0", "/input_items?order=up", "/input_items?after=x"] {
        assert_eq!(server.get(&format!("{path}{query}")).status, 400, "{query}");
    }
}

#[test]
fn answers_are_held_to_schemas() {
    let server = Running::new();
    let schema = json!({"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"], "additionalProperties": false});
    let format = json!({"type": "json_schema", "name": "n", "schema": schema});
    let body =
        json!({"input": "Why?", "temperature": 0, "text": {"format": format}, "max_output_tokens": 60});
    let response = server.ask(RESPONSES, &body);
    let text = response["output"][0]["content"][0]["text"].as_str().unwrap();
    let value: Value = serde_json::from_str(text).unwrap();
    assert!(value == json!({"a": "x"}) || value == json!({"a": "y"}), "{text}");
    assert_eq!(response["text"]["format"], format);
}
