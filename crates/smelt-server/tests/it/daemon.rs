//! Engines' processes: what becomes of requests when one is lost, and when models are loaded and let go.

use std::time::Duration;

use serde_json::{Value, json};
use smelt_engine::Model;
use smelt_server::{Launch, Limits, ModelSource, Settings};

use crate::support::{MODEL, Running, Tagged, chat, engine, source, with};

const CHAT: &str = "/v1/chat/completions";
/// An answer of this length is never waited for.
const LONG: usize = 100_000;

/// A model under this name that is loaded when somebody asks for it.
fn cold(name: &str, context: usize) -> ModelSource {
    ModelSource { name: name.to_owned(), warm: false, ..source(context) }
}

fn loaded(server: &Running) -> Vec<String> {
    let models = server.get("/api/ps").json()["models"].as_array().unwrap().clone();
    models.iter().map(|model| model["name"].as_str().unwrap().to_owned()).collect()
}

fn ask(server: &Running, model: &str) {
    let answer = server.ask(CHAT, &with(&chat(3), json!({"model": model})));
    assert_eq!(answer["usage"]["completion_tokens"], 3);
}

/// The status and the error of an answer that is one.
fn error(reply: crate::support::Reply) -> (u16, String, String) {
    let (status, value) = (reply.status, reply.json());
    let text = |name: &str| value["error"][name].as_str().unwrap_or_default().to_owned();
    (status, text("code"), text("message"))
}

#[test]
fn a_model_is_loaded_when_somebody_asks_and_let_go_when_nobody_does() {
    let settings = Settings { idle_time: Some(Duration::from_millis(300)), ..Settings::default() };
    let server = Running::start(settings, vec![cold("a", 2 * LONG), cold("b", 512)]);
    server.wait(|| server.get("/health").status == 200);
    assert_eq!(loaded(&server), [""; 0]);
    // What there is needs no engine, nor do tokens.
    let names = |list: Value| list["data"].as_array().unwrap().len();
    assert_eq!(names(server.get("/v1/models").json()), 2);
    assert!(server.ask("/tokenize", &json!({"model": "a", "prompt": "Hi"}))["count"].as_u64().unwrap() > 0);
    assert_eq!(loaded(&server), [""; 0]);
    ask(&server, "b");
    server.wait(|| loaded(&server).is_empty());
    // And again; what was counted stays counted.
    ask(&server, "b");
    assert_eq!(server.metric("smelt_answers_total{model_name=\"b\",finished_reason=\"length\"} "), 2.0);
    assert_eq!(server.metric("smelt_requests_total{model_name=\"b\"} "), 2.0);
    assert_eq!(server.metric("smelt_engine_restarts_total{model_name=\"b\"} "), 0.0);
    // One that answers stays.
    let mut lines = server.post(CHAT, &with(&chat(LONG), json!({"model": "a", "stream": true}))).lines();
    assert!(lines.next().is_some());
    std::thread::sleep(Duration::from_millis(600));
    assert_eq!(loaded(&server), ["a"]);
}

#[test]
fn ollamas_clients_say_how_long_a_model_is_kept() {
    let server = Running::start(Settings::default(), vec![cold("a", 512)]);
    let generate =
        |body: Value| server.ask("/api/generate", &with(&json!({"model": "a", "stream": false}), body));
    assert_eq!(generate(json!({"keep_alive": 0}))["done_reason"], "unload");
    assert_eq!(loaded(&server), [""; 0]);
    let expires = || server.get("/api/ps").json()["models"][0]["expires_at"].as_str().unwrap().to_owned();
    assert_eq!(generate(json!({"keep_alive": -1}))["done_reason"], "load");
    assert_eq!(loaded(&server), ["a"]);
    assert!(expires().starts_with("9999-"), "{}", expires());
    // Every request says it anew.
    let short = json!({"prompt": "Hi", "options": {"num_predict": 2}});
    assert_eq!(generate(short.clone())["eval_count"], 2);
    assert!(!expires().starts_with("9999-"), "{}", expires());
    assert_eq!(generate(with(&short, json!({"keep_alive": "1h"})))["eval_count"], 2);
    assert_eq!(generate(with(&short, json!({"keep_alive": 0})))["eval_count"], 2);
    server.wait(|| loaded(&server).is_empty());
    assert_eq!(generate(json!({}))["done_reason"], "load");
    assert_eq!(generate(json!({"keep_alive": "0s"}))["done_reason"], "unload");
    server.wait(|| loaded(&server).is_empty());
    let wrong = server.post("/api/generate", &json!({"model": "a", "keep_alive": "soon"}));
    assert_eq!(wrong.status, 400);
}

