//! `run` asks a server that has the model: it answers what is computed here, or says why not.

use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use smelt_testdata::data;

use crate::served::Served;
use crate::support::{Done, done, smelt};

/// A model with a chat template.
fn model() -> PathBuf {
    data("tiny/llama3/llama3-f16.gguf")
}

fn run_with(home: &Path, stdin: &str, flags: &[&str]) -> Done {
    let mut child = smelt(home).arg("run").arg(model()).args(flags).stdin(Stdio::piped()).spawn().unwrap();
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    done(child)
}

/// Events without what depends on where they come from: the speeds, the pieces of the text, the progress.
fn story(events: Vec<Value>) -> (Vec<Value>, String) {
    let mut text = String::new();
    let mut kept = Vec::new();
    for mut event in events {
        match event["event"].as_str().unwrap() {
            "text" => text.push_str(event["text"].as_str().unwrap()),
            "prompt" => {}
            _ => {
                let object = event.as_object_mut().unwrap();
                object.remove("timings");
                object.remove("backend");
                kept.push(event);
            }
        }
    }
    (kept, text)
}

const ASKS: &str = "asking the server on http://127.0.0.1:";

/// Flags that forbid to repeat anything.
const DRY: [&str; 10] = [
    "Hello",
    "--temp",
    "0",
    "-n",
    "32",
    "--ignore-eos",
    "--dry-multiplier",
    "2",
    "--dry-allowed-length",
    "1",
];

#[test]
fn a_server_answers_what_is_computed_here() {
    let home = tempfile::tempdir().unwrap();
    fs::write(
        home.path().join("schema.json"),
        r#"{"type": "object", "properties": {"a": {"type": "integer"}}}"#,
    )
    .unwrap();
    fs::write(home.path().join("grammar.gbnf"), "root ::= \"yes\" | \"no\"").unwrap();
    let _served = Served::new(home.path(), &[model().to_str().unwrap(), "--ctx", "256"]);
    let long = "word ".repeat(400);
    for flags in [
        &["--temp", "0", "-n", "24", "Hello"][..],
        &["--temp", "0", "-n", "24", "--ignore-eos", "--system", "Be brief.", "Hello", "there"],
        &["--temp", "0", "-n", "24", "--raw", "Once upon a time"],
        &["--temp", "0", "-n", "8", "--raw", "--special", "<|begin_of_text|>Once"],
        &["--temp", "0", "-n", "8", "--raw", "<|begin_of_text|>Once"],
        &["--temp", "0", "--ignore-eos", "--raw", "Once"],
        &["--temp", "0", "-n", "16", "--ignore-eos", "--show-special", "Hello"],
        &["--temp", "1.5", "--seed", "7", "-n", "24", "--ignore-eos", "Hello"],
        &[
            "--seed",
            "7",
            "-n",
            "24",
            "--top-k",
            "5",
            "--repeat-penalty",
            "1.3",
            "--repeat-last-n",
            "all",
            "Hello",
        ],
        &["--temp", "0", "-n", "24", "--stop", "e", "--stop", "a", "--ignore-eos", "Hello"],
        &[
            "--temp",
            "0",
            "-n",
            "8",
            "--logit-bias",
            "65=-inf",
            "--logit-bias",
            "66=20",
            "--ignore-eos",
            "Hello",
        ],
        &["--temp", "0", "--regex", "(yes|no), please", "Hello"],
        &["--temp", "0", "--grammar", "grammar.gbnf", "Hello"],
        &["--temp", "0", "-n", "64", "--json-schema", "schema.json", "Hello"],
        &["--temp", "0", "-n", "4", "--raw", &long],
        &["--mirostat", "2", "--mirostat-tau", "3", "--seed", "5", "-n", "12", "--ignore-eos", "Hello"],
        &DRY[..],
        &[&DRY[..], &["--dry-sequence-breaker", "e"]].concat()[..],
    ] {
        let there = run_with(home.path(), "", flags);
        assert!(there.err.contains(ASKS), "{flags:?}: {there:?}");
        // The server's context is the model's for whoever asks it.
        let here = run_with(home.path(), "", &[&["--local", "--ctx", "256"], flags].concat());
        assert!(!here.err.contains(ASKS), "{here:?}");
        assert_eq!((&there.out, there.code), (&here.out, here.code), "{flags:?}: {} {}", there.err, here.err);
        if flags.contains(&"--seed") || flags.contains(&"--temp") {
            let events = |more: &[&str]| story(run_with(home.path(), "", &[more, flags].concat()).events());
            let seed = ["--seed", "7"];
            let (mut there, mut here) = (
                events(&[&["--json"], &seed[..]].concat()),
                events(&[&["--json", "--local", "--ctx", "256"], &seed[..]].concat()),
            );
            for (story, _) in [&mut there, &mut here] {
                // The server's cache holds more.
                story.last_mut().unwrap()["usage"].as_object_mut().unwrap().remove("cached_tokens");
            }
            assert_eq!(there, here, "{flags:?}");
        }
    }
    let piped = run_with(home.path(), "Hello\n", &["--temp", "0", "-n", "8", "-q"]);
    assert_eq!(piped.err, "");
    assert_eq!(piped.out, run_with(home.path(), "Hello\n", &["--temp", "0", "-n", "8", "--local"]).out);
}

