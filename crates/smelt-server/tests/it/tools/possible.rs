//! Calls that the model may make: they come piece by piece, by their schemas, and beside content with a form.

use serde_json::{Value, json};

use super::demanded::{check_call, short_tools};
use super::{CHAT, MESSAGES, OLLAMA, ask, ask_claude, built, events, joined, say, server, start, whole};
use crate::responses::{self, follow};
use crate::support::{MODEL, Running, with};

const RESPONSES: &str = "/v1/responses";

/// Arguments as the model says them in script C.
const PIECES: [&str; 2] = ["{\"location\": ", "\"Rome\"}"];

/// The same question to responses.
fn ask_responses(last: &str) -> Value {
    let tools: Vec<Value> = ask(last)["tools"].as_array().unwrap().iter().map(flat).collect();
    json!({"model": MODEL, "input": format!("Weather? {last}"), "temperature": 0, "tools": tools})
}

/// A tool as responses have it.
fn flat(tool: &Value) -> Value {
    with(&tool["function"], json!({"type": "function"}))
}

#[test]
fn arguments_come_as_they_are_said() {
    let server = server();
    let chunks = server.post(CHAT, &with(&ask("C"), json!({"stream": true}))).events();
    let deltas = chunks.iter().map(|chunk| &chunk["choices"][0]["delta"]["tool_calls"][0]);
    let calls: Vec<&Value> = deltas.filter(|call| call.is_object()).collect();
    assert!(
        calls[0]["id"].is_string() && calls[0]["function"] == json!({"name": "get_weather", "arguments": ""})
    );
    let pieces: Vec<&str> =
        calls[1..].iter().map(|call| call["function"]["arguments"].as_str().unwrap()).collect();
    assert_eq!(pieces, PIECES);

    let told = responses::events(server.post(RESPONSES, &with(&ask_responses("C"), json!({"stream": true}))));
    follow(&told);
    let is_piece = |event: &&Value| event["type"] == "response.function_call_arguments.delta";
    let pieces: Vec<&str> =
        told.iter().filter(is_piece).map(|event| event["delta"].as_str().unwrap()).collect();
    assert_eq!(pieces, PIECES);

    let told = events(server.post(MESSAGES, &with(&ask_claude("C"), json!({"stream": true}))));
    let pieces = told.iter().filter_map(|event| event["delta"]["partial_json"].as_str());
    let pieces: Vec<&str> = pieces.filter(|piece| !piece.is_empty()).collect();
    assert_eq!(pieces, PIECES);
    assert_eq!(built(&told)[1]["input"], json!({"location": "Rome"}));

    // Ollama's clients know whole calls only: each comes when the next one begins.
    let lines =
        server.post(OLLAMA, &ask("E")).lines().map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let calls: Vec<Value> =
        lines.map(|line| line["message"]["tool_calls"].clone()).filter(Value::is_array).collect();
    let indices: Vec<&Value> = calls.iter().map(|calls| &calls[0]["function"]["index"]).collect();
    assert!(indices == [0, 1] && calls.iter().all(|calls| calls[1].is_null()), "{calls:?}");
}

/// The calls of an answer of Ollama.
fn llama_calls(answer: &Value) -> Vec<Value> {
    let calls = answer["message"]["tool_calls"].as_array().cloned().unwrap_or_default();
    let call = |call: &Value| {
        let arguments = call["function"]["arguments"].to_string();
        json!({"function": {"name": call["function"]["name"], "arguments": arguments}})
    };
    calls.iter().map(call).collect()
}

