//! `smelt rm`.

use anyhow::{Result, bail};
use smelt_store::Reference;

use crate::context::{Context, parse_reference};
use crate::output;
use crate::report::{self, Reported};

/// Remove models from the store
///
/// Also removes an unfinished download. A file that another installed model uses stays.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// The models
    #[arg(required = true, value_name = "MODEL", value_parser = parse_reference)]
    models: Vec<Reference>,
}

pub(crate) fn run(args: Args, context: &Context) -> Result<()> {
    let mut failed = false;
    for reference in &args.models {
        // The models behind one that can't be removed are meant all the same.
        if let Err(error) = remove(reference, context) {
            if report::is_closed_output(&error) {
                return Err(error);
            }
            report::print(&error);
            failed = true;
        }
    }
    if failed { Err(Reported.into()) } else { Ok(()) }
}

fn remove(reference: &Reference, context: &Context) -> Result<()> {
    if let Reference::Path(path) = reference {
        bail!("{} is a file of yours, which the store never removes", path.display());
    }
    let removed = context.store.remove(reference)?;
    output::line(format!("removed {} ({} freed)", removed.reference, output::bytes(removed.freed)))
}
