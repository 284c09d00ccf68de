//! A server to test, and a client for it.

use std::io::{BufRead, BufReader};
use std::net::SocketAddr;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use serde_json::{Value, json};
use smelt_engine::KvFormat;
use smelt_server::{Defaults, Error, Launch, ModelSource, Server, Settings, Stopper};

/// The name of the model in tests.
pub(crate) const MODEL: &str = "tiny:latest";
/// Nothing here takes nearly as long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A server that runs until it is dropped.
pub(crate) struct Running {
    pub(crate) address: SocketAddr,
    stopper: Stopper,
    thread: Option<JoinHandle<Result<(), Error>>>,
    agent: ureq::Agent,
}

/// An answer to a request.
pub(crate) struct Reply {
    pub(crate) status: u16,
    pub(crate) headers: ureq::http::HeaderMap,
    body: ureq::Body,
}

impl Reply {
    pub(crate) fn json(mut self) -> Value {
        let text = self.body.read_to_string().unwrap();
        serde_json::from_str(&text).unwrap_or_else(|e| panic!("{e}: {text}"))
    }

    pub(crate) fn text(mut self) -> String {
        self.body.read_to_string().unwrap()
    }

    pub(crate) fn header(&self, name: &str) -> &str {
        self.headers.get(name).map_or("", |value| value.to_str().unwrap())
    }

    /// The lines of a body, as they come.
    pub(crate) fn lines(self) -> impl Iterator<Item = String> {
        BufReader::new(self.body.into_reader()).lines().map(Result::unwrap)
    }

    /// The documents of an event stream, up to `[DONE]`, which must come, or the end.
    pub(crate) fn events(self) -> Vec<Value> {
        assert_eq!((self.status, self.header("content-type")), (200, "text/event-stream"));
        let data = self.lines().filter_map(|line| line.strip_prefix("data: ").map(str::to_owned));
        let mut data: Vec<String> = data.collect();
        assert_eq!(data.pop().as_deref(), Some("[DONE]"));
        data.iter().map(|text| serde_json::from_str(text).unwrap()).collect()
    }
}

/// A model source with a context of `context` tokens.
pub(crate) fn source(context: usize) -> ModelSource {
    ModelSource {
        name: MODEL.to_owned(),
        aliases: Vec::new(),
        template: None,
        file: smelt_testdata::data("tiny/llama3/llama3-f16.gguf"),
        engine: smelt_engine::Settings {
            context: Some(context),
            kv_formats: KvFormat::F32.into(),
            threads: Some(1),
            ..smelt_engine::Settings::default()
        },
        defaults: Defaults::default(),
        quantization: "F16".to_owned(),
        digest: String::new(),
        warm: true,
    }
}

/// What starts an engine's process.
pub(crate) fn engine() -> Launch {
    Launch { program: env!("CARGO_BIN_EXE_smelt-test-daemon").into(), args: Vec::new() }
}

impl Running {
    /// A server with usual settings, ready to answer.
    pub(crate) fn new() -> Self {
        Self::with(Settings::default(), 512)
    }

    pub(crate) fn with(settings: Settings, context: usize) -> Self {
        let running = Self::start(settings, vec![source(context)]);
        running.wait(|| running.get("/health").status == 200);
        running
    }

    pub(crate) fn start(settings: Settings, models: Vec<ModelSource>) -> Self {
        // Unless a test has one of its own.
        let launch = match settings.launch == Launch::default() {
            true => engine(),
            false => settings.launch,
        };
        let server = Server::bind(Settings { port: 0, launch, ..settings }, models).unwrap();
        let (address, stopper) = (server.address(), server.stopper());
        let thread = Some(std::thread::spawn(move || server.run()));
        let config = ureq::Agent::config_builder().http_status_as_error(false).timeout_global(Some(PATIENCE));
        Self { address, stopper, thread, agent: config.build().into() }
    }

