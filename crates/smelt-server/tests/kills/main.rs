//! Kills the engine's process at random moments under load: every request ends with a complete answer or with one clear
//! error, and the next one is answered.
//!
//! `cargo test -p smelt-server --test kills -- --times 100` kills more often than the continuous integration does.

#![expect(clippy::unwrap_used, reason = "a failed unwrap fails the test, as it should")]
#![expect(clippy::print_stdout, reason = "a test without a harness tells its own figures")]

#[path = "../it/support.rs"]
#[allow(dead_code, reason = "the other tests use more of it")]
mod support;

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use smelt_server::Settings;

use support::{MODEL, PATIENCE, Reply, Running, Tagged, chat, with};

/// Kills, unless the command line says another number.
const TIMES: usize = 15;
/// Clients at a time.
const CLIENTS: usize = 6;
/// Tokens of an answer: it takes about as long as the engine lives.
const TOKENS: usize = 200;
/// The longest time between an answer and the next kill.
const MOST_WAIT: Duration = Duration::from_millis(400);

fn main() {
    let mut times = TIMES;
    let mut names = Vec::new();
    let mut args = std::env::args().skip(1);
    while let Some(arg) = args.next() {
        match arg.as_str() {
            "--times" => times = args.next().unwrap().parse().unwrap(),
            "--list" => return println!("kills: test"),
            // Cargo hands every test what is meant for another.
            flag if flag.starts_with('-') => {}
            name => names.push(name.to_owned()),
        }
    }
    if !names.is_empty() && !names.iter().any(|name| "kills".contains(name.as_str())) {
        return;
    }
    let tagged = Tagged::new("kills");
    let server = Running::with(Settings { launch: tagged.launch(), ..Settings::default() }, 512);
    let whole = Whole::new(&server);
    let counts = Counts::default();
    let stop = AtomicBool::new(false);
    let start = Instant::now();
    thread::scope(|threads| {
        for client in 0..CLIENTS {
            let (server, whole, counts, stop) = (&server, &whole, &counts, &stop);
            threads.spawn(move || {
                // Each begins with another kind of request.
                for kind in KINDS.iter().cycle().skip(client) {
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    counts.count(kind(server, whole));
                }
            });
        }
        // Nobody waits for ever, whatever fails here.
        let _stop = OnDrop(&stop);
        let mut tokens = 0.0;
        for killed in 1..=times {
            thread::sleep(MOST_WAIT.mul_f64(fastrand::f64()));
            tagged.signal("KILL");
            // What comes before the server knows was given to the engine that is gone. The next request is answered.
            let restarts = series("smelt_engine_restarts_total");
            server.wait(|| server.metric(&restarts) == killed as f64);
            assert!(matches!(completion(&server, &whole), Ended::Complete));
            let now = server.metric(&series("smelt_generation_tokens_total"));
            assert!(now >= tokens, "a counter went back from {tokens} to {now}");
            tokens = now;
        }
    });
    assert_eq!(server.metric(&series("smelt_engine_restarts_total")), times as f64);
    let [complete, cut, refused] = counts.0.map(AtomicUsize::into_inner);
    println!(
        "killed {times} times in {:.0} s: {complete} answers complete, {cut} cut by one error, {refused} refused by one",
        start.elapsed().as_secs_f64()
    );
    assert!(complete > 0);
}

fn series(name: &str) -> String {
    format!("{name}{{model_name=\"{MODEL}\"}} ")
}

struct OnDrop<'a>(&'a AtomicBool);

impl Drop for OnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// How a request ended. Any other way fails the test.
enum Ended {
    Complete,
    /// By one error behind a part of the answer.
    Cut,
    /// By one error and nothing else.
    Refused,
}

#[derive(Default)]
struct Counts([AtomicUsize; 3]);

impl Counts {
    fn count(&self, ended: Ended) {
        self.0[ended as usize].fetch_add(1, Ordering::Relaxed);
    }
}

/// The answers as they are when nothing goes wrong.
struct Whole {
    chat: String,
    completion: String,
}

impl Whole {
    fn new(server: &Running) -> Self {
        let chat = server.ask("/v1/chat/completions", &chat(TOKENS));
        let completion = server.ask("/v1/completions", &prompt());
        let text = |value: &Value| value.as_str().unwrap().to_owned();
        Self {
            chat: text(&chat["choices"][0]["message"]["content"]),
            completion: text(&completion["choices"][0]["text"]),
        }
    }
}

