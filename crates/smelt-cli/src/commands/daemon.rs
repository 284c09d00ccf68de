//! `smelt daemon`.

use anyhow::Result;

/// Run a model for `smelt serve`, which starts this by itself
///
/// Orders come on standard input and reports go to standard output, a JSON document per line; docs/server.md tells more.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {}

pub(crate) fn run() -> Result<()> {
    Ok(smelt_server::run_daemon()?)
}
