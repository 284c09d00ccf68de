//! A log that nobody reads, or that can't be written, is no trouble of those who ask.

use std::fs::OpenOptions;
use std::io::{BufRead, BufReader};
use std::net::TcpListener;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::json;

use crate::served::{agent, answer_of};
use crate::support::{llama, smelt};

/// A server whose log goes there, and its address; it is killed with its test.
struct Logging(Child, String);

impl Logging {
    fn new(home: &tempfile::TempDir, log: Stdio) -> Self {
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let mut command = smelt(home.path());
        command.args(["serve", llama().to_str().unwrap(), "--name", "m", "--port", &port.to_string()]);
        Self(command.stderr(log).spawn().unwrap(), format!("http://127.0.0.1:{port}"))
    }

    fn wait(&mut self) {
        while agent().get(format!("{}/health", self.1)).call().is_err()
            || answer_of(&format!("{}/health", self.1)).0 != 200
        {
            assert!(self.0.try_wait().unwrap().is_none(), "it ended");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Asks, which is logged each time.
    fn ask(&self, times: usize) {
        let agent = agent();
        for _ in 0..times {
            let mut answer = agent.get(format!("{}/v1/models", self.1)).call().unwrap();
            assert_eq!(answer.status(), 200);
            answer.body_mut().read_to_string().unwrap();
        }
        let body = json!({"prompt": "a", "max_tokens": 2});
        let answer = agent.post(format!("{}/v1/completions", self.1)).send(body.to_string()).unwrap();
        assert_eq!(answer.status(), 200);
    }

    fn end(&mut self) {
        let ended = Command::new("kill").args(["-s", "TERM", &self.0.id().to_string()]).status().unwrap();
        assert!(ended.success());
        assert!(self.0.wait().unwrap().success());
    }
}

impl Drop for Logging {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[test]
fn a_log_whose_reader_is_gone_ends_nothing() {
    let home = tempfile::tempdir().unwrap();
    let mut server = Logging::new(&home, Stdio::piped());
    drop(server.0.stderr.take());
    server.wait();
    server.ask(3);
    server.end();
}

#[test]
fn a_log_on_a_full_disk_ends_nothing() {
    let home = tempfile::tempdir().unwrap();
    // There is one wherever this file is.
    let Ok(full) = OpenOptions::new().write(true).open("/dev/full") else { return };
    let mut server = Logging::new(&home, full.into());
    server.wait();
    server.ask(3);
    server.end();
}

#[test]
fn a_log_whose_reader_has_stopped_holds_nothing_up() {
    const REQUESTS: usize = 1500;
    let home = tempfile::tempdir().unwrap();
    let mut server = Logging::new(&home, Stdio::piped());
    server.wait();
    // More than the system holds for a reader.
    server.ask(REQUESTS);
    // What it missed comes when it goes on, to the last line.
    let log = BufReader::new(server.0.stderr.take().unwrap());
    let reader = std::thread::spawn(move || log.lines().map(Result::unwrap).collect::<Vec<_>>());
    server.end();
    let lines = reader.join().unwrap();
    assert_eq!(lines.iter().filter(|line| line.contains("/v1/models")).count(), REQUESTS);
    assert!(lines.iter().any(|line| line.contains("stopping")));
}
