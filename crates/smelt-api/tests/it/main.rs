//! Requests of every dialect, from a list of cases, and responses in their exact shape.

use serde_json::{Value, json};
use smelt_api::embeddings::{EmbeddingsRequest, Encoding, Vector};
use smelt_api::rerank::RerankRequest;
use smelt_api::{
    ApiError, ChatMessage, Dialect, anthropic, embeddings, llamacpp, ollama, openai, rerank, responses,
    tokens,
};

/// What a case can say about a request that was read.
struct Read {
    messages: Vec<ChatMessage>,
    unknown: Vec<String>,
}

fn read(route: &str, body: &[u8]) -> Result<Read, ApiError> {
    let conversation = |c: anthropic::Conversation| Read { messages: c.messages, unknown: c.unknown };
    let none = |unknown| Read { messages: Vec::new(), unknown };
    Ok(match route {
        "chat" => {
            let request = openai::ChatRequest::read(body)?;
            Read { messages: request.messages, unknown: request.common.unknown }
        }
        "completions" => none(openai::CompletionRequest::read(body)?.common.unknown),
        "responses" => none(responses::ResponsesRequest::read(body)?.conversation.unknown),
        "messages" => conversation(anthropic::MessagesRequest::read(body)?.conversation),
        "count" => conversation(anthropic::Conversation::read(body)?),
        "ollama-chat" => {
            let request = ollama::ChatRequest::read(body)?;
            Read { messages: request.messages, unknown: request.common.unknown }
        }
        "ollama-generate" => none(ollama::GenerateRequest::read(body)?.common.unknown),
        "tokenize" => none(tokens::TokenizeRequest::read(body)?.unknown),
        "detokenize" => none(tokens::DetokenizeRequest::read(body)?.unknown),
        "embeddings" => none(EmbeddingsRequest::read(body)?.unknown),
        "llamacpp-completion" => none(llamacpp::CompletionRequest::read(body)?.wishes.common.unknown),
        "llamacpp-infill" => none(llamacpp::InfillRequest::read(body)?.wishes.common.unknown),
        "llamacpp-embedding" => none(EmbeddingsRequest::read_states(body)?.unknown),
        "ollama-embed" => none(EmbeddingsRequest::read_ollama(body)?.unknown),
        "ollama-embeddings" => none(EmbeddingsRequest::read_old(body)?.unknown),
        "ollama-pull" => none(ollama::PullRequest::read(body)?.unknown),
        "rerank" => none(RerankRequest::read(body)?.unknown),
        other => panic!("there is no route {other}"),
    })
}

#[test]
fn requests_are_read_or_refused_by_name() {
    let cases = smelt_testdata::json("api/requests.json");
    for case in cases.as_array().unwrap() {
        let body = case["body"].to_string();
        let result = read(case["route"].as_str().unwrap(), body.as_bytes());
        match (&case["error"], result) {
            (Value::Null, Ok(read)) => {
                let unknown: Vec<Value> = read.unknown.into_iter().map(Into::into).collect();
                let expected = case["unknown"].as_array().cloned().unwrap_or_default();
                assert_eq!(unknown, expected, "{body}");
                if let Some(content) = case["content"].as_str() {
                    assert_eq!(read.messages[0].content, content, "{body}");
                }
            }
            (Value::Null, Err(error)) => panic!("{body}: {error:?}"),
            (expected, Ok(_)) => panic!("{body} was read, but should fail with {expected}"),
            (expected, Err(error)) => {
                assert_eq!(json!([error.code.name(), error.param]), *expected, "{body}: {error:?}");
                let param = error.param.as_deref().unwrap_or("body");
                assert!(error.message.contains(param), "{body}: the message names no parameter: {error:?}");
                let shown = error.body(Dialect::OpenAi, "r");
                assert_eq!(shown["error"]["code"], expected[0]);
            }
        }
    }
}

