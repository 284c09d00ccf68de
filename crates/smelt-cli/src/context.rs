//! What every command works with.

use std::path::PathBuf;

use anyhow::{Context as _, Result};
use smelt_store::{Reference, Settings, Store};

use crate::config::Config;
use crate::env;

/// Options of every command.
#[derive(Debug, clap::Args)]
pub(crate) struct Global {
    /// Directory of models, config.toml and servers' logs [env: SMELT_HOME]
    #[arg(long, global = true, value_name = "DIR", help_heading = "Global options")]
    home: Option<PathBuf>,
    /// Profile of config.toml whose settings are on [env: SMELT_PROFILE]
    #[arg(long, global = true, value_name = "NAME", help_heading = "Global options")]
    profile: Option<String>,
    /// Print results and errors only
    #[arg(short, long, global = true, help_heading = "Global options")]
    quiet: bool,
}

/// The environment of a command, resolved once: flags before variables before defaults.
#[derive(Debug, Clone)]
pub(crate) struct Context {
    /// Whether progress and notes are unwanted.
    pub(crate) quiet: bool,
    /// The model store.
    pub(crate) store: Store,
    /// The file of settings; it need not exist.
    pub(crate) config_file: PathBuf,
    /// The directory of servers' files and logs; it need not exist.
    pub(crate) state: PathBuf,
    /// The profile that a flag names.
    pub(crate) profile: Option<String>,
}

impl Context {
    pub(crate) fn new(global: Global) -> Result<Context> {
        let home = global.home.or_else(|| env::SMELT_HOME.get().map(Into::into));
        let unknown = "no home directory is known: set SMELT_HOME, or give --home DIR";
        let [root, config, state] = match home {
            Some(home) => [home.clone(), home.clone(), home],
            None => default_directories().context(unknown)?,
        };
        let config_file = config.join("config.toml");
        Ok(Context {
            quiet: global.quiet,
            store: Store::open(root)?,
            config_file,
            state,
            profile: global.profile,
        })
    }

    /// The settings of the file and the environment.
    pub(crate) fn config(&self) -> Result<Config> {
        Config::read(&self.config_file, self.profile.as_deref())
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

/// Where the store, the settings and the state are unless somebody says otherwise.
fn default_directories() -> Option<[PathBuf; 3]> {
    let base = |xdg: &env::Variable, below_home: &str| {
        // The XDG rules: a relative path there is to be ignored.
        let own = xdg.get().map(PathBuf::from).filter(|p| p.is_absolute());
        let windows = || env::LOCALAPPDATA.get().map(PathBuf::from).filter(|_| cfg!(windows));
        let base = own.or_else(windows).or_else(|| Some(std::env::home_dir()?.join(below_home)))?;
        Some(base.join("smelt"))
    };
    Some([
        base(&env::XDG_DATA_HOME, ".local/share")?,
        base(&env::XDG_CONFIG_HOME, ".config")?,
        base(&env::XDG_STATE_HOME, ".local/state")?,
    ])
}

/// Reads a MODEL argument; clap shows the reason of a bad one as a usage error.
pub(crate) fn parse_reference(text: &str) -> Result<Reference, String> {
    Reference::parse(text).map_err(|error| match error.hint() {
        Some(hint) => format!("{error}\nhint: {hint}"),
        None => error.to_string(),
    })
}
