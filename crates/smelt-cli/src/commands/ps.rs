//! `smelt ps`.

use anyhow::Result;
use indicatif::HumanDuration;
use jiff::Timestamp;
use serde_json::json;

use crate::context::Context;
use crate::report::Reported;
use crate::servers::{self, Client, Record, Running};
use crate::{output, report};

/// Show the servers that run on this machine, and the models that they have loaded
#[derive(Debug, clap::Args)]
pub(crate) struct Args {
    /// Print JSON
    #[arg(long)]
    json: bool,
    /// Print nothing; exit with 1 unless a server runs and each can answer
    #[arg(long, conflicts_with = "json")]
    ready: bool,
}

/// What a server said.
struct Told {
    record: Record,
    status: Result<String>,
    models: Vec<Running>,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let servers = servers::running(&context.state)?;
    servers.problems.iter().for_each(|problem| report::warn(problem));
    let told: Vec<Told> = servers.known.into_iter().map(|server| ask(server.record)).collect();
    if args.ready {
        let is_ready = |told: &Told| told.status.as_ref().is_ok_and(|status| status == "ok");
        return match !told.is_empty() && told.iter().all(is_ready) {
            true => Ok(()),
            false => Err(Reported.into()),
        };
    }
    if args.json {
        return output::json(&json!({"servers": told.iter().map(entry).collect::<Vec<_>>()}));
    }
    if told.is_empty() {
        return output::line("No server runs; `smelt serve MODEL` starts one.");
    }
    let mut rows = vec![["SERVER", "PID", "STARTED", "STATUS", "MODEL", "SIZE", "UNTIL"].map(String::from)];
    for Told { record, status, models } in &told {
        if let Err(error) = status {
            report::warn(&format!("{error:#}"));
        }
        let status = status.as_deref().unwrap_or("no answer");
        let server = [record.url(), record.pid.to_string(), output::ago(record.since), status.to_owned()];
        let model = |model: &Running| {
            [model.name.clone(), output::bytes(model.size), until(model.expires_at.as_deref())]
        };
        let models = match models.as_slice() {
            [] => vec![["-"; 3].map(String::from)],
            models => models.iter().map(model).collect(),
        };
        rows.extend(models.into_iter().map(|[name, size, until]| {
            let [url, pid, since, status] = server.clone();
            [url, pid, since, status, name, size, until]
        }));
    }
    output::table(&rows)
}

fn ask(record: Record) -> Told {
    let client = Client::new(&record);
    let status = client.health();
    // One that is loading, or is going, has models too.
    let models = client.running().unwrap_or_default();
    Told { record, status, models }
}

fn entry(told: &Told) -> serde_json::Value {
    let Told { record, status, models } = told;
    json!({
        "url": record.url(), "address": record.address, "pid": record.pid, "version": record.version,
        "since": record.since, "status": status.as_ref().ok(), "models": models,
        "log": record.detached.as_ref().map(|detached| &detached.log),
    })
}

/// How long a model stays, for people.
fn until(expires: Option<&str>) -> String {
    let left = |text: &str| Some(text.parse::<Timestamp>().ok()?.duration_since(Timestamp::now()));
    // Ollama's field has no word for "as long as the server".
    const STAYS_HOURS: i64 = 24 * 100;
    match expires.and_then(left) {
        Some(left) if left.as_hours() < STAYS_HOURS => {
            format!("{} from now", HumanDuration(left.try_into().unwrap_or_default()))
        }
        Some(_) => "it stays".to_owned(),
        None => "-".to_owned(),
    }
}
