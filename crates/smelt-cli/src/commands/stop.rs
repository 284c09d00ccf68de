//! `smelt stop` and `smelt restart`.

use anyhow::{Result, bail};

use super::serve;
use crate::context::Context;
use crate::report::{self, Usage};
use crate::servers::{self, Server, Servers};

/// Which server is meant.
#[derive(Debug, clap::Args)]
pub(crate) struct Which {
    /// The server on this port; needed where several run
    #[arg(long, value_name = "N")]
    port: Option<u16>,
}

impl Which {
    /// The server, if there is one.
    ///
    /// # Errors
    /// [`Usage`] if several are meant; if there is none, and one that can't be talked to may be meant.
    pub(crate) fn find(&self, context: &Context) -> Result<Option<Server>> {
        let Servers { known: mut servers, problems } = servers::running(&context.state)?;
        servers.retain(|server| self.port.is_none_or(|port| server.record.address.port() == port));
        if servers.len() > 1 {
            let list: Vec<String> = servers.iter().map(|server| server.record.url()).collect();
            return Err(
                Usage(format!("several servers run: {}; --port N tells which", list.join(", "))).into()
            );
        }
        match (servers.pop(), problems.first()) {
            (None, Some(problem)) => bail!("{problem}"),
            (server, _) => Ok(server),
        }
    }

    /// The port that was asked for, as words behind "server".
    fn told(&self) -> String {
        self.port.map(|port| format!(" on port {port}")).unwrap_or_default()
    }

    pub(crate) fn port(&self) -> Option<u16> {
        self.port
    }
}

/// Stop a server, once its open requests have ended
///
/// The server takes no more requests and gives open ones the time that its --drain says.
#[derive(Debug, clap::Args)]
pub(crate) struct StopArgs {
    #[command(flatten)]
    which: Which,
    /// Stop all servers
    #[arg(long, conflicts_with = "port")]
    all: bool,
}

/// Stop a server, and start it again with the words that started it
///
/// It must have been started by `smelt serve -d`. Settings and environment are read anew, and models too.
#[derive(Debug, clap::Args)]
pub(crate) struct RestartArgs {
    #[command(flatten)]
    which: Which,
}

pub(crate) fn stop(args: &StopArgs, context: &Context) -> Result<()> {
    let Servers { known: servers, problems } = match args.all {
        true => servers::running(&context.state)?,
        false => {
            let known = args.which.find(context)?.into_iter().collect();
            Servers { known, problems: Vec::new() }
        }
    };
    if servers.is_empty() && problems.is_empty() && !context.quiet {
        report::note(&format!("no server{} runs", args.which.told()));
    }
    servers.iter().try_for_each(Server::terminate)?;
    servers.iter().try_for_each(|server| wait(server, context))?;
    match problems.first() {
        Some(problem) => bail!("{problem}"),
        None => Ok(()),
    }
}

/// Waits until a server that was told to stop is gone.
fn wait(server: &Server, context: &Context) -> Result<()> {
    server.wait()?;
    if !context.quiet {
        report::note(&format!(
            "stopped the server on {} (process {})",
            server.record.url(),
            server.record.pid
        ));
    }
    Ok(())
}

pub(crate) fn restart(args: &RestartArgs, context: &Context) -> Result<()> {
    let Some(server) = args.which.find(context)? else {
        return Err(Usage(format!("no server{} runs; `smelt serve -d` starts one", args.which.told())).into());
    };
    let Some(detached) = &server.record.detached else {
        let (url, pid) = (server.record.url(), server.record.pid);
        let problem = format!(
            "the server on {url} (process {pid}) was not started with -d; restart it where it was started"
        );
        return Err(Usage(problem).into());
    };
    server.terminate()?;
    wait(&server, context)?;
    serve::tell(&detached.start()?, context);
    Ok(())
}
