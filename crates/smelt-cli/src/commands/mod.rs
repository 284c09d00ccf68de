//! The commands.

mod completions;
mod list;
mod pull;
mod rm;
mod show;

use anyhow::Result;

use crate::context::Context;

/// What `smelt` can do.
#[derive(Debug, clap::Subcommand)]
pub(crate) enum Command {
    Pull(pull::Args),
    List(list::Args),
    Show(show::Args),
    Rm(rm::Args),
    Completions(completions::Args),
}

impl Command {
    pub(crate) fn run(self, context: &Context) -> Result<()> {
        match self {
            Command::Pull(args) => pull::run(args, context),
            Command::List(args) => list::run(args, context),
            Command::Show(args) => show::run(args, context),
            Command::Rm(args) => rm::run(args, context),
            Command::Completions(args) => completions::run(args),
        }
    }
}