#[test]
fn what_a_server_can_not_be_asked_is_computed_here() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(home.path(), &[model().to_str().unwrap()]);
    for (flags, why) in [
        (&["--threads", "1"][..], "--threads is for loading a model"),
        (&["--ctx", "64"], "--ctx is for loading a model"),
        (&["--cache-type-k", "f32"], "--cache-type-k is for loading a model"),
        (&["--temp", "5"], "`temperature`"),
        (&["--logit-bias", "5=200"], "`logit_bias"),
    ] {
        let said = run_with(home.path(), "", &[flags, &["-n", "2", "Hello"]].concat());
        assert!(said.err.contains("not asking the server on http://") && said.err.contains(why), "{said:?}");
        said.ok();
    }
    let requests = served.get("/metrics").1;
    assert!(!requests.contains("/v1/completions"), "{requests}");
    // A model that no server has.
    let other =
        smelt(home.path()).arg("run").arg(crate::support::llama()).args(["--raw", "-n", "2", "a"]).spawn();
    let other = done(other.unwrap());
    assert!(!other.err.contains("asking"), "{other:?}");
    other.ok();
}

#[test]
fn ctrl_c_ends_the_servers_answer_too() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(home.path(), &[model().to_str().unwrap(), "--ctx", "100000"]);
    let mut child = smelt(home.path());
    let mut child = child.arg("run").arg(model()).args(["--raw", "--ignore-eos", "Once"]).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    assert_eq!(done(child).code, Some(130));
    while !served.get("/metrics").1.contains("smelt_requests_running{model_name=\"llama3-f16\"} 0") {
        std::thread::sleep(Duration::from_millis(20));
    }
}

#[test]
fn a_server_that_is_killed_is_told_of() {
    let home = tempfile::tempdir().unwrap();
    let mut served = Served::new(home.path(), &[model().to_str().unwrap(), "--ctx", "100000"]);
    let mut child = smelt(home.path());
    let mut child = child.arg("run").arg(model()).args(["--raw", "--ignore-eos", "Once"]).spawn().unwrap();
    child.stdout.as_mut().unwrap().read_exact(&mut [0; 10]).unwrap();
    served.kill();
    let said = done(child);
    assert!(said.err.contains("hint: --local runs the model here"), "{said:?}");
    said.failed(1, "it broke off; the answer is not complete");
}

/// Says `health`, then `answer` to whatever else is asked.
fn pretend(health: &'static str, answer: &'static str) -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = stream.unwrap();
            let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
            let first = lines.next().unwrap().unwrap();
            let mut length = 0;
            for line in lines.by_ref().map(Result::unwrap).take_while(|line| !line.is_empty()) {
                if let Some(n) = line.to_lowercase().strip_prefix("content-length: ") {
                    length = n.parse().unwrap();
                }
            }
            let mut body = vec![0; length];
            // What was read ahead is in the reader of the lines, and nobody needs the rest.
            let _ = stream.set_read_timeout(Some(Duration::from_millis(1)));
            let _ = stream.read(&mut body);
            let text = if first.contains("/health") { health } else { answer };
            stream.write_all(text.as_bytes()).unwrap();
        }
    });
    address
}

#[test]
fn a_server_that_fails_while_it_lives_is_told_of() {
    const OK: &str = "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n{\"status\": \"ok\"}";
    for (health, answer, said) in [
        (
            OK,
            "HTTP/1.1 500 Internal Server Error\r\nconnection: close\r\n\r\n{\"error\": {\"message\": \"the engine is gone\"}}",
            "has the model, and failed: the engine is gone",
        ),
        (
            OK,
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: {\"error\": {\"message\": \"no memory\"}}\n\n",
            "has the model, and failed: no memory",
        ),
        (
            OK,
            "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: {\"choices\": [{\"text\": \"a\"}]}\n\n",
            "it broke off; the answer is not complete",
        ),
        (OK, "HTTP/1.1 200 OK\r\nconnection: close\r\n\r\ndata: 5\n\n", "its answer makes no sense"),
        (
            "HTTP/1.1 503 Service Unavailable\r\nconnection: close\r\n\r\n{\"status\": \"failed\"}",
            "",
            "it says that it is failed",
        ),
    ] {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("store/servers");
        fs::create_dir_all(&folder).unwrap();
        let record = json!({
            "pid": std::process::id(), "start_time": null, "address": pretend(health, answer), "tls": false,
            "version": "0", "since": 0, "key": null, "detached": null,
            "models": [{"name": "m", "file": model().canonicalize().unwrap(), "context": null}],
        });
        let file = folder.join("one.json");
        fs::write(&file, record.to_string()).unwrap();
        let lock = fs::File::open(&file).unwrap();
        lock.lock().unwrap();
        let done = run_with(home.path(), "", &["-n", "2", "Hello"]);
        assert!(done.err.contains("hint: --local runs the model here"), "{done:?}");
        done.failed(1, said);
    }
}
