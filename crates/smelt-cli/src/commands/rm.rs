//! `smelt rm`.

use anyhow::{Result, bail};
use smelt_store::Reference;

use crate::context::{Context, parse_reference};
use crate::output;

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
    for reference in &args.models {
        if let Reference::Path(path) = reference {
            bail!("{} is a file of yours, which the store never removes", path.display());
        }
        let removed = context.store.remove(reference)?;
        output::line(format!("removed {} ({} freed)", removed.reference, output::bytes(removed.freed)))?;
    }
    Ok(())
}
