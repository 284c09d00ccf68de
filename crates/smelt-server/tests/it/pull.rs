//! Pulls that the operator allows.

use std::ops::ControlFlow;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use serde_json::{Value, json};
use smelt_server::{ModelSource, PullError, Puller, Settings};
use smelt_store::{Event, Progress};

use crate::support::{MODEL, PATIENCE, Running, chat, source, with};

const HASH: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";

/// Pulls as a test wants: it transfers until it is told that enough has come.
#[derive(Debug, Default)]
struct Scripted {
    begun: AtomicUsize,
    is_enough: AtomicBool,
    /// How pulls ended.
    ends: Mutex<Vec<&'static str>>,
}

impl Scripted {
    fn transfer(&self, name: &str, progress: &mut dyn Progress) -> Result<ModelSource, PullError> {
        let mut tell = |event: Event<'_>| match progress.event(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(PullError::Stopped),
        };
        if name == "unknown" {
            return Err(PullError::Unknown("no model is named \"unknown\"".into()));
        }
        tell(Event::Source { source: "a test" })?;
        tell(Event::Started { file: "m.gguf", sha256: Some(HASH), total: Some(1000), resumed: 100 })?;
        let mut bytes = 100;
        while !self.is_enough.load(Ordering::SeqCst) {
            bytes = (bytes + 1).min(999);
            tell(Event::Advanced { bytes })?;
            std::thread::sleep(Duration::from_millis(5));
        }
        if name == "broken" {
            return Err(PullError::Failed("the source is gone".into()));
        }
        tell(Event::Finished)?;
        Ok(ModelSource {
            name: format!("{name}:1b"),
            aliases: vec![format!("{name}:1b"), name.to_owned()],
            warm: false,
            ..source(512)
        })
    }
}

impl Puller for Scripted {
    fn pull(&self, name: &str, progress: &mut dyn Progress) -> Result<ModelSource, PullError> {
        self.begun.fetch_add(1, Ordering::SeqCst);
        let result = self.transfer(name, progress);
        self.ends.lock().unwrap().push(match &result {
            Ok(_) => "done",
            Err(PullError::Stopped) => "stopped",
            Err(_) => "failed",
        });
        result
    }
}

fn server(models: Vec<ModelSource>) -> (Arc<Scripted>, Running) {
    let puller = Arc::<Scripted>::default();
    let running = Running::start(Settings { puller: Some(puller.clone()), ..Settings::default() }, models);
    running.wait(|| running.get("/health").status == 200);
    (puller, running)
}

fn line(text: Option<String>) -> Value {
    serde_json::from_str(&text.unwrap()).unwrap()
}