#[test]
fn what_begins_as_a_call_becomes_one() {
    let server = server();
    let tools = json!({"tools": short_tools(), "max_tokens": 300});
    // The first of these would say arguments that are none, the other one would call what isn't there.
    for script in ["D", "G"] {
        let body = with(&say(script), tools.clone());
        let answer = whole(&server.ask(CHAT, &body));
        let calls = answer["calls"].as_array().unwrap();
        calls.iter().for_each(|call| drop(check_call(call)));
        assert_eq!(calls.is_empty(), script == "G", "{answer}");
        assert!(!answer["content"].as_str().unwrap().contains("launch"), "{answer}");
        let chunks = server.post(CHAT, &with(&body, json!({"stream": true}))).events();
        assert_eq!(joined(&chunks), answer);
    }
    let body = with(&say("D"), json!({"tools": short_tools(), "stream": false}));
    let calls = llama_calls(&server.ask(OLLAMA, &body));
    assert_eq!(calls.iter().map(check_call).collect::<Vec<_>>(), ["get_weather"]);
    // A schema that no grammar can enforce hinders nobody who isn't made to call.
    let mut odd = ask("C");
    odd["tools"][0]["function"]["parameters"]["not"] = json!({"required": ["x"]});
    assert_eq!(whole(&server.ask(CHAT, &odd))["calls"][0]["function"]["name"], "get_weather");
    // Marks in thoughts that are told as content are no calls.
    let body = with(&ask("F"), json!({"reasoning_format": "none"}));
    let answer = whole(&server.ask(CHAT, &body));
    assert_eq!(
        (&answer["content"], answer["calls"].as_array().unwrap().len()),
        (&json!("<think>Rome, I think.</think>"), 1)
    );
}

