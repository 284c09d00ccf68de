//! Calls of tools and reasoning, over every interface, from a model that says what it is told to.

mod demanded;
mod families;
mod possible;

use serde_json::{Value, json};

use crate::scripted;
use crate::support::{MODEL, Reply, Running, source, with};

const CHAT: &str = "/v1/chat/completions";
const MESSAGES: &str = "/v1/messages";
const OLLAMA: &str = "/api/chat";

fn server() -> Running {
    start(scripted::model(), 4096)
}

fn start(file: std::path::PathBuf, context: usize) -> Running {
    let model = smelt_server::ModelSource { file, ..source(context) };
    let running = Running::start(smelt_server::Settings::default(), vec![model]);
    running.wait(|| running.get("/health").status == 200);
    running
}

/// A conversation that ends with `last`, which chooses the script.
fn say(last: &str) -> Value {
    json!({"model": MODEL, "messages": [{"role": "user", "content": format!("Weather? {last}")}], "temperature": 0})
}

/// The same with tools, in OpenAI's form.
fn ask(last: &str) -> Value {
    let tool = |name: &str| json!({"type": "function", "function": {"name": name, "parameters": {"type": "object", "properties": {"location": {"type": "string"}}}}});
    with(&say(last), json!({"tools": [tool("get_weather"), tool("get_time")]}))
}

/// The same in Anthropic's.
fn ask_claude(last: &str) -> Value {
    let tool = |name: &str| json!({"name": name, "input_schema": {"type": "object", "properties": {"location": {"type": "string"}}}});
    with(&say(last), json!({"tools": [tool("get_weather"), tool("get_time")], "max_tokens": 99}))
}

/// A message of a stream, put together as OpenAI's clients do, with its last chunk's `finish_reason`.
fn joined(chunks: &[Value]) -> Value {
    let (mut content, mut reasoning) = (String::new(), String::new());
    let mut calls: Vec<Value> = Vec::new();
    let mut finish = Value::Null;
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        let delta = &choice["delta"];
        content.push_str(delta["content"].as_str().unwrap_or_default());
        reasoning.push_str(delta["reasoning_content"].as_str().unwrap_or_default());
        for call in delta["tool_calls"].as_array().into_iter().flatten() {
            let index = usize::try_from(call["index"].as_u64().unwrap()).unwrap();
            let arguments = call["function"]["arguments"].as_str().unwrap();
            if index == calls.len() {
                // Where it begins it has its id, type and name, and no arguments yet.
                assert!(call["id"].as_str().unwrap().starts_with("call_") && arguments.is_empty(), "{call}");
                calls.push(json!({"type": call["type"], "function": {"name": call["function"]["name"], "arguments": ""}}));
            } else {
                assert_eq!(call.as_object().unwrap().len(), 2, "{call}");
                assert_eq!(index, calls.len() - 1);
                let so_far = calls[index]["function"]["arguments"].as_str().unwrap();
                calls[index]["function"]["arguments"] = format!("{so_far}{arguments}").into();
            }
        }
        finish = choice["finish_reason"].clone();
    }
    json!({"content": content, "reasoning": reasoning, "calls": calls, "finish": finish})
}

/// A whole answer in the same form.
fn whole(answer: &Value) -> Value {
    let choice = &answer["choices"][0];
    let message = &choice["message"];
    let mut calls: Vec<Value> = message["tool_calls"].as_array().cloned().unwrap_or_default();
    assert_eq!(message["content"].is_null(), message["content"] == Value::Null && !calls.is_empty());
    for call in &mut calls {
        let id = call.as_object_mut().unwrap().remove("id").unwrap();
        assert_eq!(id.as_str().unwrap().len(), "call_".len() + 24);
    }
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    json!({
        "content": text(&message["content"]), "reasoning": text(&message["reasoning_content"]), "calls": calls,
        "finish": choice["finish_reason"],
    })
}

fn called(name: &str, arguments: &str) -> Value {
    json!({"type": "function", "function": {"name": name, "arguments": arguments}})
}

