//! `smelt config`.

use anyhow::Result;
use serde_json::json;
use smelt_checkpoint::Checkpoint;
use smelt_engine::sampler::{Recommended, Wish};
use smelt_store::{Reference, StoreError};

use super::load::names;
use crate::config::{self, Config, Place, SETTINGS, Setting};
use crate::context::Context;
use crate::report::Usage;
use crate::{env, output, report};

/// Settings that stand for flags that aren't given
///
/// They are kept in config.toml: keys at its top for all models, [models."NAME"] for one model, [profiles.NAME] for what
/// --profile NAME switches on. The first of these that has a value wins: flag, environment, the model's section, the
/// profile, the top of the file, the flag's default. What a model file recommends about sampling goes before the top.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  smelt config set threads 4
  smelt config set temperature 0.2 --model smollm2:135m
  smelt config set ctx 2048 --profile small
  smelt config explain temperature --model smollm2:135m")]
pub(crate) struct Args {
    #[command(subcommand)]
    action: Action,
    /// Settings of this model: a name as `run` takes it, a file's without its ending, or what `serve --name` gives
    #[arg(long, global = true, value_name = "NAME", value_parser = parse_name)]
    model: Option<String>,
}

#[derive(Debug, clap::Subcommand)]
enum Action {
    /// Show every setting, its value and where that comes from
    List {
        /// Print JSON
        #[arg(long)]
        json: bool,
    },
    /// Print a value
    Get {
        /// The setting
        key: String,
    },
    /// Write a value into the file
    #[command(allow_negative_numbers = true)]
    Set {
        /// The setting
        key: String,
        /// Its value
        value: String,
    },
    /// Take a value out of the file
    Reset {
        /// The setting
        key: String,
    },
    /// Tell what a setting does, and where its value comes from
    Explain {
        /// The setting
        key: String,
    },
    /// Print the JSON schema of the file, for editors
    Schema,
}

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    match &args.action {
        Action::List { json } => list(args, *json, context),
        Action::Get { key } => {
            let setting = find(key)?;
            output::line(shown(Values::read(args, context)?.of(setting).remove(0).0))
        }
        Action::Set { key, value, .. } => {
            let setting = find(key)?;
            let value = setting.parse(value).map_err(Usage)?;
            config::set(&context.config_file, &place(args, context)?, setting, value)
        }
        Action::Reset { key } => reset(key, &place(args, context)?, context),
        Action::Explain { key } => explain(find(key)?, &Values::read(args, context)?),
        Action::Schema => output::json(&config::schema()),
    }
}

/// A model's name in the file. A server may give a model any, so all is a name that can be seen.
fn parse_name(text: &str) -> Result<String, String> {
    match text.trim() != text || text.is_empty() || text.chars().any(char::is_control) {
        true => {
            Err("a name isn't empty, and has no control characters, and no spaces at its ends".to_owned())
        }
        false => Ok(text.to_owned()),
    }
}

fn find(key: &str) -> Result<&'static Setting> {
    Ok(config::find(key).map_err(Usage)?)
}

/// Where a value is to be written.
fn place(args: &Args, context: &Context) -> Result<Place> {
    match (&args.model, &context.profile) {
        (Some(_), Some(_)) => {
            Err(Usage("give --model or --profile: a section is of one of them".into()).into())
        }
        (Some(model), None) => Ok(Place::Model(model.clone())),
        (None, Some(profile)) => Ok(Place::Profile(profile.clone())),
        (None, None) => Ok(Place::Top),
    }
}

fn reset(key: &str, place: &Place, context: &Context) -> Result<()> {
    // A key that is no setting can be in the file, and is to be got rid of like this.
    if config::reset(&context.config_file, place, key)? {
        return Ok(());
    }
    find(key)?;
    if !context.quiet {
        report::note(&format!("{} has no {key} there", context.config_file.display()));
    }
    Ok(())
}

/// Every value that is known, for the model that was asked about.
struct Values {
    config: Config,
    names: Vec<String>,
    recommended: Recommended,
}

impl Values {
    fn read(args: &Args, context: &Context) -> Result<Self> {
        let config = context.config()?;
        let mut values = Self { config, names: Vec::new(), recommended: Recommended::default() };
        let Some(name) = &args.model else { return Ok(values) };
        values.names.push(name.clone());
        // A section may be of a model that isn't here yet, and of a name that only `serve --name` knows.
        if let Ok(reference) = Reference::parse(name) {
            values.names.extend(names(&reference, context));
            match context.store.resolve(&reference) {
                Ok(Some(installed)) => {
                    values.recommended = Recommended::read(Checkpoint::open(&installed.path)?.metadata());
                }
                Ok(None) | Err(StoreError::UnknownModel { .. } | StoreError::NoSuchFile { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        Ok(values)
    }

    /// The values of a setting and where they come from; the one in effect first, the default last.
    fn of(&self, setting: &Setting) -> Vec<(Option<String>, String)> {
        let told = |(place, entry)| (Some(config::Entry::clone(entry).value), self.config.tell(place, entry));
        let found = self.config.values(setting, &self.names);
        let (top, chosen): (Vec<_>, Vec<_>) = found.into_iter().partition(|(place, _)| **place == Place::Top);
        let wish = self.recommended.settings.iter().find(|wish| wish.setting == setting.key);
        let wish = wish.and_then(|wish| match wish.value {
            Wish::Number(x) => Some((Some(x.to_string()), "recommended by the model file".to_owned())),
            Wish::Chain(_) => None,
        });
        let default = (setting.default(), "default".to_owned());
        chosen.into_iter().map(told).chain(wish).chain(top.into_iter().map(told)).chain([default]).collect()
    }
}

/// A value for people; what is unset depends on the model or the machine.
fn shown(value: Option<String>) -> String {
    value.unwrap_or_else(|| "unset".to_owned())
}

fn list(args: &Args, json: bool, context: &Context) -> Result<()> {
    let values = Values::read(args, context)?;
    let rows = SETTINGS.iter().map(|setting| (setting, values.of(setting).remove(0)));
    if json {
        let row = |(setting, (value, from)): (&Setting, (Option<String>, String))| {
            let value = value.map(|value| setting.json(&value));
            json!({"key": setting.key, "value": value, "from": from})
        };
        return output::json(&rows.map(row).collect::<Vec<_>>());
    }
    let rows: Vec<[String; 3]> =
        rows.map(|(setting, (value, from))| [setting.key.to_owned(), shown(value), from]).collect();
    output::table(&rows)
}

fn explain(setting: &Setting, values: &Values) -> Result<()> {
    output::line(format!("{}: {}", setting.key, setting.doc()))?;
    let whose = if setting.per_model { "models can differ in it" } else { "it is of the whole server" };
    output::line(format!("It takes {}; for {}; {whose}.", setting.kind, setting.commands.join(" and ")))?;
    let mut rows = vec![["value".to_owned(), "from, the first wins".to_owned()]];
    rows.extend(values.of(setting).into_iter().map(|(value, from)| [shown(value), from]));
    output::table(&rows)?;
    let flag = setting.flag().get_long().unwrap_or_default().to_owned();
    let variable = env::setting_name(setting.key);
    output::line(format!(
        "What --{flag} says goes before all of them; {variable} sets it in the environment."
    ))
}
