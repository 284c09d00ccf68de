//! The user's settings: `config.toml`, and which of its values a command takes.
//!
//! A value of the file becomes the default of its flag, so that a setting and its flag can't differ in what they take
//! or mean.

mod file;
mod settings;

use std::fmt;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result, anyhow, bail};
use clap::{CommandFactory, FromArgMatches};

pub(crate) use self::file::{reset, set};
pub(crate) use self::settings::{SETTINGS, Setting, find, schema};
use crate::nearest::nearest;
use crate::{commands, env, report};

/// Where a value stands; the first place that has one wins.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    /// `SMELT_` and the key.
    Environment,
    /// `[models."NAME"]`.
    Model(String),
    /// `[profiles.NAME]`.
    Profile(String),
    /// The top of the file.
    Top,
}

/// A value that somebody chose.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) setting: &'static Setting,
    /// The value as the flag takes it.
    pub(crate) value: String,
    /// Line of the file; 0 in the environment.
    pub(crate) line: usize,
}

/// All values of a place.
#[derive(Debug, Clone)]
struct Section {
    place: Place,
    entries: Vec<Entry>,
}

/// The settings of a person, checked.
#[derive(Debug, Clone)]
pub(crate) struct Config {
    path: PathBuf,
    sections: Vec<Section>,
    /// The profile that is on.
    profile: Option<String>,
}

impl Config {
    /// Reads the file, which may not exist, and the environment.
    ///
    /// # Errors
    /// If the file can't be read, a key or value of it makes no sense, or there is no such profile.
    pub(crate) fn read(path: &Path, profile: Option<&str>) -> Result<Self> {
        let mut sections = file::sections(path, &file::read(path)?)?;
        let mut entries = Vec::new();
        for setting in SETTINGS {
            if let Some(text) = env::setting(setting.key) {
                let name = env::setting_name(setting.key);
                let value = setting.parse(&text).and_then(|value| setting.text(&value));
                let value = value.map_err(|e| anyhow!("{name}: {e}; set it to that, or unset it"))?;
                entries.push(Entry { setting, value, line: 0 });
            }
        }
        sections.push(Section { place: Place::Environment, entries });
        let profile = profile.map(str::to_owned).or_else(|| env::SMELT_PROFILE.get());
        let config = Self { path: path.into(), sections, profile };
        if let Some(name) = config.profile.as_ref().filter(|name| !config.has_profile(name)) {
            let path = path.display();
            match nearest(name, config.profiles()) {
                Some(meant) => bail!("{path} has no profile {name:?}; do you mean {meant}?"),
                None => bail!("{path} has no profile {name:?}; write a section [profiles.{name}] there"),
            }
        }
        Ok(config)
    }

    fn profiles(&self) -> impl Iterator<Item = &str> {
        self.sections.iter().filter_map(|section| match &section.place {
            Place::Profile(name) => Some(name.as_str()),
            _ => None,
        })
    }

    fn has_profile(&self, name: &str) -> bool {
        self.profiles().any(|known| known == name)
    }

    /// The values of a setting for a model that goes by `names`, the one that wins first.
    pub(crate) fn values(&self, setting: &Setting, names: &[String]) -> Vec<(&Place, &Entry)> {
        let model = names.iter().map(|name| Place::Model(name.clone()));
        let profile = self.profile.iter().map(|name| Place::Profile(name.clone()));
        let places = [Place::Environment].into_iter().chain(model).chain(profile).chain([Place::Top]);
        places
            .filter_map(|place| self.sections.iter().find(|section| section.place == place))
            .flat_map(|section| section.entries.iter().map(move |entry| (&section.place, entry)))
            .filter(|(_, entry)| entry.setting.key == setting.key)
            .collect()
    }

    /// The keys of values that somebody chose for this model or this command, so that they go before what the model file
    /// recommends. What stands at the top of the file is for any model, and doesn't.
    pub(crate) fn chosen(&self, names: &[String]) -> Vec<String> {
        let is_chosen = |setting: &&Setting| {
            self.values(setting, names).first().is_some_and(|(place, _)| **place != Place::Top)
        };
        SETTINGS.iter().filter(is_chosen).map(|setting| setting.key.to_owned()).collect()
    }

    /// The arguments of `command`, where the values for a model that goes by `names` stand for flags that aren't given.
    ///
    /// # Errors
    /// If a flag refuses a value.
    pub(crate) fn settle<A: FromArgMatches>(&self, command: &str, names: &[String]) -> Result<A> {
        let cli = crate::Cli::command().mut_subcommand(command, |flags| self.as_defaults(flags, names));
        let words = commands::spell_out(std::env::args_os());
        let mut matches = cli.try_get_matches_from(words).map_err(|e| self.refused(&e))?;
        let (_, mut matches) = matches.remove_subcommand().context("there is a subcommand, as before")?;
        A::from_arg_matches_mut(&mut matches).map_err(|e| self.refused(&e))
    }

    /// The command, with the values of settings as its flags' defaults.
    fn as_defaults(&self, command: clap::Command, names: &[String]) -> clap::Command {
        command.mut_args(|flag| {
            let setting = SETTINGS.iter().find(|setting| flag.get_id() == setting.key);
            match setting.and_then(|setting| self.values(setting, names).into_iter().next()) {
                Some((_, entry)) => flag.default_value(entry.value.clone()),
                None => flag,
            }
        })
    }

    fn refused(&self, error: &clap::Error) -> anyhow::Error {
        anyhow!("{}: {}", self.path.display(), report::clap_message(error))
    }

    /// Where a value stands, for people.
    pub(crate) fn tell(&self, place: &Place, entry: &Entry) -> String {
        match place {
            Place::Environment => env::setting_name(entry.setting.key),
            place => format!("{}:{} ({place})", self.path.display(), entry.line),
        }
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Place::Environment => f.write_str("environment"),
            Place::Model(name) => write!(f, "[models.{name:?}]"),
            Place::Profile(name) => write!(f, "[profiles.{name:?}]"),
            Place::Top => f.write_str("for every model"),
        }
    }
}