#[test]
fn models_make_room_for_one_another() {
    let file = source(2 * LONG);
    let model = Model::open(&file.file, &file.engine).unwrap();
    let facts = model.facts();
    let bytes = facts.weight_bytes + (2 * LONG * facts.kv_bytes_per_token) as u64;
    let with_memory = |memory: u64| {
        let settings = Settings { memory: Some(memory), ..Settings::default() };
        Running::start(settings, ["a", "b", "c"].map(|name| cold(name, 2 * LONG)).into())
    };
    let server = with_memory(bytes * 5 / 2);
    ask(&server, "a");
    ask(&server, "b");
    ask(&server, "a");
    // The one that was used least lately goes.
    ask(&server, "c");
    assert_eq!(loaded(&server), ["a", "c"]);
    let stream = |model: &str| {
        let mut lines =
            server.post(CHAT, &with(&chat(LONG), json!({"model": model, "stream": true}))).lines();
        assert!(lines.next().is_some());
        lines
    };
    // One that answers stays, whenever it was used.
    let open = stream("a");
    ask(&server, "c");
    ask(&server, "b");
    assert_eq!(loaded(&server), ["a", "b"]);
    let both = (open, stream("b"));
    let full = server.post(CHAT, &with(&chat(1), json!({"model": "c"})));
    assert!(full.header("retry-after").parse::<u32>().unwrap() > 0);
    let (status, code, message) = error(full);
    assert_eq!((status, code.as_str()), (503, "insufficient_memory"), "{message}");
    drop(both);
    server.wait(|| server.post(CHAT, &with(&chat(1), json!({"model": "c"}))).status == 200);
    // One that can't be had at all is refused before another has to go.
    let server = with_memory(facts.weight_bytes);
    ask(&server, "a");
    ask(&server, "b");
    assert_eq!(loaded(&server), ["b"], "alone it does with less");
    let server = with_memory(facts.weight_bytes - 1);
    let (status, code, message) = error(server.post(CHAT, &with(&chat(1), json!({"model": "a"}))));
    assert_eq!((status, code.as_str()), (503, "insufficient_memory"));
    assert!(message.contains("--memory"), "{message}");
}

#[test]
fn a_file_that_makes_no_sense_takes_no_model_with_it() {
    let mut broken = cold("broken", 512);
    broken.file = "no-such-file.gguf".into();
    let server = Running::start(
        Settings { memory: Some(1 << 40), ..Settings::default() },
        vec![cold("a", 512), broken],
    );
    ask(&server, "a");
    let (status, code, message) = error(server.post(CHAT, &with(&chat(1), json!({"model": "broken"}))));
    assert_eq!((status, code.as_str()), (500, "internal_error"));
    assert!(message.contains("no-such-file"), "{message}");
    assert_eq!(loaded(&server), ["a"]);
    assert_eq!(server.get("/v1/models").json()["data"].as_array().unwrap().len(), 1);
}

#[test]
fn processes_that_are_no_engine_are_told_of() {
    let launch = |program: &str, args: &[&str]| Launch {
        program: program.into(),
        args: args.iter().map(Into::into).collect(),
    };
    for (launch, problem) in [
        (launch("/no/such/program", &[]), "can't be started"),
        (launch("/bin/sh", &["-c", "read order; echo Hello; cat"]), "no report"),
        (launch("/bin/sh", &["-c", "exit 3"]), "exit status: 3"),
        (launch("/bin/sh", &["-c", "kill -9 $$"]), "out of memory"),
        (launch("/bin/sh", &["-c", "echo -n '{\"pong'"]), "exit status: 0"),
    ] {
        let server = Running::start(Settings { launch, ..Settings::default() }, vec![cold("a", 64)]);
        let reply = server.post(CHAT, &with(&chat(1), json!({"model": "a"})));
        assert!(reply.header("retry-after").parse::<u32>().unwrap() > 0);
        let (status, code, message) = error(reply);
        assert_eq!((status, code.as_str()), (503, "engine_failed"), "{message}");
        assert!(message.contains(problem), "{message}");
        server.wait(|| server.get("/health").status == 503);
    }
}

#[cfg(target_os = "linux")]
#[test]
fn an_engine_that_is_stuck_is_started_again() {
    let tagged = Tagged::new("stuck");
    let limits = Limits { step_time: Duration::from_secs(2), ..Limits::default() };
    let settings = Settings { limits, launch: tagged.launch(), ..Settings::default() };
    let server = Running::with(settings, 2 * LONG);
    let mut open = server.post(CHAT, &with(&chat(LONG), json!({"stream": true}))).lines();
    assert!(open.next().is_some());
    tagged.signal("STOP");
    let rest: Vec<String> = open.filter(|line| !line.is_empty()).collect();
    let [.., last, done] = rest.as_slice() else { panic!("{rest:?}") };
    assert!(last.contains("engine_failed") && last.contains("done nothing"), "{last}");
    assert_eq!(done, "data: [DONE]");
    assert_eq!(server.ask(CHAT, &chat(3))["usage"]["completion_tokens"], 3);
    assert_eq!(server.metric("smelt_engine_restarts_total{model_name=\"tiny:latest\"} "), 1.0);
    assert_eq!(server.metric("smelt_requests_failed_total{model_name=\"tiny:latest\"} "), 1.0);
}

