//! Loading, keys, limits, cancels, full queues and the end.

use std::io::{Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use serde_json::json;
use smelt_engine::scheduler::SchedulerSettings;
use smelt_server::{ApiKey, Error, Launch, Limits, ModelSource, Server, Settings};

use crate::support::{MODEL, PATIENCE, Running, chat, engine, source, with};

const CHAT: &str = "/v1/chat/completions";
/// An answer of this length is never waited for.
const LONG: usize = 100_000;
const RUNNING: &str = "smelt_requests_running{model_name=\"tiny:latest\"} ";
const CANCELLED: &str = "smelt_answers_total{model_name=\"tiny:latest\",finished_reason=\"abort\"} ";

fn endless() -> serde_json::Value {
    with(&chat(LONG), json!({"stream": true}))
}

#[test]
fn keys_and_origins_are_checked() {
    let settings = Settings {
        api_keys: vec![ApiKey::new("secret")],
        cors_origins: vec!["https://good.example".into()],
        ..Settings::default()
    };
    let server = Running::with(settings, 512);
    let reply = server.post(CHAT, &chat(1));
    assert_eq!((reply.status, reply.header("www-authenticate")), (401, "Bearer"));
    assert_eq!(reply.json()["error"]["code"], "invalid_api_key");
    let with_headers = |headers: &[(&str, &str)]| server.post_text(CHAT, &chat(1).to_string(), headers);
    assert_eq!(with_headers(&[("authorization", "Bearer wrong")]).status, 401);
    assert_eq!(with_headers(&[("x-api-key", "secret")]).status, 200);
    let key = ("authorization", "Bearer secret");
    assert_eq!(with_headers(&[key]).status, 200);
    assert_eq!(with_headers(&[key, ("origin", "https://evil.example")]).status, 403);
    let good = with_headers(&[key, ("origin", "https://good.example")]);
    assert_eq!((good.status, good.header("access-control-allow-origin")), (200, "https://good.example"));
    // A browser asks first, without a key.
    let ask = |origin: &str| {
        let request = format!(
            "OPTIONS {CHAT} HTTP/1.1\r\nhost: localhost\r\norigin: {origin}\r\nconnection: close\r\n\r\n"
        );
        raw(&server, &request)
    };
    assert!(ask("https://good.example").starts_with("HTTP/1.1 204"));
    assert!(ask("https://evil.example").starts_with("HTTP/1.1 405"));
}

/// What the server says to `request`, to the end of the connection.
fn raw(server: &Running, request: &str) -> String {
    let mut stream = TcpStream::connect(server.address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    text
}

#[test]
fn requests_are_limited() {
    let limits = Limits {
        body: 1000,
        head: 8192,
        head_time: Duration::from_millis(300),
        body_time: Duration::from_millis(300),
        ..Limits::default()
    };
    let server = Running::with(Settings { limits, ..Settings::default() }, 512);
    let large = server.post(CHAT, &json!({"messages": [{"role": "user", "content": "x".repeat(2000)}]}));
    assert_eq!((large.status, large.json()["error"]["code"].as_str()), (413, Some("request_too_large")));
    // Without a length in its head, a body is cut where it gets too large.
    let chunk = "x".repeat(2000);
    let chunked = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\nconnection: close\r\n\r\n7d0\r\n{chunk}\r\n"
    );
    assert!(raw(&server, &chunked).starts_with("HTTP/1.1 413"));
    let slow = format!(
        "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 10\r\nconnection: close\r\n\r\n{{"
    );
    assert!(raw(&server, &slow).starts_with("HTTP/1.1 408"));
    assert!(!raw(&server, "POST / HTTP/1.1\r\nhost: loc").contains("200"), "half a head is given up");
    let head = format!("GET /health HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "x".repeat(20_000));
    assert!(raw(&server, &head).starts_with("HTTP/1.1 431"));
    assert_eq!(server.get("/health").status, 200);
    let foreign = raw(&server, "GET /health HTTP/1.1\r\nhost: evil.example\r\nconnection: close\r\n\r\n");
    assert!(foreign.starts_with("HTTP/1.1 403"), "{foreign}");
}

#[test]
fn idle_connections_make_room_and_busy_ones_stay() {
    let day = Duration::from_secs(86_400);
    let limits = Limits { connections: 3, head_time: day, ..Limits::default() };
    let server = Running::with(Settings { limits, ..Settings::default() }, 2 * LONG);
    let connect = |path: &str, body: &str| {
        let mut stream = TcpStream::connect(server.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let method = if body.is_empty() { "GET" } else { "POST" };
        let length = body.len();
        write!(
            stream,
            "{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {length}\r\n\r\n{body}"
        )
        .unwrap();
        stream
    };
    let begins = |stream: &mut TcpStream| {
        let mut start = [0; 15];
        stream.read_exact(&mut start).unwrap();
        assert_eq!(&start, b"HTTP/1.1 200 OK");
    };
    let mut busy = connect(CHAT, &endless().to_string());
    begins(&mut busy);
    // Each is answered, and kept open by its client.
    let idle: Vec<TcpStream> = (0..10)
        .map(|_| {
            let mut stream = connect("/health", "");
            begins(&mut stream);
            stream
        })
        .collect();
    assert_eq!(server.get("/health").status, 200);
    // The answer goes on.
    let mut more = [0; 2048];
    busy.read_exact(&mut more).unwrap();
    assert!(String::from_utf8_lossy(&more).contains("data: "));
    drop(idle);
}

#[test]
fn who_goes_away_is_not_computed_for() {
    let server = Running::with(Settings::default(), 2 * LONG);
    // In a stream, once it has begun.
    let mut lines = server.post(CHAT, &endless()).lines();
    assert!(lines.next().unwrap().starts_with("data: "));
    // The figures are those of the last step, and a stream begins before its first one.
    server.wait(|| server.metric(RUNNING) == 1.0);
    drop(lines);
    server.wait(|| server.metric(RUNNING) == 0.0);
    // While waiting for an answer in one piece.
    let body = chat(LONG).to_string();
    let mut stream = TcpStream::connect(server.address).unwrap();
    write!(stream, "POST {CHAT} HTTP/1.1\r\nhost: localhost\r\ncontent-length: {}\r\n\r\n{body}", body.len())
        .unwrap();
    server.wait(|| server.metric(RUNNING) == 1.0);
    drop(stream);
    server.wait(|| server.metric(RUNNING) == 0.0);
    server.wait(|| server.metric(CANCELLED) == 2.0);
    assert_eq!(server.ask(CHAT, &chat(3))["usage"]["completion_tokens"], 3);
}

#[test]
fn a_full_queue_says_when_to_come_again() {
    let scheduler = SchedulerSettings { max_sequences: 1, max_queue: 1, ..SchedulerSettings::default() };
    let limits = Limits { queue_time: Duration::from_millis(200), ..Limits::default() };
    let server = Running::with(Settings { scheduler, limits, ..Settings::default() }, 2 * LONG);
    let mut first = server.post(CHAT, &endless()).lines();
    assert!(first.next().is_some());
    // The second one waits; a stream begins meanwhile, and ends with an error when the wait is too long.
    let second = server.post(CHAT, &endless());
    assert_eq!(second.status, 200);
    let third = server.post(CHAT, &chat(1));
    assert_eq!(third.status, 503);
    assert!(third.header("retry-after").parse::<u32>().unwrap() >= 1);
    assert_eq!(third.json()["error"]["code"], "overloaded");
    let events = second.events();
    assert_eq!(events.last().unwrap()["error"]["code"], "overloaded");
    // An answer in one piece has the status.
    let late = server.post(CHAT, &chat(1));
    assert_eq!((late.status, late.json()["error"]["code"].as_str()), (503, Some("overloaded")));
    drop(first);
    server.wait(|| server.post(CHAT, &chat(1)).status == 200);
}

#[test]
fn the_end_lets_requests_end() {
    let limits = Limits { drain_time: Duration::from_secs(3), ..Limits::default() };
    let server = Running::with(Settings { limits, ..Settings::default() }, 2 * LONG);
    let mut endless = server.post(CHAT, &endless()).lines();
    assert!(endless.next().is_some());
    let short = server.post(CHAT, &with(&chat(20), json!({"stream": true})));
    server.stop();
    // The short answer is complete, the other one ends with one clear error.
    let events = short.events();
    assert_eq!(events.last().unwrap()["choices"][0]["finish_reason"], "length");
    let rest: Vec<String> = endless.filter(|line| !line.is_empty()).collect();
    let [.., error, done] = rest.as_slice() else { panic!("{rest:?}") };
    assert!(error.contains("unavailable"), "{error}");
    assert_eq!(done, "data: [DONE]");
    server.end().unwrap();
}

#[test]
fn what_cannot_run_says_why() {
    let none = Server::bind(Settings::default(), Vec::new());
    assert!(matches!(none, Err(Error::NoModel)));
    let twice = Server::bind(Settings { port: 0, ..Settings::default() }, vec![source(64), source(64)]);
    assert!(matches!(twice, Err(Error::SameName(_))));
    let first = Running::with(Settings::default(), 64);
    let taken =
        Server::bind(Settings { port: first.address.port(), ..Settings::default() }, vec![source(64)]);
    assert!(matches!(taken, Err(Error::Bind { .. })));
    let mut missing = source(64);
    missing.file = "no-such-model.gguf".into();
    let server = Running::start(Settings::default(), vec![missing]);
    assert!(matches!(server.end(), Err(Error::Model { .. })));
}

/// A server whose model is loaded on demand, by `script` once `gate` is there.
#[cfg(unix)]
fn gated(gate: &std::path::Path, script: &str) -> Running {
    let script = format!("while [ ! -e '{}' ]; do sleep 0.02; done; {script}", gate.display());
    let launch = Launch { program: "sh".into(), args: vec!["-c".into(), script.into()] };
    let limits = Limits { keep_alive: Duration::from_millis(50), ..Limits::default() };
    let model = ModelSource { warm: false, ..source(512) };
    Running::start(Settings { launch, limits, ..Settings::default() }, vec![model])
}

#[cfg(unix)]
#[test]
fn who_waits_for_a_model_is_counted_and_kept_alive() {
    const WAITING: &str = "smelt_requests_waiting{model_name=\"tiny:latest\"} ";
    let gate = std::env::temp_dir().join(format!("smelt-gate-{}", std::process::id()));
    let daemon = engine().program;
    let server = gated(&gate, &format!("exec '{}'", daemon.display()));
    let messages = json!([{"role": "user", "content": "Hi"}]);
    for (path, sign, more) in [
        (CHAT, ": waiting", json!({"messages": messages})),
        ("/v1/completions", ": waiting", json!({"prompt": "Hi"})),
        ("/v1/responses", ": waiting", json!({"input": "Hi"})),
        ("/v1/messages", "event: ping", json!({"messages": messages, "max_tokens": 3})),
    ] {
        let mut lines = server.post(path, &with(&json!({"model": MODEL, "stream": true}), more)).lines();
        let mut first = lines.next().unwrap();
        while !first.starts_with(sign) {
            first = lines.next().unwrap();
        }
        server.wait(|| server.metric(WAITING) == 1.0);
        // Going away while it waits is noticed too.
        drop(lines);
        server.wait(|| server.metric(WAITING) == 0.0);
    }
    let mut lines = server.post(CHAT, &with(&chat(3), json!({"stream": true}))).lines();
    assert_eq!(lines.next().unwrap(), ": waiting");
    std::fs::write(&gate, "").unwrap();
    assert_eq!(lines.filter(|line| line.starts_with("data: ")).last().unwrap(), "data: [DONE]");
    assert_eq!(server.metric(WAITING), 0.0);
    std::fs::remove_file(gate).unwrap();
}

#[cfg(unix)]
#[test]
fn a_model_that_fails_late_is_an_error_in_the_stream() {
    let gate = std::env::temp_dir().join(format!("smelt-broken-gate-{}", std::process::id()));
    let server = gated(&gate, "exit 3");
    let reply = server.post(CHAT, &with(&chat(3), json!({"stream": true})));
    assert_eq!(reply.status, 200);
    std::fs::write(&gate, "").unwrap();
    assert_eq!(reply.events().last().unwrap()["error"]["code"], "engine_failed");
    // In one piece, it has its status.
    assert_eq!(server.post(CHAT, &chat(3)).status, 503);
    std::fs::remove_file(gate).unwrap();
}
