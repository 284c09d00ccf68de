//! Structured output by a real model.

use serde_json::{Value, json};
use smelt_server::{ModelSource, Settings};

use crate::scripted;
use crate::support::{MODEL, Running, source, with};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";
const RUNNING: &str = "smelt_requests_running{model_name=\"tiny:latest\"} ";

/// A server with SmolLM2.
fn server() -> Running {
    let file = smelt_testdata::fetched("models/SmolLM2-135M-Instruct.Q4_1.gguf");
    let source = ModelSource { file, ..source(2048) };
    let running = Running::start(Settings::default(), vec![source]);
    running.wait(|| running.get("/health").status == 200);
    running
}

fn schema() -> Value {
    json!({
        "$defs": {"City": {"type": "object", "required": ["name"], "additionalProperties": false, "properties": {
            "name": {"type": "string", "maxLength": 20}, "capital": {"type": "boolean"},
        }}},
        "type": "object", "required": ["country", "cities", "size"], "additionalProperties": false,
        "properties": {
            "country": {"type": "string", "maxLength": 20},
            "cities": {"type": "array", "minItems": 1, "maxItems": 2, "items": {"$ref": "#/$defs/City"}},
            "size": {"enum": ["small", "large"]},
        },
    })
}

/// Checks that a text is JSON which the schema allows.
fn check(text: &str) {
    let value: Value = serde_json::from_str(text).unwrap_or_else(|e| panic!("{e}: {text}"));
    let names: Vec<&String> = value.as_object().unwrap().keys().collect();
    assert_eq!(names, ["country", "cities", "size"], "{text}");
    assert!(value["country"].as_str().is_some_and(|name| name.chars().count() <= 20), "{text}");
    assert!(["small", "large"].contains(&value["size"].as_str().unwrap()), "{text}");
    let cities = value["cities"].as_array().unwrap();
    assert!((1..=2).contains(&cities.len()), "{text}");
    for city in cities {
        assert!(city["name"].is_string() && city.get("capital").is_none_or(Value::is_boolean), "{text}");
        assert!(city.as_object().unwrap().keys().all(|key| key == "name" || key == "capital"), "{text}");
    }
}

fn ask(seed: u64) -> Value {
    json!({
        "model": MODEL, "messages": [{"role": "user", "content": "Name a country and its cities."}],
        "temperature": 0.7, "seed": seed, "max_tokens": 400,
        "response_format": {"type": "json_schema", "json_schema": {"name": "country", "strict": true, "schema": schema()}},
    })
}

fn streamed(chunks: &[Value]) -> (String, Vec<&Value>) {
    let choices = || chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap());
    let text = choices().filter_map(|choice| choice["delta"]["content"].as_str()).collect();
    (text, choices().map(|choice| &choice["finish_reason"]).filter(|reason| !reason.is_null()).collect())
}

#[test]
fn answers_meet_a_schema_whole_and_streamed() {
    let server = server();
    for seed in 0..3 {
        let whole = server.ask(CHAT, &ask(seed));
        let choice = &whole["choices"][0];
        let text = choice["message"]["content"].as_str().unwrap();
        check(text);
        assert_eq!(choice["finish_reason"], "stop", "{text}");
        let chunks = server.post(CHAT, &with(&ask(seed), json!({"stream": true}))).events();
        assert_eq!(streamed(&chunks), (text.to_owned(), vec![&json!("stop")]));
    }
    // One that `max_tokens` cuts is told to be cut.
    let cut = server.ask(CHAT, &with(&ask(0), json!({"max_tokens": 5})));
    assert_eq!(cut["choices"][0]["finish_reason"], "length");
    let two = server.ask(CHAT, &with(&ask(0), json!({"n": 2})));
    two["choices"].as_array().unwrap().iter().for_each(|c| check(c["message"]["content"].as_str().unwrap()));
    let any =
        server.ask(CHAT, &with(&ask(0), json!({"response_format": {"type": "json_object"}, "stop": "}"})));
    assert!(any["choices"][0]["message"]["content"].as_str().unwrap().starts_with('{'));
}

