//! What clients of llama.cpp's server send, field by field: llama.vim, llama-vscode, and its own web page.

use serde_json::{Value, json};

use crate::llamacpp::{pieces, scripted};
use crate::support::{Running, with};

/// The fields of an answer that llama.vim reads.
const FIELDS: [&str; 11] = [
    "content",
    "timings/prompt_n",
    "timings/prompt_ms",
    "timings/prompt_per_token_ms",
    "timings/prompt_per_second",
    "timings/predicted_n",
    "timings/predicted_ms",
    "timings/predicted_per_token_ms",
    "timings/predicted_per_second",
    "truncated",
    "tokens_cached",
];

#[test]
fn llama_vim_is_answered() {
    let server = scripted();
    let files = json!([{"text": "fn_two();", "time": [1, 2], "filename": "a.rs"}]);
    // It shows the server the files around first, then asks at each halt of the cursor.
    let warm_up = json!({
        "id_slot": 0, "input_prefix": "", "input_suffix": "", "input_extra": files, "prompt": "",
        "n_predict": 0, "temperature": 0.0, "stream": false, "samplers": [], "cache_prompt": true,
        "t_max_prompt_ms": 1, "t_max_predict_ms": 1, "response_fields": [""],
    });
    assert_eq!(server.ask("/infill", &warm_up), json!({}));
    let ask = json!({
        "id_slot": 0, "input_prefix": "fn_one(){\n", "input_suffix": "}\n", "input_extra": files, "prompt": "",
        "n_predict": 128, "stop": [], "n_indent": 4, "top_k": 40, "top_p": 0.9, "stream": false,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": true, "t_max_prompt_ms": 500,
        "t_max_predict_ms": 1000, "response_fields": FIELDS,
    });
    let filled = server.ask("/infill", &ask);
    assert_eq!(filled["content"], "return one;");
    assert!(FIELDS.iter().all(|field| filled.get(field).is_some()), "{filled}");
    assert!(filled["tokens_cached"].as_u64() > Some(0), "the files were shown before");

    // An instruction about a block: the conversation is shown before it is complete, with a slot of its own.
    let messages = json!([{"role": "system", "content": "Edit."}, {"role": "user", "content": "A"}]);
    let warm_up = json!({
        "id_slot": 7, "messages": messages, "samplers": [], "n_predict": 0, "stream": false,
        "cache_prompt": true, "response_fields": [""],
    });
    assert_eq!(server.ask("/v1/chat/completions", &warm_up)["usage"]["completion_tokens"], 0);
    let ask = json!({
        "id_slot": 7, "messages": messages, "min_p": 0.1, "temperature": 0.1,
        "samplers": ["min_p", "temperature"], "stream": true, "cache_prompt": true,
    });
    let told: String = server
        .post("/v1/chat/completions", &ask)
        .events()
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .collect();
    assert_eq!(told, "Hello there.");
}

