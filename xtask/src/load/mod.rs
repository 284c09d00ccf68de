//! `load`: many streaming clients against `smelt serve`, some of whom go away, send nonsense or read slowly.
//!
//! llama.cpp's server takes turns with it, slice by slice, under the same requests: a shared machine changes its speed
//! within minutes. `docs/benchmarks.md` says how to read the table.

mod client;
mod requests;
mod tally;

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use tokio::task::JoinSet;

use crate::peers::llama_cpp;
use crate::server::{self, Server};
use crate::{fetch, workspace};
use requests::Requests;
use tally::Tally;

/// Options of `load`.
#[derive(clap::Args)]
pub(crate) struct Arguments {
    /// A `smelt` to use instead of building a debug one; speeds need a release build.
    #[arg(long)]
    smelt: Option<PathBuf>,
    /// Also load llama.cpp's server: this program, or one that is built below target/peers.
    #[arg(long, value_name = "BIN")]
    llama_server: Option<Option<PathBuf>>,
    /// The model.
    #[arg(long, default_value = "smollm2", value_parser = MODELS.iter().map(|(name, _)| *name).collect::<Vec<_>>())]
    model: String,
    /// Clients at a time.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u16).range(1..=1024))]
    clients: u16,
    /// Answers that each server computes at once.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u16).range(1..=256))]
    slots: u16,
    /// Minutes for each server.
    #[arg(long, default_value_t = 10.0)]
    minutes: f64,
    /// Seconds of a turn.
    #[arg(long, default_value_t = 30, value_parser = clap::value_parser!(u16).range(1..=600))]
    slice: u16,
    /// Where the requests begin.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

/// Models that can be loaded, and their files as `fetch` brings them.
static MODELS: &[(&str, &str)] =
    &[("smollm2", "SmolLM2-135M-Instruct.Q4_1.gguf"), ("gemma3", "gemma-3-270m-q4_k_m.gguf")];
/// Tokens that a request may have with its answer.
const CONTEXT: u32 = 2048;
/// Bytes that keys and values of a token may take. SmolLM2's take 45 KiB in f16, Gemma's 18.
const TOKEN_BYTES: u32 = 48 << 10;
/// Until a server has loaded its model.
const LOADING: Duration = Duration::from_secs(60);
/// For the last slice's requests, which are cancelled, to end.
const PAUSE: Duration = Duration::from_secs(1);

/// A server under load.
struct Loaded {
    name: &'static str,
    server: Server,
    tally: Rc<RefCell<Tally>>,
}

/// Starts the servers, loads them in turn, and prints what became of the requests.
pub(crate) fn run(arguments: &Arguments) -> Result<()> {
    fetch::run()?;
    let file = MODELS.iter().find(|(name, _)| *name == arguments.model).context("clap checked the name")?.1;
    let model = fetch::model(file);
    let mut servers = vec![Loaded::start("smelt", &mut smelt(arguments, &model)?)?];
    if let Some(program) = &arguments.llama_server {
        servers
            .push(Loaded::start("llama-server", &mut llama_server(arguments, program.as_deref(), &model)?)?);
    }
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(tokio::task::LocalSet::new().run_until(turns(arguments, &servers)))?;
    let tallies: Vec<_> = servers.iter().map(|server| (server.name, server.tally.borrow())).collect();
    let missed = tally::report(&tallies);
    if missed > 0 {
        bail!("{missed} of the bars are missed");
    }
    Ok(())
}

fn smelt(arguments: &Arguments, model: &Path) -> Result<Command> {
    let program = match &arguments.smelt {
        Some(path) => path.clone(),
        None => server::build_smelt()?,
    };
    let tokens = CONTEXT * u32::from(arguments.slots);
    let mut command = server::smelt(&program, model);
    command.args(["--ctx", &CONTEXT.to_string(), "--parallel", &arguments.slots.to_string()]);
    command.args(["--queue", "1024", "--kv-memory", &(tokens * (TOKEN_BYTES >> 10) / 1024).to_string()]);
    Ok(command)
}

fn llama_server(arguments: &Arguments, program: Option<&Path>, model: &Path) -> Result<Command> {
    let program = match program {
        Some(path) => path.to_owned(),
        None => llama_cpp::build(&workspace::target().join("peers"), &["llama-server"])?.join("llama-server"),
    };
    let mut command = Command::new(program);
    command.arg("-m").arg(model).args(["--host", "127.0.0.1", "--port", "0", "--no-ui"]);
    command.args(["-np", &arguments.slots.to_string()]);
    command.args(["-c", &(CONTEXT * u32::from(arguments.slots)).to_string()]);
    Ok(command)
}

impl Loaded {
    fn start(name: &'static str, command: &mut Command) -> Result<Self> {
        eprintln!("load: starting {}", workspace::describe(command));
        Ok(Self { name, server: Server::start(command, false)?, tally: Rc::default() })
    }
}

/// Loads each server for its minutes, slice by slice in turn.
async fn turns(arguments: &Arguments, servers: &[Loaded]) -> Result<()> {
    for loaded in servers {
        let health = client::until_healthy(&loaded.server.address, LOADING).await;
        health.with_context(|| format!("{} is not ready", loaded.name))?;
        loaded.sample();
    }
    let slice = Duration::from_secs(arguments.slice.into());
    let slices = (arguments.minutes * 60.0 / slice.as_secs_f64()).ceil().max(1.0) as u64;
    for turn in 0..slices {
        for loaded in servers {
            eprintln!("load: {} slice {} of {slices}", loaded.name, turn + 1);
            loaded.slice(arguments, turn, slice).await;
            tokio::time::sleep(PAUSE).await;
            loaded.sample();
        }
    }
    Ok(())
}

impl Loaded {
    /// All clients for one slice. What is open at its end is cancelled, and neither complete nor an error.
    async fn slice(&self, arguments: &Arguments, turn: u64, time: Duration) {
        let mut clients = JoinSet::new();
        for number in 0..arguments.clients {
            let requests = Requests::new(arguments.seed, turn, number);
            clients.spawn_local(client::run(self.server.address.clone(), requests, self.tally.clone()));
        }
        // Clients never end by themselves.
        let _ = tokio::time::timeout(time, clients.join_next()).await;
        clients.shutdown().await;
        self.tally.borrow_mut().time += time;
    }

    fn sample(&self) {
        self.tally.borrow_mut().resident.extend(self.server.resident());
    }
}
