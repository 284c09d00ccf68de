//! A server that may pull, and a hub to pull from.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};

use crate::served::Served;
use crate::support::{llama, smelt};

/// A hub with one file. The first who asks for it gets half of it, and of the rest little by little.
struct Hub {
    address: SocketAddr,
    log: Arc<Mutex<Log>>,
}

#[derive(Default)]
struct Log {
    /// What each request asked for: its path, and where its range begins.
    asked: Vec<(String, Option<usize>)>,
    /// Whether the first who asked is gone.
    left: bool,
}

impl Hub {
    fn new(file: Vec<u8>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let (address, log) = (listener.local_addr().unwrap(), Arc::<Mutex<Log>>::default());
        let kept = log.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming() {
                let (file, log) = (file.clone(), kept.clone());
                std::thread::spawn(move || serve(&stream.unwrap(), &file, &log));
            }
        });
        Self { address, log }
    }
}

fn serve(mut stream: &TcpStream, file: &[u8], log: &Mutex<Log>) {
    let mut lines = BufReader::new(stream).lines().map_while(Result::ok);
    let path = lines.next().unwrap().split(' ').nth(1).unwrap().to_owned();
    let head: Vec<String> = lines.take_while(|line| !line.is_empty()).collect();
    let range = head.iter().find_map(|line| {
        line.to_ascii_lowercase().strip_prefix("range: bytes=")?.strip_suffix('-')?.parse().ok()
    });
    let number = {
        let mut log = log.lock().unwrap();
        log.asked.push((path, range));
        log.asked.len()
    };
    let (status, from) = match range {
        Some(from) => (
            format!("206 Partial Content\r\ncontent-range: bytes {from}-{}/{}", file.len() - 1, file.len()),
            from,
        ),
        None => ("200 OK".to_owned(), 0),
    };
    let rest = &file[from..];
    write!(
        stream,
        "HTTP/1.1 {status}\r\netag: \"it\"\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        rest.len()
    )
    .unwrap();
    match number {
        1 => {
            let (first, second) = rest.split_at(rest.len() / 2);
            stream.write_all(first).unwrap();
            let mut drops = second.iter().map(|byte| stream.write_all(&[*byte]));
            while drops.next().is_some_and(|sent| sent.is_ok()) {
                std::thread::sleep(Duration::from_millis(10));
            }
            log.lock().unwrap().left = true;
        }
        _ => stream.write_all(rest).unwrap(),
    }
}

#[test]
fn a_client_pulls_a_model_and_asks_it() {
    let home = tempfile::tempdir().unwrap();
    let hub = Hub::new(std::fs::read(llama()).unwrap());
    let mut serve = smelt(home.path());
    serve.env("HF_ENDPOINT", format!("http://{}", hub.address)).env("SMELT_ALLOW_PULL", "true");
    let served = Served::of(serve.args(["serve", "--port", "0"]));
    let wanted = json!({"model": "hf:some/repo/tiny.gguf"});
    // Who goes away in the middle leaves what has come.
    let mut lines = BufReader::new(served.stream("/api/pull", &wanted)).lines().map(Result::unwrap);
    let arrived =
        |line: &str| serde_json::from_str::<Value>(line).unwrap()["completed"].as_u64().unwrap_or(0);
    assert!(lines.any(|line| arrived(&line) > 0));
    drop(lines);
    while !hub.log.lock().unwrap().left {
        std::thread::sleep(Duration::from_millis(10));
    }
    let part = || {
        let files = std::fs::read_dir(home.path().join("store/partial")).unwrap();
        files
            .map(|file| file.unwrap())
            .filter(|file| file.file_name().to_string_lossy().ends_with(".part"))
            .count()
    };
    assert_eq!(part(), 1);
    let text: String =
        BufReader::new(served.stream("/api/pull", &wanted)).lines().map(Result::unwrap).collect();
    assert!(text.ends_with("{\"status\":\"success\"}"), "{text}");
    let asked = hub.log.lock().unwrap().asked.clone();
    assert!(asked.iter().all(|(path, _)| path == "/some/repo/resolve/main/tiny.gguf"), "{asked:?}");
    assert!(matches!(asked.as_slice(), [(_, None), (_, Some(1..))]), "{asked:?}");
    assert_eq!(part(), 0);
    for name in ["tiny", "hf:some/repo/tiny.gguf"] {
        let answer =
            served.post("/v1/completions", &json!({"model": name, "prompt": "Once", "max_tokens": 3}));
        assert_eq!(
            (&answer["model"], &answer["usage"]["completion_tokens"]),
            (&"tiny".into(), &3.into()),
            "{answer}"
        );
    }
}

#[test]
fn clients_can_not_have_files_and_addresses_pulled() {
    let home = tempfile::tempdir().unwrap();
    let served = Served::new(home.path(), &["--allow-pull"]);
    let secret = llama().to_str().unwrap().to_owned();
    for name in [
        &secret,
        "./m.gguf",
        "http://127.0.0.1:1/m.gguf",
        "https://example.org/m.gguf",
        "hf.co/a/b",
        "smolm2",
    ] {
        let said = served.post("/api/pull", &json!({"model": name, "stream": false}));
        let error = said["error"].as_str().unwrap();
        assert!(
            error.contains("can't be pulled from here") || error.contains("smollm2:135m"),
            "{name}: {error}"
        );
    }
    assert_eq!(served.post("/v1/models", &json!({}))["error"]["code"], "method_not_allowed");
    let list: Value = serde_json::from_str(&served.get("/v1/models").1).unwrap();
    assert_eq!(list["data"], json!([]));
}
