//! What can be turned about an answer: by flags of `run`, and by `/set` in a chat.

use std::fmt::Display;
use std::str::FromStr;

use smelt_engine::chat::Overflow;
use smelt_engine::sampler::{Mirostat, SamplerSettings};

use super::flags::Structure;
use crate::nearest::nearest;

/// The state of all knobs.
#[derive(Debug, Clone)]
pub(crate) struct Knobs {
    /// How tokens are chosen; the DRY breakers are filled in from [`Knobs::dry_breakers`] once there is a tokenizer.
    pub(crate) sampler: SamplerSettings,
    /// Texts that no repetition is followed across.
    pub(crate) dry_breakers: Vec<String>,
    /// The system message.
    pub(crate) system: Option<String>,
    /// Whether a model with a switch for reasoning reasons.
    pub(crate) think: Option<bool>,
    /// Longest answer.
    pub(crate) max_tokens: Option<usize>,
    /// Strings that end an answer.
    pub(crate) stop: Vec<String>,
    /// Go on behind the token that ends an answer.
    pub(crate) ignore_eos: bool,
    /// Show control tokens.
    pub(crate) show_special: bool,
    /// What answers must look like.
    pub(crate) structure: Option<Structure>,
    /// What happens to a conversation that outgrows the context.
    pub(crate) overflow: Overflow,
}

/// A knob that `/set` turns.
pub(crate) struct Key {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it does.
    pub(crate) help: &'static str,
    /// Its value as text that `set` reads.
    pub(crate) get: fn(&Knobs) -> String,
    /// Sets it; the error says what it takes. Ranges are checked by [`Knobs::set`].
    set: fn(&mut Knobs, &str) -> Result<(), String>,
}

/// A number of tokens to look back at; "all" is the whole conversation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Window(pub(crate) Option<u32>);

impl FromStr for Window {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" | "-1" => Ok(Self(None)),
            number => number
                .parse()
                .map(|n| Self(Some(n)))
                .map_err(|_| format!("{text:?} is no number of tokens, nor \"all\"")),
        }
    }
}

impl Display for Window {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.0 {
            None => f.write_str("all"),
            Some(n) => n.fmt(f),
        }
    }
}

fn put<T: FromStr>(place: &mut T, text: &str) -> Result<(), String> {
    *place = text.parse().map_err(|_| format!("{text:?} is not a number of the right kind"))?;
    Ok(())
}

/// A value that can be absent; `none` names the absence.
fn put_option<T: FromStr>(place: &mut Option<T>, text: &str, none: &str) -> Result<(), String> {
    if text == none {
        *place = None;
        return Ok(());
    }
    *place =
        Some(text.parse().map_err(|_| format!("{text:?} is not a number of the right kind, nor {none:?}"))?);
    Ok(())
}

fn show_option<T: Display>(value: Option<&T>, none: &str) -> String {
    value.map_or_else(|| none.to_owned(), T::to_string)
}

fn put_window(place: &mut Option<u32>, text: &str) -> Result<(), String> {
    Window::from_str(text).map(|window| *place = window.0)
}

macro_rules! number {
    ($name:literal, $field:ident, $help:literal) => {
        Key {
            name: $name,
            help: $help,
            get: |k| k.sampler.$field.to_string(),
            set: |k, text| put(&mut k.sampler.$field, text),
        }
    };
}