#[test]
fn values_arrive_as_they_were_sent() {
    let body = json!({
        "model": "m", "messages": [{"role": "user", "content": "hi", "name": "Ada"}], "seed": 7, "n": 2,
        "max_tokens": 5, "max_completion_tokens": 9, "stop": "end", "top_k": -1, "repetition_penalty": 1.1,
        "repeat_last_n": -1, "logit_bias": {"3": -100, "4": 2}, "stream": true,
        "stream_options": {"include_usage": true}, "skip_special_tokens": false, "logprobs": true,
    });
    let request = openai::ChatRequest::read(body.to_string().as_bytes()).unwrap();
    let common = request.common;
    assert_eq!((common.model.as_deref(), common.n, request.top_logprobs), (Some("m"), 2, Some(0)));
    assert_eq!(common.stream, Some(openai::StreamOptions { include_usage: true }));
    assert_eq!((common.limits.max_tokens, common.limits.show_special), (Some(9), true));
    assert_eq!(common.limits.stop, ["end"]);
    assert_eq!(common.sampling.seed, Some(Some(7)));
    assert_eq!((common.sampling.top_k, common.sampling.repeat_last_n), (Some(0), Some(None)));
    assert_eq!(common.sampling.repeat_penalty, Some(1.1));
    assert_eq!(common.sampling.logit_bias, [(3, f32::NEG_INFINITY), (4, 2.0)]);
    assert_eq!(request.messages[0].name.as_deref(), Some("Ada"));
    // A completion has OpenAI's own limit unless it says otherwise.
    let most = |body: Value| {
        openai::CompletionRequest::read(body.to_string().as_bytes()).unwrap().common.limits.max_tokens
    };
    assert_eq!(most(json!({"prompt": "x"})), Some(16));
    assert_eq!(most(json!({"prompt": "x", "max_tokens": -1})), None);
    assert_eq!(most(json!({"prompt": "x", "max_tokens": 0})), Some(0));
}

#[test]
fn every_parameter_stands_once_in_its_tables() {
    for tables in [
        openai::CHAT_PARAMS,
        openai::COMPLETION_PARAMS,
        responses::RESPONSES_PARAMS,
        anthropic::MESSAGES_PARAMS,
        ollama::CHAT_PARAMS,
        ollama::GENERATE_PARAMS,
        ollama::PULL_PARAMS,
        llamacpp::COMPLETION_PARAMS,
        llamacpp::INFILL_PARAMS,
        tokens::TOKENIZE_PARAMS,
        embeddings::EMBEDDINGS_PARAMS,
        embeddings::EMBED_PARAMS,
        embeddings::OLD_EMBEDDINGS_PARAMS,
        rerank::RERANK_PARAMS,
    ] {
        let mut names: Vec<&str> = tables.iter().copied().flatten().map(|p| p.name).collect();
        let all = names.len();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), all);
        let schema = smelt_api::params::schema(tables);
        assert_eq!(schema["properties"].as_object().unwrap().len(), all);
    }
}

#[test]
fn chunks_have_openais_shape() {
    let chunk = openai::ChatChunk {
        id: "chatcmpl-1".into(),
        object: "chat.completion.chunk",
        created: 1,
        model: "m".into(),
        system_fingerprint: "f".into(),
        choices: vec![openai::ChatDelta {
            index: 0,
            delta: openai::Delta { content: Some("hi".into()), ..openai::Delta::default() },
            logprobs: Some(openai::ChatLogprobs {
                content: vec![openai::ChatLogprob {
                    token: openai::TokenLogprob::new(&[0xe2, 0x82], f32::NEG_INFINITY),
                    top_logprobs: Vec::new(),
                }],
                refusal: None,
            }),
            finish_reason: None,
        }],
        usage: Some(None),
        timings: None,
        prompt_progress: None,
        verbose: None,
    };
    assert_eq!(
        serde_json::to_value(&chunk).unwrap(),
        json!({
            "id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m",
            "system_fingerprint": "f", "usage": null,
            "choices": [{
                "index": 0, "delta": {"content": "hi"}, "finish_reason": null,
                "logprobs": {"refusal": null, "content": [
                    {"token": "\u{fffd}", "logprob": -9999.0, "bytes": [226, 130], "top_logprobs": []},
                ]},
            }],
        })
    );
    let last = openai::ChatChunk { choices: Vec::new(), usage: None, ..chunk };
    assert!(serde_json::to_value(&last).unwrap().get("usage").is_none());
}

#[test]
fn vectors_are_numbers_or_their_bytes() {
    let vector = |encoding| serde_json::to_value(Vector { values: vec![1.0, -0.5], encoding }).unwrap();
    assert_eq!(vector(Encoding::Float), json!([1.0, -0.5]));
    // 0000803f and 000000bf.
    assert_eq!(vector(Encoding::Base64), json!("AACAPwAAAL8="));
}

#[test]
fn events_have_anthropics_shape() {
    let delta = anthropic::BlockDelta::TextDelta { text: "hi".into() };
    let event = anthropic::Event::ContentBlockDelta { index: 0, delta };
    assert_eq!(event.name(), "content_block_delta");
    assert_eq!(
        serde_json::to_value(&event).unwrap(),
        json!({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hi"}})
    );
    assert_eq!(serde_json::to_value(anthropic::Event::Ping).unwrap(), json!({"type": "ping"}));
}
