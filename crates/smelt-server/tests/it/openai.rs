//! OpenAI's routes, and Smelt's own.

use serde_json::{Value, json};

use crate::support::{MODEL, Running, chat, with};

const CHAT: &str = "/v1/chat/completions";
const COMPLETIONS: &str = "/v1/completions";

fn content(reply: &Value, index: usize) -> &str {
    reply["choices"][index]["message"]["content"].as_str().unwrap()
}

fn bytes_of(list: &Value) -> Vec<u8> {
    list.as_array().unwrap().iter().map(|b| u8::try_from(b.as_u64().unwrap()).unwrap()).collect()
}

/// The texts of a stream's answers, by index.
fn streamed(chunks: &[Value], n: usize, text: impl Fn(&Value) -> Option<&str>) -> Vec<String> {
    let mut texts = vec![String::new(); n];
    for choice in chunks.iter().flat_map(|chunk| chunk["choices"].as_array().unwrap()) {
        let index = usize::try_from(choice["index"].as_u64().unwrap()).unwrap();
        texts[index].push_str(text(choice).unwrap_or_default());
    }
    texts
}

#[test]
fn streamed_and_whole_answers_are_the_same() {
    let server = Running::new();
    let whole = server.ask(CHAT, &with(&chat(24), json!({"logprobs": true, "top_logprobs": 2})));
    assert_eq!((&whole["object"], &whole["model"]), (&json!("chat.completion"), &json!(MODEL)));
    assert!(whole["id"].as_str().unwrap().starts_with("chatcmpl-"));
    let choice = &whole["choices"][0];
    assert_eq!(
        (&choice["finish_reason"], &choice["message"]["role"]),
        (&json!("length"), &json!("assistant"))
    );
    let prompt = whole["usage"]["prompt_tokens"].as_u64().unwrap();
    assert_eq!(whole["usage"]["completion_tokens"], 24);
    assert_eq!(whole["usage"]["total_tokens"], prompt + 24);
    assert_eq!(whole["usage"]["prompt_tokens_details"]["cached_tokens"], 0);

    // Logprobs are those of all tokens, likeliest first, and their bytes are the answer's.
    let logprobs = choice["logprobs"]["content"].as_array().unwrap();
    assert_eq!(logprobs.len(), 24);
    let bytes: Vec<u8> = logprobs.iter().flat_map(|t| bytes_of(&t["bytes"])).collect();
    assert_eq!(String::from_utf8_lossy(&bytes), content(&whole, 0));
    for token in logprobs {
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!(top.len(), 2);
        // Greedy: what was chosen is the likeliest.
        assert_eq!((&top[0]["bytes"], &top[0]["logprob"]), (&token["bytes"], &token["logprob"]));
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
        assert!(token["logprob"].as_f64().unwrap() < 0.0);
    }

    let options = json!({"stream": true, "stream_options": {"include_usage": true}, "logprobs": true});
    let chunks = server.post(CHAT, &with(&chat(24), options)).events();
    let (last, chunks) = chunks.split_last().unwrap();
    assert_eq!((&last["choices"], &last["usage"]["completion_tokens"]), (&json!([]), &json!(24)));
    assert_eq!(last["usage"]["prompt_tokens"], prompt);
    assert!(last["usage"]["prompt_tokens_details"]["cached_tokens"].as_u64().unwrap() > 0, "{last}");
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    let texts = streamed(chunks, 1, |choice| choice["delta"]["content"].as_str());
    assert_eq!(texts, [content(&whole, 0)]);
    let told = |chunk: &Value| chunk["choices"][0]["logprobs"]["content"].as_array().map_or(0, Vec::len);
    assert_eq!(chunks.iter().map(told).sum::<usize>(), 24);
    for chunk in chunks {
        assert_eq!((&chunk["object"], &chunk["id"]), (&json!("chat.completion.chunk"), &chunks[0]["id"]));
        assert!(chunk.as_object().unwrap().contains_key("usage") && chunk["usage"].is_null());
    }
    assert_eq!(chunks.last().unwrap()["choices"][0]["finish_reason"], "length");
    // Without the option there is no usage at all.
    let chunks = server.post(CHAT, &with(&chat(2), json!({"stream": true}))).events();
    assert!(chunks.iter().all(|chunk| chunk.get("usage").is_none()));
}

