//! What a server is started with stands for what a request leaves open.

use serde_json::{Value, json};
use smelt_api::Effort;
use smelt_server::{Defaults, ModelSource, Settings};

use crate::scripted;
use crate::support::{MODEL, Running, source, with};

fn started(file: std::path::PathBuf, defaults: Defaults) -> Running {
    let running = Running::start(Settings::default(), vec![ModelSource { file, defaults, ..source(256) }]);
    running.wait(|| running.get("/health").status == 200);
    running
}

#[test]
fn answers_have_the_servers_length_and_seed() {
    let mut defaults = Defaults { max_tokens: Some(5), ..Defaults::default() };
    defaults.sampler.seed = Some(3);
    let server = started(source(256).file, defaults);
    let messages = json!([{"role": "user", "content": "Why?"}]);
    let asked = json!({"model": MODEL, "messages": messages, "ignore_eos": true});
    let ask = |more: Value| server.ask("/v1/chat/completions", &with(&asked, more));
    let (usual, again) = (ask(json!({})), ask(json!({})));
    assert_eq!(usual["usage"]["completion_tokens"], 5);
    assert_eq!(usual["choices"], again["choices"], "the seed is the server's");
    assert_eq!(ask(json!({"max_tokens": 7}))["usage"]["completion_tokens"], 7);
    // -1 says nothing, as with llama-server.
    assert_eq!(ask(json!({"max_tokens": -1}))["usage"]["completion_tokens"], 5);
    let ollama = json!({"model": MODEL, "messages": messages, "stream": false, "options": {"num_ctx": 200}});
    assert!(server.ask("/api/chat", &ollama)["eval_count"].as_u64() <= Some(5));
    let response = json!({"model": MODEL, "input": "Why?", "ignore_eos": true});
    assert_eq!(server.ask("/v1/responses", &response)["usage"]["output_tokens"], 5);
    assert_eq!(server.get("/props").json()["default_generation_settings"]["params"]["n_predict"], 5);
}

#[test]
fn a_model_thinks_as_the_server_says() {
    let thought = |server: &Running, more: Value| {
        let asked = json!({"messages": [{"role": "user", "content": "A"}], "temperature": 0});
        let answer = server.ask("/v1/chat/completions", &with(&asked, more));
        answer["choices"][0]["message"]["reasoning_content"].as_str().unwrap_or_default().to_owned()
    };
    let whole = "one two three four five six seven.";
    let off = json!({"chat_template_kwargs": {"enable_thinking": false}});
    // The template's own choice is not to think.
    let usual = started(scripted::model(), Defaults::default());
    assert_eq!(thought(&usual, json!({})), "");
    drop(usual);
    let server = started(scripted::model(), Defaults { effort: Some(Effort::Max), ..Defaults::default() });
    assert_eq!(thought(&server, json!({})), whole);
    for none in [json!({"reasoning_effort": "none"}), off.clone()] {
        assert_eq!(thought(&server, none), "");
    }
    let ollama = json!({"model": MODEL, "messages": [{"role": "user", "content": "A"}], "stream": false});
    assert_eq!(server.ask("/api/chat", &ollama)["message"]["thinking"], whole);
    drop(server);
    let budget = Defaults { thinking_budget: Some(2), ..Defaults::default() };
    let server = started(scripted::model(), budget);
    assert_eq!(thought(&server, json!({})), "one two");
    assert_eq!(thought(&server, json!({"thinking_budget": 4})), "one two three four");
    assert_eq!(thought(&server, off), "");
    drop(server);
    // One that can't think answers as ever.
    let server = started(source(256).file, Defaults { effort: Some(Effort::High), ..Defaults::default() });
    assert_eq!(thought(&server, json!({"max_tokens": 2})), "");
}
