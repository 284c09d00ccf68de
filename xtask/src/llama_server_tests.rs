//! `llama-server-tests`: llama.cpp's own tests of its server, against Smelt.
//!
//! The tests are read from a checkout and copied into the target folder, where a `conftest.py` of ours stands in place of
//! theirs; docs/llama-server-tests.md has what comes of it.

use std::fs;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde_json::json;
use smelt_checkpoint::{Checkpoint, GgufWriter};

use crate::clients::install;
use crate::{fetch, minilm, server, workspace};

/// What stands in for llama.cpp's parts.
const OURS: &str = "tests/llama-server";
/// A model that stands in for one of its presets: where it is, and keys that a copy of it has besides.
struct StandIn {
    preset: &'static str,
    file: File,
    keys: &'static [(&'static str, Key)],
}

enum File {
    /// Of the repository.
    Data(&'static str),
    /// What `fetch` brings.
    Fetched(&'static str),
}

#[derive(Clone, Copy)]
enum Key {
    Id(u32),
    Text(&'static str),
}

const fn plain(preset: &'static str, file: File) -> StandIn {
    StandIn { preset, file, keys: &[] }
}

/// Marks of a text to be filled in: any tokens do.
const MARKS: &[(&str, Key)] = &[
    ("tokenizer.ggml.fim_pre_token_id", Key::Id(10)),
    ("tokenizer.ggml.fim_suf_token_id", Key::Id(11)),
    ("tokenizer.ggml.fim_mid_token_id", Key::Id(12)),
];
/// A model that is asked in words whether a document is relevant.
const QUESTION: &[(&str, Key)] = &[(
    "tokenizer.chat_template.rerank",
    Key::Text(
        "<|im_start|>user\nQuery: {query}\nDocument: {document}\nIs the document about the query? Answer yes or \
         no.<|im_end|>\n<|im_start|>assistant\n",
    ),
)];

static STAND_INS: &[StandIn] = &[
    plain("tinyllama2", File::Data("tiny/llama/llama-f16.gguf")),
    plain("stories15m_moe", File::Data("tiny/mixtral/mixtral-f16.gguf")),
    plain("bert_bge_small", File::Fetched(minilm::FILE)),
    plain("bert_bge_small_with_fa", File::Fetched(minilm::FILE)),
    StandIn { preset: "tinyllama_infill", file: File::Data("tiny/llama/llama-f16.gguf"), keys: MARKS },
    StandIn {
        preset: "jina_reranker_tiny",
        file: File::Fetched("SmolLM2-135M-Instruct.Q4_1.gguf"),
        keys: QUESTION,
    },
];
/// Where a checkout has the tests, and chat templates that they use.
const TESTS: &str = "tools/server/tests";
const TEMPLATES: &str = "models/templates";
/// Seconds for one test.
const PATIENCE: &str = "60";

/// Where the tests are, and which of them to run.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// llama.cpp's folder `tools/server/tests`.
    #[arg(long)]
    tests: PathBuf,
    /// Files or tests of it, as pytest takes them: `unit/test_basic.py`. All but slow ones otherwise.
    only: Vec<String>,
}

pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    let folder = workspace::target().join("llama-server-tests");
    let requirements = workspace::root().join(OURS).join("requirements.txt");
    let list = fs::read_to_string(&requirements).context("can't read the requirements")?;
    let packages = install(&folder.join("packages"), &["-r".as_ref(), requirements.as_ref()], &list)?;
    let smelt = server::build_smelt()?;
    let checkout = folder.join("llama.cpp");
    if checkout.exists() {
        fs::remove_dir_all(&checkout)?;
    }
    // Tests name templates by a path that leads out of their folder.
    let tests = checkout.join(TESTS);
    copy(&arguments.tests, &tests)?;
    let root = arguments.tests.ancestors().nth(3).context("--tests must be in a checkout")?;
    copy(&root.join(TEMPLATES), &checkout.join(TEMPLATES))?;
    fs::copy(workspace::root().join(OURS).join("conftest.py"), tests.join("conftest.py"))?;
    let models: Result<serde_json::Map<_, _>> = STAND_INS
        .iter()
        .map(|stand_in| Ok((stand_in.preset.to_owned(), json!(stand_in.place(&folder)?))))
        .collect();
    let mut python = fetch::python()?;
    python.current_dir(&tests).env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1,localhost");
    python.env("SMELT", smelt).env("LOCAL_MODELS", serde_json::Value::from(models?).to_string());
    python.env("LLAMA_SERVER_BIN_PATH", workspace::root().join(OURS).join("llama-server"));
    python.args([
        "-m",
        "pytest",
        "-q",
        "--tb=line",
        "-m",
        "not slow",
        "--timeout",
        PATIENCE,
        "-p",
        "no:cacheprovider",
    ]);
    // That some fail is what is to be seen; a run that came to nothing ends otherwise.
    match python.args(&arguments.only).status()?.code() {
        Some(0 | 1) => Ok(()),
        _ => bail!("pytest did not run the tests"),
    }
}

impl StandIn {
    /// Its file, which is written to `folder` if it is a copy.
    fn place(&self, folder: &Path) -> Result<PathBuf> {
        let original = match self.file {
            File::Data(path) => workspace::root().join("tests/data").join(path),
            File::Fetched(name) => fetch::model(name),
        };
        if self.keys.is_empty() {
            return Ok(original);
        }
        let checkpoint = Checkpoint::open(&original)?;
        let mut writer = GgufWriter::new();
        for (key, value) in checkpoint.metadata().iter() {
            writer.set(key, value.clone())?;
        }
        for (key, value) in self.keys {
            match *value {
                Key::Id(id) => writer.set(key, id)?,
                Key::Text(text) => writer.set(key, text)?,
            }
        }
        for tensor in checkpoint.tensors() {
            writer.tensor(&tensor.name, tensor.format, &tensor.shape)?;
        }
        let path = folder.join(format!("{}.gguf", self.preset));
        let mut out = writer.start(BufWriter::new(fs::File::create(&path)?))?;
        for tensor in checkpoint.tensors() {
            out.append(&tensor.name, &checkpoint.require(&tensor.name)?.bytes)?;
        }
        out.finish()?;
        Ok(path)
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from).with_context(|| format!("can't read {}", from.display()))? {
        let entry = entry?;
        let (path, target) = (entry.path(), to.join(entry.file_name()));
        if path.is_dir() {
            copy(&path, &target)?;
        } else {
            fs::copy(&path, &target)?;
        }
    }
    Ok(())
}
