//! Spans, as a collector gets them.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use opentelemetry_proto::tonic::collector::trace::v1::ExportTraceServiceRequest;
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value};
use opentelemetry_proto::tonic::trace::v1::Span;
use prost::Message;
use serde_json::{Value, json};
use smelt_server::{Error, Server, Settings, Traces};

use crate::support::{MODEL, Running, chat, source, with};

const CHAT: &str = "/v1/chat/completions";
const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
const PARENT: &str = "00f067aa0ba902b7";

/// A collector that keeps what it gets.
struct Collector {
    address: SocketAddr,
    batches: Arc<Mutex<Vec<Vec<u8>>>>,
}

impl Collector {
    fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, batches) = (listener.local_addr().unwrap(), Arc::<Mutex<Vec<Vec<u8>>>>::default());
        let kept = batches.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let kept = kept.clone();
                std::thread::spawn(move || {
                    while let Some(batch) = take(stream.as_ref().unwrap()) {
                        kept.lock().unwrap().push(batch);
                    }
                });
            }
        });
        Self { address, batches }
    }

    fn settings(&self) -> Settings {
        let traces = Traces { endpoint: format!("http://{}", self.address), service: "tested".into() };
        Settings { traces: Some(traces), ..Settings::default() }
    }

    /// All spans, and that nothing in them says `secret`.
    fn spans(&self, secret: &str) -> Vec<Span> {
        let batches = self.batches.lock().unwrap();
        let mut spans = Vec::new();
        for batch in batches.iter() {
            let found = batch.windows(secret.len()).any(|bytes| bytes == secret.as_bytes());
            assert!(!found, "{secret:?} was exported");
            for resource in ExportTraceServiceRequest::decode(&batch[..]).unwrap().resource_spans {
                let about = attributes(&resource.resource.unwrap().attributes);
                assert_eq!(about["service.name"], "tested");
                spans.extend(resource.scope_spans.into_iter().flat_map(|scope| scope.spans));
            }
        }
        spans
    }
}

/// The body of a request, which is answered; `None` at the connection's end.
fn take(mut stream: &TcpStream) -> Option<Vec<u8>> {
    let mut lines = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if lines.read_line(&mut head).unwrap_or(0) == 0 {
            return None;
        }
    }
    let head = head.to_ascii_lowercase();
    assert!(head.starts_with("post /v1/traces ") && head.contains("application/x-protobuf"), "{head}");
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).unwrap();
    let mut body = vec![0; length.parse().unwrap()];
    lines.read_exact(&mut body).unwrap();
    stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").unwrap();
    Some(body)
}

fn attributes(list: &[KeyValue]) -> Value {
    let value = |value: &any_value::Value| match value {
        any_value::Value::StringValue(text) => json!(text),
        any_value::Value::IntValue(n) => json!(n),
        any_value::Value::DoubleValue(x) => json!(x),
        any_value::Value::BoolValue(is_so) => json!(is_so),
        other => json!(format!("{other:?}")),
    };
    let pair = |pair: &KeyValue| {
        let value = pair.value.as_ref().and_then(|any| any.value.as_ref()).map(value);
        (pair.key.clone(), value.unwrap_or_default())
    };
    list.iter().map(pair).collect::<serde_json::Map<_, _>>().into()
}

