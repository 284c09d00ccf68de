//! The commands.

mod bench;
mod completions;
mod config;
mod daemon;
mod embed;
mod eval;
mod list;
mod load;
mod logs;
mod prompt;
mod ps;
mod pull;
mod rm;
mod run;
mod serve;
mod show;
mod stop;
mod tokenize;

pub(crate) use load::spell_out;

use anyhow::Result;

use crate::context::Context;

/// What `smelt` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    // The largest by far, and clap makes it once.
    #[command(visible_alias = "chat")]
    Run(Box<run::Args>),
    Serve(Box<serve::Args>),
    Ps(ps::Args),
    Stop(stop::StopArgs),
    Restart(stop::RestartArgs),
    Logs(logs::Args),
    Pull(pull::Args),
    List(list::Args),
    Show(show::Args),
    Rm(rm::Args),
    Embed(embed::Args),
    Tokenize(tokenize::Args),
    Bench(bench::Args),
    Eval(eval::Args),
    Config(config::Args),
    Completions(completions::Args),
    #[command(hide = true)]
    Daemon(daemon::Args),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        match self {
            Command::Run(args) => run::run(&args, context),
            Command::Serve(args) => serve::run(&args, context),
            Command::Ps(args) => ps::run(&args, context),
            Command::Stop(args) => stop::stop(&args, context),
            Command::Restart(args) => stop::restart(&args, context),
            Command::Logs(args) => logs::run(&args, context),
            Command::Pull(args) => pull::run(args, context),
            Command::List(args) => list::run(args, context),
            Command::Show(args) => show::run(&args, context),
            Command::Rm(args) => rm::run(args, context),
            Command::Embed(args) => embed::run(&args, context),
            Command::Tokenize(args) => tokenize::run(&args, context),
            Command::Bench(args) => bench::run(&args, context),
            Command::Eval(args) => eval::run(args, context),
            Command::Config(args) => config::run(&args, context),
            Command::Completions(args) => completions::run(args),
            Command::Daemon(_) => daemon::run(),
        }
    }
}