#[test]
fn llama_vscode_is_answered() {
    let server = scripted();
    let extra = json!([{"text": "fn_two();", "time": 1_700_000_000, "filename": "a.rs"}]);
    let warm_up = json!({
        "input_prefix": "", "input_suffix": "", "input_extra": extra, "prompt": "", "n_predict": 0,
        "samplers": [], "cache_prompt": true, "t_max_prompt_ms": 500, "t_max_predict_ms": 1,
    });
    assert_eq!(server.ask("/infill", &warm_up)["content"], "");
    let ask = json!({
        "input_prefix": "fn_one(){\n", "input_suffix": "}\n", "input_extra": extra, "prompt": "",
        "n_predict": 128, "top_k": 40, "top_p": 0.99, "stream": false,
        "samplers": ["top_k", "top_p", "infill"], "cache_prompt": true, "n_indent": 4,
        "t_max_prompt_ms": 500, "t_max_predict_ms": 500,
    });
    let filled = server.ask("/infill", &ask);
    assert_eq!(filled["content"], "return one;");
    // What it shows of an answer.
    for field in ["prompt_n", "prompt_ms", "prompt_per_second", "predicted_n", "predicted_ms"] {
        assert!(filled["timings"][field].is_number(), "{filled}");
    }
    assert_eq!((&filled["truncated"], filled["tokens_cached"].as_u64() > Some(0)), (&json!(false), true));

    // An edit by a chat; its warm-up has no stream and no temperature.
    let messages = json!([{"role": "system", "content": "Edit."}, {"role": "user", "content": "A"}]);
    let warm_up = json!({
        "messages": messages, "n_predict": 0, "samplers": [], "cache_prompt": true,
        "t_max_prompt_ms": 500, "t_max_predict_ms": 1,
    });
    assert_eq!(server.ask("/v1/chat/completions", &warm_up)["usage"]["completion_tokens"], 0);
    let edit = json!({
        "messages": messages, "stream": false, "cache_prompt": true, "samplers": "edkypmxt",
        "temperature": 0.8, "dynatemp_range": 0, "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95,
        "min_p": 0.05, "typical_p": 1, "xtc_probability": 0, "xtc_threshold": 0.1, "repeat_last_n": 64,
        "repeat_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0, "dry_multiplier": 0,
        "dry_base": 1.75, "dry_allowed_length": 2, "dry_penalty_last_n": -1, "max_tokens": -1,
        "timings_per_token": false,
    });
    let edited = server.ask("/v1/chat/completions", &edit);
    assert_eq!(edited["choices"][0]["message"]["content"], "Hello there.");
    let agent = json!({
        "messages": messages, "stream": false, "temperature": 0.8, "top_p": 0.95, "tool_choice": "auto",
        "tools": [{"type": "function", "function": {
            "name": "read_file", "description": "Reads.", "strict": true,
            "parameters": {"type": "object", "properties": {"path": {"type": "string"}}, "required": ["path"]},
        }}],
    });
    assert_eq!(server.ask("/v1/chat/completions", &agent)["choices"][0]["finish_reason"], "stop");
}

#[test]
fn llama_cpps_web_page_is_answered() {
    let server = scripted();
    let props = server.get("/props").json();
    // The stages are told under names that are taken, all of them.
    let samplers = &props["default_generation_settings"]["params"]["samplers"];
    let messages = json!([{"role": "system", "content": ""}, {"role": "user", "content": "B"}]);
    let ask = json!({
        "messages": messages, "return_progress": true, "sse_ping_interval": 1, "stream": true,
        "reasoning_format": "auto", "chat_template_kwargs": {"enable_thinking": false},
        "reasoning_control": true, "temperature": 0.8, "max_tokens": -1, "dynatemp_range": 0,
        "dynatemp_exponent": 1, "top_k": 40, "top_p": 0.95, "min_p": 0.05, "xtc_probability": 0,
        "xtc_threshold": 0.1, "typ_p": 1, "repeat_last_n": 64, "repeat_penalty": 1, "presence_penalty": 0,
        "frequency_penalty": 0, "dry_multiplier": 0, "dry_base": 1.75, "dry_allowed_length": 2,
        "dry_penalty_last_n": -1, "samplers": samplers, "backend_sampling": false,
        "timings_per_token": true,
    });
    let chunks = server.post("/v1/chat/completions", &ask).events();
    let all = |name: &str| -> String {
        chunks.iter().filter_map(|chunk| chunk["choices"][0]["delta"][name].as_str()).collect()
    };
    assert_eq!((all("content").as_str(), all("reasoning_content").as_str()), ("42", "Let me see."));
    assert!(chunks.iter().any(|chunk| chunk["prompt_progress"]["total"].is_number()));
    assert!(chunks.last().is_some_and(|chunk| chunk["timings"]["predicted_n"].is_number()));
    // It goes on with an answer that was stopped, and shows the server a conversation before the next turn.
    let begun = json!([{"role": "user", "content": "x"}, {"role": "assistant", "content": "A"}]);
    let more = json!({"messages": begun, "continue_final_message": true, "add_generation_prompt": false});
    let more = server.ask("/v1/chat/completions", &with(&ask, with(&more, json!({"stream": false}))));
    assert_eq!(more["choices"][0]["message"]["content"], "Hello there.");
    let warm_up = json!({"messages": begun, "n_predict": 0, "stream": false});
    assert_eq!(server.ask("/v1/chat/completions", &warm_up)["usage"]["completion_tokens"], 0);
    let slots = server.get("/slots").json();
    assert!(slots.as_array().unwrap().iter().all(|slot| slot["is_processing"].is_boolean()));
}