/// A request, what its answer holds, and why it ended.
type Case = (Value, &'static str, &'static str, Vec<Value>, &'static str);

fn openai_cases() -> Vec<Case> {
    let rome = called("get_weather", "{\"location\": \"Rome\"}");
    vec![
        (ask("A"), "Hello there.", "", vec![], "stop"),
        (say("B"), "42", "Let me see.", vec![], "stop"),
        (ask("C"), "I look.", "", vec![rome], "tool_calls"),
        (
            ask("E"),
            "",
            "",
            vec![called("get_weather", "{\"location\": \"Oslo\"}"), called("get_time", "{}")],
            "tool_calls",
        ),
        (
            with(&ask("E"), json!({"parallel_tool_calls": false})),
            "",
            "",
            vec![called("get_weather", "{\"location\": \"Oslo\"}")],
            "tool_calls",
        ),
        (
            ask("F"),
            "",
            "Rome, I think.",
            vec![called("get_weather", "{\"location\": \"Nice\"}")],
            "tool_calls",
        ),
        // Without tools there are no calls.
        (
            say("D"),
            "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": }}\n</tool_call> Sorry.",
            "",
            vec![],
            "stop",
        ),
        (
            with(&ask("G"), json!({"tool_choice": "none"})),
            "<tool_call>{\"name\": \"launch\", \"arguments\": {}}</tool_call>",
            "",
            vec![],
            "stop",
        ),
        // An answer that is cut off.
        (
            with(&ask("C"), json!({"max_tokens": 3})),
            "I look.\n<tool_call>\n{\"name\": \"get_weather\", \"arg",
            "",
            vec![],
            "length",
        ),
        (with(&say("B"), json!({"max_tokens": 2})), "", "Let me", vec![], "length"),
        (
            with(&say("B"), json!({"reasoning_format": "none"})),
            "<think>Let me see.</think>\n\n42",
            "",
            vec![],
            "stop",
        ),
        // What a user says opens no think block.
        (say("<think>"), "Fine.", "", vec![], "stop"),
    ]
}

#[test]
fn openai_tells_of_calls_and_reasoning() {
    let server = server();
    for (body, content, reasoning, calls, finish) in openai_cases() {
        let want = json!({"content": content, "reasoning": reasoning, "calls": calls, "finish": finish});
        let answer = server.ask(CHAT, &body);
        assert_eq!(whole(&answer), want, "{body}");
        let chunks = server.post(CHAT, &with(&body, json!({"stream": true}))).events();
        assert_eq!(joined(&chunks), want, "{body}");
        // Log-probabilities are those of all tokens, whatever they belong to.
        let with_logprobs = with(&body, json!({"logprobs": true, "stream": true}));
        let chunks = server.post(CHAT, &with_logprobs).events();
        let told = |chunk: &Value| chunk["choices"][0]["logprobs"]["content"].as_array().map_or(0, Vec::len);
        assert_eq!(
            chunks.iter().map(told).sum::<usize>() as u64,
            answer["usage"]["completion_tokens"].as_u64().unwrap()
        );
        assert_eq!(joined(&chunks), want, "{body}");
    }
    let silent = server.ask(CHAT, &ask("E"));
    assert!(silent["choices"][0]["message"]["content"].is_null());
    // Several answers are each read by themselves.
    let rome = called("get_weather", "{\"location\": \"Rome\"}");
    let two = server.ask(CHAT, &with(&ask("C"), json!({"n": 2})));
    for choice in two["choices"].as_array().unwrap() {
        assert_eq!(choice["message"]["tool_calls"][0]["function"], rome["function"]);
    }
    assert_ne!(
        two["choices"][0]["message"]["tool_calls"][0]["id"],
        two["choices"][1]["message"]["tool_calls"][0]["id"]
    );
}

