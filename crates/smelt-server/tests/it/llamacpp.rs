//! llama.cpp's own routes.

use serde_json::{Value, json};
use smelt_server::{ModelSource, Settings};

use crate::scripted;
use crate::support::{MODEL, Reply, Running, chat, source, with};

const COMPLETION: &str = "/completion";

/// A prompt whose answer is always the same, and `n` tokens long.
fn ask(n: usize) -> Value {
    json!({"prompt": "The sky is", "n_predict": n, "temperature": 0, "ignore_eos": true})
}

/// The documents of a stream, which ends without a mark.
pub(crate) fn pieces(reply: Reply) -> Vec<Value> {
    assert_eq!((reply.status, reply.header("content-type")), (200, "text/event-stream"));
    let data = reply.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
    data.map(|text| serde_json::from_str(&text).unwrap()).collect()
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap()
}

pub(crate) fn scripted() -> Running {
    let model = ModelSource { file: scripted::model(), ..source(256) };
    let running = Running::start(Settings::default(), vec![model]);
    running.wait(|| running.get("/health").status == 200);
    running
}

#[test]
fn a_completion_is_what_openais_route_says_and_tells_how_it_was_made() {
    let server = Running::new();
    let whole = server.ask(COMPLETION, &with(&ask(12), json!({"return_tokens": true, "seed": 7})));
    let other = json!({"prompt": "The sky is", "max_tokens": 12, "temperature": 0, "ignore_eos": true});
    assert_eq!(whole["content"], server.ask("/v1/completions", &other)["choices"][0]["text"]);
    assert_eq!((&whole["model"], &whole["stop"]), (&json!(MODEL), &json!(true)));
    assert_eq!((&whole["stop_type"], &whole["stopping_word"]), (&json!("limit"), &json!("")));
    assert_eq!((&whole["truncated"], &whole["index"]), (&json!(false), &json!(0)));
    assert_eq!(whole["tokens"].as_array().unwrap().len(), 12);
    assert_eq!(server.ask("/detokenize", &json!({"tokens": whole["tokens"]}))["content"], whole["content"]);
    assert_eq!(whole["has_new_line"], text(&whole["content"]).contains('\n'));
    // BOS is there, and told.
    let prompt = server.ask("/tokenize", &json!({"prompt": "The sky is"}));
    assert_eq!(whole["tokens_evaluated"], prompt["count"]);
    assert_eq!(whole["prompt"], server.ask("/detokenize", &json!({"tokens": prompt["tokens"]}))["content"]);
    let settings = &whole["generation_settings"];
    assert_eq!((&settings["n_predict"], &settings["seed"]), (&json!(12), &json!(7)));
    assert_eq!((&settings["temperature"], &settings["top_k"]), (&json!(0.0), &json!(40)));
    let timings = &whole["timings"];
    assert_eq!((&timings["predicted_n"], &timings["cache_n"]), (&json!(12), &json!(0)));
    assert_eq!(timings["prompt_n"], whole["tokens_evaluated"]);
    assert!(
        timings["prompt_ms"].as_f64() > Some(0.0) && timings["predicted_per_second"].as_f64() > Some(0.0)
    );

    // A stream says the same, and its last piece what the whole said but for the text.
    let streamed = pieces(server.post(COMPLETION, &with(&ask(12), json!({"stream": true, "seed": 7}))));
    let (last, first) = streamed.split_last().unwrap();
    let content: String = first.iter().map(|piece| text(&piece["content"])).collect();
    assert_eq!(json!(content), whole["content"]);
    let tokens: Vec<&Value> = first.iter().flat_map(|piece| piece["tokens"].as_array().unwrap()).collect();
    assert_eq!(json!(tokens), whole["tokens"]);
    assert!(first.iter().all(|piece| piece["stop"] == false && piece.get("timings").is_none()));
    assert_eq!(last["tokens_predicted"], 12);
    assert!(last["tokens_cached"].as_u64() > Some(0) && last["timings"]["cache_n"] == last["tokens_cached"]);
    for same in ["stop", "stop_type", "prompt", "has_new_line", "truncated", "model", "tokens_evaluated"] {
        assert_eq!(last[same], whole[same], "{same}");
    }
    assert_eq!((&last["content"], &last["tokens"]), (&json!(""), &json!([])));
    let timed = with(&ask(4), json!({"stream": true, "timings_per_token": true}));
    let timed = pieces(server.post(COMPLETION, &timed));
    let counts: Vec<u64> =
        timed.iter().map(|piece| piece["timings"]["predicted_n"].as_u64().unwrap()).collect();
    assert!(counts.is_sorted() && counts.last() == Some(&4), "{counts:?}");
}

