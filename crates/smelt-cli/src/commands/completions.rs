//! `smelt completions`.

use std::io::{self, Write};

use anyhow::Result;
use clap::CommandFactory;
use clap_complete::Shell;

/// Print a shell's completion script
///
/// For bash: smelt completions bash > ~/.local/share/bash-completion/completions/smelt
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The shell
    shell: Shell,
}

pub(crate) fn run(args: Args) -> Result<()> {
    let mut script = Vec::new();
    clap_complete::generate(args.shell, &mut crate::Cli::command(), "smelt", &mut script);
    Ok(io::stdout().lock().write_all(&script)?)
}
