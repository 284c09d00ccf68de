//! A server of a test, a real process.

use std::io::{BufRead, BufReader, Read};
use std::path::Path;
use std::process::{Child, Command};
use std::time::Duration;

use serde_json::Value;

use crate::support::{done, llama, smelt};

/// A server that answers; it is killed with its test.
pub(crate) struct Served {
    child: Child,
    /// `http://127.0.0.1:PORT`.
    pub(crate) address: String,
}

impl Served {
    /// `smelt serve` with a free port and these words.
    pub(crate) fn new(home: &Path, args: &[&str]) -> Self {
        Self::of(smelt(home).args(["serve", "--port", "0"]).args(args))
    }

    /// The server that a command starts.
    pub(crate) fn of(command: &mut Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map(Result::unwrap);
        let mut said = String::new();
        let address = loop {
            let Some(line) = lines.next() else { panic!("it ended: {said}\n{:?}", child.wait()) };
            said.push_str(&line);
            said.push('\n');
            if let Some((_, rest)) = line.split_once("listening on ") {
                break rest.split(' ').next().unwrap().to_owned();
            }
        };
        // Whoever doesn't read what a process says stops it some day.
        std::thread::spawn(move || lines.for_each(drop));
        let served = Self { child, address };
        while served.get("/health").0 != 200 {
            std::thread::sleep(Duration::from_millis(20));
        }
        served
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Ends it with no time to tidy up.
    pub(crate) fn kill(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }

    /// Status and body.
    pub(crate) fn get(&self, path: &str) -> (u16, String) {
        answer_of(&format!("{}{path}", self.address))
    }

    /// The body of an answer, as it comes.
    pub(crate) fn stream(&self, path: &str, body: &Value) -> impl Read + use<> {
        let sent = agent().post(format!("{}{path}", self.address)).send(body.to_string());
        sent.unwrap().into_body().into_reader()
    }

    /// The body of an answer.
    pub(crate) fn post(&self, path: &str, body: &Value) -> Value {
        let sent = agent().post(format!("{}{path}", self.address)).send(body.to_string());
        serde_json::from_str(&answer(sent).1).unwrap()
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Status and body.
pub(crate) fn answer_of(url: &str) -> (u16, String) {
    answer(agent().get(url).call())
}

/// A client that asks whether or not it trusts who answers.
pub(crate) fn agent() -> ureq::Agent {
    let config = ureq::Agent::config_builder().http_status_as_error(false);
    config.tls_config(ureq::tls::TlsConfig::builder().disable_verification(true).build()).build().into()
}

fn answer(result: Result<ureq::http::Response<ureq::Body>, ureq::Error>) -> (u16, String) {
    let mut response = result.unwrap();
    (response.status().as_u16(), response.body_mut().read_to_string().unwrap())
}

#[test]
fn models_have_other_names_and_other_templates() {
    let home = tempfile::tempdir().unwrap();
    let model = llama();
    let model = model.to_str().unwrap();
    let conversation = |model: &str| {
        let messages = serde_json::json!([{"role": "user", "content": "Hi"}]);
        serde_json::json!({"model": model, "messages": messages})
    };
    let words =
        [model, model, "--name", "a", "--name", "b", "--alias", "gpt-4o=b", "--chat-template", "chatml"];
    let served = Served::new(home.path(), &words);
    let models: Value = serde_json::from_str(&served.get("/v1/models").1).unwrap();
    assert_eq!(
        (&models["data"][1]["aliases"], models["data"][0].get("aliases")),
        (&serde_json::json!(["gpt-4o"]), None)
    );
    let prompt = served.post("/apply-template", &conversation("gpt-4o"))["prompt"].clone();
    assert_eq!(prompt, "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n");
    drop(served);

    // A template of one's own, as text and from a file.
    let text = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    let file = home.path().join("template.jinja");
    std::fs::write(&file, text).unwrap();
    for flags in [["--chat-template", text], ["--chat-template-file", file.to_str().unwrap()]] {
        let served = Served::new(home.path(), &[&[model, "--alias", "other"], &flags[..]].concat());
        assert_eq!(served.post("/apply-template", &conversation("other"))["prompt"], "[Hi]");
    }

    let refuse = |flags: &[&str], code: i32, said: &str| {
        let words = [&["serve", "--port", "0", model], flags].concat();
        done(smelt(home.path()).args(words).spawn().unwrap()).failed(code, said);
    };
    refuse(&["--chat-template", "chatlm"], 2, "there is no chat template \"chatlm\"; there are gemma, ");
    refuse(&["--chat-template", "{% for %}"], 1, "chat template");
    refuse(&["--name", ""], 2, "--name");
    for host in ["", "[::1", "[]", "[example.org]"] {
        refuse(&["--host", host], 2, "it is no name or address");
    }
    refuse(&["--alias", "x=nobody"], 2, "--alias x: say of which model");
    refuse(&["--alias", "llama-f32"], 1, "two models have the name");
}
