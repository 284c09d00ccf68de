//! What a model file recommends about sampling: the `general.sampling.*` keys, whose names are those of llama.cpp.

use smelt_checkpoint::{Metadata, Value};

use super::{Mirostat, Named, SamplerSettings, Stage};

/// One recommendation that can be followed.
#[derive(Debug, Clone, PartialEq)]
pub struct Recommendation {
    /// The setting, as people name it: `temperature`, `top_k`, `repeat_last_n`, `chain` …
    pub setting: &'static str,
    /// Its value.
    pub value: Wish,
}

/// The value of a [`Recommendation`].
#[derive(Debug, Clone, PartialEq)]
pub enum Wish {
    /// Of a numeric setting.
    Number(f32),
    /// The stages that run, in their order.
    Chain(Vec<Stage>),
}

/// All that a file recommends.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Recommended {
    /// What can be followed, in the order in which it is applied.
    pub settings: Vec<Recommendation>,
    /// What can't be followed, each as a sentence without a full stop.
    pub refused: Vec<String>,
}

const PREFIX: &str = "general.sampling.";
/// Separates the names of stages.
const SEPARATOR: char = ';';

/// A numeric key: its end, the setting, and how it is set.
type Key = (&'static str, &'static str, fn(&mut SamplerSettings, f32));

/// Conversions to integers saturate: a negative `top_k` is off, as 0 is.
const KEYS: [Key; 11] = [
    ("temp", "temperature", |s, x| s.temperature = x.max(0.0)),
    ("top_k", "top_k", |s, x| s.top_k = x as u32),
    ("top_p", "top_p", |s, x| s.top_p = x),
    ("min_p", "min_p", |s, x| s.min_p = x),
    ("xtc_probability", "xtc_probability", |s, x| s.xtc_probability = x),
    ("xtc_threshold", "xtc_threshold", |s, x| s.xtc_threshold = x),
    ("penalty_last_n", "repeat_last_n", |s, x| s.penalty_last_n = (x >= 0.0).then_some(x as u32)),
    ("penalty_repeat", "repeat_penalty", |s, x| s.repeat_penalty = x),
    ("mirostat", MIROSTAT, |s, x| s.mirostat = (x == 2.0).then(|| s.mirostat.unwrap_or_default())),
    ("mirostat_tau", "mirostat_tau", |s, x| set_mirostat(s, |m| m.tau = x)),
    ("mirostat_eta", "mirostat_eta", |s, x| set_mirostat(s, |m| m.eta = x)),
];
const MIROSTAT: &str = "mirostat";
const CHAIN: &str = "chain";

/// Mirostat's numbers mean something only while it is on.
fn set_mirostat(settings: &mut SamplerSettings, set: impl FnOnce(&mut Mirostat)) {
    if let Some(mirostat) = &mut settings.mirostat {
        set(mirostat);
    }
}

impl Recommended {
    /// Reads the keys of a file. What they hold was written by anyone, so nothing in them is an error.
    #[must_use]
    pub fn read(metadata: &Metadata) -> Self {
        let mut all = Self::default();
        for (end, setting, _) in KEYS {
            if let Some(value) = metadata.get(&format!("{PREFIX}{end}")) {
                all.take(end, setting, number(value).map(Wish::Number));
            }
        }
        if let Some(value) = metadata.get(&format!("{PREFIX}sequence")) {
            all.take("sequence", CHAIN, chain(value).map(Wish::Chain));
        }
        all
    }

    fn take(&mut self, end: &str, setting: &'static str, value: Result<Wish, String>) {
        let checked = value.and_then(|value| {
            let recommendation = Recommendation { setting, value };
            let mirostat = Some(Mirostat::default());
            let mut settings = SamplerSettings { mirostat, ..SamplerSettings::default() };
            recommendation.apply(&mut settings);
            settings.validate().map_err(|e| e.to_string())?;
            match recommendation.value {
                Wish::Number(x) if setting == MIROSTAT && x != 0.0 && x != 2.0 => {
                    Err(format!("there is no mirostat {x} here, only 2"))
                }
                _ => Ok(recommendation),
            }
        });
        match checked {
            Ok(recommendation) => self.settings.push(recommendation),
            Err(reason) => {
                self.refused.push(format!("{PREFIX}{end} of the model file is left out: {reason}"))
            }
        }
    }

    /// Follows the recommendations, but for the settings that somebody has chosen.
    pub fn apply(&self, settings: &mut SamplerSettings, is_chosen: impl Fn(&str) -> bool) {
        self.settings.iter().filter(|r| !is_chosen(r.setting)).for_each(|r| r.apply(settings));
    }
}

impl Recommendation {
    fn apply(&self, settings: &mut SamplerSettings) {
        match &self.value {
            Wish::Chain(stages) => settings.chain.clone_from(stages),
            Wish::Number(x) => {
                let key = KEYS.iter().find(|key| key.1 == self.setting);
                key.into_iter().for_each(|key| key.2(settings, *x));
            }
        }
    }
}

impl std::fmt::Display for Recommendation {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.value {
            Wish::Number(x) => write!(f, "{} {x}", self.setting),
            Wish::Chain(stages) => {
                let names: Vec<&str> = stages.iter().map(|s| s.name()).collect();
                write!(f, "{} {}", self.setting, names.join(&SEPARATOR.to_string()))
            }
        }
    }
}

/// A number of any type; text too, as some writers know only that.
fn number(value: &Value) -> Result<f32, String> {
    let number = match value {
        Value::F32(x) => Some(*x),
        Value::F64(x) => Some(*x as f32),
        Value::String(text) => text.trim().parse().ok(),
        other => other.as_integer().map(|n| n as f32),
    };
    number.filter(|x| x.is_finite()).ok_or_else(|| format!("it holds no number but a {}", value.type_name()))
}

fn chain(value: &Value) -> Result<Vec<Stage>, String> {
    let Value::String(text) = value else {
        return Err(format!("it holds no list of names but a {}", value.type_name()));
    };
    let mut stages = Vec::new();
    for name in text.split(SEPARATOR).map(str::trim).filter(|name| !name.is_empty()) {
        match Named::of(name) {
            Some(Named::Stage(stage)) => stages.push(stage),
            // What always comes before the stages.
            Some(Named::Penalties | Named::Dry) => {}
            None => return Err(format!("there is no stage {name:?}")),
        }
    }
    Ok(stages)
}