#[test]
fn prompts_may_be_texts_tokens_both_or_lists() {
    let server = Running::new();
    let content =
        |prompt: Value| server.ask(COMPLETION, &with(&ask(5), json!({"prompt": prompt})))["content"].clone();
    let tokens =
        server.ask("/tokenize", &json!({"content": "The sky is", "add_special": true}))["tokens"].clone();
    let one = content(json!("The sky is"));
    for same in
        [tokens.clone(), json!({"prompt_string": "The sky is"}), json!(["The sky is"]), json!([tokens])]
    {
        assert_eq!(content(same.clone()), one, "{same}");
    }
    // Tokens in front of a text: it has no BOS of its own.
    let ids = tokens.as_array().unwrap();
    let rest = server.ask("/detokenize", &json!({"tokens": ids[1..]}))["content"].clone();
    assert_eq!(content(json!([ids[0], rest])), one);
    let many =
        server.ask("/completions", &with(&ask(5), json!({"prompt": ["The sky is", tokens], "n_cmpl": 2})));
    let many = many.as_array().unwrap();
    assert_eq!(many.len(), 4);
    for (i, answer) in many.iter().enumerate() {
        assert_eq!((&answer["index"], &answer["content"]), (&json!(i), &one));
    }
    // The same on OpenAI's routes.
    let mixed = json!({"prompt": [ids[0], rest], "max_tokens": 5, "temperature": 0, "ignore_eos": true});
    assert_eq!(server.ask("/v1/completions", &mixed)["choices"][0]["text"], one);
}

#[test]
fn answers_end_and_tokens_are_biased_as_asked() {
    let server = scripted();
    let ask = |more: Value| server.ask(COMPLETION, &with(&json!({"prompt": "A", "temperature": 0}), more));
    let whole = ask(json!({}));
    assert_eq!((&whole["content"], &whole["stop_type"]), (&json!("Hello there."), &json!("eos")));
    assert_eq!(whole["generation_settings"]["logit_bias"], json!([]));
    let cut = ask(json!({"stop": ["the"]}));
    assert_eq!((&cut["content"], &cut["stop_type"]), (&json!("Hello "), &json!("word")));
    assert_eq!(cut["stopping_word"], "the");
    let nothing = ask(json!({"n_predict": 0}));
    assert_eq!((&nothing["content"], &nothing["stop_type"]), (&json!(""), &json!("limit")));
    assert_eq!(nothing["timings"]["predicted_per_second"], 0.0);
    // Without its end the answer goes on until the context is full.
    let endless = ask(json!({"ignore_eos": true}));
    assert_eq!((&endless["truncated"], &endless["stop_type"]), (&json!(true), &json!("limit")));
    assert_eq!(endless["generation_settings"]["logit_bias"], json!([{"token": 1, "bias": null}]));
    // A token that is banned doesn't come, however it is named.
    let there = ask(json!({"return_tokens": true}))["tokens"][1].clone();
    let there = [json!([[there, false]]), json!([[there, -100]]), json!({(there.to_string()): -1e9})];
    let point = [json!([[".", false]]), json!({".": -100.0})];
    let banned = there.into_iter().map(|bias| (" there", bias)).chain(point.map(|bias| (".", bias)));
    for (text, bias) in banned {
        let answer = ask(json!({"logit_bias": bias, "n_predict": 3}));
        assert!(!answer["content"].as_str().unwrap().contains(text), "{bias}: {answer}");
    }
    let held = ask(json!({"grammar": "root ::= \"no\""}));
    assert_eq!(held["content"], "no");
    assert_eq!(ask(json!({"json_schema": {"const": "42"}}))["content"], "\"42\"");
}

