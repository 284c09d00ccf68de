//! Embeddings and rankings over HTTP.

use serde_json::{Value, json};
use smelt_server::{ModelSource, Settings};
use smelt_testdata::Npz;

use crate::support::{Running, source, with};

/// A server with a decoder and with a cross-encoder.
fn server() -> Running {
    let bert = ModelSource {
        name: "bert".to_owned(),
        file: smelt_testdata::data("bert/bert-f16.gguf"),
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
    let told = with(&ask, json!({"instruction": "find fish"}));
    assert!(server.post("/v1/rerank", &told).text().contains("can't follow an instruction"));
}