#[test]
fn answers_follow_their_parameters() {
    let server = Running::new();
    let free = with(&chat(12), json!({"temperature": 1, "seed": 7, "n": 3}));
    let three = server.ask(CHAT, &free);
    let texts: Vec<&str> = (0..3).map(|i| content(&three, i)).collect();
    assert!(texts[0] != texts[1] || texts[1] != texts[2]);
    assert_eq!(three["usage"]["completion_tokens"], 36);
    assert_eq!(three["choices"], server.ask(CHAT, &free)["choices"], "the seed decides");
    // All answers come in one stream, each whole.
    let chunks = server.post(CHAT, &with(&free, json!({"stream": true}))).events();
    assert_eq!(streamed(&chunks, 3, |choice| choice["delta"]["content"].as_str()), texts);

    let plain = server.ask(CHAT, &chat(12));
    let text = content(&plain, 0);
    // A stop string ends the answer before it.
    let (at, _) = text.char_indices().nth(text.chars().count() / 2).unwrap();
    let stop: String = text[at..].chars().take(2).collect();
    let before = &text[..text.find(&stop).unwrap()];
    for stops in [json!(stop), json!(["no such thing", stop])] {
        let stopped = server.ask(CHAT, &with(&chat(12), json!({"stop": stops})));
        assert_eq!(content(&stopped, 0), before);
        assert_eq!(stopped["choices"][0]["finish_reason"], "stop");
    }
    // A favoured token comes, whatever the model would say.
    let favoured = with(&chat(2), json!({"logit_bias": {"65": 100}, "logprobs": true}));
    let tokens = server.ask(CHAT, &favoured)["choices"][0]["logprobs"]["content"].clone();
    assert_eq!(tokens[0]["bytes"], tokens[1]["bytes"]);
    let first = server.ask(CHAT, &with(&chat(1), json!({"logprobs": true})));
    assert_ne!(tokens[0]["bytes"], first["choices"][0]["logprobs"]["content"][0]["bytes"]);
    // Of two limits the newer one counts.
    let short = server.ask(CHAT, &with(&chat(9), json!({"max_completion_tokens": 3})));
    assert_eq!(short["usage"]["completion_tokens"], 3);
}

#[test]
fn what_messages_say_stays_text() {
    let server = Running::new();
    let tokens = |messages: Value| server.ask("/tokenize", &json!({"messages": messages}))["tokens"].clone();
    let user = |content: Value| json!([{"role": "user", "content": content}]);
    // What looks like the end of a turn is spelt out; in a raw text it is one token.
    let token = "<|eot_id|>";
    let raw = server.ask("/tokenize", &json!({"content": token, "return_token_strs": true}));
    assert_eq!((&raw["count"], &raw["token_strs"]), (&json!(1), &json!([token])));
    let (plain, hostile) = (tokens(user(json!("x"))), tokens(user(json!(token))));
    let controls =
        |tokens: &Value| tokens.as_array().unwrap().iter().filter(|t| **t == raw["tokens"][0]).count();
    assert_eq!(controls(&plain), controls(&hostile));
    assert!(hostile.as_array().unwrap().len() > plain.as_array().unwrap().len());
    // Every form of content is one text.
    assert_eq!(tokens(user(json!([{"type": "text", "text": "x"}]))), plain);
    // Instructions of both names are one message.
    let both = |roles: [&str; 2]| {
        let message = |role: &str, text: &str| json!({"role": role, "content": text});
        tokens(json!([message(roles[0], "a"), message(roles[1], "b"), message("user", "x")]))
    };
    assert_eq!(both(["system", "developer"]), both(["system", "system"]));
}

#[test]
fn completions_echo_and_tell_probabilities() {
    let server = Running::new();
    let prompt = "The sky is";
    let base =
        json!({"model": "tiny", "prompt": prompt, "temperature": 0, "max_tokens": 6, "ignore_eos": true});
    let plain = server.ask(COMPLETIONS, &base);
    let text = plain["choices"][0]["text"].as_str().unwrap();
    assert_eq!(
        (&plain["object"], &plain["choices"][0]["finish_reason"]),
        (&json!("text_completion"), &json!("length"))
    );
    let echoed = server.ask(COMPLETIONS, &with(&base, json!({"echo": true, "logprobs": 2})));
    let choice = &echoed["choices"][0];
    assert_eq!(choice["text"], format!("{prompt}{text}"));
    let list = |name: &str| choice["logprobs"][name].as_array().unwrap().clone();
    let ids = server.ask("/tokenize", &json!({"prompt": prompt}))["tokens"].clone();
    let all = ids.as_array().unwrap().len() + 6;
    for name in ["tokens", "token_logprobs", "top_logprobs", "text_offset"] {
        assert_eq!(list(name).len(), all, "{name}");
    }
    assert!(list("token_logprobs")[0].is_null() && list("top_logprobs")[0].is_null());
    assert!(list("token_logprobs")[1..].iter().all(|x| x.as_f64().unwrap() <= 0.0));
    assert!(list("top_logprobs")[1..].iter().all(|top| (1..=2).contains(&top.as_object().unwrap().len())));
    // The prompt alone, as evaluations ask for it.
    let alone = server.ask(COMPLETIONS, &with(&base, json!({"echo": true, "logprobs": 1, "max_tokens": 0})));
    assert_eq!(alone["choices"][0]["text"], prompt);
    assert_eq!(alone["choices"][0]["logprobs"]["token_logprobs"], json!(list("token_logprobs")[..all - 6]));

    // Several prompts, as texts and as tokens, each with several answers.
    let several = server.ask(COMPLETIONS, &with(&base, json!({"prompt": [prompt, "Once"], "n": 2})));
    let texts: Vec<&Value> = several["choices"].as_array().unwrap().iter().map(|c| &c["text"]).collect();
    assert_eq!((texts.len(), texts[0], texts[1]), (4, &json!(text), &json!(text)));
    assert_eq!(
        server.ask(COMPLETIONS, &with(&base, json!({"prompt": [ids, ids]})))["choices"][1]["text"],
        text
    );
    let stream = with(&base, json!({"prompt": [prompt, prompt], "stream": true, "echo": true}));
    let texts = streamed(&server.post(COMPLETIONS, &stream).events(), 2, |choice| choice["text"].as_str());
    assert_eq!(texts, [format!("{prompt}{text}"), format!("{prompt}{text}")]);
    let word = server.ask("/tokenize", &json!({"content": "sky"}))["tokens"].clone();
    assert_eq!(server.ask("/detokenize", &json!({"tokens": word}))["content"], "sky");
}

