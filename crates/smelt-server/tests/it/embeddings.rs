//! Embeddings and rankings over HTTP.

use serde_json::{Value, json};
use smelt_server::{ModelSource, Settings};
use smelt_testdata::{Npz, data, with_keys};

use crate::support::{Running, source, with};

/// A server with a decoder and with a cross-encoder.
fn server() -> Running {
    let bert = ModelSource {
        name: "bert".to_owned(),
        file: data("bert/bert-f16.gguf"),
        engine: smelt_engine::Settings { context: None, ..source(64).engine },
        ..source(64)
    };
    let running = Running::start(Settings::default(), vec![source(512), bert]);
    running.wait(|| running.get("/health").status == 200);
    running
}

fn numbers(value: &Value) -> Vec<f32> {
    value.as_array().unwrap().iter().map(|v| v.as_f64().unwrap() as f32).collect()
}

fn length(values: &[f32]) -> f32 {
    values.iter().map(|v| v * v).sum::<f32>().sqrt()
}

/// Status, code and parameter of an error.
fn error(server: &Running, path: &str, body: &Value) -> (u16, String, String) {
    let reply = server.post(path, body);
    let (status, error) = (reply.status, reply.json()["error"].clone());
    let text = |name: &str| error[name].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("param"))
}

#[test]
fn openais_route_gives_vectors_in_every_form() {
    let server = server();
    let ask = |body: Value| server.ask("/v1/embeddings", &with(&json!({"model": "bert"}), body));
    let one = ask(json!({"input": "a fish swims in the sea"}));
    assert_eq!((&one["object"], &one["model"]), (&json!("list"), &json!("bert")));
    assert_eq!(one["usage"], json!({"prompt_tokens": 8, "total_tokens": 8}));
    let vector = numbers(&one["data"][0]["embedding"]);
    assert_eq!(vector.len(), 48);
    assert!((length(&vector) - 1.0).abs() < 1e-5);
    // The same text among others, as its tokens, and as bytes.
    let input = json!(["who lives in the sea ?", "a fish swims in the sea", "fire burns"]);
    let many = ask(json!({"input": input, "user": "ada"}));
    assert_eq!(many["data"][1]["index"], 1);
    assert_eq!(many["data"][1]["embedding"], one["data"][0]["embedding"]);
    assert_ne!(many["data"][0]["embedding"], one["data"][0]["embedding"]);
    let tokens = server.ask("/tokenize", &json!({"model": "bert", "prompt": "a fish swims in the sea"}));
    for input in [tokens["tokens"].clone(), json!([tokens["tokens"]])] {
        assert_eq!(ask(json!({"input": input}))["data"], one["data"]);
    }
    let bytes = ask(json!({"input": "a fish swims in the sea", "encoding_format": "base64"}));
    let text = bytes["data"][0]["embedding"].as_str().unwrap();
    assert_eq!(text.len(), (48usize * 4).div_ceil(3) * 4);
    // The beginning of it, of length 1 again.
    let short =
        numbers(&ask(json!({"input": "a fish swims in the sea", "dimensions": 7}))["data"][0]["embedding"]);
    assert!(short.len() == 7 && (length(&short) - 1.0).abs() < 1e-5);
    assert!((short[3] / short[0] - vector[3] / vector[0]).abs() < 1e-4);
    // A decoder has states too.
    let decoder = server.ask("/v1/embeddings", &json!({"model": "tiny", "input": ["Hello", "Bye"]}));
    assert!((length(&numbers(&decoder["data"][1]["embedding"])) - 1.0).abs() < 1e-5);
    server.wait(|| server.metric("smelt_texts_pooled_total{model_name=\"bert\"}") >= 8.0);
}

fn rows(value: &Value) -> Vec<Vec<f32>> {
    value.as_array().unwrap().iter().map(numbers).collect()
}

fn near(found: &[f32], right: &[f32]) {
    let off = found.iter().zip(right).fold(0f32, |most, (f, r)| most.max((f - r).abs()));
    assert!(found.len() == right.len() && off < 1e-5, "off by {off}");
}

