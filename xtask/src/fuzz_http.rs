//! `fuzz-http`: schemathesis makes requests from `/openapi.json`, right and wrong ones, and no answer may be a 5xx.

use anyhow::Result;

use crate::clients::install;
use crate::server::{self, Server};
use crate::{fetch, workspace};

/// What makes the requests.
const SCHEMATHESIS: &str = "schemathesis==4.32.0";
const SCRIPT: &str = "tests/clients/fuzz_http.py";
/// A model whose steps cost nothing.
const MODEL: &str = "tests/data/tiny/llama3/llama3-f16.gguf";
/// Tokens of a context, so that no answer is long.
const CONTEXT: &str = "128";
const SECONDS: &str = "60";

pub(crate) fn run() -> Result<()> {
    let folder = workspace::target().join("fuzz-http");
    let packages = install(&folder, &[SCHEMATHESIS.as_ref()], SCHEMATHESIS)?;
    let smelt = server::build_smelt()?;
    let mut command = server::smelt(&smelt, &workspace::root().join(MODEL));
    let server = Server::start(command.args(["--ctx", CONTEXT]), true)?;
    let mut python = fetch::python()?;
    python.env("PYTHONPATH", packages).env("NO_PROXY", "127.0.0.1");
    workspace::run(python.arg(workspace::root().join(SCRIPT)).args([&server.address, "model", SECONDS]))
}