fn prompt() -> Value {
    json!({"prompt": "Once upon a time", "max_tokens": TOKENS, "temperature": 0, "ignore_eos": true})
}

type Kind = fn(&Running, &Whole) -> Ended;

const KINDS: [Kind; 4] = [completion, streamed_chat, streamed_message, streamed_generation];

/// A request that was refused.
fn refused(reply: Reply) -> Ended {
    assert_eq!(reply.status, 503);
    assert!(reply.header("retry-after").parse::<u32>().unwrap() > 0);
    let error = reply.text();
    assert!(error.contains("the engine of"), "{error}");
    Ended::Refused
}

fn completion(server: &Running, whole: &Whole) -> Ended {
    let reply = server.post("/v1/completions", &prompt());
    if reply.status != 200 {
        return refused(reply);
    }
    let answer = reply.json();
    assert_eq!(answer["choices"][0]["text"], whole.completion, "{answer}");
    assert_eq!(answer["usage"]["completion_tokens"], TOKENS);
    Ended::Complete
}

/// What a stream said: its text, how often it said that it ended, its errors, and what came last.
#[derive(Default)]
struct Stream {
    text: String,
    ends: usize,
    errors: usize,
    last: String,
}

impl Stream {
    fn read(reply: Reply, prefix: &str, read: impl Fn(&mut Self, &Value)) -> Self {
        let start = Instant::now();
        let mut stream = Self::default();
        for line in reply.lines() {
            assert!(start.elapsed() < PATIENCE, "a stream doesn't end");
            let Some(data) = line.strip_prefix(prefix).filter(|data| !data.is_empty()) else { continue };
            if let Ok(value) = serde_json::from_str::<Value>(data) {
                stream.errors += usize::from(value.get("error").is_some());
                read(&mut stream, &value);
            }
            stream.last = data.to_owned();
        }
        stream
    }

    fn push(&mut self, text: &Value) {
        self.text.push_str(text.as_str().unwrap_or_default());
    }

    fn end(self, whole: &str) -> Ended {
        let Self { text, ends, errors, last } = self;
        match (ends, errors) {
            (1, 0) => {
                assert_eq!(text, whole);
                Ended::Complete
            }
            (0, 1) => {
                assert!(whole.starts_with(&text), "{text}");
                Ended::Cut
            }
            _ => panic!("{ends} ends and {errors} errors behind {text:?}; last: {last}"),
        }
    }
}

fn streamed_chat(server: &Running, whole: &Whole) -> Ended {
    let reply = server.post("/v1/chat/completions", &with(&chat(TOKENS), json!({"stream": true})));
    if reply.status != 200 {
        return refused(reply);
    }
    let stream = Stream::read(reply, "data: ", |stream, chunk| {
        let choice = &chunk["choices"][0];
        stream.push(&choice["delta"]["content"]);
        stream.ends += usize::from(choice["finish_reason"] == "length");
    });
    assert_eq!(stream.last, "[DONE]");
    stream.end(&whole.chat)
}

fn streamed_message(server: &Running, whole: &Whole) -> Ended {
    let mut body = chat(TOKENS);
    // A parameter of OpenAI's interface; the model says no end here.
    body.as_object_mut().unwrap().remove("ignore_eos");
    let reply = server.post("/v1/messages", &with(&body, json!({"stream": true})));
    if reply.status != 200 {
        return refused(reply);
    }
    let stream = Stream::read(reply, "data: ", |stream, event| {
        stream.push(&event["delta"]["text"]);
        stream.ends += usize::from(event["type"] == "message_stop");
    });
    stream.end(&whole.chat)
}

fn streamed_generation(server: &Running, whole: &Whole) -> Ended {
    let options = json!({"temperature": 0, "num_predict": TOKENS});
    let body = json!({"model": MODEL, "prompt": "Once upon a time", "raw": true, "options": options});
    let reply = server.post("/api/generate", &body);
    if reply.status != 200 {
        return refused(reply);
    }
    let stream = Stream::read(reply, "", |stream, piece| {
        stream.push(&piece["response"]);
        stream.ends += usize::from(piece["done"] == true);
    });
    stream.end(&whole.completion)
}