#[test]
fn states_are_pooled_as_the_request_says() {
    let server = server();
    // A decoder and a model that sees all of a text.
    for model in ["tiny", "bert"] {
        let ask = |more: Value| with(&json!({"model": model, "input": "a fish swims"}), more);
        let states = server.ask("/embeddings", &ask(json!({"pooling": "none"})));
        let tokens = server.ask("/tokenize", &json!({"model": model, "prompt": "a fish swims"}));
        let states = rows(&states[0]["embedding"]);
        assert_eq!(states.len(), tokens["count"].as_u64().unwrap() as usize);
        let mean: Vec<f32> = (0..states[0].len())
            .map(|i| states.iter().map(|state| state[i]).sum::<f32>() / states.len() as f32)
            .collect();
        let right = [("mean", &mean), ("cls", &states[0]), ("last", &states[states.len() - 1])];
        for (pooling, right) in right {
            // Raw, as both routes tell it.
            let raw = ask(json!({"pooling": pooling, "normalize": false}));
            near(&numbers(&server.ask("/v1/embeddings", &raw)["data"][0]["embedding"]), right);
            near(&rows(&server.ask("/embedding", &raw)[0]["embedding"])[0], right);
            // And of length 1, which is usual, or by another norm.
            let usual = server.ask("/v1/embeddings", &ask(json!({"pooling": pooling})));
            near(
                &numbers(&usual["data"][0]["embedding"]),
                &right.iter().map(|v| v / length(right)).collect::<Vec<_>>(),
            );
            let told = ask(json!({"pooling": pooling, "embd_normalize": 2, "user": "ada"}));
            assert_eq!(server.ask("/v1/embeddings", &told)["data"], usual["data"]);
            let told = ask(json!({"pooling": pooling, "embd_normalize": 1, "dimensions": 5}));
            let sum: f32 = right[..5].iter().map(|v| v.abs()).sum();
            near(
                &numbers(&server.ask("/v1/embeddings", &told)["data"][0]["embedding"]),
                &right[..5].iter().map(|v| v / sum).collect::<Vec<_>>(),
            );
        }
        // States are told as they are, unless somebody asks for more.
        let told = ask(json!({"pooling": "none", "normalize": true, "dimensions": 3}));
        for (found, right) in rows(&server.ask("/embeddings", &told)[0]["embedding"]).iter().zip(&states) {
            near(found, &right[..3].iter().map(|v| v / length(&right[..3])).collect::<Vec<_>>());
        }
    }
    // llama.cpp's word for the texts, and several of them.
    let many = server
        .ask("/embeddings", &json!({"model": "bert", "content": ["a cat", [5, 6, 7]], "pooling": "none"}));
    let lengths: Vec<usize> =
        many.as_array().unwrap().iter().map(|text| rows(&text["embedding"]).len()).collect();
    assert_eq!((lengths, &many[1]["index"]), (vec![4, 3], &json!(1)));
    // What the vocabulary puts around a text may be left out.
    let bare = json!({"model": "bert", "input": "a cat", "pooling": "none", "add_special_tokens": false});
    assert_eq!(rows(&server.ask("/embeddings", &bare)[0]["embedding"]).len(), 2);
}