/// The text of an answer that is held to a grammar, and why it ended.
fn held(server: &Running, grammar: &str, more: Value) -> (String, Value) {
    let body = json!({"prompt": "x", "grammar": grammar, "temperature": 0});
    let answer = server.ask("/completion", &with(&body, more));
    (answer["content"].as_str().unwrap().to_owned(), answer["stop_type"].clone())
}

#[test]
fn answers_end_at_lines() {
    let server = scripted();
    let block = "root ::= \"if x:\\n    y\\n\\tz\\n\"";
    let of = |indent: usize| held(&server, block, json!({"n_indent": indent}));
    assert_eq!(of(0), ("if x:\n    y\n\tz\n".to_owned(), json!("eos")));
    assert_eq!(of(1), of(0), "a tab is one");
    assert_eq!(of(2), ("if x:\n    y\n".to_owned(), json!("limit")));
    assert_eq!(of(5), ("if x:\n".to_owned(), json!("limit")));
    // In a stream too, where the same is told, and nothing that the end takes back.
    let body = json!({"prompt": "x", "grammar": block, "temperature": 0, "n_indent": 5, "stream": true});
    let events = pieces(server.post("/completion", &body));
    let streamed: String = events.iter().filter_map(|piece| piece["content"].as_str()).collect();
    assert_eq!((streamed.as_str(), &events.last().unwrap()["stop_type"]), ("if x:\n", &json!("limit")));
    let body = json!({"prompt": "x", "grammar": block, "temperature": 0, "n_indent": 2, "max_tokens": -1});
    let choice = server.ask("/v1/completions", &body)["choices"][0].clone();
    assert_eq!((&choice["text"], &choice["finish_reason"]), (&json!("if x:\n    y\n"), &json!("length")));

    // A hundred tokens take more than a millisecond.
    let lines = "root ::= [a]{100} \"\\n\" [b]{5}";
    let (text, end) = held(&server, lines, json!({"t_max_predict_ms": 1}));
    assert_eq!((text, end), (format!("{}\n", "a".repeat(100)), json!("limit")));
    for off in [0, -1] {
        assert_eq!(held(&server, lines, json!({"t_max_predict_ms": off})).1, "eos");
    }
}

#[test]
fn the_cache_is_left_alone_on_all_routes_that_say_so() {
    let server = scripted();
    let chat = json!({"messages": [{"role": "user", "content": "A"}]});
    let text = json!({"prompt": "A", "temperature": 0});
    let response = json!({"input": "A", "store": false});
    let cases = [
        ("/v1/chat/completions", chat, "prompt_tokens_details"),
        ("/v1/completions", text, "prompt_tokens_details"),
        ("/v1/responses", response, "input_tokens_details"),
    ];
    for (path, body, details) in cases {
        let cached = |more: Value| {
            server.ask(path, &with(&body, more))["usage"][details]["cached_tokens"].as_u64().unwrap()
        };
        cached(json!({}));
        let (usual, fresh) = (cached(json!({"cache_prompt": true})), cached(json!({"cache_prompt": false})));
        // A prompt of one token has nothing to be found.
        assert!(usual > 0 || path == "/v1/completions", "{path}");
        assert_eq!(fresh, 0, "{path}");
    }
}
