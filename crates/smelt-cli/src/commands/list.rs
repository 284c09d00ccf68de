//! `smelt list`.

use anyhow::Result;
use serde_json::json;
use smelt_store::{Installed, Manifest, Model};

use crate::context::Context;
use crate::{output, report};

/// List the installed models
#[derive(Debug, clap::Args)]
#[command(alias = "ls")]
pub(crate) struct Args {
    /// List what the catalogue offers instead
    #[arg(long)]
    available: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

pub(crate) fn run(args: Args, context: &Context) -> Result<()> {
    if args.available {
        return available(args.json, context);
    }
    let listing = context.store.list()?;
    let manifests: Vec<&Manifest> = listing.installed.iter().filter_map(|i| i.manifest.as_ref()).collect();
    if args.json {
        let models: Vec<_> = listing.installed.iter().map(entry).collect();
        let problems: Vec<String> = listing.problems.iter().map(ToString::to_string).collect();
        return output::json(&json!({"models": models, "problems": problems}));
    }
    for problem in &listing.problems {
        let hint = problem.hint().map_or(String::new(), |hint| format!(" ({hint})"));
        report::warn(&format!("{problem}{hint}"));
    }
    if manifests.is_empty() {
        return output::line("No model is installed; `smelt list --available` shows what can be pulled.");
    }
    let mut rows = vec![["NAME", "SIZE", "FORMAT", "LICENCE", "PULLED"].map(String::from)];
    rows.extend(manifests.into_iter().map(|m| {
        let or_dash = |text: &Option<String>| text.clone().unwrap_or_else(|| "-".into());
        let (format, licence) = (or_dash(&m.format), or_dash(&m.licence));
        [m.reference.clone(), output::bytes(m.size()), format, licence, output::ago(m.pulled)]
    }));
    output::table(&rows)
}

fn entry(installed: &Installed) -> serde_json::Value {
    json!({"path": installed.path, "manifest": installed.manifest})
}

fn available(json: bool, context: &Context) -> Result<()> {
    let models = &context.store.catalogue().models;
    let name = |m: &Model| format!("{}:{}", m.name, m.tag);
    if json {
        let entry = |m: &Model| {
            json!({
                "name": name(m), "title": m.title, "family": m.family, "format": m.format, "licence": m.licence,
                "size": m.size, "sha256": m.sha256, "default": m.default,
                "sources": m.sources.iter().map(ToString::to_string).collect::<Vec<_>>(),
            })
        };
        return output::json(&json!({"models": models.iter().map(entry).collect::<Vec<_>>()}));
    }
    let mut rows = vec![["NAME", "SIZE", "FORMAT", "LICENCE", "TITLE"].map(String::from)];
    rows.extend(
        models
            .iter()
            .map(|m| [name(m), output::bytes(m.size), m.format.clone(), m.licence.clone(), m.title.clone()]),
    );
    output::table(&rows)
}