#[test]
fn forms_of_embeddings_that_can_not_be_are_refused() {
    let server = server();
    for model in ["tiny", "bert"] {
        for (path, body, at, code) in [
            ("/v1/embeddings", json!({"input": "a", "pooling": "none"}), "pooling", "invalid_value"),
            ("/v1/embeddings", json!({"input": "a", "pooling": "rank"}), "pooling", "invalid_value"),
            (
                "/v1/embeddings",
                json!({"input": "a", "embd_normalize": -2}),
                "embd_normalize",
                "invalid_value",
            ),
            (
                "/v1/embeddings",
                json!({"input": "a", "embd_normalize": 2, "normalize": true}),
                "normalize",
                "invalid_value",
            ),
            (
                "/v1/embeddings",
                json!({"input": "a", "encoding_format": "int8"}),
                "encoding_format",
                "invalid_value",
            ),
            ("/v1/embeddings", json!({"input": "a", "dimensions": 0}), "dimensions", "invalid_value"),
            ("/v1/embeddings", json!({"input": []}), "input", "invalid_value"),
            ("/v1/embeddings", json!({"input": [[1, -1]]}), "input", "invalid_value"),
            ("/v1/embeddings", json!({"input": [1.5]}), "input", "invalid_value"),
            ("/v1/embeddings", json!({"input": [1, true]}), "input", "invalid_value"),
            (
                "/v1/embeddings",
                json!({"input": {"text": "a"}}),
                "input.prompt_string",
                "missing_required_parameter",
            ),
            ("/v1/embeddings", json!({"input": "", "add_special_tokens": false}), "input", "invalid_value"),
            (
                "/embeddings",
                json!({"input": "a", "encoding_format": "base64"}),
                "encoding_format",
                "unsupported_parameter",
            ),
            ("/embeddings", json!({"input": "a", "content": "a"}), "content", "invalid_value"),
            ("/embeddings", json!({}), "input", "missing_required_parameter"),
            ("/embeddings", json!({"content": []}), "content", "invalid_value"),
        ] {
            let (status, found, param) = error(&server, path, &with(&json!({"model": model}), body.clone()));
            assert_eq!((status, found.as_str(), param.as_str()), (400, code, at), "{model} {path} {body}");
        }
        // No text has what the vocabulary puts around one, which is something.
        let empty = json!({"model": model, "input": "", "encoding_format": "float"});
        assert!(
            (length(&numbers(&server.ask("/v1/embeddings", &empty)["data"][0]["embedding"])) - 1.0).abs()
                < 1e-5
        );
    }
    // A text that is too long names both numbers, on each route and for each model.
    for (model, context) in [("tiny", 512), ("bert", 64)] {
        for path in ["/v1/embeddings", "/embeddings"] {
            let reply = server.post(path, &json!({"model": model, "input": vec![5; context + 1]}));
            let (status, body) = (reply.status, reply.json());
            assert_eq!((status, &body["error"]["code"]), (400, &json!("context_length_exceeded")));
            let numbers = (&body["error"]["n_prompt_tokens"], &body["error"]["n_ctx"]);
            assert_eq!(numbers, (&json!(context + 1), &json!(context)));
        }
    }
    // More states than can be told at once.
    let many = json!({"model": "tiny", "input": vec![vec![5; 512]; 300], "pooling": "none"});
    assert_eq!(error(&server, "/embeddings", &many), (400, "invalid_value".to_owned(), "input".to_owned()));
}

/// The tiny llama with some keys more.
fn changed(keys: &[(&str, u32)]) -> (tempfile::NamedTempFile, ModelSource) {
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    let good = std::fs::read(data("tiny/llama/llama-f16.gguf")).unwrap();
    std::fs::write(file.path(), with_keys(&good, keys)).unwrap();
    let source = ModelSource { file: file.path().to_owned(), ..source(512) };
    (file, source)
}

#[test]
fn a_file_that_pools_nothing_is_asked_for_states_or_told_how() {
    let (_file, source) = changed(&[("llama.pooling_type", 0)]);
    let server = Running::start(Settings::default(), vec![source]);
    let refused = error(&server, "/v1/embeddings", &json!({"input": "a fish"}));
    assert_eq!(refused, (400, "invalid_value".to_owned(), "pooling".to_owned()));
    assert!(
        server.post("/api/embed", &json!({"model": "tiny", "input": "a"})).text().contains("/embeddings")
    );
    server.ask("/v1/embeddings", &json!({"input": "a fish", "pooling": "mean"}));
    assert!(rows(&server.ask("/embeddings", &json!({"input": "a fish"}))[0]["embedding"]).len() > 2);
}

