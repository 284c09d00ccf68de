//! Every setting: what a key of the file may hold, and where it applies.
//!
//! A key is the id of a flag. What the flag does and its default are told once, by the flag.

use std::fmt;

use clap::CommandFactory;
use serde_json::{Value as Json, json};
use toml_edit::Value;

use crate::nearest::nearest;

/// A setting.
#[derive(Debug)]
pub(crate) struct Setting {
    /// Its key in the file, and its flag's id.
    pub(crate) key: &'static str,
    /// What it may hold.
    pub(crate) kind: Kind,
    /// The commands that take it; it is a flag of the first.
    pub(crate) commands: &'static [&'static str],
    /// Whether models can differ in it.
    pub(crate) per_model: bool,
}

/// The values of a setting; ranges include both ends.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Kind {
    Integer(i64, i64),
    Number(f64, f64),
    Choice(&'static [&'static str]),
    /// Of a flag without a value.
    Switch,
    Text,
}

use Kind::{Choice, Integer, Number, Switch, Text};

/// A setting of `run` and `serve`, of each model.
const fn machine(key: &'static str, kind: Kind) -> Setting {
    Setting { key, kind, commands: &["run", "serve"], per_model: true }
}

/// How tokens are chosen by `run`, and by `serve` where a request leaves it open; of each model.
const fn sampling(key: &'static str, kind: Kind) -> Setting {
    Setting { key, kind, commands: &["run", "serve"], per_model: true }
}

/// A setting of `run`, of each model.
const fn answer(key: &'static str, kind: Kind) -> Setting {
    Setting { key, kind, commands: &["run"], per_model: true }
}

/// A setting of `serve`, of all its models.
const fn server(key: &'static str, kind: Kind) -> Setting {
    Setting { key, kind, commands: &["serve"], per_model: false }
}

/// Every setting, in the order in which they are listed.
pub(crate) const SETTINGS: &[Setting] = &[
    machine("threads", Integer(1, 512)),
    machine("ctx", Integer(1, 1 << 24)),
    machine("batch", Integer(1, 4096)),
    Setting {
        commands: &["run", "serve", "show"],
        ..machine("cache_type", Choice(&["f32", "f16", "q8_0", "q4_0"]))
    },
    answer("system", Text),
    Setting { commands: &["run", "serve"], ..answer("max_tokens", Integer(1, 1 << 24)) },
    sampling("temperature", Number(0.0, 100.0)),
    sampling("top_k", Integer(0, u32::MAX as i64)),
    sampling("top_p", Number(0.0, 1.0)),
    sampling("min_p", Number(0.0, 1.0)),
    sampling("typical", Number(0.001, 1.0)),
    sampling("top_n_sigma", Number(0.0, 100.0)),
    sampling("repeat_penalty", Number(0.01, 100.0)),
    sampling("presence_penalty", Number(-100.0, 100.0)),
    sampling("frequency_penalty", Number(-100.0, 100.0)),
    sampling("dry_multiplier", Number(0.0, 100.0)),
    sampling("xtc_probability", Number(0.0, 1.0)),
    sampling("xtc_threshold", Number(0.0, 1.0)),
    Setting {
        commands: &["serve"],
        ..machine("reasoning_effort", Choice(&["none", "minimal", "low", "medium", "high", "xhigh"]))
    },
    Setting { commands: &["serve"], ..machine("thinking_budget", Integer(0, i32::MAX as i64)) },
    Setting { commands: &["serve"], ..machine("chat_template_file", Text) },
    server("host", Text),
    server("port", Integer(0, 65_535)),
    server("tls_cert", Text),
    server("tls_key", Text),
    server("no_page", Switch),
    server("max_body", Integer(1, 4096)),
    server("drain", Integer(0, 65_535)),
    server("parallel", Integer(1, 4096)),
    server("queue", Integer(1, 65_535)),
    server("queue_time", Integer(1, 65_535)),
    server("kv_memory", Integer(1, u32::MAX as i64)),
    server("memory", Integer(1, u32::MAX as i64)),
    server("idle_timeout", Integer(0, u32::MAX as i64)),
    server("no_prewarm", Switch),
    server("allow_pull", Switch),
    server("step_time", Integer(1, u32::MAX as i64)),
    server("log", Choice(&["text", "json"])),
    server("otlp", Text),
    server("log_level", Choice(&["off", "error", "warn", "info", "debug"])),
];