#[test]
fn thinking_is_as_long_as_allowed() {
    let server = server();
    let think = |more: Value| whole(&server.ask(CHAT, &with(&say("A"), more)));
    let all = "one two three four five six seven.";
    let thought = |answer: Value| {
        (answer["reasoning"].as_str().unwrap().to_owned(), answer["content"].as_str().unwrap().to_owned())
    };
    let is = |reasoning: &str, content: &str| (reasoning.to_owned(), content.to_owned());
    assert_eq!(thought(think(json!({"reasoning_effort": "high"}))), is(all, "Done."));
    assert_eq!(thought(think(json!({"chat_template_kwargs": {"enable_thinking": true}}))), is(all, "Done."));
    assert_eq!(thought(think(json!({"reasoning_effort": "none"}))), is("", "Hello there."));
    assert_eq!(thought(think(json!({"thinking_budget": 0}))), is("", "Hello there."));
    for name in ["thinking_budget", "thinking_budget_tokens", "thinking_token_budget"] {
        assert_eq!(thought(think(json!({name: 3}))), is("one two three", "At last."));
    }
    assert_eq!(thought(think(json!({"thinking_budget": -1, "reasoning_effort": "low"}))), is(all, "Done."));
    let claude = |more: Value| {
        server.ask(MESSAGES, &with(&with(&say("A"), json!({"max_tokens": 99})), more))["content"].clone()
    };
    assert_eq!(
        claude(json!({"thinking": {"type": "enabled", "budget_tokens": 3}})),
        json!([
            {"type": "thinking", "thinking": "one two three", "signature": ""}, {"type": "text", "text": "At last."},
        ])
    );
    assert_eq!(
        claude(json!({"thinking": {"type": "disabled"}})),
        json!([{"type": "text", "text": "Hello there."}])
    );
    let llama = |think: Value| {
        server.ask(OLLAMA, &with(&say("A"), json!({"think": think, "stream": false})))["message"].clone()
    };
    assert_eq!(llama(json!(true)), json!({"role": "assistant", "content": "Done.", "thinking": all}));
    assert_eq!(llama(json!(false)), json!({"role": "assistant", "content": "Hello there."}));
    // A model without reasoning refuses to be asked for it.
    let plain = Running::new();
    for (path, body, param) in [
        (CHAT, json!({"reasoning_effort": "low"}), "reasoning_effort"),
        (CHAT, json!({"thinking_budget": 9}), "thinking_budget"),
        (MESSAGES, json!({"thinking": {"type": "enabled", "budget_tokens": 2}, "max_tokens": 9}), "thinking"),
        (OLLAMA, json!({"think": true}), "think"),
    ] {
        let reply = plain.post(path, &with(&say("A"), body));
        let (status, text) = (reply.status, reply.text());
        assert!(status == 400 && text.contains(param), "{text}");
    }
    plain.ask(CHAT, &with(&say("A"), json!({"reasoning_effort": "none", "max_tokens": 2})));
    plain.ask(MESSAGES, &with(&say("A"), json!({"thinking": {"type": "adaptive"}, "max_tokens": 9})));
}

#[test]
fn special_tokens_of_users_stay_text() {
    let server = server();
    let tokens = |body: Value| server.ask("/tokenize", &body)["tokens"].as_array().unwrap().clone();
    let control = |text: &str| tokens(json!({"content": text})).remove(0);
    let marks = ["<think>", "</think>", "<tool_call>", "</tool_call>", "</s>"];
    let hostile = marks.concat();
    // A user's message, a tool's description, an argument, a result, an earlier thought.
    let call = json!({"id": "c", "type": "function", "function": {"name": "get_time", "arguments": json!({"a": hostile}).to_string()}});
    let conversation = |text: &str, call: Value| {
        json!({
            "messages": [
                {"role": "user", "content": text},
                {"role": "assistant", "content": text, "reasoning_content": text, "tool_calls": [call]},
                {"role": "tool", "tool_call_id": "c", "content": text},
            ],
            "tools": [{"type": "function", "function": {"name": "get_time", "description": text}}],
        })
    };
    let innocent =
        json!({"id": "c", "type": "function", "function": {"name": "get_time", "arguments": "{}"}});
    let (plain, attacked) = (tokens(conversation("x", innocent)), tokens(conversation(&hostile, call)));
    for mark in marks {
        let id = control(mark);
        let count = |tokens: &[Value]| tokens.iter().filter(|token| **token == id).count();
        assert_eq!(count(&plain), count(&attacked), "{mark}");
    }
}