#[test]
fn what_stands_between_prompt_and_suffix_is_the_answer_to_the_vocabularys_marks() {
    let marks = [("fim_pre", 10), ("fim_suf", 11), ("fim_mid", 12)];
    let keys = marks.map(|(role, id)| (format!("tokenizer.ggml.{role}_token_id"), id));
    let (_file, source) = changed(&keys.each_ref().map(|(key, id)| (key.as_str(), *id)));
    let server = Running::start(Settings::default(), vec![source]);
    let tokens = |text: &str, add: bool| -> Vec<Value> {
        let body = json!({"prompt": text, "add_special_tokens": add, "parse_special": false});
        server.ask("/tokenize", &body)["tokens"].as_array().unwrap().clone()
    };
    let (prefix, suffix) = ("def f(x):", "return x</s>");
    let by_hand = |prefix: &str, suffix: &str| {
        let bos = tokens("", true);
        let parts = [
            bos,
            vec![json!(10)],
            tokens(prefix, false),
            vec![json!(11)],
            tokens(suffix, false),
            vec![json!(12)],
        ];
        parts.concat()
    };
    let settings = json!({"temperature": 0, "max_tokens": 24, "ignore_eos": true});
    let answer = |prompt: Value| server.ask("/v1/completions", &with(&settings, prompt));
    let right = answer(json!({"prompt": by_hand(prefix, suffix)}));
    let found = answer(json!({"prompt": prefix, "suffix": suffix}));
    assert_eq!(found["choices"], right["choices"]);
    assert_eq!(found["usage"]["prompt_tokens"], by_hand(prefix, suffix).len());
    assert_eq!(found["usage"]["completion_tokens"], 24);
    assert_ne!(answer(json!({"prompt": prefix, "suffix": "x"}))["choices"], right["choices"]);
    // Some clients always send one: an empty suffix is none.
    let bare = answer(json!({"prompt": prefix, "suffix": ""}));
    assert_eq!(bare["choices"], answer(json!({"prompt": prefix}))["choices"]);
    // In pieces, of several prompts, and by Ollama's route.
    let text = &right["choices"][0]["text"];
    let streamed = with(&settings, json!({"prompt": prefix, "suffix": suffix, "stream": true}));
    let pieces: String = server
        .post("/v1/completions", &streamed)
        .text()
        .lines()
        .filter_map(|line| serde_json::from_str::<Value>(line.strip_prefix("data: ")?).ok())
        .map(|chunk| chunk["choices"][0]["text"].as_str().unwrap_or_default().to_owned())
        .collect();
    assert_eq!(pieces, text.as_str().unwrap());
    let two = answer(json!({"prompt": [prefix, suffix], "suffix": suffix}));
    assert_eq!((&two["choices"][0]["text"], two["choices"].as_array().unwrap().len()), (text, 2));
    let options = json!({"temperature": 0, "num_predict": 24});
    let ollama =
        json!({"model": "tiny", "prompt": prefix, "suffix": suffix, "stream": false, "options": options});
    let said = server.ask("/api/generate", &ollama)["response"].as_str().unwrap().to_owned();
    assert!(text.as_str().unwrap().starts_with(&said), "{said:?}, where {text} is right");
    // Tokens have no suffix.
    let (status, _, param) = error(&server, "/v1/completions", &json!({"prompt": [5, 6], "suffix": "b"}));
    assert_eq!((status, param.as_str()), (400, "suffix"));
}

