use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use smelt_checkpoint::GgufWriter;

/// Runs `smelt` with its store in `home` and a plain environment.
fn smelt(home: &Path, args: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_smelt"))
        .args(args)
        .current_dir(home)
        .env("SMELT_HOME", home.join("store"))
        .env_remove("HF_ENDPOINT")
        .output()
        .unwrap()
}

/// The transcript: exit code, standard output, standard error; paths of the test are written as `$DIR`.
fn transcript(home: &Path, args: &[&str]) -> String {
    let output = smelt(home, args);
    let text =
        |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap().replace(home.to_str().unwrap(), "$DIR");
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    format!("exit {}\n{out}{}{err}", output.status.code().unwrap(), if err.is_empty() { "" } else { "---\n" })
}

/// A GGUF file with one tensor.
fn model(path: &Path) {
    let mut writer = GgufWriter::new();
    for (key, value) in
        [("general.architecture", "llama"), ("general.name", "Tiny"), ("general.license", "mit")]
    {
        writer.set(key, value).unwrap();
    }
    writer.set("llama.context_length", 64_u32).unwrap();
    let f32 = smelt_quant::by_name("F32").unwrap();
    writer.tensor("token_embd.weight", f32, &[4, 3]).unwrap();
    let mut tensors = writer.start(Vec::new()).unwrap();
    tensors.append("token_embd.weight", &[0; 48]).unwrap();
    fs::write(path, tensors.finish().unwrap()).unwrap();
}

#[test]
fn an_empty_store_says_how_to_fill_it() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(
        transcript(home.path(), &["list"]),
        "exit 0\nNo model is installed; `smelt list --available` shows what can be pulled.\n"
    );
    assert_eq!(
        transcript(home.path(), &["list", "--json"]),
        "exit 0\n{\n  \"models\": [],\n  \"problems\": []\n}\n"
    );
    assert!(!home.path().join("store").exists());
    let available = transcript(home.path(), &["list", "--available"]);
    assert!(available.contains("\nsmollm2:135m  98.36 MB   Q4_1    Apache-2.0"), "{available}");
}

#[test]
fn a_local_file_is_used_in_place() {
    let home = tempfile::tempdir().unwrap();
    assert_eq!(
        transcript(home.path(), &["pull", "./m.gguf"]),
        "exit 1\n---\nerror: there is no file ./m.gguf\n"
    );
    model(&home.path().join("m.gguf"));
    assert_eq!(
        transcript(home.path(), &["pull", "./m.gguf"]),
        "exit 0\n./m.gguf is a file, and is used where it is\n"
    );
    assert_eq!(
        transcript(home.path(), &["rm", "./m.gguf"]),
        "exit 1\n---\nerror: ./m.gguf is a file of yours, which the store never removes\n"
    );
}

#[test]
fn show_describes_a_file() {
    let home = tempfile::tempdir().unwrap();
    let file = home.path().join("m.gguf");
    model(&file);
    let size = fs::metadata(&file).unwrap().len();
    assert_eq!(
        transcript(home.path(), &["show", "./m.gguf", "--tensors"]),
        format!(
            "exit 0\n\
             model             ./m.gguf\n\
             name              Tiny\n\
             architecture      llama\n\
             parameters        12\n\
             context length    64\n\
             embedding length  unknown\n\
             layers            unknown\n\
             vocabulary        unknown\n\
             chat template     none in the file\n\
             licence           mit\n\
             size              {size} B\n\
             cache             unknown\n\
             file              ./m.gguf\n\
             \n\
             format  tensors  parameters  bytes\n\
             F32     1        12          48 B\n\
             \n\
             tensor             format  shape  bytes\n\
             token_embd.weight  F32     4 x 3  48\n"
        )
    );
    let output = smelt(home.path(), &["show", "./m.gguf", "--json", "--metadata"]);
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(json["metadata"]["llama.context_length"], 64);
    assert_eq!(json["formats"]["F32"]["parameters"], 12);
    let mut writer = GgufWriter::new();
    writer.set("general.architecture", "llama").unwrap();
    writer.set("general.name", "Red\u{1b}[31m\nfile /etc/passwd\u{9b}2J").unwrap();
    fs::write(&file, writer.start(Vec::new()).unwrap().finish().unwrap()).unwrap();
    let hostile = transcript(home.path(), &["show", "./m.gguf"]);
    assert!(hostile.contains("Red\\u{1b}[31m\\nfile /etc/passwd\\u{9b}2J\n"), "{hostile}");
    fs::write(&file, "GGUF").unwrap();
    let broken = transcript(home.path(), &["show", "./m.gguf"]);
    assert!(broken.starts_with("exit 1\n---\nerror: cannot show ./m.gguf: "), "{broken}");
}

#[test]
fn names_that_are_unknown_or_wrong_get_a_hint() {
    let home = tempfile::tempdir().unwrap();
    for command in ["pull", "show", "rm"] {
        assert_eq!(
            transcript(home.path(), &[command, "smolm2"]),
            "exit 1\n---\nerror: no model is named \"smolm2\"\nhint: did you mean smollm2:135m?\n"
        );
    }
    assert_eq!(
        transcript(home.path(), &["show", "smollm2"]),
        "exit 1\n---\nerror: smollm2 is not installed\nhint: `smelt pull smollm2` fetches it\n"
    );
    let wrong = transcript(home.path(), &["pull", "ftp://example.org/m.gguf"]);
    assert!(wrong.starts_with("exit 2\n---\nerror: invalid value"), "{wrong}");
    assert!(
        wrong.contains("only https:// and http:// addresses can be pulled\nhint: write NAME:TAG"),
        "{wrong}"
    );
}