/// Every knob of `/set`.
pub(crate) const KEYS: &[Key] = &[
    Key {
        name: "system",
        help: "the system message",
        get: |k| show_option(k.system.as_ref(), "none"),
        set: |k, text| {
            k.system = (text != "none").then(|| text.to_owned());
            Ok(())
        },
    },
    number!("temperature", temperature, "how random the choice is; 0 is greedy"),
    number!("top_k", top_k, "keep this many of the likeliest tokens; 0 is off"),
    number!("top_p", top_p, "keep the likeliest tokens up to this sum; 1 is off"),
    number!("min_p", min_p, "keep tokens this likely, relative to the likeliest; 0 is off"),
    number!("typical", typical_p, "keep the most typical tokens up to this sum; 1 is off"),
    number!("top_n_sigma", top_n_sigma, "keep logits this many deviations from the top; 0 is off"),
    number!("repeat_penalty", repeat_penalty, "divides the logits of seen tokens; 1 is off"),
    Key {
        name: "repeat_last_n",
        help: "tokens that the penalties look back at, or all",
        get: |k| Window(k.sampler.penalty_last_n).to_string(),
        set: |k, text| put_window(&mut k.sampler.penalty_last_n, text),
    },
    number!("presence_penalty", presence_penalty, "lowers the logits of seen tokens; 0 is off"),
    number!("frequency_penalty", frequency_penalty, "lowers logits per occurrence; 0 is off"),
    number!("dry_multiplier", dry_multiplier, "strength of DRY against repeated sequences; 0 is off"),
    number!("dry_base", dry_base, "how DRY grows with the repetition's length"),
    number!("dry_allowed_length", dry_allowed_length, "repetitions that DRY lets pass"),
    Key {
        name: "dry_last_n",
        help: "tokens that DRY looks back at, or all",
        get: |k| Window(k.sampler.dry_last_n).to_string(),
        set: |k, text| put_window(&mut k.sampler.dry_last_n, text),
    },
    number!("xtc_probability", xtc_probability, "how often XTC drops the top choices; 0 is off"),
    number!("xtc_threshold", xtc_threshold, "how likely a token must be for XTC to drop it"),
    Key {
        name: "mirostat",
        help: "2 for mirostat 2, 0 for off",
        get: |k| if k.sampler.mirostat.is_some() { "2" } else { "0" }.to_owned(),
        set: |k, text| {
            k.sampler.mirostat = match text {
                "2" => Some(k.sampler.mirostat.unwrap_or_default()),
                "0" => None,
                _ => return Err(format!("{text:?} is neither 2 nor 0")),
            };
            Ok(())
        },
    },
    Key {
        name: "mirostat_tau",
        help: "the surprise that mirostat aims at, in bits",
        get: |k| k.sampler.mirostat.unwrap_or_default().tau.to_string(),
        set: |k, text| put_mirostat(k, text, |m| &mut m.tau),
    },
    Key {
        name: "mirostat_eta",
        help: "how fast mirostat adapts",
        get: |k| k.sampler.mirostat.unwrap_or_default().eta.to_string(),
        set: |k, text| put_mirostat(k, text, |m| &mut m.eta),
    },
    Key {
        name: "seed",
        help: "seed of the random choices, or random",
        get: |k| show_option(k.sampler.seed.as_ref(), "random"),
        set: |k, text| put_option(&mut k.sampler.seed, text, "random"),
    },
    Key {
        name: "max_tokens",
        help: "longest answer in tokens, or none",
        get: |k| show_option(k.max_tokens.as_ref(), "none"),
        set: |k, text| put_option(&mut k.max_tokens, text, "none"),
    },
    Key {
        name: "stop",
        help: "adds a string that ends an answer; none removes all",
        get: |k| if k.stop.is_empty() { "none".to_owned() } else { format!("{:?}", k.stop) },
        set: |k, text| {
            match text {
                "none" => k.stop.clear(),
                text => k.stop.push(text.to_owned()),
            }
            Ok(())
        },
    },
    Key {
        name: "think",
        help: "whether the model reasons first: on, off, or auto",
        get: |k| {
            match k.think {
                None => "auto",
                Some(true) => "on",
                Some(false) => "off",
            }
            .to_owned()
        },
        set: |k, text| {
            k.think = match text {
                "auto" => None,
                "on" => Some(true),
                "off" => Some(false),
                _ => return Err(format!("{text:?} is neither on, off nor auto")),
            };
            Ok(())
        },
    },
];

fn put_mirostat(knobs: &mut Knobs, text: &str, field: fn(&mut Mirostat) -> &mut f32) -> Result<(), String> {
    let mirostat = knobs.sampler.mirostat.as_mut();
    put(field(mirostat.ok_or("mirostat is off; /set mirostat 2 switches it on")?), text)
}

/// The knob of that name.
///
/// # Errors
/// That there is none, and which was likely meant.
pub(crate) fn find(name: &str) -> Result<&'static Key, String> {
    KEYS.iter().find(|key| key.name == name).ok_or_else(|| {
        match nearest(name, KEYS.iter().map(|key| key.name)) {
            Some(meant) => format!("there is no setting {name:?}; do you mean {meant}?"),
            None => format!("there is no setting {name:?}; /set lists them"),
        }
    })
}

impl Knobs {
    /// Sets the knob `name`; changes nothing if it can't.
    ///
    /// # Errors
    /// What is wrong, as a sentence.
    pub(crate) fn set(&mut self, name: &str, text: &str) -> Result<(), String> {
        let key = find(name)?;
        let mut changed = self.clone();
        (key.set)(&mut changed, text)?;
        changed.sampler.validate().map_err(|e| e.to_string())?;
        *self = changed;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn knobs() -> Knobs {
        Knobs {
            sampler: SamplerSettings::default(),
            dry_breakers: Vec::new(),
            system: None,
            think: None,
            max_tokens: None,
            stop: Vec::new(),
            ignore_eos: false,
            show_special: false,
            structure: None,
            overflow: Overflow::DropOldest,
        }
    }

    #[test]
    fn every_value_shown_can_be_set() {
        let mut knobs = knobs();
        knobs.set("mirostat", "2").unwrap();
        for key in KEYS {
            let shown = (key.get)(&knobs);
            knobs.set(key.name, &shown).unwrap_or_else(|e| panic!("{}: {e}", key.name));
            assert_eq!((key.get)(&knobs), shown, "{}", key.name);
        }
    }

    #[test]
    fn a_name_that_is_close_is_offered() {
        for (name, meant) in
            [("temp", "temperature"), ("repeat-penalty", "repeat_penalty"), ("topk", "top_k")]
        {
            let error = knobs().set(name, "1").unwrap_err();
            assert!(error.ends_with(&format!("do you mean {meant}?")), "{error}");
        }
        assert!(knobs().set("zzz", "1").unwrap_err().ends_with("/set lists them"));
    }

    #[test]
    fn a_refused_value_changes_nothing() {
        let mut knobs = knobs();
        for (name, text) in
            [("temperature", "-1"), ("top_p", "2"), ("top_k", "x"), ("think", "maybe"), ("no", "1")]
        {
            assert!(knobs.set(name, text).is_err(), "{name} {text}");
        }
        assert_eq!(knobs.sampler, SamplerSettings::default());
    }
}