#[test]
fn what_can_not_be_embedded_is_refused_by_name() {
    let server = server();
    let refuse = |body: Value| error(&server, "/v1/embeddings", &with(&json!({"model": "bert"}), body));
    let long = "fish ".repeat(63);
    let (status, code, param) = refuse(json!({"input": ["a", long]}));
    assert_eq!((status, code.as_str(), param.as_str()), (400, "context_length_exceeded", "input[1]"));
    let message = server.post("/v1/embeddings", &json!({"model": "bert", "input": long})).json();
    assert_eq!((&message["error"]["n_prompt_tokens"], &message["error"]["n_ctx"]), (&json!(65), &json!(64)));
    assert_eq!(refuse(json!({"input": "a", "dimensions": 49})).2, "dimensions");
    assert_eq!(refuse(json!({"input": [5, 100_000]})).2, "input");
    assert_eq!(refuse(json!({"input": [[]]})).2, "input");
    assert_eq!(refuse(json!({})).1, "missing_required_parameter");
    // A model that writes nothing says so, by each way of asking.
    let message = json!([{"role": "user", "content": "hi"}]);
    for (path, body) in [
        ("/v1/completions", json!({"model": "bert", "prompt": "a"})),
        ("/v1/chat/completions", json!({"model": "bert", "messages": message})),
        ("/v1/messages", json!({"model": "bert", "messages": message, "max_tokens": 5})),
        ("/api/chat", json!({"model": "bert", "messages": message})),
        ("/api/generate", json!({"model": "bert", "prompt": "a"})),
    ] {
        let reply = server.post(path, &body);
        let (status, text) = (reply.status, reply.text());
        assert!(status == 400 && text.contains("can't generate text"), "{path}: {status} {text}");
    }
    // Nor does one fill text in whose vocabulary has no tokens for it.
    let filling = json!({"model": "tiny", "prompt": "a", "suffix": "b"});
    let (status, code, param) = error(&server, "/v1/completions", &filling);
    assert_eq!((status, code.as_str(), param.as_str()), (400, "unsupported_parameter", "suffix"));
    assert!(server.post("/api/generate", &filling).text().contains("suffix"));
    let (status, code, _) =
        error(&server, "/v1/rerank", &json!({"model": "tiny", "query": "a", "documents": ["b"]}));
    assert_eq!((status, code.as_str()), (400, "invalid_value"));
}

#[test]
fn ollamas_routes_cut_what_is_too_long_unless_told_not_to() {
    let server = server();
    let long = "fish ".repeat(80);
    let embed =
        server.ask("/api/embed", &json!({"model": "bert", "input": ["a cat", long], "dimensions": 5}));
    assert_eq!((&embed["model"], &embed["prompt_eval_count"]), (&json!("bert"), &json!(4 + 64)));
    assert_eq!(embed["embeddings"].as_array().unwrap().len(), 2);
    assert_eq!(embed["embeddings"][1].as_array().unwrap().len(), 5);
    assert!(embed["total_duration"].as_u64().unwrap() > 0 && embed["load_duration"] == 0);
    // What is cut ends as the text ended.
    let cut = json!({"model": "bert", "input": "fish ".repeat(62)});
    let whole = json!({"model": "bert", "input": long});
    assert_eq!(server.ask("/api/embed", &cut)["embeddings"], server.ask("/api/embed", &whole)["embeddings"]);
    let shorter = with(&whole, json!({"options": {"num_ctx": 10}}));
    assert_eq!(server.ask("/api/embed", &shorter)["prompt_eval_count"], 10);
    let reply = server.post("/api/embed", &with(&whole, json!({"truncate": false})));
    assert_eq!(reply.status, 400);
    assert!(reply.json()["error"].as_str().unwrap().contains("64"));
    let none = server.ask("/api/embed", &json!({"model": "bert", "input": []}));
    assert_eq!((&none["embeddings"], &none["prompt_eval_count"]), (&json!([]), &json!(0)));
    let old = server.ask("/api/embeddings", &json!({"model": "bert", "prompt": "a cat"}));
    let new = server.ask("/api/embed", &json!({"model": "bert", "input": "a cat"}));
    assert_eq!(old, json!({"embedding": new["embeddings"][0]}));
    let show = server.ask("/api/show", &json!({"model": "bert"}));
    assert_eq!(show["capabilities"], json!(["embedding"]));
}