/// The setting of that key.
///
/// # Errors
/// That there is none, and which was likely meant.
pub(crate) fn find(key: &str) -> Result<&'static Setting, String> {
    SETTINGS.iter().find(|s| s.key == key).ok_or_else(|| match nearest(key, SETTINGS.iter().map(|s| s.key)) {
        Some(meant) => format!("there is no setting {key:?}; do you mean {meant}?"),
        None => format!("there is no setting {key:?}; `smelt config list` lists them"),
    })
}

impl Setting {
    /// Its flag.
    pub(crate) fn flag(&self) -> clap::Arg {
        let cli = crate::Cli::command();
        let flag = cli
            .find_subcommand(self.commands[0])
            .and_then(|c| c.get_arguments().find(|flag| flag.get_id() == self.key));
        flag.cloned().expect("a test holds every setting to its flags")
    }

    /// What it does.
    pub(crate) fn doc(&self) -> String {
        self.flag().get_help().map(ToString::to_string).unwrap_or_default()
    }

    /// Its value if nobody says anything; `None` for one that depends on the model or the machine.
    pub(crate) fn default(&self) -> Option<String> {
        let of_flag =
            self.flag().get_default_values().first().map(|value| value.to_string_lossy().into_owned());
        of_flag.or_else(|| matches!(self.kind, Switch).then(|| "false".to_owned()))
    }

    /// Reads a value that was typed.
    ///
    /// # Errors
    /// What it has to be.
    pub(crate) fn parse(&self, text: &str) -> Result<Value, String> {
        let value = match self.kind {
            Integer(..) => text.parse::<i64>().ok().map(Value::from),
            Number(..) => text.parse::<f64>().ok().map(Value::from),
            Switch => text.parse::<bool>().ok().map(Value::from),
            Choice(_) | Text => Some(Value::from(text)),
        };
        let value = value.ok_or_else(|| self.refusal(text))?;
        self.text(&value).map(|_| value)
    }

    /// The value as its flag takes it.
    ///
    /// # Errors
    /// What it has to be.
    pub(crate) fn text(&self, value: &Value) -> Result<String, String> {
        let number = || value.as_float().or_else(|| value.as_integer().map(|n| n as f64));
        let text = match self.kind {
            // `contains` is false for NaN.
            Integer(low, high) => {
                value.as_integer().filter(|n| (low..=high).contains(n)).map(|n| n.to_string())
            }
            Number(low, high) => number().filter(|n| (low..=high).contains(n)).map(|n| n.to_string()),
            Choice(names) => value.as_str().filter(|name| names.contains(name)).map(str::to_owned),
            Switch => value.as_bool().map(|is_on| is_on.to_string()),
            Text => value.as_str().map(str::to_owned),
        };
        text.ok_or_else(|| self.refusal(value.to_string().trim()))
    }

    fn refusal(&self, value: &str) -> String {
        format!("{} takes {}, not {value}", self.key, self.kind)
    }

    /// What a value is to JSON.
    pub(crate) fn json(&self, text: &str) -> Json {
        match self.kind {
            Integer(..) => text.parse::<i64>().map_or(Json::Null, Json::from),
            Number(..) => text.parse::<f64>().map_or(Json::Null, Json::from),
            Switch => text.parse::<bool>().map_or(Json::Null, Json::from),
            Choice(_) | Text => Json::from(text),
        }
    }