#[test]
fn probabilities_fields_and_the_cache_are_as_asked() {
    let server = Running::new();
    let probable = with(&ask(3), json!({"n_probs": 2, "return_tokens": true}));
    let told = server.ask(COMPLETION, &probable);
    let other =
        json!({"prompt": "The sky is", "max_tokens": 3, "temperature": 0, "ignore_eos": true, "logprobs": 2});
    let other = server.ask("/v1/completions", &other)["choices"][0]["logprobs"].clone();
    let probabilities = told["completion_probabilities"].as_array().unwrap();
    assert_eq!(probabilities.len(), 3);
    for (i, token) in probabilities.iter().enumerate() {
        assert_eq!((&token["id"], &token["logprob"]), (&told["tokens"][i], &other["token_logprobs"][i]));
        let top = token["top_logprobs"].as_array().unwrap();
        assert_eq!((top.len(), &top[0]["id"], &top[0]["bytes"]), (2, &token["id"], &token["bytes"]));
        assert!(top[0]["logprob"].as_f64() >= top[1]["logprob"].as_f64());
    }
    let streamed = pieces(server.post(COMPLETION, &with(&probable, json!({"stream": true}))));
    let streamed: Vec<&Value> =
        streamed.iter().filter_map(|piece| piece["completion_probabilities"].as_array()).flatten().collect();
    assert_eq!(json!(streamed), told["completion_probabilities"]);

    // Those that tokens are drawn with: of three that are left, at twice the temperature.
    let drawn = json!({"post_sampling_probs": true, "n_probs": 5, "temperature": 2, "top_k": 3, "top_p": 1, "min_p": 0});
    let told_drawn = server.ask(COMPLETION, &with(&ask(3), drawn))["completion_probabilities"].clone();
    for token in told_drawn.as_array().unwrap() {
        let top = token["top_probs"].as_array().unwrap();
        let sum: f64 = top.iter().map(|top| top["prob"].as_f64().unwrap()).sum();
        assert!(top.len() == 3 && (sum - 1.0).abs() < 1e-5, "{top:?}");
        let own = top.iter().find(|top| top["id"] == token["id"]).unwrap();
        assert_eq!((&own["prob"], token.get("logprob")), (&token["prob"], None));
    }
    let own = probabilities[0]["top_logprobs"].as_array().unwrap();
    let gap = own[0]["logprob"].as_f64().unwrap() - own[1]["logprob"].as_f64().unwrap();
    let drawn = told_drawn[0]["top_probs"].as_array().unwrap();
    let drawn = (drawn[0]["prob"].as_f64().unwrap() / drawn[1]["prob"].as_f64().unwrap()).ln();
    assert!((drawn - gap / 2.0).abs() < 1e-3, "{drawn} {gap}");
    let greedy = server.ask(COMPLETION, &with(&ask(1), json!({"post_sampling_probs": true, "n_probs": 5})));
    let greedy = &greedy["completion_probabilities"][0];
    assert_eq!((&greedy["prob"], greedy["top_probs"].as_array().unwrap().len()), (&json!(1.0), 1));

    let fields = json!({"response_fields": ["content", "generation_settings/n_predict", "no_such"]});
    let chosen = server.ask(COMPLETION, &with(&ask(3), fields));
    assert_eq!(chosen, json!({"content": told["content"], "generation_settings/n_predict": 3}));

    // The prompt is in the cache by now.
    let cached = server.ask(COMPLETION, &ask(3));
    assert!(cached["timings"]["cache_n"].as_u64() > Some(0));
    let fresh = server.ask(COMPLETION, &with(&ask(3), json!({"cache_prompt": false})));
    assert_eq!((&fresh["timings"]["cache_n"], &fresh["tokens_cached"]), (&json!(0), &json!(0)));
    assert_eq!(fresh["timings"]["prompt_n"], fresh["tokens_evaluated"]);
    assert_eq!(fresh["content"], cached["content"]);
}