#[test]
fn errors_name_what_is_wrong() {
    let server = Running::with(smelt_server::Settings::default(), 64);
    let error = |path: &str, body: &Value| {
        let reply = server.post(path, body);
        let (status, error) = (reply.status, reply.json()["error"].clone());
        (status, error["code"].as_str().unwrap().to_owned(), error)
    };
    let (status, code, details) = error(CHAT, &with(&chat(4), json!({"store": true})));
    assert_eq!((status, code.as_str(), &details["param"]), (400, "unsupported_parameter", &json!("store")));
    let tools = json!({"tools": [{"type": "function"}]});
    let (status, code, details) = error(CHAT, &with(&chat(4), tools));
    assert_eq!((status, code.as_str()), (400, "missing_required_parameter"));
    assert_eq!(details["param"], "tools[0].function");
    let (status, code, details) = error(CHAT, &with(&chat(4), json!({"temperature": 3})));
    assert_eq!((status, code.as_str(), &details["param"]), (400, "invalid_value", &json!("temperature")));
    assert_eq!(details["type"], "invalid_request_error");
    let (status, code, _) = error(CHAT, &with(&chat(4), json!({"model": "gpt"})));
    assert_eq!((status, code.as_str()), (404, "model_not_found"));
    let (status, code, _) = error(CHAT, &with(&chat(4), json!({"logit_bias": {"99999": 1}})));
    assert_eq!((status, code.as_str()), (400, "invalid_value"));
    let long = json!({"messages": [{"role": "user", "content": "word ".repeat(200)}]});
    let (status, code, details) = error(CHAT, &long);
    assert_eq!((status, code.as_str(), &details["n_ctx"]), (400, "context_length_exceeded", &json!(64)));
    assert!(details["n_prompt_tokens"].as_u64().unwrap() > 64);
    let (status, code, _) = error(COMPLETIONS, &json!({"prompt": [[1, 70000]]}));
    assert_eq!((status, code.as_str()), (400, "invalid_value"));
    let broken = server.post_text(CHAT, "{\"messages\": [", &[]);
    assert_eq!((broken.status, broken.json()["error"]["code"].as_str()), (400, Some("invalid_json")));
    // Fields that routers add are counted.
    server.ask(CHAT, &with(&chat(1), json!({"stream_reasoning": true, "wild": 1})));
    assert!((server.metric("smelt_unknown_fields_total ") - 2.0).abs() < 0.1);
    let lost = server.get("/v1/nothing");
    assert_eq!((lost.status, lost.json()["error"]["code"].as_str()), (404, Some("not_found")));
    let wrong = server.get(CHAT);
    assert_eq!((wrong.status, wrong.header("allow")), (405, "POST"));
}

#[test]
fn the_examples_that_are_documented_are_answered() {
    let server = Running::new();
    let document = server.get("/openapi.json").json();
    for (path, operations) in document["paths"].as_object().unwrap() {
        let mut example = operations["post"]["requestBody"]["content"]["application/json"]["example"].clone();
        if example.is_null() {
            continue;
        }
        if example.get("model").is_some() {
            example["model"] = MODEL.into();
        }
        let reply = server.post(path, &example);
        let (status, text) = (reply.status, reply.text());
        // Documents are ranked, and text is filled in, by models that were made for it.
        let is_special = ["rerank", "reranking", "infill"].iter().any(|name| path.ends_with(name));
        let want = if is_special { 400 } else { 200 };
        assert_eq!(status, want, "{path}: {text}");
    }
}