/// A form of content, and requests to each interface that ask for it beside tools.
fn with_form(schema: &Value, last: &str, tools: &Value) -> [(&'static str, Value); 4] {
    let claude = |tool: &Value| {
        let function = &tool["function"];
        json!({"name": function["name"], "input_schema": function["parameters"]})
    };
    let each =
        |form: &dyn Fn(&Value) -> Value| tools.as_array().unwrap().iter().map(form).collect::<Vec<Value>>();
    let format = json!({"type": "json_schema", "schema": schema});
    let named = json!({"name": "n", "schema": schema});
    [
        (CHAT, json!({"tools": tools, "response_format": {"type": "json_schema", "json_schema": named}, "max_tokens": 300})),
        (OLLAMA, json!({"tools": tools, "format": schema, "options": {"num_predict": 300, "temperature": 0}})),
        (MESSAGES, json!({"tools": each(&claude), "output_config": {"format": format}, "max_tokens": 300})),
        (
            RESPONSES,
            json!({
                "tools": each(&flat), "text": {"format": {"type": "json_schema", "name": "n", "schema": schema}},
                "max_output_tokens": 300, "input": format!("Weather? {last}"), "messages": null,
            }),
        ),
    ]
    .map(|(path, more)| (path, with(&say(last), more)))
}

/// What an answer of any interface holds: content, and calls in OpenAI's form.
fn held(path: &str, answer: &Value) -> (String, Vec<Value>) {
    let call = |name: &Value, arguments: String| json!({"function": {"name": name, "arguments": arguments}});
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    match path {
        CHAT => {
            let message = &answer["choices"][0]["message"];
            (text(&message["content"]), message["tool_calls"].as_array().cloned().unwrap_or_default())
        }
        OLLAMA => (text(&answer["message"]["content"]), llama_calls(answer)),
        MESSAGES => {
            let blocks = answer["content"].as_array().unwrap();
            let texts =
                blocks.iter().filter(|block| block["type"] == "text").map(|block| text(&block["text"]));
            let calls = blocks.iter().filter(|block| block["type"] == "tool_use");
            (texts.collect(), calls.map(|block| call(&block["name"], block["input"].to_string())).collect())
        }
        _ => {
            let items = answer["output"].as_array().unwrap();
            let texts = items.iter().filter(|item| item["type"] == "message");
            let calls = items.iter().filter(|item| item["type"] == "function_call");
            (
                texts.map(|item| text(&item["content"][0]["text"])).collect(),
                calls.map(|item| call(&item["name"], text(&item["arguments"]))).collect(),
            )
        }
    }
}

/// The same of a stream.
fn held_streamed(server: &Running, path: &str, body: &Value) -> (String, Vec<Value>) {
    let body = with(body, json!({"stream": true}));
    match path {
        CHAT => {
            let answer = joined(&server.post(path, &body).events());
            (answer["content"].as_str().unwrap().to_owned(), answer["calls"].as_array().unwrap().clone())
        }
        OLLAMA => {
            let pieces =
                server.post(path, &body).lines().map(|line| serde_json::from_str::<Value>(&line).unwrap());
            let pieces: Vec<_> = pieces.map(|piece| held(path, &piece)).collect();
            let content = pieces.iter().map(|(content, _)| content.as_str()).collect();
            (content, pieces.into_iter().flat_map(|(_, calls)| calls).collect())
        }
        MESSAGES => held(path, &json!({"content": built(&events(server.post(path, &body)))})),
        _ => held(path, &follow(&responses::events(server.post(path, &body)))),
    }
}

/// Names and arguments of calls.
fn calls(calls: &[Value]) -> Vec<(Value, Value)> {
    let call = |call: &Value| {
        let function = &call["function"];
        (function["name"].clone(), serde_json::from_str(function["arguments"].as_str().unwrap()).unwrap())
    };
    calls.iter().map(call).collect()
}

#[test]
fn content_with_a_form_stands_beside_calls() {
    let server = server();
    let integer = json!({"type": "integer"});
    let oslo = vec![(json!("get_weather"), json!({"location": "Oslo"})), (json!("get_time"), json!({}))];
    let nice = vec![(json!("get_weather"), json!({"location": "Nice"}))];
    for (script, content, wanted) in [("B", "42", Vec::new()), ("E", "", oslo.clone()), ("F", "", nice)] {
        for (path, body) in with_form(&integer, script, &ask(script)["tools"]) {
            let answer = held(path, &server.ask(path, &with(&body, json!({"stream": false}))));
            assert_eq!((answer.0.as_str(), calls(&answer.1)), (content, wanted.clone()), "{path} {script}");
            let streamed = held_streamed(&server, path, &body);
            assert_eq!((streamed.0, calls(&streamed.1)), (answer.0, wanted.clone()), "{path} {script}");
        }
    }
    // What the model would say in front of its call has not the form.
    for (path, body) in with_form(&integer, "A", &ask("A")["tools"]) {
        let (content, calls) = held(path, &server.ask(path, &with(&body, json!({"stream": false}))));
        assert!(
            calls.is_empty() && content.bytes().all(|b| b.is_ascii_digit() || b == b'-'),
            "{path}: {content}"
        );
    }
    // A call that is demanded leaves no content to be held, one call is one, and none is none.
    let [(path, body), ..] = with_form(&integer, "E", &ask("E")["tools"]);
    let ask = |more: Value| held(path, &server.ask(path, &with(&body, more)));
    let required = ask(json!({"tool_choice": "required"}));
    assert_eq!((required.0.as_str(), calls(&required.1)[0].clone()), ("", oslo[0].clone()));
    let named = json!({"type": "function", "function": {"name": "get_time"}});
    let named = ask(json!({"tool_choice": named, "tools": short_tools(), "reasoning_effort": "none"}));
    assert_eq!((named.0.as_str(), calls(&named.1)), ("", vec![oslo[1].clone()]));
    assert_eq!(calls(&ask(json!({"parallel_tool_calls": false})).1), oslo[..1]);
    let none = ask(json!({"tool_choice": "none"}));
    assert!(none.1.is_empty() && none.0.parse::<f64>().is_ok(), "{none:?}");
}

#[test]
fn a_real_model_answers_in_its_form_or_calls() {
    let file = smelt_testdata::fetched("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let server = start(file, 2048);
    let schema = json!({
        "type": "object", "properties": {"city": {"enum": ["Rome", "Oslo"]}}, "required": ["city"],
        "additionalProperties": false,
    });
    for (path, body) in with_form(&schema, "Where is it warm?", &short_tools()) {
        let one = match path {
            CHAT | RESPONSES => json!({"parallel_tool_calls": false}),
            MESSAGES => json!({"tool_choice": {"type": "auto", "disable_parallel_tool_use": true}}),
            _ => json!({}),
        };
        let body = with(&body, one);
        let (content, calls) = held(path, &server.ask(path, &with(&body, json!({"stream": false}))));
        if calls.is_empty() {
            let city = serde_json::from_str::<Value>(&content).unwrap()["city"].clone();
            assert!(city == "Rome" || city == "Oslo", "{path}: {content}");
        } else {
            // Of Ollama's calls, which may be many, the last one may be cut off, and is text then.
            assert!(content.is_empty() || path == OLLAMA, "{path}: {content:?} {calls:?}");
        }
        calls.iter().for_each(|call| drop(check_call(call)));
        assert_eq!(held_streamed(&server, path, &body).0, content, "{path}");
    }
}