#[test]
fn what_can_not_be_done_is_refused_by_name() {
    let server = Running::new();
    let refuse = |path: &str, body: &Value| {
        let reply = server.post(path, body);
        let (status, error) = (reply.status, reply.json()["error"].clone());
        assert_eq!(status, 400, "{body}: {error}");
        (text(&error["code"]).to_owned(), error["param"].as_str().unwrap_or_default().to_owned())
    };
    let unsupported = [
        json!({"mirostat": 1}),
        json!({"lora": [{"id": 0, "scale": 1}]}),
        json!({"image_data": [{"data": "AAAA", "id": 1}]}),
    ];
    for body in unsupported {
        let name = body.as_object().unwrap().keys().next().unwrap().clone();
        assert_eq!(refuse(COMPLETION, &with(&ask(1), body)), ("unsupported_parameter".to_owned(), name));
    }
    let pictured = json!({"prompt": {"prompt_string": "x", "multimodal_data": ["AAAA"]}});
    assert_eq!(refuse(COMPLETION, &pictured).1, "prompt.multimodal_data");
    for (prompt, param) in [(json!(5), "prompt"), (json!([1, [2]]), "prompt"), (json!([1_000_000]), "prompt")]
    {
        assert_eq!(
            refuse(COMPLETION, &json!({"prompt": prompt})),
            ("invalid_value".to_owned(), param.to_owned())
        );
    }
    assert_eq!(refuse(COMPLETION, &with(&ask(1), json!({"logit_bias": [[1_000_000, 1]]}))).1, "logit_bias");
    let long = json!({"prompt": "sky ".repeat(600)});
    assert_eq!(refuse(COMPLETION, &long).0, "context_length_exceeded");
    assert!(
        text(&server.post(COMPLETION, &long).json()["error"]["message"])
            .contains("exceeds the available context")
    );
    // The model was not trained to fill text in.
    let infill = json!({"input_prefix": "a", "input_suffix": "b"});
    assert_eq!(refuse("/infill", &infill), ("unsupported_parameter".to_owned(), "input_suffix".to_owned()));
    // What nobody knows is tolerated, and what changes nothing does nothing.
    let odd = json!({"n_keep": -1, "speculative.n_max": 4, "no_such_field": 1, "id_slot": -1, "cache_prompt": true});
    assert_eq!(server.ask(COMPLETION, &with(&ask(2), odd))["tokens_predicted"], 2);
    assert!(server.metric("smelt_unknown_fields_total") >= 1.0);
}

#[test]
fn text_is_filled_in_with_what_stands_around_it() {
    let server = scripted();
    let ask = |more: Value| {
        let around = json!({"input_prefix": "fn_one(){", "input_suffix": "}", "temperature": 0});
        server.ask("/infill", &with(&around, more))
    };
    let filled = ask(json!({}));
    assert_eq!((&filled["content"], &filled["stop_type"]), (&json!("return one;"), &json!("eos")));
    assert_eq!(filled["prompt"], "<fim_prefix>fn_one(){<fim_suffix>}<fim_middle>");
    // What a text says is no mark.
    let marks = ask(json!({"input_prefix": "<fim_middle>", "n_predict": 1}));
    let plain = ask(json!({"input_prefix": "", "n_predict": 1}));
    let length = |answer: &Value| answer["tokens_evaluated"].as_u64().unwrap();
    assert_eq!(length(&marks) - length(&plain), "<fim_middle>".len() as u64);
    let extra = ask(json!({"input_extra": [{"filename": "a.rs", "text": "fn_two();"}], "prompt": "ret"}));
    let (prompt, n) = (text(&extra["prompt"]), text(&filled["prompt"]).len());
    assert!(
        prompt.contains("fn_two();<fim_prefix>") && prompt.ends_with("<fim_middle>ret") && prompt.len() > n
    );
    let wrong = [
        json!({}),
        json!({"filename": "ok"}),
        json!({"filename": 1, "text": "a"}),
        json!({"text": 4}),
        json!(3),
    ];
    for extra in wrong {
        let body = json!({"input_prefix": "a", "input_suffix": "b", "input_extra": [extra]});
        let reply = server.post("/infill", &body);
        assert_eq!(reply.status, 400);
        assert!(text(&reply.json()["error"]["param"]).starts_with("input_extra[0]"), "{extra}");
    }
}

#[test]
fn the_server_tells_its_properties_and_places() {
    let server = Running::new();
    let props = server.get("/props").json();
    let settings = &props["default_generation_settings"];
    assert_eq!((&settings["n_ctx"], &props["total_slots"]), (&json!(512), &json!(16)));
    assert_eq!((&settings["params"]["top_k"], &settings["params"]["seed"]), (&json!(40), &json!(-1)));
    assert_eq!((&props["model_alias"], &props["model_path"]), (&json!(MODEL), &json!("llama3-f16.gguf")));
    assert_eq!(props["modalities"], json!({"vision": false, "audio": false}));
    assert_eq!((&props["is_sleeping"], &props["bos_token"]), (&json!(false), &json!("<|begin_of_text|>")));
    assert_eq!(props["chat_template"], server.ask("/api/show", &json!({"model": MODEL}))["template"]);
    let slots = server.get("/slots?model=tiny&fail_on_no_slot=1").json();
    assert_eq!(slots.as_array().unwrap().len(), 16);
    assert_eq!(slots[15], json!({"id": 15, "n_ctx": 512, "speculative": false, "is_processing": false}));
    assert_eq!(server.get("/props?model=other").status, 404);
    // One that is busy is told to be.
    let mut stream = server.post(COMPLETION, &with(&ask(400), json!({"stream": true}))).lines();
    assert!(stream.next().is_some_and(|line| line.starts_with("data: ")));
    let busy =
        |slots: &Value| slots.as_array().unwrap().iter().filter(|slot| slot["is_processing"] == true).count();
    let seen = server.get("/slots").json();
    assert!(busy(&seen) == 1 && seen[0]["is_processing"] == true || stream.count() > 0, "{seen}");
    server.wait(|| busy(&server.get("/slots").json()) == 0);
}