#[test]
fn conversations_with_calls_go_on() {
    let server = server();
    let prompt = |messages: Value| {
        let tokens =
            server.ask("/tokenize", &json!({"messages": messages, "tools": ask("A")["tools"]}))["tokens"]
                .clone();
        let count = tokens.as_array().unwrap().len() as u64;
        let text = server.ask("/detokenize", &json!({"tokens": tokens}))["content"]
            .as_str()
            .unwrap()
            .replace('\u{2581}', " ");
        (text, count)
    };
    let (openai, count) = prompt(json!([
        {"role": "user", "content": "Weather?"},
        {"role": "assistant", "content": null, "reasoning_content": "Rome.", "tool_calls": [
            {"id": "call_1", "type": "function", "function": {"name": "get_weather", "arguments": "{\"location\": \"Rome\"}"}},
        ]},
        {"role": "tool", "tool_call_id": "call_1", "content": "sunny A"},
    ]));
    let replayed = "<|user|>Weather?<|assistant|><think>Rome.</think><tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"location\": \"Rome\"}}\n</tool_call><|tool|>sunny A";
    assert!(openai.ends_with(replayed) && openai.starts_with("{\"type\": \"function\""), "{openai}");
    // Each interface tells the same conversation, and the answer is what its last message chooses.
    let claude = with(
        &ask_claude("A"),
        json!({"messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": [
                {"type": "thinking", "thinking": "Rome.", "signature": ""},
                {"type": "tool_use", "id": "toolu_1", "name": "get_weather", "input": {"location": "Rome"}},
            ]},
            {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "toolu_1", "content": "sunny A"}]},
        ]}),
    );
    let answer = server.ask(MESSAGES, &claude);
    assert_eq!(answer["content"], json!([{"type": "text", "text": "Hello there."}]));
    let llama = with(
        &ask("A"),
        json!({"stream": false, "messages": [
            {"role": "user", "content": "Weather?"},
            {"role": "assistant", "content": "", "thinking": "Rome.", "tool_calls": [{"function": {"name": "get_weather", "arguments": {"location": "Rome"}}}]},
            {"role": "tool", "tool_name": "get_weather", "content": "sunny A"},
        ]}),
    );
    let told = server.ask(OLLAMA, &llama);
    assert_eq!(told["message"]["content"], "Hello there.");
    let usage = &answer["usage"];
    let of_claude =
        usage["input_tokens"].as_u64().unwrap() + usage["cache_read_input_tokens"].as_u64().unwrap();
    assert_eq!(of_claude, told["prompt_eval_count"].as_u64().unwrap());
    assert_eq!(of_claude, count, "it is the same prompt");
}

/// The events of Anthropic's stream.
fn events(reply: Reply) -> Vec<Value> {
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    data.map(|text| serde_json::from_str(&text).unwrap()).collect()
}

/// The blocks that a stream of events makes, without their ids.
fn built(told: &[Value]) -> Vec<Value> {
    let mut built: Vec<Value> = Vec::new();
    let mut partial = String::new();
    for event in told {
        let index = event["index"].as_u64().map_or(0, |i| usize::try_from(i).unwrap());
        match event["type"].as_str().unwrap() {
            "content_block_start" => {
                assert_eq!(index, built.len());
                built.push(event["content_block"].clone());
                partial.clear();
            }
            "content_block_delta" => {
                let delta = &event["delta"];
                for (kind, field) in [("text_delta", "text"), ("thinking_delta", "thinking")] {
                    if delta["type"] == kind {
                        built[index][field] = format!(
                            "{}{}",
                            built[index][field].as_str().unwrap(),
                            delta[field].as_str().unwrap()
                        )
                        .into();
                    }
                }
                partial.push_str(delta["partial_json"].as_str().unwrap_or_default());
            }
            "content_block_stop" if built[index]["type"] == "tool_use" => {
                built[index]["input"] = serde_json::from_str(&partial).unwrap();
                built[index].as_object_mut().unwrap().remove("id").unwrap();
            }
            _ => {}
        }
    }
    built
}