    /// Its JSON schema.
    pub(crate) fn schema(&self) -> Json {
        let mut schema = match self.kind {
            Integer(low, high) => json!({"type": "integer", "minimum": low, "maximum": high}),
            Number(low, high) => json!({"type": "number", "minimum": low, "maximum": high}),
            Choice(names) => json!({"enum": names}),
            Switch => json!({"type": "boolean"}),
            Text => json!({"type": "string"}),
        };
        schema["description"] = self.doc().into();
        if let Some(default) = self.default() {
            schema["default"] = self.json(&default);
        }
        schema
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Integer(low, high) => write!(f, "a whole number from {low} to {high}"),
            Number(low, high) => write!(f, "a number from {low} to {high}"),
            Choice(names) => write!(f, "one of {}", names.join(", ")),
            Switch => f.write_str("true or false"),
            Text => f.write_str("a text in quotes"),
        }
    }
}

/// The JSON schema of the whole file.
pub(crate) fn schema() -> Json {
    let object = |settings: &mut dyn Iterator<Item = &Setting>| {
        let properties: serde_json::Map<String, Json> =
            settings.map(|s| (s.key.to_owned(), s.schema())).collect();
        json!({"type": "object", "properties": properties, "additionalProperties": false})
    };
    let sections = |section: Json| json!({"type": "object", "additionalProperties": section});
    let mut schema = object(&mut SETTINGS.iter());
    schema["properties"]["models"] = sections(object(&mut SETTINGS.iter().filter(|s| s.per_model)));
    schema["properties"]["profiles"] = sections(object(&mut SETTINGS.iter()));
    schema["$schema"] = "https://json-schema.org/draft/2020-12/schema".into();
    schema["title"] = "Smelt's config.toml".into();
    schema
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_setting_is_a_flag_that_takes_its_values() {
        let cli = crate::Cli::command();
        for setting in SETTINGS {
            let ends = match setting.kind {
                Integer(low, high) => vec![low.to_string(), high.to_string()],
                Number(low, high) => vec![low.to_string(), high.to_string()],
                Choice(names) => names.iter().map(ToString::to_string).collect(),
                // The flag itself has no value; one of the file is its default.
                Switch => vec![String::new()],
                Text => vec!["a text".to_owned()],
            };
            let command = setting.commands[0];
            for value in ends {
                let long = setting.flag().get_long().unwrap().to_owned();
                let flag = if value.is_empty() { format!("--{long}") } else { format!("--{long}={value}") };
                let words = ["smelt", command, "m", &flag];
                let matches = cli.clone().try_get_matches_from(words).unwrap_or_else(|e| panic!("{e}"));
                let of_command = matches.subcommand_matches(command).unwrap();
                assert!(of_command.contains_id(setting.key), "{command} {}", setting.key);
            }
            assert!(!setting.doc().is_empty(), "{}", setting.key);
            if let Some(default) = setting.default() {
                setting.parse(&default).unwrap();
            }
        }
    }

    #[test]
    fn values_out_of_range_are_refused_with_the_range() {
        for (key, value, message) in [
            ("threads", "0", "threads takes a whole number from 1 to 512, not 0"),
            ("threads", "two", "threads takes a whole number from 1 to 512, not two"),
            ("temperature", "nan", "temperature takes a number from 0 to 100, not nan"),
            ("temperature", "-0.1", "temperature takes a number from 0 to 100, not -0.1"),
            ("top_p", "1.01", "top_p takes a number from 0 to 1, not 1.01"),
            ("cache_type", "q9", "cache_type takes one of f32, f16, q8_0, q4_0, not \"q9\""),
            ("no_prewarm", "yes", "no_prewarm takes true or false, not yes"),
            ("port", "65536", "port takes a whole number from 0 to 65535, not 65536"),
        ] {
            assert_eq!(find(key).unwrap().parse(value).unwrap_err(), message);
        }
    }
}
