//! Project chores. `cargo xtask help` lists them.
#![allow(clippy::print_stdout, clippy::print_stderr, reason = "a command-line tool talks to its terminal")]

mod checks;
mod clients;
mod fetch;
mod fuzz_http;
mod llama_server_tests;
mod load;
mod minilm;
mod page;
mod peers;
mod routers;
mod server;
mod synth;
mod tidy;
mod workspace;

use std::process::ExitCode;

use clap::{Parser, Subcommand};

/// Smelt's project chores.
#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
struct Arguments {
    #[command(subcommand)]
    chore: Chore,
}

#[derive(Subcommand)]
enum Chore {
    /// All that a change must pass on any machine: tidy, fetch, then every test.
    Test,
    /// What the continuous integration runs: formatting, clippy and docs with warnings denied, `test`, `page-test`, `routers`.
    Ci,
    /// Check the rules that the compiler does not know: crate edges, file sizes, registrations, texts.
    Tidy,
    /// Get the real models, vocabularies and templates that tests read, into target/fetched.
    Fetch,
    /// Ask `smelt serve` by the published clients of OpenAI (Python and JavaScript), Anthropic and Ollama.
    Clients,
    /// Use the chat page of `smelt serve` in a headless Chromium, with screenshots in target/page.
    PageTest(page::Arguments),
    /// Ask two `smelt serve` through published routers: vllm-router, sglang-router, smg.
    Routers(routers::Arguments),
    /// Make requests from /openapi.json, right and wrong ones: no answer may be a 5xx.
    FuzzHttp,
    /// Run llama.cpp's own tests of its server against Smelt, and tell the share that passes.
    LlamaServerTests(llama_server_tests::Arguments),
    /// Run Smelt beside llama.cpp and ik_llama.cpp on this machine: speed, perplexity, start-up, memory.
    BenchPeers(peers::Arguments),
    /// Load `smelt serve`, and llama.cpp's server beside it, with many streaming clients.
    Load(load::Arguments),
    /// Write a model file with the exact shapes of a well-known model and random weights.
    SynthModel(synth::Arguments),
}

fn main() -> ExitCode {
    let done = match Arguments::parse().chore {
        Chore::Test => checks::test(),
        Chore::Ci => checks::ci(),
        Chore::Tidy => tidy::run(),
        Chore::Fetch => fetch::run(),
        Chore::Clients => clients::run(),
        Chore::PageTest(arguments) => page::run(&arguments),
        Chore::Routers(arguments) => routers::run(&arguments),
        Chore::FuzzHttp => fuzz_http::run(),
        Chore::LlamaServerTests(arguments) => llama_server_tests::run(&arguments),
        Chore::BenchPeers(arguments) => peers::run(&arguments),
        Chore::Load(arguments) => load::run(&arguments),
        Chore::SynthModel(arguments) => synth::run(&arguments),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}
