//! A chat on a terminal of its own.

#![cfg(unix)]

use std::path::Path;

use rexpect::session::{PtySession, spawn_command};
use serde_json::{Value, json};

use crate::support::{llama, smelt};

const TIMEOUT_MS: u64 = 60_000;

fn chat(home: &Path, flags: &[&str]) -> PtySession {
    let mut command = smelt(home);
    command
        .arg("run")
        .arg(llama())
        .args(["--backend", "reference", "--temp", "0", "--ignore-eos"])
        .args(flags);
    command.env("TERM", "xterm");
    let mut session = spawn_command(on_terminal(command), Some(TIMEOUT_MS)).unwrap();
    session.exp_string("/help for help").unwrap();
    session
}

/// Without the pipes of the other tests.
fn on_terminal(mut command: std::process::Command) -> std::process::Command {
    use std::process::Stdio;
    command.stdin(Stdio::inherit()).stdout(Stdio::inherit()).stderr(Stdio::inherit());
    command
}

fn say(session: &mut PtySession, line: &str) {
    session.exp_string("> ").unwrap();
    session.send_line(line).unwrap();
}

fn exit_code(session: &PtySession) -> i32 {
    match session.process().wait().unwrap() {
        rexpect::process::WaitStatus::Exited(_, code) => code,
        other => panic!("{other:?}"),
    }
}

#[test]
fn commands_change_and_keep_the_conversation() {
    let home = tempfile::tempdir().unwrap();
    let mut session = chat(home.path(), &["--max-tokens", "8", "--verbose", "--threads", "1"]);
    say(&mut session, "/help");
    session.exp_string("forget the conversation").unwrap();
    say(&mut session, "/set top_p 7");
    session.exp_string("not between 0 and 1").unwrap();
    say(&mut session, "/set temp 1");
    session.exp_string("do you mean temperature?").unwrap();
    say(&mut session, "/set top_k 5");
    say(&mut session, "/set top_k");
    session.exp_regex("top_k +5 ").unwrap();
    say(&mut session, "/set system Be brief.");
    say(&mut session, "Hello there");
    session.exp_string("0 of them cached").unwrap();
    session.exp_string("seed:").unwrap();
    say(&mut session, "/save talk.json");
    session.exp_string("3 messages are in talk.json").unwrap();
    // The second turn begins with the first one.
    say(&mut session, "And\\");
    session.send_line("now?").unwrap();
    session.exp_regex("[1-9][0-9]* of them cached").unwrap();
    session.exp_string("seed:").unwrap();
    say(&mut session, "/clear");
    say(&mut session, "/save empty.json");
    session.exp_string("1 messages are in").unwrap();
    say(&mut session, "/load talk.json");
    session.exp_string("2 messages from talk.json").unwrap();
    say(&mut session, "/load nowhere.json");
    session.exp_string("cannot read nowhere.json").unwrap();
    std::fs::write(home.path().join("bad.json"), r#"[{"role": "robot", "content": "x"}]"#).unwrap();
    say(&mut session, "/load bad.json");
    session.exp_string("the role \"robot\" is none of system, user, assistant, tool").unwrap();
    say(&mut session, "/what");
    session.exp_string("there is no command /what").unwrap();
    say(&mut session, "/bye");
    session.exp_eof().unwrap();
    assert_eq!(exit_code(&session), 0);

    let saved: Vec<Value> =
        serde_json::from_str(&std::fs::read_to_string(home.path().join("talk.json")).unwrap()).unwrap();
    assert_eq!(
        saved[..2],
        [
            json!({"role": "system", "content": "Be brief."}),
            json!({"role": "user", "content": "Hello there"})
        ]
    );
    assert_eq!(saved[2]["role"], "assistant");
    let history = std::fs::read_to_string(home.path().join("store/history")).unwrap();
    assert!(history.contains("Hello there") && history.contains("/clear"), "{history}");
}

#[test]
fn a_conversation_that_outgrows_the_context_loses_its_oldest_turns() {
    let home = tempfile::tempdir().unwrap();
    let turn = |role: &str| json!({"role": role, "content": "The quick brown fox jumps over the lazy dog."});
    let talk: Vec<Value> = ["user", "assistant"].repeat(6).into_iter().map(turn).collect();
    std::fs::write(home.path().join("talk.json"), serde_json::to_string(&talk).unwrap()).unwrap();
    let mut session = chat(home.path(), &["--max-tokens", "8", "--ctx", "256"]);
    say(&mut session, "/load talk.json");
    session.exp_string("12 messages from talk.json").unwrap();
    say(&mut session, "And now?");
    session.exp_regex("the oldest [0-9]+ messages left out").unwrap();
    say(&mut session, "/bye");
    session.exp_eof().unwrap();
    assert_eq!(exit_code(&session), 0);
}

#[test]
fn ctrl_c_stops_the_answer_and_twice_leaves() {
    let home = tempfile::tempdir().unwrap();
    let mut session = chat(home.path(), &["--ctx", "1000000"]);
    say(&mut session, "Hello");
    // Some of the answer; the echo of the question and its line feed come first.
    session.exp_string("Hello").unwrap();
    session.exp_regex("\n(?s).{40}").unwrap();
    session.send_control('c').unwrap();
    session.exp_string("> ").unwrap();
    session.send_control('c').unwrap();
    session.exp_string("Ctrl-C again").unwrap();
    session.exp_string("> ").unwrap();
    session.send_control('c').unwrap();
    session.exp_eof().unwrap();
    assert_eq!(exit_code(&session), 130);
}

#[test]
fn a_chat_goes_on_with_a_server() {
    let home = tempfile::tempdir().unwrap();
    let served = crate::served::Served::new(home.path(), &[llama().to_str().unwrap()]);
    let mut command = smelt(home.path());
    command.arg("run").arg(llama()).args(["--temp", "0", "--ignore-eos", "-n", "8", "--verbose"]);
    command.env("TERM", "xterm");
    let mut session = spawn_command(on_terminal(command), Some(TIMEOUT_MS)).unwrap();
    session.exp_string("asking the server on").unwrap();
    say(&mut session, "Hello there");
    session.exp_string("8 tokens").unwrap();
    session.exp_string("seed:").unwrap();
    say(&mut session, "/set temperature 5");
    say(&mut session, "And now?");
    session.exp_string("`temperature`").unwrap();
    say(&mut session, "/set temperature 0");
    say(&mut session, "And now?");
    session.exp_regex("[1-9][0-9]* of them cached").unwrap();
    session.exp_string("seed:").unwrap();
    drop(served);
    say(&mut session, "Are you there?");
    session.exp_string("--local runs the model here").unwrap();
    say(&mut session, "/bye");
    assert_eq!(exit_code(&session), 0);
}