#[test]
fn a_file_that_was_changed_in_use_is_read_anew() {
    let good = std::fs::read(source(512).file).unwrap();
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    std::fs::write(file.path(), &good).unwrap();
    let model = ModelSource { file: file.path().to_owned(), ..source(512) };
    let server = Running::start(Settings::default(), vec![model]);
    server.wait(|| server.get("/health").status == 200);
    ask(&server, MODEL);
    file.as_file().set_len(1000).unwrap();
    let (status, _, message) = error(server.post(CHAT, &chat(3)));
    assert!(status == 500 && message.contains("changed while it was in use"), "{status}: {message}");
    // An engine that has seen that would answer nothing for ever.
    std::fs::write(file.path(), &good).unwrap();
    server.wait(|| server.post(CHAT, &chat(3)).status == 200);
}

#[test]
fn a_file_that_is_replaced_is_read_anew_and_wholly() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other] = ["model.gguf", "other.gguf"].map(|name| folder.path().join(name));
    let new = smelt_testdata::data("tiny/qwen3/qwen3-f16.gguf");
    std::fs::copy(source(512).file, &file).unwrap();
    let model = |file: &std::path::Path| ModelSource { file: file.to_owned(), ..cold("a", 512) };
    let request = with(&chat(8), json!({"model": "a", "logprobs": true}));
    let answer = |server: &Running| {
        let mut answer = server.ask(CHAT, &request);
        (answer["choices"].take(), answer["usage"]["prompt_tokens"].take())
    };
    let wanted = answer(&Running::start(Settings::default(), vec![model(&new)]));

    let server = Running::start(Settings::default(), vec![model(&file)]);
    let old = answer(&server);
    assert_ne!(old, wanted);
    std::fs::copy(&new, &other).unwrap();
    std::fs::rename(&other, &file).unwrap();
    // The engine has the file that is gone, and so have prompts.
    assert_eq!(answer(&server), old);
    server.ask("/api/generate", &json!({"model": "a", "keep_alive": 0}));
    server.wait(|| loaded(&server).is_empty());
    assert_eq!(answer(&server), wanted);
}

/// Between the making of a prompt and the loading of the model, too.
#[cfg(unix)]
#[test]
fn no_prompt_meets_another_files_weights() {
    let folder = tempfile::tempdir().unwrap();
    let [file, other] = ["model.gguf", "other.gguf"].map(|name| folder.path().join(name));
    std::fs::copy(source(512).file, &file).unwrap();
    std::fs::copy(smelt_testdata::data("tiny/qwen3/qwen3-f16.gguf"), &other).unwrap();
    let script = format!("mv {} {} 2>/dev/null; exec \"$0\"", other.display(), file.display());
    let launch = Launch {
        program: "/bin/sh".into(),
        args: ["-c".into(), script.into(), engine().program.into()].into(),
    };
    let model = ModelSource { file, ..cold("a", 512) };
    let server = Running::start(Settings { launch, ..Settings::default() }, vec![model]);
    let (status, _, message) = error(server.post(CHAT, &with(&chat(3), json!({"model": "a"}))));
    assert!(status == 500 && message.contains("its file was replaced"), "{status}: {message}");
    ask(&server, "a");
}

#[test]
fn lists_read_a_file_once_for_all() {
    let good = std::fs::read(source(512).file).unwrap();
    let file = tempfile::Builder::new().suffix(".gguf").tempfile().unwrap();
    std::fs::write(file.path(), &good).unwrap();
    let model = ModelSource { file: file.path().to_owned(), ..cold("a", 512) };
    let server = Running::start(Settings::default(), vec![model]);
    let listed = || {
        let openai = server.get("/v1/models").json()["data"].as_array().unwrap().len();
        let ollama = server.get("/api/tags").json()["models"].as_array().unwrap().len();
        assert_eq!(openai, ollama);
        openai
    };
    assert_eq!(listed(), 1);
    // As long as it seems to be the same, nobody looks into it again.
    let written = file.as_file().metadata().unwrap().modified().unwrap();
    std::fs::write(file.path(), "something else").unwrap();
    file.as_file().set_modified(written).unwrap();
    assert_eq!(listed(), 1);
    file.as_file().set_modified(written + Duration::from_secs(1)).unwrap();
    assert_eq!(listed(), 0);
}
