//! What every command works with.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use smelt_store::{Reference, Settings, Store};

use crate::env;

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Directory of the model store [env: SMELT_HOME]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    home: Option<PathBuf>,
    /// Print results and errors only
    #[arg(short, long, global = true, help_heading = "Global options")]
    quiet: bool,
}

/// The environment of a command, resolved once: flags before variables before defaults.
#[derive(Debug)]
pub(crate) struct Context {
    /// Whether progress and notes are unwanted.
    pub(crate) quiet: bool,
    /// The model store.
    pub(crate) store: Store,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Context> {
        let root = match global.home.or_else(|| env::SMELT_HOME.get().map(Into::into)) {
            Some(root) => root,
            None => {
                default_root().context("no home directory is known: set SMELT_HOME, or give --home DIR")?
            }
        };
        Ok(Context { quiet: global.quiet, store: Store::open(root)? })
    }

    /// How models are pulled.
    pub(crate) fn pull_settings(&self) -> Settings {
        let defaults = Settings::default();
        Settings {
            hf_endpoint: env::HF_ENDPOINT.get().unwrap_or(defaults.hf_endpoint),
            hf_token: env::HF_TOKEN.get(),
            python: env::SMELT_PYTHON.get().map_or(defaults.python, Into::into),
            ..Settings::default()
        }
    }
}

fn default_root() -> Option<PathBuf> {
    // The XDG rules: a relative path there is to be ignored.
    let data = env::XDG_DATA_HOME.get().map(PathBuf::from).filter(|p| p.is_absolute());
    let windows = || env::LOCALAPPDATA.get().map(PathBuf::from).filter(|_| cfg!(windows));
    let data = data.or_else(windows).or_else(|| Some(std::env::home_dir()?.join(".local").join("share")));
    data.map(|data| data.join("smelt"))
}

/// Reads a MODEL argument; clap shows the reason of a bad one as a usage error.
pub(crate) fn parse_reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    })
}