#[test]
fn conversations_are_rendered_and_counted() {
    let server = Running::new();
    let conversation = chat(8);
    let tokens = server.ask("/tokenize", &json!({"messages": conversation["messages"]}));
    let prompt = server.ask("/apply-template", &conversation)["prompt"].clone();
    let read = server.ask("/tokenize", &json!({"content": prompt}));
    assert_eq!(read["tokens"], tokens["tokens"]);
    for path in ["/v1/chat/completions/input_tokens", "/chat/completions/input_tokens"] {
        let counted = server.ask(path, &conversation);
        assert_eq!(counted, json!({"object": "response.input_tokens", "input_tokens": tokens["count"]}));
    }
    // What comes of the prompt is what the chat says.
    let said = server.ask("/v1/chat/completions", &conversation)["choices"][0]["message"]["content"].clone();
    let completed = json!({"prompt": prompt, "n_predict": 8, "temperature": 0, "ignore_eos": true});
    assert_eq!(server.ask(COMPLETION, &completed)["content"], said);
    let told = server.ask("/v1/chat/completions", &with(&conversation, json!({"verbose": true})));
    assert_eq!(told["__verbose"], json!({"prompt": prompt}));
    let streamed = with(&conversation, json!({"verbose": true, "stream": true}));
    let streamed = server.post("/v1/chat/completions", &streamed).events();
    assert_eq!(streamed[0]["__verbose"], json!({"prompt": prompt}));
    assert!(streamed[1..].iter().all(|chunk| chunk.get("__verbose").is_none()));
    // Without a place for the answer, and within one.
    let closed = server.ask("/apply-template", &with(&conversation, json!({"add_generation_prompt": false})));
    assert!(text(&prompt).starts_with(text(&closed["prompt"])) && prompt != closed["prompt"]);
    let begun = json!([{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Good"}]);
    let begun = json!({"messages": begun, "continue_final_message": true});
    assert!(text(&server.ask("/apply-template", &begun)["prompt"]).ends_with("Good"));
    let both = server.post("/apply-template", &with(&begun, json!({"add_generation_prompt": true})));
    assert_eq!((both.status, &both.json()["error"]["param"]), (400, &json!("add_generation_prompt")));
}

#[test]
fn pieces_are_texts_or_bytes() {
    let server = Running::new();
    let body = json!({"content": "a 媽", "with_pieces": true});
    let tokens = server.ask("/tokenize", &body)["tokens"].clone();
    let ids = server.ask("/tokenize", &json!({"content": "a 媽"}))["tokens"].clone();
    let told: Vec<&Value> = tokens.as_array().unwrap().iter().map(|token| &token["id"]).collect();
    assert_eq!(json!(told), ids);
    let bytes: Vec<u8> = tokens
        .as_array()
        .unwrap()
        .iter()
        .flat_map(|token| match &token["piece"] {
            Value::String(text) => text.clone().into_bytes(),
            bytes => bytes.as_array().unwrap().iter().map(|byte| byte.as_u64().unwrap() as u8).collect(),
        })
        .collect();
    assert_eq!(String::from_utf8_lossy(&bytes).trim_start(), "a 媽");
}

#[test]
fn routes_have_their_other_paths() {
    let server = Running::new();
    assert_eq!(server.get("/models").json()["data"][0]["id"], MODEL);
    assert_eq!(server.get("/v1/health").status, 200);
    let answer = server.ask("/v1/chat/completions", &chat(4));
    assert_eq!(server.ask("/chat/completions", &chat(4))["choices"], answer["choices"]);
    assert_eq!(answer["timings"]["predicted_n"], 4);
    let listed = server.get("/openapi.json").json();
    for path in ["/completions", "/reranking", "/infill", "/responses", "/models"] {
        assert!(listed["paths"].get(path).is_some(), "{path}");
    }
    let wrong = server.get("/completions");
    assert_eq!((wrong.status, wrong.header("allow")), (405, "POST"));
}

#[test]
fn chats_tell_timings_in_the_last_chunk_or_in_all() {
    let server = Running::new();
    let streamed = |more: Value| server.post("/v1/chat/completions", &with(&chat(4), more)).events();
    let told =
        |chunks: &[Value]| chunks.iter().map(|chunk| chunk.get("timings").is_some()).collect::<Vec<_>>();
    let plain = streamed(json!({"stream": true}));
    assert_eq!(told(&plain).iter().filter(|is_told| **is_told).count(), 1);
    assert_eq!(plain.last().unwrap()["timings"]["predicted_n"], 4);
    let options =
        json!({"stream": true, "stream_options": {"include_usage": true}, "timings_per_token": true});
    let all = streamed(options);
    assert_eq!(
        told(&all).iter().filter(|is_told| !**is_told).count(),
        1,
        "the first one has nothing to tell"
    );
    assert_eq!(all.last().unwrap()["timings"]["predicted_n"], 4);
    let body = json!({"prompt": "a", "max_tokens": 3, "ignore_eos": true, "stream": true});
    let text = server.post("/v1/completions", &body).events();
    assert_eq!(text.last().unwrap()["timings"]["predicted_n"], 3);
}

#[test]
fn numbers_have_llama_cpps_names() {
    let server = Running::new();
    let (mut computed, mut cached, mut predicted) = (0, 0, 0);
    for n in [1, 4, 4] {
        let timings = server.ask(COMPLETION, &ask(n))["timings"].clone();
        let count = |name: &str| timings[name].as_u64().unwrap();
        computed += count("prompt_n");
        cached += count("cache_n");
        predicted += count("predicted_n");
    }
    assert!(cached > 0);
    let numbers = [
        ("prompt_tokens_total", computed),
        ("prompt_tokens_cached_total", cached),
        ("tokens_predicted_total", predicted),
    ];
    for (name, wanted) in numbers {
        server.wait(|| server.metric(&format!("llamacpp:{name}")) >= wanted as f64);
        assert_eq!(server.metric(&format!("llamacpp:{name}")), wanted as f64, "{name}");
    }
    server.wait(|| server.metric("llamacpp:requests_processing") == 0.0);
    assert!(server.metric("llamacpp:predicted_tokens_seconds") > 0.0);
    let seconds: f64 = server.get("/metrics").header("process-start-time-unix").parse().unwrap();
    assert_eq!(seconds, server.metric("process_start_time_seconds"));
}

#[test]
fn streams_tell_how_far_a_prompt_is() {
    // Sixteen tokens a step, so that a prompt takes many.
    let model =
        ModelSource { engine: smelt_engine::Settings { batch: 16, ..source(512).engine }, ..source(512) };
    let server = Running::start(Settings::default(), vec![model]);
    server.wait(|| server.get("/health").status == 200);
    let told = |chunks: &[Value]| -> Vec<[u64; 3]> {
        let chunks = chunks.iter().filter_map(|chunk| chunk.get("prompt_progress"));
        chunks.map(|told| ["total", "cache", "processed"].map(|name| told[name].as_u64().unwrap())).collect()
    };
    let text = "The sky is blue, and nobody knows why it is. ".repeat(4);
    let body = json!({"prompt": text, "n_predict": 2, "stream": true, "return_progress": true, "timings_per_token": true});
    let chunks = pieces(server.post(COMPLETION, &body));
    let progress = told(&chunks);
    let (first, last) = (progress[0], *progress.last().unwrap());
    assert!(progress.len() > 4, "{progress:?}");
    assert_eq!((first[1], first[2], last[2]), (0, 0, last[0]));
    assert!(
        progress.windows(2).all(|pair| pair[0][2] < pair[1][2] && pair[1][2] - pair[0][2] <= 16),
        "{progress:?}"
    );
    assert_eq!(
        (&chunks[0]["timings"]["prompt_n"], &chunks[0]["timings"]["prompt_ms"]),
        (&json!(0), &json!(0.0))
    );
    let is_progress = |chunk: &Value| chunk.get("prompt_progress").is_some();
    assert!(
        chunks.iter().skip_while(|chunk| is_progress(chunk)).all(|chunk| !is_progress(chunk)),
        "it comes first"
    );
    // What the cache has is told at once; other routes tell the same.
    let again = told(&pieces(server.post(COMPLETION, &body)));
    assert!(
        again[0][1] > 0 && again[0][1] == again[0][2] && again.last().unwrap()[2] == last[0],
        "{again:?}"
    );
    let body = json!({"prompt": text, "max_tokens": 2, "stream": true, "return_progress": true});
    assert_eq!(told(&server.post("/v1/completions", &body).events()), again);
    let body = with(&chat(2), json!({"stream": true, "return_progress": true}));
    let chunks = server.post("/v1/chat/completions", &body).events();
    assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
    assert!(told(&chunks).len() > 1);
    // Whoever doesn't ask hears nothing of it.
    assert!(
        told(&server.post("/v1/chat/completions", &with(&chat(2), json!({"stream": true}))).events())
            .is_empty()
    );
}

#[test]
fn stages_run_as_they_are_listed() {
    let server = Running::new();
    let greedy = server.ask(COMPLETION, &ask(8))["content"].clone();
    // One token is left whatever the temperature, which doesn't run.
    let only = json!({"samplers": ["penalties", "top_k"], "top_k": 1, "temperature": 2, "repeat_penalty": 1});
    let chosen = server.ask(COMPLETION, &with(&ask(8), only));
    assert_eq!(
        (&chosen["content"], &chosen["generation_settings"]["samplers"]),
        (&greedy, &json!(["penalties", "dry", "top_k"]))
    );
    // What isn't listed is off; llama.cpp's own name of a stage is known.
    let unlisted = json!({"samplers": ["typ_p", "temperature"], "repeat_penalty": 1.5, "dry_multiplier": 1});
    let unlisted = server.ask(COMPLETION, &with(&ask(2), unlisted))["generation_settings"].clone();
    assert_eq!(unlisted["samplers"], json!(["penalties", "dry", "typical_p", "temperature"]));
    assert_eq!((&unlisted["repeat_penalty"], &unlisted["dry_multiplier"]), (&json!(1.0), &json!(0.0)));
    let mirostat = json!({"mirostat": 2, "mirostat_tau": 3, "temperature": 1, "seed": 1});
    let mirostat = server.ask(COMPLETION, &with(&ask(4), mirostat))["generation_settings"].clone();
    assert_eq!((&mirostat["mirostat"], &mirostat["mirostat_tau"]), (&json!(2), &json!(3.0)));
    let breakers = json!({"dry_multiplier": 1, "dry_sequence_breakers": ["\n", ":"]});
    assert_eq!(server.ask(COMPLETION, &with(&ask(4), breakers))["tokens_predicted"], 4);
    let wrong = [
        (json!({"samplers": ["no_such"]}), "samplers"),
        (json!({"samplers": vec!["top_k"; 33]}), "samplers"),
        (json!({"samplers": 5}), "samplers"),
        (json!({"samplers": ["top_k", "dry"]}), "samplers"),
        (json!({"samplers": ["top_k", "top_k"]}), "samplers"),
        (json!({"samplers": [1]}), "samplers"),
        (json!({"samplers": "kfy"}), "samplers"),
        (json!({"samplers": "kk"}), "samplers"),
        (json!({"n_indent": -1}), "n_indent"),
        (json!({"n_indent": "2"}), "n_indent"),
        (json!({"t_max_predict_ms": -2}), "t_max_predict_ms"),
        (json!({"t_max_prompt_ms": "soon"}), "t_max_prompt_ms"),
        (json!({"id_slot": 0.5}), "id_slot"),
        (json!({"n_cache_reuse": -1}), "n_cache_reuse"),
        (json!({"cache_prompt": 1}), "cache_prompt"),
        (json!({"sse_ping_interval": -2}), "sse_ping_interval"),
        (json!({"dry_sequence_breakers": [""]}), "dry_sequence_breakers"),
    ];
    for (body, param) in wrong {
        let reply = server.post(COMPLETION, &with(&ask(1), body.clone()));
        assert_eq!((reply.status, &reply.json()["error"]["param"]), (400, &json!(param)), "{body}");
    }
}