#[test]
fn documents_are_ranked_by_their_scores() {
    let server = server();
    let right = Npz::open("bert/ref.npz").f32("scores").values[0];
    let documents =
        json!(["fire burns", {"text": "a fish swims in the sea , a cat is a cat ."}, "fire burns", "who ?"]);
    let ask = json!({"model": "bert", "query": "what lives in the sea ?", "documents": documents});
    let ranking = server.ask("/v1/rerank", &ask);
    let results = ranking["results"].as_array().unwrap();
    let score = |result: &Value| result["relevance_score"].as_f64().unwrap();
    assert_eq!(results.len(), 4);
    assert!(results.windows(2).all(|w| score(&w[0]) >= score(&w[1])), "{results:?}");
    let found = results.iter().find(|result| result["index"] == 1).unwrap();
    let expected = 1.0 / (1.0 + (-f64::from(right)).exp());
    assert!((score(found) - expected).abs() < 1e-4, "{found}, where {expected} is right");
    assert!(found.get("document").is_none() && ranking["usage"]["total_tokens"].as_u64().unwrap() > 40);
    // Of equal ones the earlier comes first.
    let place = |index: u64| results.iter().position(|result| result["index"] == index).unwrap();
    assert_eq!(place(0) + 1, place(2));
    let best = server.ask("/rerank", &with(&ask, json!({"top_n": 2, "return_documents": true})));
    assert_eq!(best["results"].as_array().unwrap().len(), 2);
    assert_eq!(best["results"][0]["index"], results[0]["index"]);
    assert!(best["results"][0]["document"]["text"].is_string());
    let long = with(&ask, json!({"documents": ["a", "fish ".repeat(60)]}));
    assert_eq!(
        error(&server, "/v1/rerank", &long),
        (400, "context_length_exceeded".to_owned(), "documents[1]".to_owned())
    );
    // A query that is too long is not put together with every document first, which would take some 10 GB here.
    let long = json!({"model": "bert", "query": "fish ".repeat(1 << 20), "documents": vec!["a"; 2000]});
    assert_eq!(
        error(&server, "/v1/rerank", &long),
        (400, "context_length_exceeded".to_owned(), "query".to_owned())
    );
    let told = with(&ask, json!({"instruction": "find fish"}));
    assert!(server.post("/v1/rerank", &told).text().contains("can't follow an instruction"));
}

#[test]
fn other_servers_forms_say_the_same() {
    let server = server();
    let texts = json!(["a fish swims in the sea", "fire burns"]);
    let plain = server.ask("/v1/embeddings", &json!({"model": "bert", "input": texts}))["data"].clone();
    for (path, name) in [("/embedding", "content"), ("/embeddings", "input")] {
        let told = server.ask(path, &json!({"model": "bert", name: texts}));
        assert_eq!(told.as_array().unwrap().len(), 2);
        for i in [0, 1] {
            assert_eq!(told[i], json!({"index": i, "embedding": [plain[i]["embedding"]]}));
        }
    }
    // A text may be an object, or have tokens in it.
    let tokens = server.ask("/tokenize", &json!({"model": "bert", "prompt": "fire burns"}))["tokens"].clone();
    let parts = json!([{"type": "text", "text": "fire "}, {"type": "text", "text": "burns"}]);
    for input in [json!({"content": parts}), json!([tokens[0], "fire burns", tokens[3]])] {
        let told = server.ask("/v1/embeddings", &json!({"model": "bert", "input": input}))["data"].clone();
        assert_eq!(told[0]["embedding"].as_array().unwrap().len(), 48);
    }
    let same = server.ask("/v1/embeddings", &json!({"model": "bert", "input": {"content": parts}}));
    assert_eq!(same["data"][0]["embedding"], plain[1]["embedding"]);
    assert_eq!(error(&server, "/embedding", &json!({"model": "bert"})).2, "input");
    assert_eq!(
        error(&server, "/embedding", &json!({"model": "bert", "input": "a", "content": "b"})).2,
        "content"
    );

    let documents = json!(["fire burns", "a fish swims in the sea"]);
    let ranking = json!({"model": "bert", "query": "who lives in the sea ?"});
    let jina = server.ask("/v1/rerank", &with(&ranking, json!({"documents": documents, "top_n": 2})));
    let tei = server.ask("/rerank", &with(&ranking, json!({"texts": documents, "return_text": true})));
    assert_eq!(tei.as_array().unwrap().len(), 2);
    for (tei, jina) in tei.as_array().unwrap().iter().zip(jina["results"].as_array().unwrap()) {
        assert_eq!((&tei["index"], &tei["score"]), (&jina["index"], &jina["relevance_score"]));
        assert_eq!(tei["text"], documents[tei["index"].as_u64().unwrap() as usize]);
    }
    for (body, param) in
        [(json!({}), "documents"), (json!({"texts": []}), "texts"), (json!({"texts": [1]}), "texts[0]")]
    {
        assert_eq!(error(&server, "/reranking", &with(&ranking, body)).2, param);
    }
}