#[test]
fn every_form_has_its_names() {
    let server = server();
    let is_date = |text: &str| text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let is_word = |text: &str| ["red", "green"].contains(&text);
    type Check<'a> = &'a dyn Fn(&str) -> bool;
    let (grammar, lark) = ("root ::= \"red\" | \"green\"", "start: \"red\" | \"green\"");
    let cases: [(Value, Check<'_>); 11] = [
        (json!({"guided_regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}), &is_date),
        (json!({"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}), &is_date),
        (json!({"structured_outputs": {"regex": "[0-9]{4}-[0-9]{2}-[0-9]{2}"}}), &is_date),
        (json!({"json_schema": {"type": "string", "format": "date"}}), &|text| {
            is_date(text.trim_matches('"'))
        }),
        (json!({"guided_json": "{\"enum\": [\"red\", \"green\"]}"}), &|text| is_word(text.trim_matches('"'))),
        (json!({"guided_choice": ["red", "green"]}), &is_word),
        (json!({"structured_outputs": {"choice": ["red", "green"]}}), &is_word),
        (json!({"grammar": grammar}), &is_word),
        (json!({"ebnf": grammar}), &is_word),
        (json!({"guided_grammar": lark}), &is_word),
        (json!({"structured_outputs": {"grammar": lark}}), &is_word),
    ];
    for (more, is_right) in &cases {
        let base = json!({"prompt": ["The date is", "It was"], "max_tokens": 30, "seed": 1});
        let reply = server.ask(COMPLETIONS, &with(&base, more.clone()));
        for choice in reply["choices"].as_array().unwrap() {
            let text = choice["text"].as_str().unwrap();
            assert!(is_right(text), "{more}: {text:?}");
            assert_eq!(choice["finish_reason"], "stop", "{more}: {text:?}");
        }
    }
}

#[test]
fn ollamas_format_is_json_or_a_schema() {
    let server = server();
    let options = json!({"seed": 3, "num_predict": 200});
    let base = json!({"model": "tiny", "stream": false, "format": schema(), "options": options});
    let chat = with(&base, json!({"messages": [{"role": "user", "content": "Name a country."}]}));
    let whole = server.ask("/api/chat", &chat);
    let text = whole["message"]["content"].as_str().unwrap();
    check(text);
    assert_eq!(whole["done_reason"], "stop");
    let lines = server.post("/api/chat", &with(&chat, json!({"stream": true}))).lines();
    let pieces = lines.map(|line| serde_json::from_str::<Value>(&line).unwrap());
    let streamed: String =
        pieces.map(|piece| piece["message"]["content"].as_str().unwrap().to_owned()).collect();
    assert_eq!(streamed, text);
    let generated = server.ask("/api/generate", &with(&base, json!({"prompt": "Name a country."})));
    check(generated["response"].as_str().unwrap());
    let json = with(&base, json!({"prompt": "Name a country as JSON.", "format": "json"}));
    let text = server.ask("/api/generate", &json)["response"].as_str().unwrap().to_owned();
    assert!(text.starts_with('{'), "{text}");
}

#[test]
fn anthropics_format_is_a_schema() {
    let server = server();
    let format = json!({"type": "json_schema", "schema": schema()});
    let ask = json!({
        "model": MODEL, "max_tokens": 200, "temperature": 0, "messages": [{"role": "user", "content": "Name a country."}],
        "output_config": {"format": format},
    });
    let whole = server.ask("/v1/messages", &ask);
    check(whole["content"][0]["text"].as_str().unwrap());
    assert_eq!(whole["stop_reason"], "end_turn");
}

#[test]
fn many_at_once_and_one_that_goes_away() {
    let server = server();
    let alone = server.ask(CHAT, &ask(0))["choices"][0]["message"]["content"].clone();
    std::thread::scope(|scope| {
        let (server, alone) = (&server, &alone);
        for seed in 0..8 {
            scope.spawn(move || {
                let reply = server.ask(CHAT, &ask(seed));
                let text = &reply["choices"][0]["message"]["content"];
                check(text.as_str().unwrap());
                // What others ask for changes nothing.
                assert!(seed != 0 || text == alone, "{text} {alone}");
            });
        }
        scope.spawn(move || {
            let endless = json!({"stream": true, "max_tokens": 1500, "response_format": {"type": "json_schema", "json_schema": {
                "name": "endless", "schema": {"type": "array", "minItems": 100_000, "items": {"type": "integer"}},
            }}});
            let mut lines = server.post(CHAT, &with(&ask(0), endless)).lines();
            assert!(lines.any(|line| line.contains('[')));
        });
    });
    server.wait(|| server.metric(RUNNING) == 0.0);
    check(server.ask(CHAT, &ask(9))["choices"][0]["message"]["content"].as_str().unwrap());
}

#[test]
fn a_model_that_thinks_is_held_behind_its_thoughts() {
    let model = ModelSource { file: scripted::model(), ..source(4096) };
    let server = Running::start(Settings::default(), vec![model]);
    server.wait(|| server.get("/health").status == 200);
    let ask = |last: &str, more: Value| {
        let messages = json!([{"role": "user", "content": format!("Weather? {last}")}]);
        with(&json!({"model": MODEL, "messages": messages, "temperature": 0, "max_tokens": 60}), more)
    };
    let choice = |text: &str, mut more: Value| {
        more["structured_outputs"] = json!({"choice": [text]});
        more
    };
    let integer = json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}});
    let all = json!("one two three four five six seven.");
    let think = || json!({"reasoning_effort": "high"});
    for (last, more, thought, content) in [
        // The model opens the block itself.
        ("B", integer.clone(), json!("Let me see."), "42"),
        ("B", choice("123", json!({})), json!("Let me see."), "123"),
        // It does not think.
        ("A", choice("123", json!({})), Value::Null, "123"),
        // The prompt opens it.
        ("A", choice("Done.", think()), all.clone(), "Done."),
        ("A", choice("123", think()), all, "123"),
        // It is closed by force.
        ("A", choice("At last.", json!({"thinking_budget": 3})), json!("one two three"), "At last."),
        ("A", choice("123", json!({"thinking_budget": 3})), json!("one two three"), "123"),
    ] {
        let reply = server.ask(CHAT, &ask(last, more.clone()));
        let message = &reply["choices"][0]["message"];
        assert_eq!(
            (&message["content"], &message["reasoning_content"]),
            (&json!(content), &thought),
            "{more}: {reply}"
        );
        assert_eq!(reply["choices"][0]["finish_reason"], "stop", "{more}");
    }
}

#[test]
fn what_cannot_be_enforced_is_refused_by_its_keyword() {
    let server = Running::new();
    let format = |schema: Value| json!({"response_format": {"type": "json_schema", "json_schema": {"name": "n", "schema": schema}}});
    const SCHEMA: &str = "response_format.json_schema.schema";
    let deep = "(".repeat(200);
    let cases = [
        (
            format(json!({"properties": {"a": {"uniqueItems": true}}})),
            SCHEMA,
            "`uniqueItems` at #/properties/a",
        ),
        (format(json!({"$ref": "https://example.com/x"})), SCHEMA, "`$ref` at #"),
        (format(json!({"oneOf": [{"type": "number"}, {"minimum": 2}]})), SCHEMA, "`oneOf`"),
        (format(json!([])), SCHEMA, "it must be an object, true or false"),
        (json!({"guided_json": {"type": "string", "pattern": "(?=a)"}}), "guided_json", "`pattern`"),
        (json!({"regex": "("}), "regex", "unclosed group"),
        (json!({"regex": deep}), "regex", "brackets within brackets"),
        (json!({"grammar": "root ::= nothing"}), "grammar", "`nothing`"),
        (
            json!({"structured_outputs": {"grammar": "start: nothing"}}),
            "structured_outputs.grammar",
            "nothing",
        ),
    ];
    let base = json!({"model": MODEL, "messages": [{"role": "user", "content": "hi"}]});
    for (more, param, words) in cases {
        let reply = server.post(CHAT, &with(&base, more.clone()));
        let (status, error) = (reply.status, reply.json()["error"].clone());
        assert_eq!(
            (status, &error["code"], &error["param"]),
            (400, &json!("invalid_value"), &json!(param)),
            "{error}"
        );
        assert!(error["message"].as_str().unwrap().contains(words), "{more}: {error}");
    }
    let reply = server.post("/api/chat", &with(&base, json!({"format": {"not": {}}})));
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("`not` at #"));
}