fn names(server: &Running) -> Vec<String> {
    let list = server.get("/v1/models").json();
    list["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap().to_owned()).collect()
}

#[test]
fn a_pull_tells_its_steps_and_the_model_is_there_behind_it() {
    // A server may begin with nothing.
    let (puller, server) = server(Vec::new());
    assert_eq!((names(&server), server.post("/v1/chat/completions", &chat(1)).status), (vec![], 404));
    assert_eq!(server.post("/tokenize", &json!({"prompt": "a"})).status, 404);
    let mut lines = server.post("/api/pull", &json!({"model": "new"})).lines();
    assert_eq!(line(lines.next()), json!({"status": "pulling manifest"}));
    let pulling = |completed: u64| json!({"status": "pulling 0123456789ab", "digest": format!("sha256:{HASH}"), "total": 1000, "completed": completed});
    let mut last = line(lines.next());
    assert_eq!(last["status"], pulling(0)["status"]);
    for _ in 0..3 {
        let next = line(lines.next());
        let bytes = |value: &Value| value["completed"].as_u64().unwrap();
        assert!(bytes(&next) > bytes(&last) || bytes(&next) == 999, "{next} behind {last}");
        assert_eq!(next, pulling(bytes(&next)));
        last = next;
    }
    puller.is_enough.store(true, Ordering::SeqCst);
    let rest: Vec<Value> = lines.map(|text| line(Some(text))).collect();
    let statuses: Vec<&str> = rest.iter().filter_map(|step| step["status"].as_str()).collect();
    let [.., whole, verifying, writing, success] = statuses.as_slice() else { panic!("{rest:?}") };
    assert_eq!([*verifying, *writing, *success], ["verifying sha256 digest", "writing manifest", "success"]);
    assert_eq!(*whole, "pulling 0123456789ab");
    assert_eq!(rest[rest.len() - 4], pulling(1000));

    assert_eq!(names(&server), ["new:1b"]);
    assert_eq!(server.get("/v1/models").json()["data"][0]["aliases"], json!(["new"]));
    assert_eq!(server.get("/api/tags").json()["models"][0]["name"], "new:1b");
    for name in ["new:1b", "new", "new:latest"] {
        let answer = server.ask("/v1/chat/completions", &with(&chat(3), json!({"model": name})));
        assert_eq!((&answer["usage"]["completion_tokens"], &answer["model"]), (&3.into(), &"new:1b".into()));
        // Nothing needs fetching any more.
        assert_eq!(
            server.ask("/api/pull", &json!({"model": name, "stream": false})),
            json!({"status": "success"})
        );
    }
    assert_eq!(puller.begun.load(Ordering::SeqCst), 1);
    assert!(server.get("/metrics").text().contains("smelt_requests_total{model_name=\"new:1b\"} 3\n"));
}

#[test]
fn who_pulls_the_same_shares_it_and_the_last_one_ends_it() {
    let (puller, server) = server(vec![source(512)]);
    let begin = || {
        let mut lines = server.post("/api/pull", &json!({"model": "new"})).lines();
        assert!(line(lines.next())["status"].is_string());
        lines
    };
    let (first, mut second) = (begin(), begin());
    assert_eq!(puller.begun.load(Ordering::SeqCst), 1);
    drop(first);
    // The other one's goes on.
    for _ in 0..5 {
        assert!(line(second.next())["status"].as_str().unwrap().starts_with("pull"));
    }
    drop(second);
    server.wait(|| *puller.ends.lock().unwrap() == ["stopped"]);
    assert_eq!(names(&server), [MODEL]);
    let third = begin();
    puller.is_enough.store(true, Ordering::SeqCst);
    assert_eq!(line(third.last()), json!({"status": "success"}));
    assert_eq!(
        (puller.begun.load(Ordering::SeqCst), names(&server)),
        (2, vec![MODEL.to_owned(), "new:1b".into()])
    );
}

#[test]
fn what_goes_wrong_with_a_pull_is_told_once() {
    let (puller, server) = server(vec![source(512)]);
    let reply = server.post("/api/pull", &json!({"model": "unknown"}));
    assert_eq!(reply.status, 404, "what is refused at once has its status, in a stream too");
    assert_eq!(reply.json(), json!({"error": "no model is named \"unknown\""}));
    assert_eq!(server.post("/api/pull", &json!({"model": "x".repeat(2000)})).status, 400);
    let lines = server.post("/api/pull", &json!({"model": "broken"})).lines();
    puller.is_enough.store(true, Ordering::SeqCst);
    assert_eq!(line(lines.last()), json!({"error": "the source is gone"}));
    let reply = server.post("/api/pull", &json!({"model": "broken", "stream": false}));
    assert_eq!((reply.status, reply.json()), (502, json!({"error": "the source is gone"})));
}

#[test]
fn a_server_that_stops_stops_pulls() {
    let (puller, server) = server(vec![source(512)]);
    let mut lines = server.post("/api/pull", &json!({"model": "new"})).lines();
    assert!(lines.next().is_some());
    server.stop();
    let last = line(lines.last());
    assert!(last["error"].as_str().unwrap().contains("what has arrived is kept"), "{last}");
    server.end().unwrap();
    let start = std::time::Instant::now();
    while *puller.ends.lock().unwrap() != ["stopped"] {
        assert!(start.elapsed() < PATIENCE);
        std::thread::sleep(Duration::from_millis(5));
    }
}
