//! Runs the command on tiny models.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};

use smelt_checkpoint::{Checkpoint, GgufWriter, Value};
use smelt_testdata::data;

/// What a command did.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) code: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Done {
    /// Standard output of a command that succeeded.
    pub(crate) fn ok(self) -> String {
        assert_eq!(self.code, Some(0), "{self:?}");
        self.out
    }

    /// Checks the exit code and that standard error says `text`.
    pub(crate) fn failed(self, code: i32, text: &str) {
        assert_eq!(self.code, Some(code), "{self:?}");
        assert!(self.err.contains(text), "{text:?} is not said: {self:?}");
    }

    /// The last line of standard output: the event of an error.
    pub(crate) fn error_event(&self) -> serde_json::Value {
        serde_json::from_str(self.out.lines().last().unwrap_or_default()).expect("a JSON object")
    }

    /// The JSON objects of an event stream.
    pub(crate) fn events(self) -> Vec<serde_json::Value> {
        self.ok().lines().map(|line| serde_json::from_str(line).expect("a JSON object")).collect()
    }
}

/// The command with a store of its own and nothing on standard input.
pub(crate) fn smelt(home: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_smelt"));
    command.env("SMELT_HOME", home.join("store")).env_remove("HF_ENDPOINT").current_dir(home);
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    command
}

/// Runs `smelt` with `args` and `stdin`.
pub(crate) fn run(args: &[&str], stdin: &str) -> Done {
    let home = tempfile::tempdir().unwrap();
    let mut child = smelt(home.path()).args(args).stdin(Stdio::piped()).spawn().unwrap();
    // A command that refuses its arguments reads nothing.
    let _ = child.stdin.take().unwrap().write_all(stdin.as_bytes());
    done(child)
}

/// Waits for a command.
pub(crate) fn done(child: Child) -> Done {
    let output = child.wait_with_output().unwrap();
    Done {
        code: output.status.code(),
        // A test that has read some of it may have left half a character.
        out: String::from_utf8_lossy(&output.stdout).into_owned(),
        err: String::from_utf8(output.stderr).unwrap(),
    }
}

/// The tiny llama with other metadata, as `m.gguf` in `folder`.
pub(crate) fn changed(folder: &Path, keys: &[(&str, Value)]) -> String {
    let good = Checkpoint::open(&llama()).unwrap();
    let mut writer = GgufWriter::new();
    for (key, value) in good.metadata().iter() {
        writer.set(key, value.clone()).unwrap();
    }
    for (key, value) in keys {
        writer.set(key, value.clone()).unwrap();
    }
    for tensor in good.tensors() {
        writer.tensor(&tensor.name, tensor.format, &tensor.shape).unwrap();
    }
    let path = folder.join("m.gguf");
    let mut out = writer.start(std::fs::File::create(&path).unwrap()).unwrap();
    for tensor in good.tensors() {
        out.append(&tensor.name, &good.require(&tensor.name).unwrap().bytes).unwrap();
    }
    out.finish().unwrap();
    path.to_str().unwrap().to_owned()
}

/// The tiny llama whose weights are f32.
pub(crate) fn llama() -> PathBuf {
    data("tiny/llama/llama-f32.gguf")
}
