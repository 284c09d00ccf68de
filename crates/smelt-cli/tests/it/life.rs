//! Servers in the background: found, listed, read, restarted and stopped, and nothing else ever touched.

use std::fs;
use std::io::{BufRead, BufReader, Read};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use serde_json::{Value, json};

use crate::served::{Served, agent, answer_of};
use crate::support::{Done, changed, done, llama, smelt};

/// A home whose servers are stopped with it.
struct Home(tempfile::TempDir);

impl Home {
    fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    fn path(&self) -> &Path {
        self.0.path()
    }

    fn run(&self, args: &[&str]) -> Done {
        done(smelt(self.path()).args(args).spawn().unwrap())
    }

    /// What `ps` tells of the servers.
    fn ps(&self) -> Vec<Value> {
        let told: Value = serde_json::from_str(&self.run(&["ps", "--json"]).ok()).unwrap();
        told["servers"].as_array().unwrap().clone()
    }

    /// The files of servers.
    fn files(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.path().join("store/servers")).into_iter().flatten();
        entries.map(|entry| entry.unwrap().path()).collect()
    }
}

impl Drop for Home {
    fn drop(&mut self) {
        self.run(&["stop", "--all"]);
    }
}

fn model() -> String {
    llama().to_str().unwrap().to_owned()
}

/// A port that nobody listens on.
fn free_port() -> String {
    TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port().to_string()
}

fn pid(server: &Value) -> u32 {
    u32::try_from(server["pid"].as_u64().unwrap()).unwrap()
}

#[test]
fn a_server_in_the_background_lives_as_told() {
    let home = Home::new();
    assert!(home.run(&["ps"]).ok().contains("No server runs"));
    assert_eq!(home.run(&["ps", "--ready"]).code, Some(1));
    let port = free_port();
    let said = home.run(&["serve", "-d", &model(), "--port", &port, "--ctx", "64", "--api-key", "secret"]);
    assert!(said.err.contains(&format!("listens on http://127.0.0.1:{port}")), "{said:?}");
    assert_eq!(said.ok(), "");
    let first = home.ps().remove(0);
    assert_eq!((&first["status"], &first["url"]), (&"ok".into(), &format!("http://127.0.0.1:{port}").into()));
    // Its own key lets `ps` in, as nothing else does.
    assert_eq!(
        (&first["models"][0]["name"], &first["models"][0]["context_length"]),
        (&"llama-f32".into(), &64.into())
    );
    assert_eq!(answer_of(&format!("http://127.0.0.1:{port}/api/ps")).0, 401);
    assert!(home.run(&["ps"]).ok().contains("llama-f32"));
    assert_eq!(home.run(&["ps", "--ready"]).ok(), "");
    for file in home.files() {
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(file).unwrap().permissions().mode() & 0o077, 0, "it holds a key");
    }
    let log = home.run(&["logs"]).ok();
    assert!(log.contains("model loaded") && !log.contains('\u{1b}'), "{log}");
    assert_eq!(home.run(&["logs", "-n", "1", "--port", &port]).ok().lines().count(), 1);

    home.run(&["restart"]).ok();
    let second = home.ps().remove(0);
    assert_eq!((&second["url"], &second["models"][0]["context_length"]), (&first["url"], &64.into()));
    assert_ne!(pid(&first), pid(&second));

    assert!(home.run(&["stop"]).err.contains(&format!("(process {})", pid(&second))));
    assert_eq!((home.ps(), home.files()), (vec![], vec![]));
    let again = home.run(&["stop", "--port", &port]);
    assert!(again.err.contains(&format!("no server on port {port} runs")), "{again:?}");
    again.ok();
    // The log stays.
    assert!(home.run(&["logs"]).ok().matches("stopping").count() >= 2);
    home.run(&["restart"]).failed(2, "no server runs; `smelt serve -d` starts one");
}

#[test]
fn a_log_is_followed_into_the_next_one() {
    let home = Home::new();
    let logs = home.path().join("store/logs");
    fs::create_dir_all(&logs).unwrap();
    let port = free_port();
    let log = logs.join(format!("{port}.log"));
    fs::write(&log, "old\n".repeat(3 << 20)).unwrap();
    let mut follow = smelt(home.path()).args(["logs", "-f", "-n", "1", "--port", &port]).spawn().unwrap();
    let mut lines = BufReader::new(follow.stdout.take().unwrap()).lines().map(Result::unwrap);
    assert_eq!(lines.next().as_deref(), Some("old"));
    home.run(&["serve", "-d", &model(), "--port", &port]).ok();
    let next = lines.next().unwrap();
    assert!(next.contains("model loaded"), "{next}");
    assert_eq!(fs::metadata(logs.join(format!("{port}.log.1"))).unwrap().len(), 12 << 20);
    home.run(&["stop"]).ok();
    let next = lines.next().unwrap();
    assert!(next.contains("stopping"), "{next}");
    follow.kill().unwrap();
    follow.wait().unwrap();
}

