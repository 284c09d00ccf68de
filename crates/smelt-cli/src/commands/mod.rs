//! The commands.

mod bench;
mod completions;
mod config;
mod eval;
mod list;
mod load;
mod prompt;
mod pull;
mod rm;
mod run;
mod serve;
mod show;
mod tokenize;

pub(crate) use load::spell_out;

use anyhow::Result;

use crate::context::Context;

/// What `smelt` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    // The largest by far, and clap makes it once.
    Run(Box<run::Args>),
    Serve(Box<serve::Args>),
    Pull(pull::Args),
    List(list::Args),
    Show(show::Args),
    Rm(rm::Args),
    Tokenize(tokenize::Args),
    Bench(bench::Args),
    Eval(eval::Args),
    Config(config::Args),
    Completions(completions::Args),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        match self {
            Command::Run(args) => run::run(&args, context),
            Command::Serve(args) => serve::run(&args, context),
            Command::Pull(args) => pull::run(args, context),
            Command::List(args) => list::run(args, context),
            Command::Show(args) => show::run(&args, context),
            Command::Rm(args) => rm::run(args, context),
            Command::Tokenize(args) => tokenize::run(&args, context),
            Command::Bench(args) => bench::run(&args, context),
            Command::Eval(args) => eval::run(args, context),
            Command::Config(args) => config::run(&args, context),
            Command::Completions(args) => completions::run(args),
        }
    }
}
