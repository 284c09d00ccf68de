//! `smelt pull`.

use anyhow::Result;
use serde_json::json;
use smelt_store::{Installed, Reference};

use crate::context::{Context, parse_reference};
use crate::interrupt::Listener;
use crate::output;
use crate::progress::Reporter;

/// Fetch models into the store
///
/// A download that breaks off goes on where it stopped. Nothing is installed before its SHA-256 has been checked,
/// and two pulls of one model at once are safe. For hf: and https:// references a second pull asks the server
/// whether the file has changed.
///
/// Behind an address the file's SHA-256 may stand: https://HOST/FILE.gguf#sha256=…. Plain http:// needs it, except from
/// this machine, as anybody on the way could change the file.
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// smollm2:135m, hf:OWNER/REPO/FILE.gguf@REVISION, https://HOST/FILE.gguf
    #[arg(required = true, value_name = "MODEL", value_parser = parse_reference)]
    models: Vec<Reference>,
    /// Print events as JSON, one per line, instead of progress
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, context: &Context) -> Result<()> {
    let _listener = Listener::new();
    let settings = context.pull_settings();
    for reference in &args.models {
        let mut reporter = if args.json { Reporter::json() } else { Reporter::new(context.quiet) };
        let installed = context.store.pull(reference, &settings, &mut reporter);
        let installed = installed.map_err(|error| reporter.untold(error))?;
        drop(reporter);
        match args.json {
            true => output::event(&json!({
                "event": "installed",
                "reference": reference.to_string(),
                "path": installed.path,
                "manifest": installed.manifest,
            }))?,
            false => output::line(describe(reference, &installed))?,
        }
    }
    Ok(())
}

fn describe(reference: &Reference, installed: &Installed) -> String {
    match &installed.manifest {
        Some(manifest) => format!("{} is ready ({})", manifest.reference, output::bytes(manifest.size())),
        None => format!("{reference} is a file, and is used where it is"),
    }
}