#[test]
fn anthropic_tells_of_calls_and_reasoning() {
    let server = server();
    let oslo = json!({"type": "tool_use", "name": "get_weather", "input": {"location": "Oslo"}});
    let cases = [
        ("A", vec![json!({"type": "text", "text": "Hello there."})], "end_turn"),
        (
            "B",
            vec![
                json!({"type": "thinking", "thinking": "Let me see.", "signature": ""}),
                json!({"type": "text", "text": "42"}),
            ],
            "end_turn",
        ),
        (
            "C",
            vec![
                json!({"type": "text", "text": "I look."}),
                json!({"type": "tool_use", "name": "get_weather", "input": {"location": "Rome"}}),
            ],
            "tool_use",
        ),
        ("E", vec![oslo, json!({"type": "tool_use", "name": "get_time", "input": {}})], "tool_use"),
        (
            "F",
            vec![
                json!({"type": "thinking", "thinking": "Rome, I think.", "signature": ""}),
                json!({"type": "tool_use", "name": "get_weather", "input": {"location": "Nice"}}),
            ],
            "tool_use",
        ),
    ];
    for (script, blocks, stop) in cases {
        let mut answer = server.ask(MESSAGES, &ask_claude(script));
        for block in answer["content"].as_array_mut().unwrap() {
            if block["type"] == "tool_use" {
                assert!(
                    block
                        .as_object_mut()
                        .unwrap()
                        .remove("id")
                        .unwrap()
                        .as_str()
                        .unwrap()
                        .starts_with("toolu_")
                );
            }
        }
        assert_eq!((&answer["content"], &answer["stop_reason"]), (&json!(blocks), &json!(stop)), "{script}");
        let told = events(server.post(MESSAGES, &with(&ask_claude(script), json!({"stream": true}))));
        let built = built(&told);
        let end = told.iter().find(|event| event["type"] == "message_delta").unwrap();
        assert_eq!(end["delta"]["stop_reason"], stop);
        assert_eq!(built, blocks, "{script}");
    }
    let one =
        with(&ask_claude("E"), json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}));
    assert_eq!(server.ask(MESSAGES, &one)["content"].as_array().unwrap().len(), 1);
}

#[test]
fn ollama_tells_of_calls_and_reasoning() {
    let server = server();
    let call = |index: usize, name: &str, arguments: Value| json!({"function": {"index": index, "name": name, "arguments": arguments}});
    let cases = [
        ("A", "Hello there.", "", vec![]),
        ("B", "42", "Let me see.", vec![]),
        ("C", "I look.", "", vec![call(0, "get_weather", json!({"location": "Rome"}))]),
        (
            "E",
            "",
            "",
            vec![call(0, "get_weather", json!({"location": "Oslo"})), call(1, "get_time", json!({}))],
        ),
        ("F", "", "Rome, I think.", vec![call(0, "get_weather", json!({"location": "Nice"}))]),
    ];
    let take = |message: &Value| {
        let mut calls = message["tool_calls"].as_array().cloned().unwrap_or_default();
        calls
            .iter_mut()
            .for_each(|call| assert!(call.as_object_mut().unwrap().remove("id").unwrap().is_string()));
        let text = |name: &str| message[name].as_str().unwrap_or_default().to_owned();
        (text("content"), text("thinking"), calls)
    };
    for (script, content, thinking, calls) in cases {
        let want = (content.to_owned(), thinking.to_owned(), calls);
        let answer = server.ask(OLLAMA, &with(&ask(script), json!({"stream": false})));
        assert_eq!((take(&answer["message"]), &answer["done_reason"]), (want.clone(), &json!("stop")));
        let mut joined = (String::new(), String::new(), Vec::new());
        for line in server.post(OLLAMA, &ask(script)).lines() {
            let piece: Value = serde_json::from_str(&line).unwrap();
            let (content, thinking, calls) = take(&piece["message"]);
            joined.0.push_str(&content);
            joined.1.push_str(&thinking);
            joined.2.extend(calls);
        }
        assert_eq!(joined, want, "{script}");
    }
    let generated = server.ask(
        "/api/generate",
        &json!({"model": MODEL, "prompt": "B", "stream": false, "options": {"temperature": 0}}),
    );
    assert_eq!((&generated["response"], &generated["thinking"]), (&json!("42"), &json!("Let me see.")));
    let shown = server.ask("/api/show", &json!({"model": MODEL}));
    assert_eq!(shown["capabilities"], json!(["completion", "tools", "thinking"]));
}