/// The span of the request with that id, and its attributes.
fn of(spans: &[Span], id: &str) -> (Span, Value) {
    let mut found = spans.iter().map(|span| (span.clone(), attributes(&span.attributes)));
    found.find(|(_, about)| about["gen_ai.request.id"] == id).unwrap_or_else(|| panic!("no span of {id}"))
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn spans_tell_of_requests_and_not_what_they_say() {
    let collector = Collector::new();
    let server = Running::with(collector.settings(), 512);
    let parent = format!("00-{TRACE}-{PARENT}-01");
    let say = |text: &str, more: Value| {
        let messages = json!({"messages": [{"role": "user", "content": text}]});
        with(&with(&chat(5), messages), more).to_string()
    };
    let secret = "the marmalade is hidden";
    let post = |path: &str, id: &str, body: &str| {
        let reply = server.post_text(path, body, &[("x-request-id", id), ("traceparent", &parent)]);
        (reply.status, reply.text())
    };
    assert_eq!(post(CHAT, "whole", &say(secret, json!({"temperature": 0.5, "top_p": 0.9}))).0, 200);
    assert_eq!(post(CHAT, "stream", &say(secret, json!({"stream": true, "n": 2}))).0, 200);
    assert_eq!(post(CHAT, "lost", &say(secret, json!({"model": "absent"}))).0, 404);
    let embed = json!({"model": MODEL, "input": [secret, "b"]}).to_string();
    assert_eq!(post("/v1/embeddings", "vectors", &embed).0, 200);
    let gone = server.post_text(
        CHAT,
        &say(secret, json!({"stream": true, "max_tokens": 400})),
        &[("x-request-id", "gone"), ("traceparent", "00-no-trace-01")],
    );
    assert!(gone.lines().next().is_some());
    server.wait(|| server.metric("smelt_requests_running{model_name=\"tiny:latest\"} ") < 0.5);
    server.stop();
    server.end().unwrap();

    let spans = collector.spans(secret);
    let (span, about) = of(&spans, "whole");
    assert_eq!((hex(&span.trace_id), hex(&span.parent_span_id)), (TRACE.into(), PARENT.into()));
    assert_eq!((span.name.as_str(), span.kind), ("POST /v1/chat/completions", 2));
    let expected = json!({
        "http.request.method": "POST", "http.route": CHAT, "url.path": CHAT, "url.scheme": "http",
        "http.response.status_code": 200, "gen_ai.request.id": "whole",
        "gen_ai.provider.name": "smelt", "gen_ai.operation.name": "chat",
        "gen_ai.request.model": MODEL, "gen_ai.response.model": MODEL,
        "gen_ai.request.temperature": 0.5, "gen_ai.request.max_tokens": 5, "gen_ai.request.choice.count": 1,
        "gen_ai.usage.output_tokens": 5,
    });
    for (name, value) in expected.as_object().unwrap() {
        assert_eq!(about[name], *value, "{name}");
    }
    assert!(about["gen_ai.usage.input_tokens"].as_i64().unwrap() > 5);
    let seconds = |name: &str| about[name].as_f64().unwrap();
    let (queue, first) =
        (seconds("gen_ai.latency.time_in_queue"), seconds("gen_ai.latency.time_to_first_token"));
    let whole = Duration::from_nanos(span.end_time_unix_nano - span.start_time_unix_nano).as_secs_f64();
    assert!(0.0 <= queue && queue <= first && first <= whole + 0.1, "{queue} {first} {whole}");
    assert!(about["gen_ai.response.finish_reasons"].to_string().contains("length"));
    assert!(about["error.type"].is_null());

    let (_, about) = of(&spans, "stream");
    assert_eq!(
        (&about["gen_ai.usage.output_tokens"], &about["gen_ai.request.choice.count"]),
        (&10.into(), &2.into())
    );
    let (span, about) = of(&spans, "lost");
    assert_eq!(
        (&about["http.response.status_code"], &about["error.type"]),
        (&404.into(), &"model_not_found".into())
    );
    assert_eq!(span.status.unwrap_or_default().code, 0, "a client's mistake is no error of the span");
    let (_, about) = of(&spans, "vectors");
    assert_eq!(
        (&about["gen_ai.operation.name"], &about["gen_ai.request.model"]),
        (&"embeddings".into(), &MODEL.into())
    );
    assert!(about["gen_ai.usage.input_tokens"].as_i64().unwrap() > 5);
    let (span, about) = of(&spans, "gone");
    assert_eq!(about["error.type"], "cancelled");
    assert_eq!(
        (hex(&span.parent_span_id), hex(&span.trace_id).len()),
        (String::new(), 32),
        "no trace of its own"
    );
    assert!(spans.iter().all(|span| span.name != "GET /health"), "probes have none");
}

#[test]
fn a_collector_that_is_gone_or_silent_harms_nobody() {
    // Nobody accepts what this one's system takes.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let gone = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    for address in [silent.local_addr().unwrap(), gone] {
        let traces = Traces { endpoint: format!("http://{address}/"), service: "tested".into() };
        let server = Running::with(Settings { traces: Some(traces), ..Settings::default() }, 512);
        assert_eq!(server.ask(CHAT, &chat(3))["usage"]["completion_tokens"], 3);
        // More than the queue holds.
        for _ in 0..2500 {
            assert_eq!(server.get("/version").status, 200);
        }
        server.stop();
        server.end().unwrap();
    }
}

#[test]
fn an_address_that_is_none_is_told_before_anything_is_served() {
    let traces = Traces { endpoint: "collector:4317".into(), service: "tested".into() };
    let settings = Settings { port: 0, traces: Some(traces), ..Settings::default() };
    let error = Server::bind(settings, vec![source(512)]).unwrap_err();
    assert!(
        matches!(&error, Error::Collector { .. }) && error.to_string().contains("collector:4317"),
        "{error}"
    );
}