#[test]
fn what_goes_wrong_is_told_before_the_terminal_is_left() {
    let home = Home::new();
    let port = free_port();
    let serve = |words: &[&str]| home.run(&[&["serve", "-d", "--port", &port], words].concat());
    serve(&["./absent.gguf"]).failed(1, "absent.gguf");
    serve(&["smolm2"]).failed(1, "did you mean smollm2:135m?");
    serve(&[&model(), "--api-key-file", "absent"]).failed(1, "cannot read absent");
    serve(&[&model(), "--api-key", "ends in a space "]).failed(1, "visible ASCII");
    serve(&[&model(), "--api-key", "ключ"]).failed(1, "visible ASCII");
    // This one is found out once the server is in the background.
    let strange = changed(home.path(), &[("general.architecture", "strange".to_owned().into())]);
    let said = serve(&[&strange]);
    assert!(said.err.contains("the server ended (exit status: 1)"), "{said:?}");
    said.failed(1, "strange");
    assert!(home.ps().is_empty());
}

#[test]
fn several_servers_are_told_apart() {
    let home = Home::new();
    let (one, two) = (free_port(), free_port());
    for port in [&one, &two] {
        home.run(&["serve", "-d", &model(), "--port", port]).ok();
    }
    assert_eq!(home.ps().len(), 2);
    for command in ["stop", "restart", "logs"] {
        home.run(&[command]).failed(2, "several servers run");
    }
    home.run(&["stop", "--port", &one]).ok();
    let left = home.ps();
    assert_eq!((left.len(), &left[0]["url"]), (1, &format!("http://127.0.0.1:{two}").into()));
    home.run(&["serve", "-d", &model(), "--port", &one]).ok();
    home.run(&["stop", "--all"]).ok();
    assert!(home.ps().is_empty());
}

#[test]
fn open_requests_end_first() {
    let home = Home::new();
    let served = Served::new(home.path(), &[&model()]);
    let request = json!({"prompt": "Once", "max_tokens": 200, "ignore_eos": true, "stream": true});
    let mut answer = served.stream("/v1/completions", &request);
    let mut first = [0; 1];
    answer.read_exact(&mut first).unwrap();
    let stop = smelt(home.path()).arg("stop").spawn().unwrap();
    let mut rest = String::new();
    answer.read_to_string(&mut rest).unwrap();
    assert!(rest.ends_with("data: [DONE]\n\n"), "{rest}");
    assert!(done(stop).err.contains("stopped the server on"));
    assert!(home.ps().is_empty());
}

#[test]
fn a_server_of_the_foreground_is_not_restarted() {
    let home = Home::new();
    let served = Served::new(home.path(), &[&model()]);
    home.run(&["restart"]).failed(2, "was not started with -d");
    home.run(&["logs"]).failed(2, "was not started with -d");
    assert_eq!(served.get("/health").0, 200);
}

#[test]
fn a_taken_port_says_who_has_it() {
    let home = Home::new();
    let served = Served::new(home.path(), &[&model()]);
    let (_, port) = served.address.rsplit_once(':').unwrap();
    for words in [&["serve"][..], &["serve", "-d"]] {
        let said = home.run(&[words, &[model().as_str(), "--port", port]].concat());
        assert!(said.err.contains(&format!("`smelt stop --port {port}`")), "{said:?}");
        said.failed(1, &format!("process {}, serves there", served.pid()));
    }
    let other = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = other.local_addr().unwrap().port().to_string();
    let said = home.run(&["serve", &model(), "--port", &port]);
    if cfg!(target_os = "linux") {
        assert!(said.err.contains(&format!("the process {} (", std::process::id())), "{said:?}");
    }
    said.failed(1, "--port N takes another port");
}

/// A process that has nothing to do with Smelt.
fn bystander() -> std::process::Child {
    Command::new("sleep").arg("600").stdin(Stdio::null()).spawn().unwrap()
}

