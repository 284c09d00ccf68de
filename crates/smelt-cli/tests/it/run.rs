use std::io::{BufRead, Read, Write};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;
use smelt_checkpoint::Checkpoint;
use smelt_testdata::{Npz, json};

use crate::support::{Done, changed, done, llama, run, smelt};

/// Raw and greedy on the exact backend; the flags behind `flags` may change that.
fn raw(flags: &[&str], prompt: &str) -> Done {
    let model = llama();
    let fixed =
        ["run", model.to_str().unwrap(), "--raw", "--temp", "0", "--backend", "reference", "--ignore-eos"];
    run(&[&fixed, flags, &["--", prompt]].concat(), "")
}

fn prompt() -> String {
    json("tiny/llama/ref.json")["prompt"].as_str().unwrap().to_owned()
}

/// The reference's continuation of [`prompt`].
fn continuation() -> String {
    let reference = Npz::open("tiny/llama/ref.npz");
    let last = *reference.i32("input_ids").values.last().unwrap() as u32;
    let tokenizer = smelt_engine::tokenizer_of(&Checkpoint::open(&llama()).unwrap(), false).unwrap();
    let mut stream = tokenizer.stream_after(Some(last), false);
    let mut text: String = reference.i32("greedy").values.iter().map(|id| stream.push(*id as u32)).collect();
    text.push_str(&stream.finish());
    text
}

#[test]
fn raw_prints_the_continuation_and_nothing_else() {
    let done = raw(&["--max-tokens", "16"], &prompt());
    assert_eq!(done.err, "");
    assert_eq!(done.ok(), continuation());
}

#[test]
fn a_piped_prompt_is_read_as_it_is() {
    let model = llama();
    let args = [
        "run",
        model.to_str().unwrap(),
        "--raw",
        "--temp",
        "0",
        "--backend",
        "reference",
        "-n",
        "16",
        "--ignore-eos",
    ];
    assert_eq!(run(&args, &prompt()).ok(), continuation());
    let both = [&args[..], &["The", "quick"]].concat();
    assert_eq!(run(&both, "brown").ok(), raw(&["-n", "16"], "The quick\nbrown").ok());
}

#[test]
fn an_answer_ends_with_a_line_feed() {
    let model = llama();
    let answer = run(&["run", model.to_str().unwrap(), "--seed", "7", "-n", "5", "Hello"], "").ok();
    assert!(answer.ends_with('\n'), "{answer:?}");
    // The same seed gives the same answer, whatever the number of threads.
    let again = run(&["run", model.to_str().unwrap(), "--seed", "7", "-n", "5", "-t", "1", "Hello"], "").ok();
    assert_eq!(answer, again);
}

#[test]
fn nothing_of_a_stop_string_is_printed() {
    let full = continuation();
    let chars: Vec<char> = full.chars().collect();
    let stop: String = chars[chars.len() / 2..][..3].iter().collect();
    let before = &full[..full.find(&stop).unwrap()];
    let events = raw(&["-n", "16", "--json", "--stop", "no such text", "--stop", &stop], &prompt()).events();
    assert_eq!(text_of(&events), before);
    let end = events.last().unwrap();
    assert_eq!((&end["finish_reason"], &end["stop"]), (&Value::from("stop"), &Value::from(stop)));
}

fn text_of(events: &[Value]) -> String {
    events.iter().filter(|e| e["event"] == "text").map(|e| e["text"].as_str().unwrap()).collect()
}

#[test]
fn json_tells_the_whole_story() {
    let events = raw(&["-n", "16", "--json", "--seed", "3"], &prompt()).events();
    let (start, end) = (&events[0], events.last().unwrap());
    assert_eq!((&start["event"], &start["seed"]), (&Value::from("start"), &Value::from(3)));
    assert_eq!(start["architecture"], "llama");
    assert!(start["backend"].as_str().unwrap().starts_with("reference"), "{start}");
    let prompt_tokens = Npz::open("tiny/llama/ref.npz").i32("input_ids").values.len();
    assert!(events.iter().any(|e| e["event"] == "prompt" && e["done"] == prompt_tokens), "{events:?}");
    assert_eq!(text_of(&events), continuation());
    assert_eq!((&end["event"], &end["finish_reason"]), (&Value::from("end"), &Value::from("length")));
    assert_eq!(end["detail"], "max_tokens");
    let usage = serde_json::json!({
        "prompt_tokens": prompt_tokens, "cached_tokens": 0, "completion_tokens": 16,
        "total_tokens": prompt_tokens + 16,
    });
    assert_eq!(end["usage"], usage);
    assert!(end["timings"]["decode_per_second"].as_f64().unwrap() > 0.0);
}

