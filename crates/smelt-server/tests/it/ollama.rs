//! Ollama's routes.

use serde_json::{Value, json};

use crate::support::{MODEL, Running, with};

fn lines(server: &Running, path: &str, body: &Value) -> Vec<Value> {
    let reply = server.post(path, body);
    assert_eq!((reply.status, reply.header("content-type")), (200, "application/x-ndjson"));
    reply.lines().map(|line| serde_json::from_str(&line).unwrap()).collect()
}

#[test]
fn chats_and_generations_are_answered() {
    let server = Running::new();
    let options = json!({"temperature": 0, "num_predict": 8, "num_ctx": 256});
    let chat =
        json!({"model": "tiny", "messages": [{"role": "user", "content": "Hello"}], "options": options});
    let pieces = lines(&server, "/api/chat", &chat);
    let (last, pieces) = pieces.split_last().unwrap();
    let streamed: String = pieces.iter().map(|p| p["message"]["content"].as_str().unwrap()).collect();
    assert!(pieces.iter().all(|p| p["done"] == false && p.get("done_reason").is_none()));
    assert_eq!(
        (&last["done"], &last["done_reason"], &last["eval_count"]),
        (&json!(true), &json!("length"), &json!(8))
    );
    assert!(last["prompt_eval_count"].as_u64().unwrap() > 0 && last["total_duration"].as_u64().unwrap() > 0);
    let whole = server.ask("/api/chat", &with(&chat, json!({"stream": false})));
    assert_eq!(whole["message"], json!({"role": "assistant", "content": streamed}));
    assert_eq!(whole["done"], true);

    // The same prompt by the other route.
    let generate = json!({"model": "tiny:latest", "prompt": "Hello", "options": options, "stream": false});
    assert_eq!(server.ask("/api/generate", &generate)["response"], streamed);
    // A raw one is that of completions.
    let raw = server.ask("/api/generate", &with(&generate, json!({"raw": true})))["response"].clone();
    let completion = json!({"prompt": "Hello", "max_tokens": 8, "temperature": 0});
    assert_eq!(raw, server.ask("/v1/completions", &completion)["choices"][0]["text"]);
    // Without a prompt the model is loaded, which it is.
    assert_eq!(server.ask("/api/generate", &json!({"model": "tiny"}))["done_reason"], "load");
    assert_eq!(server.ask("/api/chat", &json!({"model": "tiny"}))["done_reason"], "load");
}

#[test]
fn the_server_tells_what_it_has() {
    let server = Running::new();
    let tags = server.get("/api/tags").json();
    let model = &tags["models"][0];
    assert_eq!((&model["name"], &model["details"]["family"]), (&json!(MODEL), &json!("llama")));
    assert_eq!(model["details"]["quantization_level"], "F16");
    assert_eq!(server.get("/api/ps").json()["models"][0]["context_length"], 512);
    let show = server.ask("/api/show", &json!({"model": "tiny"}));
    assert_eq!(show["model_info"]["general.architecture"], "llama");
    assert_eq!(show["capabilities"], json!(["completion", "tools"]));
    assert!(!show["template"].as_str().unwrap().is_empty());
    assert!(server.get("/api/version").json()["version"].is_string());
}

#[test]
fn errors_are_a_sentence() {
    let server = Running::new();
    let error = |path: &str, body: Value| {
        let reply = server.post(path, &body);
        (reply.status, reply.json()["error"].as_str().unwrap().to_owned())
    };
    let (status, message) = error("/api/chat", json!({"model": "nothing", "messages": []}));
    assert_eq!(status, 404);
    assert!(message.contains("nothing") && message.contains(MODEL));
    let (status, message) =
        error("/api/generate", json!({"model": "tiny", "prompt": "x", "options": {"num_ctx": 4096}}));
    assert_eq!(status, 400);
    assert!(message.contains("4096") && message.contains("512"), "{message}");
    let (status, _) =
        error("/api/generate", json!({"model": "tiny", "prompt": "a b c d", "options": {"num_ctx": 2}}));
    assert_eq!(status, 400);
    let (status, message) = error("/api/chat", json!({"model": "tiny", "format": "xml"}));
    assert_eq!(status, 400);
    assert!(message.contains("format"));
    let lost = server.get("/api/nothing");
    assert_eq!(lost.status, 404);
    assert!(lost.json()["error"].is_string());
}

#[test]
fn a_pull_finds_what_is_offered() {
    let server = Running::new();
    let pieces = lines(&server, "/api/pull", &json!({"model": "tiny"}));
    assert_eq!(pieces, [json!({"status": "pulling manifest"}), json!({"status": "success"})]);
    let whole = server.ask("/api/pull", &json!({"name": MODEL, "stream": false}));
    assert_eq!(whole, json!({"status": "success"}));
    let reply = server.post("/api/pull", &json!({"model": "other"}));
    assert_eq!(reply.status, 403);
    let message = reply.json()["error"].as_str().unwrap().to_owned();
    assert!(message.contains("other") && message.contains("--allow-pull"), "{message}");
}
