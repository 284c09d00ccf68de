//! The `smelt` command.
//!
//! A command is a module of [`commands`] with an `Args` (its part of the command line) and a
//! `run(args, &Context)`. To add one: write the module, then a line each in `Command` and in `Command::run`.
//! Results go to standard output, everything else (progress, notes, errors) to standard error.

mod commands;
mod config;
mod context;
mod env;
mod given;
mod input;
mod interrupt;
mod log;
mod nearest;
mod output;
#[cfg(test)]
mod packaging;
mod progress;
mod report;
mod servers;
mod wait;

use std::process::ExitCode;

use clap::Parser;

use crate::context::{Context, Global};

/// Runs language models on this machine.
#[derive(Debug, Parser)]
#[command(
    name = "smelt",
    version,
    max_term_width = 100,
    propagate_version = true,
    subcommand_required = true,
    arg_required_else_help = true,
    after_long_help = env::help(),
    long_about = "Runs language models on this machine.\n\n\
        A MODEL is a name of the catalogue (smollm2:135m, or smollm2 for its default tag), a file (./model.gguf), \
        a file on Hugging Face (hf:OWNER/REPO/FILE.gguf, @REVISION may follow), or an https:// address."
)]
struct Cli {
    #[command(flatten)]
    global: Global,
    #[command(subcommand)]
    command: commands::Command,
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse_from(commands::spell_out(std::env::args_os())) {
        Ok(cli) => cli,
        // Help and version come this way too; clap knows which stream and which code (0 or 2) each has.
        Err(error) => {
            let _ = error.print();
            if error.use_stderr() && report::wants_json() {
                report::event(&report::clap_message(&error), None, report::USAGE);
            }
            return ExitCode::from(u8::try_from(error.exit_code()).unwrap_or(report::USAGE));
        }
    };
    let result = interrupt::install()
        .and_then(|()| Context::new(cli.global))
        .and_then(|context| cli.command.run(&context));
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => report::report(&error),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    #[test]
    fn the_command_line_is_sound() {
        super::Cli::command().debug_assert();
    }
}