#[test]
fn a_prompt_that_is_too_long_is_cut_and_that_is_said() {
    let done = raw(&["--ctx", "40", "-n", "8"], &prompt());
    assert!(done.err.contains("tokens at the prompt's beginning left out"), "{done:?}");
    done.ok();
    let events = raw(&["--ctx", "40", "-n", "8", "--json"], &prompt()).events();
    let prompt_tokens = Npz::open("tiny/llama/ref.npz").i32("input_ids").values.len();
    let cut = events.iter().find(|e| e["event"] == "context").unwrap();
    assert_eq!(
        (cut["kept_tokens"].as_u64(), cut["full_tokens"].as_u64()),
        (Some(32), Some(prompt_tokens as u64))
    );
    raw(&["--ctx", "40", "-n", "8", "--strict-context"], &prompt()).failed(1, "the context holds 40");
    let strict = raw(&["--ctx", "40", "-n", "8", "--strict-context", "--json"], &prompt());
    assert_eq!((&strict.error_event()["event"], strict.code), (&Value::from("error"), Some(1)));
    // A question can't be cut in the middle.
    let model = llama();
    run(&["run", model.to_str().unwrap(), "--ctx", "40", "-n", "8", &prompt()], "").failed(1, "--ctx");
}

#[test]
fn what_can_not_be_is_a_usage_error() {
    let model = llama();
    let model = model.to_str().unwrap();
    for (flags, message) in [
        (&["--temp", "200"][..], "between 0 and 100"),
        (&["--temp", "-1"], "between 0 and 100"),
        (&["--top-p", "nan"], "between 0 and 1"),
        (&["--threads", "0"], "--threads"),
        (&["--logit-bias", "3"], "ID=BIAS"),
        (&["--mirostat", "1"], "--mirostat"),
        (&["--special"], "--raw"),
        (&["--raw", "--system", "x"], "--system"),
        (&["--stop", ""], "--stop"),
        (&["--seed", "-1"], "a seed is a whole number from 0"),
        (&["--max-tokens", "-1"], "invalid value '-1' for '--max-tokens"),
        (&["--top-k", "-1"], "invalid value '-1' for '--top-k"),
        (&["--logit-bias", "512=1"], "vocabulary has only 512 tokens"),
        (&["--regex", "("], "unclosed group"),
        (&["--regex", "a", "--grammar", "x"], "--grammar"),
    ] {
        run(&[&["run", model, "x"], flags].concat(), "").failed(2, message);
    }
    run(&["run", model], "").failed(2, "there is no prompt");
    run(&["run", model], "\n").failed(2, "there is no prompt");
    run(&["run", model, ""], "").failed(2, "there is no prompt");
    run(&["run", "no/such.gguf", "x"], "").failed(1, "there is no file");
    // The raw one begins with BOS, where the model has one.
    run(&["run", model, "--raw", "-n", "1", ""], "").ok();
    let home = tempfile::tempdir().unwrap();
    let without = changed(home.path(), &[("tokenizer.ggml.add_bos_token", false.into())]);
    run(&["run", &without, "--raw", ""], "").failed(2, "the prompt is empty");
}