    pub(crate) fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address)
    }

    pub(crate) fn get(&self, path: &str) -> Reply {
        self.get_with(path, &[])
    }

    pub(crate) fn get_with(&self, path: &str, headers: &[(&str, &str)]) -> Reply {
        let request =
            headers.iter().fold(self.agent.get(self.url(path)), |r, (name, value)| r.header(*name, *value));
        reply(request.call().unwrap())
    }

    pub(crate) fn delete(&self, path: &str) -> Reply {
        reply(self.agent.delete(self.url(path)).call().unwrap())
    }

    /// Posts a body that need not be right.
    pub(crate) fn post_text(&self, path: &str, body: &str, headers: &[(&str, &str)]) -> Reply {
        let request = self.agent.post(self.url(path)).header("content-type", "application/json");
        let request = headers.iter().fold(request, |r, (name, value)| r.header(*name, *value));
        reply(request.send(body).unwrap())
    }

    pub(crate) fn post(&self, path: &str, body: &Value) -> Reply {
        self.post_text(path, &body.to_string(), &[])
    }

    /// Posts what must be answered with 200.
    pub(crate) fn ask(&self, path: &str, body: &Value) -> Value {
        let reply = self.post(path, body);
        let status = reply.status;
        let value = reply.json();
        assert_eq!(status, 200, "{body}: {value}");
        value
    }

    /// A number of `/metrics`.
    pub(crate) fn metric(&self, name: &str) -> f64 {
        let text = self.get("/metrics").text();
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .unwrap_or_else(|| panic!("no {name}: {text}"));
        line.trim().parse().unwrap()
    }

    /// Waits until something is so.
    pub(crate) fn wait(&self, is_so: impl Fn() -> bool) {
        let start = Instant::now();
        while !is_so() {
            assert!(start.elapsed() < PATIENCE, "it took too long");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    pub(crate) fn stop(&self) {
        self.stopper.stop();
    }

    /// How the server ended.
    pub(crate) fn end(mut self) -> Result<(), Error> {
        self.thread.take().unwrap().join().unwrap()
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.stopper.stop();
        if let Some(thread) = self.thread.take() {
            let result = thread.join();
            if !std::thread::panicking() {
                result.unwrap().unwrap();
            }
        }
    }
}

fn reply(response: ureq::http::Response<ureq::Body>) -> Reply {
    let (parts, body) = response.into_parts();
    Reply { status: parts.status.as_u16(), headers: parts.headers, body }
}

/// A chat whose answer is always the same, and `tokens` long.
pub(crate) fn chat(tokens: usize) -> Value {
    json!({
        "model": MODEL, "messages": [{"role": "user", "content": "Why is the sky blue?"}], "temperature": 0,
        "max_tokens": tokens, "ignore_eos": true,
    })
}

/// `base` with more fields.
pub(crate) fn with(base: &Value, more: Value) -> Value {
    let mut base = base.clone();
    for (name, value) in more.as_object().unwrap() {
        base[name] = value.clone();
    }
    base
}

/// Engines' processes that a test can tell from those of others.
#[cfg(target_os = "linux")]
pub(crate) struct Tagged(String);

#[cfg(target_os = "linux")]
impl Tagged {
    pub(crate) fn new(name: &str) -> Self {
        Self(format!("{name}-{}", std::process::id()))
    }

    /// What starts them.
    pub(crate) fn launch(&self) -> Launch {
        Launch { args: vec![self.0.clone().into()], ..engine() }
    }

    /// The process that runs now.
    pub(crate) fn process(&self) -> u32 {
        let start = Instant::now();
        loop {
            let processes = std::fs::read_dir("/proc").unwrap().filter_map(|entry| {
                let entry = entry.ok()?;
                let id = entry.file_name().to_str()?.parse::<u32>().ok()?;
                let words = std::fs::read(entry.path().join("cmdline")).ok()?;
                words.split(|byte| *byte == 0).any(|word| word == self.0.as_bytes()).then_some(id)
            });
            if let Some(id) = processes.max() {
                return id;
            }
            assert!(start.elapsed() < PATIENCE, "there is no process");
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    /// Sends a signal to the process that runs now.
    pub(crate) fn signal(&self, name: &str) {
        let process = self.process().to_string();
        let status = std::process::Command::new("kill").args(["-s", name, &process]).status().unwrap();
        assert!(status.success(), "{name} was not sent to {process}");
    }
}