#[test]
fn what_a_killed_server_leaves_behind_harms_nobody() {
    let home = Home::new();
    let mut served = Served::new(home.path(), &[&model()]);
    let file = home.files().remove(0);
    let mut record: Value = serde_json::from_str(&fs::read_to_string(&file).unwrap()).unwrap();
    served.kill();
    let mut bystander = bystander();
    record["pid"] = bystander.id().into();
    fs::write(&file, record.to_string()).unwrap();
    assert!(home.run(&["stop"]).err.contains("no server runs"));
    assert!(bystander.try_wait().unwrap().is_none(), "it was stopped");
    assert!(home.files().is_empty());

    // A process that has the id of a server in another container, whose lock is held.
    fs::write(&file, record.to_string()).unwrap();
    let lock = fs::File::open(&file).unwrap();
    lock.lock().unwrap();
    home.run(&["stop"]).failed(1, "does that run in another container?");
    assert!(bystander.try_wait().unwrap().is_none(), "it was stopped");
    assert_eq!(home.ps()[0]["status"], Value::Null);
    // One of a version that writes something else.
    fs::write(&file, "{}").unwrap();
    for words in [&["stop"][..], &["stop", "--all"]] {
        home.run(words).failed(1, "tells of no server");
    }
    let second = Served::new(home.path(), &[&model()]);
    let listed = home.run(&["ps"]);
    assert!(listed.err.contains("tells of no server"), "{listed:?}");
    assert!(listed.ok().contains(&second.address));
    assert_eq!(home.ps().len(), 1);
    home.run(&["stop"]).ok();
    drop(lock);
    bystander.kill().unwrap();
    bystander.wait().unwrap();
}

/// The processes whose parent is this one.
#[cfg(target_os = "linux")]
fn children(parent: u32) -> Vec<u32> {
    let processes = fs::read_dir("/proc").unwrap().filter_map(|entry| {
        let entry = entry.ok()?;
        let id = entry.file_name().to_str()?.parse::<u32>().ok()?;
        // `id (name) state parent …`
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        let of = stat.rsplit_once(") ")?.1.split(' ').nth(1)?.parse::<u32>().ok()?;
        (of == parent).then_some(id)
    });
    processes.collect()
}

#[cfg(target_os = "linux")]
#[test]
fn no_engine_outlives_its_server() {
    // In the middle of an answer, and one that can't notice anything itself.
    for is_stopped in [false, true] {
        let home = Home::new();
        let mut served = Served::new(home.path(), &[&model(), "--ctx", "200000"]);
        let engines = children(served.pid());
        assert_eq!(engines.len(), 1);
        let body = json!({"prompt": "Hi", "max_tokens": 100_000, "stream": true, "ignore_eos": true});
        let mut answer = served.stream("/v1/completions", &body);
        assert!(answer.read(&mut [0]).unwrap() > 0);
        if is_stopped {
            let told = Command::new("kill").args(["-s", "STOP", &engines[0].to_string()]).status();
            assert!(told.unwrap().success());
        }
        served.kill();
        // It is gone, or waits for nothing but its new parent's notice.
        let stat = format!("/proc/{}/stat", engines[0]);
        while fs::read_to_string(&stat).is_ok_and(|stat| !stat.contains(") Z ")) {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
    }
}

#[test]
fn a_server_without_models_says_how_to_get_one() {
    let home = Home::new();
    home.run(&["serve", "--port", "0"]).failed(1, "no model is installed");
    home.run(&["serve", "--port", "0"]).failed(1, "smelt serve smollm2:135m");
}

#[test]
fn an_update_of_the_program_harms_no_server() {
    let home = Home::new();
    let program = home.path().join("smelt-of-yesterday");
    fs::copy(env!("CARGO_BIN_EXE_smelt"), &program).unwrap();
    let port = free_port();
    let mut command = Command::new(&program);
    command
        .args(["serve", &model(), "--port", &port, "--no-prewarm"])
        .env("SMELT_HOME", home.path().join("store"));
    let mut server = command.stderr(Stdio::null()).spawn().unwrap();
    let address = format!("http://127.0.0.1:{port}");
    while agent().get(format!("{address}/health")).call().is_err() {
        assert!(server.try_wait().unwrap().is_none(), "it ended");
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    // As package managers do, who put another file in its place.
    fs::remove_file(&program).unwrap();
    fs::write(&program, "#!/bin/sh\nexit 1\n").unwrap();
    let body = json!({"prompt": "a", "max_tokens": 2}).to_string();
    let answer = agent().post(format!("{address}/v1/completions")).send(body).unwrap();
    assert_eq!(answer.status(), 200);
    home.run(&["stop", "--all"]).ok();
    assert!(server.wait().unwrap().success());
}