#[test]
fn answers_are_held_to_a_grammar() {
    let folder = tempfile::tempdir().unwrap();
    let write = |name: &str, text: &str| {
        let file = folder.path().join(name);
        std::fs::write(&file, text).unwrap();
        file.into_os_string().into_string().unwrap()
    };
    let model = llama();
    let base = ["run", model.to_str().unwrap(), "--seed", "1", "--max-tokens", "40"];
    let ask = |flags: &[&str], piped: &str| run(&[&base, flags, &["--", "Is it?"]].concat(), piped);
    let answers = ["yes\n", "no\n"];
    assert!(answers.contains(&ask(&["--regex", "yes|no"], "").ok().as_str()));
    let grammar = write("words.gbnf", "root ::= \"yes\" | \"no\"");
    assert!(answers.contains(&ask(&["--grammar", &grammar], "").ok().as_str()));
    let schema = r#"{"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"], "additionalProperties": false}"#;
    let file = write("schema.json", schema);
    for answer in [ask(&["--json-schema", &file], ""), ask(&["--json-schema", "-"], schema)] {
        let value: Value = serde_json::from_str(&answer.ok()).unwrap();
        assert!(value["a"].is_boolean(), "{value}");
    }
    ask(&["--json-schema", &write("not.json", r#"{"not": {}}"#)], "").failed(2, "`not` at #");
    ask(&["--json-schema", &write("bad.json", "{")], "").failed(1, "is no valid JSON");
    ask(&["--grammar", "no/such.gbnf"], "").failed(1, "cannot read no/such.gbnf");
}

#[test]
fn with_json_every_error_is_an_event() {
    let model = llama();
    let model = model.to_str().unwrap();
    for (args, code, message, hint) in [
        (&["run", model, "--json", "--temp", "x", "y"][..], 2, "invalid value 'x' for '--temp", None),
        (&["run", model, "--json", "--temp", "200", "y"], 2, "between 0 and 100", None),
        (&["run", model, "--json"], 2, "there is no prompt", None),
        (&["pull", "--json", "smolm2"], 1, "no model is named", Some("did you mean smollm2:135m?")),
        (&["show", "--json", "no/such.gguf"], 1, "there is no file", None),
        (&["nonsense", "--json"], 2, "unrecognized subcommand 'nonsense'", None),
    ] {
        let done = run(args, "");
        let event = done.error_event();
        assert_eq!((&event["event"], done.code), (&Value::from("error"), Some(code)), "{done:?}");
        assert_eq!(
            (&event["exit_code"], &event["hint"]),
            (&Value::from(code), &Value::from(hint)),
            "{done:?}"
        );
        let said = event["message"].as_str().unwrap();
        assert!(said.contains(message) && !said.contains("Usage"), "{done:?}");
        assert!(done.err.contains(message), "{done:?}");
    }
    // Words behind -- are no flags.
    assert_eq!(run(&["run", "no/such.gguf", "--", "--json"], "").out, "");
}

#[test]
fn bos_comes_once() {
    let usage = |flags: &[&str], text: &str| {
        let done = raw(&[&["-n", "1", "--json"], flags].concat(), text);
        let said = done.err.contains("begins with BOS");
        (done.events().last().unwrap()["usage"]["prompt_tokens"].clone(), said)
    };
    let (plain, said) = usage(&[], "The quick");
    assert!(!said);
    assert_eq!(usage(&["--special"], "<s>The quick"), (plain, true));
    let model = llama();
    let ids = run(&["tokenize", model.to_str().unwrap(), "--ids", "--special", "<s>a"], "");
    assert!(ids.err.contains("begins with BOS"), "{ids:?}");
    let plain = run(&["tokenize", model.to_str().unwrap(), "--ids", "a"], "").ok();
    assert_eq!(ids.ok(), plain);
}

#[test]
fn a_broken_template_hinders_chats_only() {
    let home = tempfile::tempdir().unwrap();
    let model = changed(home.path(), &[("tokenizer.chat_template", "{% if %}".into())]);
    run(&["run", &model, "--raw", "-n", "1", "a"], "").ok();
    run(&["tokenize", &model, "a"], "").ok();
    run(&["bench", &model, "-p", "4", "-n", "0", "-r", "1"], "").ok();
    let done = run(&["run", &model, "--json", "a"], "");
    assert!(done.error_event()["hint"].as_str().unwrap().contains("--raw"), "{done:?}");
    done.failed(1, "m.gguf: chat template, line 1: ");
    run(&["tokenize", &model, "--chat", "a"], "").failed(1, "chat template, line 1: ");
}

#[test]
fn a_full_context_is_told_from_a_long_answer() {
    let done = raw(&["--ctx", "16", "--json"], "a");
    assert!(done.err.contains("the context is full: 16 tokens; --ctx"), "{done:?}");
    let end = done.events().pop().unwrap();
    assert_eq!(
        (&end["finish_reason"], &end["detail"]),
        (&Value::from("length"), &Value::from("context_full"))
    );
}

#[test]
fn a_context_beyond_the_training_is_warned_of() {
    let done = raw(&["--ctx", "100000", "-n", "1"], "a");
    assert!(done.err.contains("the context of 100000 tokens is longer than the "), "{done:?}");
    assert_eq!(raw(&["--ctx", "100000", "-n", "1", "--quiet"], "a").err, "");
}

#[test]
fn a_model_recommends_and_flags_decide() {
    let home = tempfile::tempdir().unwrap();
    let greedy = |flags: &[&str], keys: &[(&str, smelt_checkpoint::Value)]| {
        let model = changed(home.path(), keys);
        let fixed = ["run", &model, "--raw", "--backend", "reference", "--ignore-eos", "-n", "16"];
        run(&[&fixed[..], flags].concat(), &prompt())
    };
    let recommended = greedy(&[], &[("general.sampling.temp", 0.0_f32.into())]);
    assert_eq!(recommended.ok(), continuation());
    let hot = [("general.sampling.temp", 50.0_f32.into()), ("general.sampling.top_p", 7.0_f32.into())];
    let done = greedy(&["--temp", "0"], &hot);
    assert!(done.err.contains("general.sampling.top_p of the model file is left out"), "{done:?}");
    assert_eq!(done.ok(), continuation());
    assert_ne!(greedy(&["--seed", "1"], &hot).ok(), continuation());
    let shown = run(&["show", home.path().join("m.gguf").to_str().unwrap()], "").ok();
    assert!(shown.contains("\nsampling          temperature 50\n"), "{shown}");
}

#[test]
fn a_mark_of_the_byte_order_is_no_text() {
    let model = llama();
    let args = ["tokenize", model.to_str().unwrap(), "--ids"];
    assert_eq!(run(&args, "\u{feff}The quick").ok(), run(&args, "The quick").ok());
}

#[test]
fn a_silent_input_is_said_to_be_waited_for() {
    let home = tempfile::tempdir().unwrap();
    let mut command = smelt(home.path());
    let mut child =
        command.arg("run").arg(llama()).args(["--raw", "-n", "1"]).stdin(Stdio::piped()).spawn().unwrap();
    let mut said = String::new();
    std::io::BufReader::new(child.stderr.as_mut().unwrap()).read_line(&mut said).unwrap();
    assert!(said.starts_with("waiting for text on standard input"), "{said:?}");
    child.stdin.take().unwrap().write_all(b"a").unwrap();
    done(child).ok();
}

#[test]
fn every_sampling_flag_is_taken() {
    let flags = [
        "--temp",
        "0.7",
        "--top-k",
        "20",
        "--top-p",
        "0.9",
        "--min-p",
        "0.01",
        "--typical",
        "0.95",
        "--top-n-sigma",
        "3",
        "--repeat-penalty",
        "1.1",
        "--repeat-last-n",
        "-1",
        "--presence-penalty",
        "0.1",
        "--frequency-penalty",
        "-0.1",
        "--dry-multiplier",
        "0.8",
        "--dry-base",
        "1.5",
        "--dry-allowed-length",
        "3",
        "--dry-last-n",
        "all",
        "--dry-sequence-breaker",
        "\n",
        "--xtc-probability",
        "0.1",
        "--xtc-threshold",
        "0.2",
        "--mirostat",
        "2",
        "--mirostat-tau",
        "4",
        "--mirostat-eta",
        "0.2",
        "--logit-bias",
        "2=-inf",
        "--logit-bias",
        "42=1.5",
        "--seed",
        "5",
        "--batch",
        "16",
        "--cache-type",
        "f32",
        "--isa",
        "scalar",
        "--numa",
        "off",
        "--repack",
        "on",
    ];
    let first = raw(&[&flags[..], &["-n", "8"]].concat(), "The quick").ok();
    assert_eq!(first, raw(&[&flags[..], &["-n", "8"]].concat(), "The quick").ok());
}

/// As in llama.cpp: one token always stays.
#[test]
fn a_top_p_of_0_takes_the_likeliest() {
    assert_eq!(raw(&["-n", "16", "--temp", "1", "--top-p", "0"], &prompt()).ok(), continuation());
}

#[test]
fn biases_force_and_ban_a_token() {
    let tokenizer = smelt_engine::tokenizer_of(&Checkpoint::open(&llama()).unwrap(), false).unwrap();
    let token = Npz::open("tiny/llama/ref.npz").i32("greedy").values[1] as u32;
    let piece = String::from_utf8(tokenizer.token_bytes(token, false).unwrap().to_vec()).unwrap();
    let force = format!("{token}=100");
    assert_eq!(raw(&["-n", "3", "--logit-bias", &force], &prompt()).ok(), piece.repeat(3));
    let ban = format!("{token}=-inf");
    let banned = raw(&["-n", "3", "--logit-bias", &force, "--logit-bias", &ban], &prompt()).ok();
    assert!(!banned.contains(&piece), "{banned:?}");
}

/// A run that would take hours.
fn endless(home: &std::path::Path) -> Command {
    let mut command = smelt(home);
    command.arg("run").arg(llama());
    command.args([
        "--raw",
        "--ignore-eos",
        "--ctx",
        "1000000",
        "--quiet",
        "--backend",
        "reference",
        "The quick",
    ]);
    command
}

#[test]
fn chat_is_another_word_for_run() {
    let model = llama();
    let answer = |word: &str| {
        run(
            &[word, model.to_str().unwrap(), "--local", "--raw", "--temp", "0", "--max-tokens", "4", "Hi"],
            "",
        )
        .ok()
    };
    assert_eq!(answer("chat"), answer("run"));
}

#[test]
fn a_reader_that_leaves_ends_the_run_quietly() {
    let home = tempfile::tempdir().unwrap();
    let mut child = endless(home.path()).spawn().unwrap();
    let mut some = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    drop(child.stdout.take());
    let done = done(child);
    assert_eq!((done.code, done.err.as_str()), (Some(0), ""), "{done:?}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_stops_the_answer_with_130() {
    let home = tempfile::tempdir().unwrap();
    let mut child = endless(home.path()).arg("--verbose").spawn().unwrap();
    let mut some = [0; 8];
    child.stdout.as_mut().unwrap().read_exact(&mut some).unwrap();
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let done = done(child);
    assert_eq!(done.code, Some(130), "{done:?}");
    // It ended in order: what comes behind an answer still came.
    assert!(done.err.contains("tokens/s"), "{done:?}");
}

/// A prompt that takes minutes on the exact backend.
#[cfg(unix)]
#[test]
fn ctrl_c_stops_a_prompt_with_130() {
    let home = tempfile::tempdir().unwrap();
    let mut command = endless(home.path());
    let mut child = command.args(["--batch", "1024", "--verbose"]).stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all("to be or not to be ".repeat(3000).as_bytes()).unwrap();
    // It listens once the model is loaded.
    std::thread::sleep(Duration::from_millis(1500));
    assert!(child.try_wait().unwrap().is_none(), "the prompt is too short");
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().unwrap().success());
    let start = Instant::now();
    let done = done(child);
    assert_eq!((done.code, done.out.as_str()), (Some(130), ""), "{done:?}");
    // It ended in order here too.
    assert!(done.err.contains("0 of them cached"), "{done:?}");
    assert!(start.elapsed() < Duration::from_secs(10), "{:?}", start.elapsed());
}

#[test]
fn verbose_tells_the_speeds() {
    let model = llama();
    let done = run(
        &["run", model.to_str().unwrap(), "--verbose", "--raw", "--ignore-eos", "-n", "8", "-t", "1", "a"],
        "",
    );
    for part in [
        "prompt:",
        "first token: after",
        "answer:      8 tokens; ",
        "GB/s of the",
        "backend:     cpu (",
        "1 thread",
        "seed:",
    ] {
        assert!(done.err.contains(part), "{part:?} is missing: {done:?}");
    }
}

#[test]
fn texts_become_a_line_each() {
    let model = smelt_testdata::data("bert/bert-f16.gguf");
    let args = ["embed", model.to_str().unwrap(), "--threads", "1"];
    let given = run(&[&args[..], &["a fish", "a cat"]].concat(), "").ok();
    assert_eq!(run(&args, "a fish\na cat\n").ok(), given);
    let line = |line: &str| serde_json::from_str::<Vec<f32>>(line).unwrap();
    assert_eq!(given.lines().map(|text| line(text).len()).collect::<Vec<_>>(), [48, 48]);
    let events = run(&[&args[..], &["--json", "--dimensions", "3", "a fish", "a cat"]].concat(), "").events();
    assert_eq!((&events[1]["index"], &events[1]["tokens"]), (&1.into(), &4.into()));
    assert_eq!(events[1]["embedding"].as_array().unwrap().len(), 3);
    // Of each token, raw.
    let states =
        run(&[&args[..], &["--pooling", "none", "--dimensions", "3", "a fish", "a cat"]].concat(), "").ok();
    let states = states.lines().map(|line| serde_json::from_str::<Vec<Vec<f32>>>(line).unwrap());
    assert_eq!(states.map(|text| (text.len(), text[0].len())).collect::<Vec<_>>(), [(4, 3), (4, 3)]);
    assert_ne!(run(&[&args[..], &["--pooling", "mean", "a fish", "a cat"]].concat(), "").ok(), given);
    assert_eq!(run(&[&args[..], &["--pooling", "cls", "a fish", "a cat"]].concat(), "").ok(), given);
    run(&[&args[..], &["--pooling", "rank", "a"]].concat(), "").failed(2, "none, mean, cls, last");
    run(&[&args[..], &["--dimensions", "49", "a"]].concat(), "").failed(2, "embeddings have 48 values");
    run(&["run", model.to_str().unwrap(), "a"], "").failed(1, "can't generate text");
}