#[test]
fn the_server_tells_what_it_has() {
    let server = Running::new();
    let models = server.get("/v1/models").json();
    let model = &models["data"][0];
    assert_eq!((&model["id"], &model["max_model_len"]), (&json!(MODEL), &json!(512)));
    assert_eq!(server.get("/v1/models/tiny%3Alatest").json(), *model);
    assert_eq!(server.get("/v1/models/tiny").json(), *model);
    assert_eq!(server.get("/v1/models/a/b").status, 404);
    assert_eq!(server.get("/version").json()["version"], env!("CARGO_PKG_VERSION"));
    assert_eq!(server.get("/openapi.json").json()["openapi"], "3.1.0");
    let reply = server.get_with("/health", &[("x-request-id", "trace-1")]);
    assert_eq!(reply.header("x-request-id"), "trace-1");
    assert_eq!(reply.json(), json!({"status": "ok"}));
    let long = "x".repeat(200);
    assert_eq!(server.get_with("/health", &[("x-request-id", &long)]).header("x-request-id").len(), 32);
    server.ask(CHAT, &chat(5));
    // The last word of an answer is out before the engine has counted it as ended, and figures from one that has no time to
    // tell them are those that it told last.
    server.wait(|| server.metric("smelt_generation_tokens_total{model_name=\"tiny:latest\"} ") > 4.5);
    server.wait(|| server.metric("smelt_requests_running{model_name=\"tiny:latest\"} ") < 0.5);
    let metrics = server.get("/metrics").text();
    for name in [
        "vllm:num_requests_running{model_name=\"tiny:latest\"} 0\n",
        "vllm:num_requests_waiting{model_name=\"tiny:latest\"} 0\n",
        "vllm:kv_cache_usage_perc{",
        "vllm:prefix_cache_queries_total{",
        "vllm:time_to_first_token_seconds_bucket{model_name=\"tiny:latest\",le=\"0.001\"}",
        "vllm:time_to_first_token_seconds_count{model_name=\"tiny:latest\"} 1\n",
        "vllm:e2e_request_latency_seconds_sum{",
        "vllm:inter_token_latency_seconds_bucket{",
        "vllm:prefix_cache_hits_total{",
        "vllm:lora_requests_info{max_lora=\"0\",running_lora_adapters=\"\",waiting_lora_adapters=\"\"} ",
        "vllm:cache_config_info{model_name=\"tiny:latest\",block_size=\"",
        "vllm:request_success_total{model_name=\"tiny:latest\",finished_reason=\"length\"} 1\n",
        "smelt_generation_tokens_total{model_name=\"tiny:latest\"} 5\n",
        "smelt_http_requests_total{method=\"POST\",route=\"/v1/chat/completions\",status=\"200\"} 1\n",
    ] {
        assert!(metrics.contains(name), "no {name} in {metrics}");
    }
}

#[test]
fn dry_stops_at_breakers() {
    let server = Running::new();
    let prompt = "one two three, one two three, one two";
    let text = |more: Value| {
        let base =
            json!({"model": MODEL, "prompt": prompt, "temperature": 0, "max_tokens": 48, "ignore_eos": true});
        server.ask("/v1/completions", &with(&base, more))["choices"][0]["text"].as_str().unwrap().to_owned()
    };
    let dry = json!({"dry_multiplier": 4, "dry_allowed_length": 1, "dry_base": 2});
    let usual = ["\n", ":", "\"", "*"];
    let free = text(json!({}));
    let held = text(dry.clone());
    assert_ne!(free, held);
    assert_eq!(held, text(with(&dry, json!({"dry_sequence_breakers": usual}))));
    // With every letter as a breaker, there is no repetition.
    let letters = ["e", "o", "a", "t", "n", " ", "i", "s", "r", "h", "l", "d", "u", "c", "m", "f"];
    assert_ne!(held, text(with(&dry, json!({"dry_sequence_breakers": letters}))));
    for (wrong, problem) in [
        (json!([""]), "empty"),
        (json!(["x".repeat(2000)]), "2000"),
        (json!(vec!["x"; 17]), "17"),
        (json!([1]), "strings"),
    ] {
        let body =
            json!({"model": MODEL, "prompt": "x", "dry_multiplier": 1, "dry_sequence_breakers": wrong});
        let reply = server.post("/v1/completions", &body);
        assert_eq!(reply.status, 400);
        let error = reply.json()["error"].clone();
        assert_eq!(error["param"], "dry_sequence_breakers", "{error}");
        assert!(error["message"].as_str().unwrap().contains(problem), "{error}");
    }
}