#[test]
fn usage_errors_exit_with_2_and_help_with_0() {
    let home = tempfile::tempdir().unwrap();
    assert!(
        transcript(home.path(), &["frobnicate"]).starts_with("exit 2\n---\nerror: unrecognized subcommand")
    );
    assert!(transcript(home.path(), &["pull"]).starts_with("exit 2\n---\n"));
    assert!(transcript(home.path(), &[]).starts_with("exit 2\n---\nRuns language models on this machine"));
    let help = transcript(home.path(), &["--help"]);
    assert!(help.starts_with("exit 0\nRuns language models on this machine"), "{help}");
    for word in ["pull", "list", "show", "rm", "completions", "SMELT_HOME", "HF_ENDPOINT", "HTTPS_PROXY"] {
        assert!(help.contains(word), "{word}: {help}");
    }
    assert!(transcript(home.path(), &["--version"]).starts_with("exit 0\nsmelt "));
}

#[test]
fn a_failed_pull_names_every_source_and_json_streams_events() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_smelt"))
        .args(["pull", "--json", "smollm2"])
        .env("SMELT_HOME", home.path())
        .env("SMELT_PYTHON", "/nonexistent/python3")
        .env("HF_ENDPOINT", "gopher://localhost")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let events: Vec<serde_json::Value> =
        String::from_utf8(output.stdout).unwrap().lines().map(|l| serde_json::from_str(l).unwrap()).collect();
    assert!(events.iter().any(|e| e["event"] == "source_failed"), "{events:?}");
    let error = String::from_utf8(output.stderr).unwrap();
    assert!(error.contains("cannot run /nonexistent/python3"), "{error}");
    assert!(error.contains("from hf:QuantFactory/"), "{error}");
    let last = events.last().unwrap();
    assert_eq!((&last["event"], &last["exit_code"]), (&"error".into(), &1.into()));
}

#[test]
fn a_failed_pull_says_everything_once() {
    let home = tempfile::tempdir().unwrap();
    let output = Command::new(env!("CARGO_BIN_EXE_smelt"))
        .args(["pull", "smollm2"])
        .env("SMELT_HOME", home.path())
        .env("SMELT_PYTHON", "/nonexistent/python3")
        .env("HF_ENDPOINT", "gopher://localhost")
        .output()
        .unwrap();
    let error = String::from_utf8(output.stderr).unwrap();
    for once in ["cannot run /nonexistent/python3", "could not be fetched", "error:"] {
        assert_eq!(error.matches(once).count(), 1, "{once}: {error}");
    }
    let refused = transcript(home.path(), &["pull", "http://example.org/m.gguf"]);
    assert!(
        refused.starts_with("exit 1\n---\nerror: http://example.org/m.gguf is not protected"),
        "{refused}"
    );
    assert!(refused.contains("hint: use https://, or add the SHA-256"), "{refused}");
}

#[test]
fn completions_are_printed_for_a_shell() {
    let home = tempfile::tempdir().unwrap();
    for shell in ["bash", "zsh", "fish"] {
        let script = transcript(home.path(), &["completions", shell]);
        assert!(script.starts_with("exit 0\n") && script.contains("pull"), "{shell}");
    }
}

/// An installed model as the store leaves it, without a download.
#[test]
fn an_installed_model_is_listed_shown_and_removed() {
    let home = tempfile::tempdir().unwrap();
    let store = home.path().join("store");
    fs::create_dir_all(store.join("blobs")).unwrap();
    fs::create_dir_all(store.join("manifests/tiny")).unwrap();
    let sha = "0".repeat(64);
    let blob = store.join("blobs").join(format!("sha256-{sha}"));
    model(&blob);
    let size = fs::metadata(&blob).unwrap().len();
    let manifest = format!(
        r#"{{"version": 1, "reference": "tiny:1", "source": "a test", "files": [{{"name": "m.gguf", "size": {size},
            "sha256": "{sha}", "etag": null}}], "licence": "MIT", "family": null, "format": "F32", "pulled": 0}}"#
    );
    fs::write(store.join("manifests/tiny/1.json"), &manifest).unwrap();
    let listed = transcript(home.path(), &["list"]);
    assert!(listed.contains(&format!("tiny:1  {size} B  F32     MIT")), "{listed}");
    let shown = transcript(home.path(), &["show", "tiny"]);
    assert!(
        shown.contains("licence           MIT\n") && shown.contains("source            a test\n"),
        "{shown}"
    );
    fs::write(store.join("manifests/tiny/1.json"), "{").unwrap();
    let damaged = transcript(home.path(), &["list"]);
    assert!(
        damaged.contains("warning: the installation of tiny:1 is damaged ($DIR/store/manifests/"),
        "{damaged}"
    );
    fs::write(store.join("manifests/tiny/1.json"), &manifest).unwrap();
    // What can't be removed keeps nothing else from it.
    let removed = transcript(home.path(), &["rm", "smollm2", "./m.gguf", "tiny:1"]);
    let errors = "error: smollm2:135m is not installed\nhint: `smelt pull smollm2:135m` fetches it\n\
                  error: ./m.gguf is a file of yours, which the store never removes\n";
    assert_eq!(removed, format!("exit 1\nremoved tiny:1 ({size} B freed)\n---\n{errors}"));
    assert!(!blob.exists());
}
