//! The flags of `run` that turn [`Knobs`], and of `serve`, where they stand for what requests leave open.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context as _, Result};
use clap::ValueEnum;
use serde_json::Value;
use smelt_engine::Grammar;
use smelt_engine::chat::Overflow;
use smelt_engine::sampler::{Mirostat, Recommended, SamplerSettings};
use smelt_server::Defaults;

use super::knobs::{Knobs, Window};
use crate::given::Given;
use crate::input;
use crate::report::{self, Usage};

/// How tokens are chosen.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Sampling")]
pub(crate) struct SamplingArgs {
    // The first, because what is read of the matches is gone from them.
    #[command(flatten)]
    given: Given,
    /// How random the choice is; 0 takes the likeliest token
    #[arg(id = "temperature", long = "temp", value_name = "T", default_value_t = SamplerSettings::default().temperature)]
    temp: f32,
    /// Keep this many of the likeliest tokens; 0 is off
    #[arg(long, value_name = "K", default_value_t = SamplerSettings::default().top_k)]
    top_k: u32,
    /// Keep the likeliest tokens until their probabilities sum up to this; 1 is off, 0 keeps one
    #[arg(long, value_name = "P", default_value_t = SamplerSettings::default().top_p)]
    top_p: f32,
    /// Keep tokens at least this likely, relative to the likeliest; 0 is off
    #[arg(long, value_name = "P", default_value_t = SamplerSettings::default().min_p)]
    min_p: f32,
    /// Keep the most typical tokens until their probabilities sum up to this; 1 is off
    #[arg(long, value_name = "P", default_value_t = SamplerSettings::default().typical_p)]
    typical: f32,
    /// Keep logits within this many standard deviations of the greatest; 0 is off
    #[arg(long, value_name = "N", default_value_t = SamplerSettings::default().top_n_sigma)]
    top_n_sigma: f32,
    /// Divides the logits of tokens that were seen; 1 is off
    #[arg(long, value_name = "X", default_value_t = SamplerSettings::default().repeat_penalty)]
    repeat_penalty: f32,
    /// Tokens that the three penalties look back at, or all
    #[arg(long, value_name = "N", default_value_t = Window(SamplerSettings::default().penalty_last_n))]
    repeat_last_n: Window,
    /// Subtracted from the logits of tokens that were seen; 0 is off
    #[arg(long, value_name = "X", default_value_t = SamplerSettings::default().presence_penalty)]
    presence_penalty: f32,
    /// Subtracted from a token's logit for each time it was seen; 0 is off
    #[arg(long, value_name = "X", default_value_t = SamplerSettings::default().frequency_penalty)]
    frequency_penalty: f32,
    #[command(flatten)]
    dry: DryArgs,
    /// How often XTC drops the top choices, 0 (off) to 1
    #[arg(long, value_name = "P", default_value_t = SamplerSettings::default().xtc_probability)]
    xtc_probability: f32,
    /// How likely a token must be for XTC to drop it
    #[arg(long, value_name = "P", default_value_t = SamplerSettings::default().xtc_threshold)]
    xtc_threshold: f32,
    /// Mirostat's version, which replaces the filters above; 0 is off
    #[arg(long, value_name = "VERSION", default_value = "0")]
    mirostat: MirostatVersion,
    /// The surprise that mirostat aims at, in bits
    #[arg(long, value_name = "BITS", default_value_t = Mirostat::default().tau)]
    mirostat_tau: f32,
    /// How fast mirostat adapts
    #[arg(long, value_name = "RATE", default_value_t = Mirostat::default().eta)]
    mirostat_eta: f32,
    /// Added to the logit of token ID; -inf bans it. May be given several times
    #[arg(long, value_name = "ID=BIAS", value_parser = parse_bias)]
    logit_bias: Vec<(u32, f32)>,
    /// Seed of the random choices [default: a new one each time; --verbose and --json show it]
    #[arg(long, value_name = "N", value_parser = parse_seed)]
    seed: Option<u64>,
}

/// DRY's flags.
#[derive(Debug, clap::Args)]
struct DryArgs {
    /// Strength of DRY, which penalises repeated sequences; 0 is off
    #[arg(long, value_name = "X", default_value_t = SamplerSettings::default().dry_multiplier)]
    dry_multiplier: f32,
    /// How DRY's penalty grows with each repeated token
    #[arg(long, value_name = "X", default_value_t = SamplerSettings::default().dry_base)]
    dry_base: f32,
    /// Repetitions of up to this many tokens go free
    #[arg(long, value_name = "N", default_value_t = SamplerSettings::default().dry_allowed_length)]
    dry_allowed_length: u32,
    /// Tokens that DRY looks back at, or all
    #[arg(long, value_name = "N", default_value_t = Window(SamplerSettings::default().dry_last_n))]
    dry_last_n: Window,
    /// Text that no repetition is followed across; may be given several times [default: line feed, colon, quote, star]
    #[arg(long, value_name = "TEXT", hide_default_value = true, default_values_t = ["\n", ":", "\"", "*"].map(String::from))]
    dry_sequence_breaker: Vec<String>,
}

#[derive(Debug, Clone, Copy, ValueEnum)]
enum MirostatVersion {
    #[value(name = "0")]
    Off,
    #[value(name = "2")]
    Two,
}

fn parse_bias(text: &str) -> Result<(u32, f32), String> {
    let parsed = text.split_once('=').and_then(|(id, bias)| Some((id.parse().ok()?, bias.parse().ok()?)));
    parsed.ok_or_else(|| "write ID=BIAS, for example 2=-inf or 42=1.5".to_owned())
}

fn parse_seed(text: &str) -> Result<u64, String> {
    let range = || {
        format!("a seed is a whole number from 0 to {}; without the flag it is a new one each time", u64::MAX)
    };
    text.parse().map_err(|_| range())
}

/// Flags about how a model is loaded: with them, it is loaded here.
const OF_LOADING: [&str; 9] =
    ["ctx", "threads", "batch", "cache_type", "cache_type_k", "cache_type_v", "backend", "isa", "force"];

impl SamplingArgs {
    /// A flag on the command line that no running server can follow.
    pub(crate) fn given_of_loading(&self) -> Option<String> {
        let id = OF_LOADING.into_iter().find(|id| self.given.has(id))?;
        Some(format!("--{}", id.replace('_', "-")))
    }

    /// What a server's model does where a request leaves it open, with the settings that were `chosen` elsewhere.
    ///
    /// # Errors
    /// [`Usage`] for a value out of range.
    pub(crate) fn defaults(&self, chosen: Vec<String>) -> Result<Defaults, Usage> {
        Ok(Defaults {
            sampler: self.settings()?,
            chosen: chosen.into_iter().chain(self.given.ids().map(str::to_owned)).collect(),
            dry_breakers: self.dry.dry_sequence_breaker.clone(),
            ..Defaults::default()
        })
    }

    /// Follows what the model file recommends, where no flag says otherwise, and nothing that was `chosen` elsewhere.
    pub(crate) fn follow(
        &self,
        recommended: &Recommended,
        sampler: &mut SamplerSettings,
        chosen: &[String],
        quiet: bool,
    ) {
        recommended
            .apply(sampler, |setting| self.given.has(setting) || chosen.iter().any(|key| key == setting));
        // These two flags find a home only where mirostat is on.
        if let Some(mirostat) = &mut sampler.mirostat {
            if self.given.has("mirostat_tau") {
                mirostat.tau = self.mirostat_tau;
            }
            if self.given.has("mirostat_eta") {
                mirostat.eta = self.mirostat_eta;
            }
        }
        if !quiet {
            recommended.refused.iter().for_each(|text| report::warn(text));
        }
    }

    /// The settings that the flags make.
    ///
    /// # Errors
    /// [`Usage`] for a value out of range.
    pub(crate) fn settings(&self) -> Result<SamplerSettings, Usage> {
        let mirostat = Mirostat { tau: self.mirostat_tau, eta: self.mirostat_eta };
        let settings = SamplerSettings {
            seed: self.seed,
            logit_bias: self.logit_bias.clone(),
            penalty_last_n: self.repeat_last_n.0,
            repeat_penalty: self.repeat_penalty,
            presence_penalty: self.presence_penalty,
            frequency_penalty: self.frequency_penalty,
            dry_multiplier: self.dry.dry_multiplier,
            dry_base: self.dry.dry_base,
            dry_allowed_length: self.dry.dry_allowed_length,
            dry_last_n: self.dry.dry_last_n.0,
            top_n_sigma: self.top_n_sigma,
            top_k: self.top_k,
            typical_p: self.typical,
            top_p: self.top_p,
            min_p: self.min_p,
            xtc_probability: self.xtc_probability,
            xtc_threshold: self.xtc_threshold,
            temperature: self.temp,
            mirostat: matches!(self.mirostat, MirostatVersion::Two).then_some(mirostat),
            ..SamplerSettings::default()
        };
        settings.validate().map_err(|e| Usage(e.to_string()))?;
        Ok(settings)
    }
}

/// What answers must look like.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
#[group(multiple = false)]
pub(crate) struct GrammarArgs {
    /// Answer with JSON that meets the schema in this file; - reads it from standard input
    #[arg(long, value_name = "FILE")]
    json_schema: Option<PathBuf>,
    /// Answer with what the grammar in this file allows, GBNF or Lark; - reads it from standard input
    #[arg(long, value_name = "FILE")]
    grammar: Option<PathBuf>,
    /// Answer with a text that this regular expression matches as a whole
    #[arg(long, value_name = "REGEX")]
    regex: Option<String>,
}

/// What answers must look like, for the engine and as a field of a request.
#[derive(Debug, Clone)]
pub(crate) struct Structure {
    pub(crate) grammar: Grammar,
    pub(crate) field: &'static str,
    pub(crate) value: Value,
}

impl GrammarArgs {
    /// The structure, if there is one.
    ///
    /// # Errors
    /// If its file can't be read, or it can't be enforced.
    pub(crate) fn structure(&self, quiet: bool) -> Result<Option<Structure>> {
        let read = |file: &Path| match file.as_os_str() == "-" {
            true => input::text(quiet),
            false => fs::read_to_string(file).with_context(|| format!("cannot read {}", file.display())),
        };
        let (field, value, grammar) = match (&self.json_schema, &self.grammar, &self.regex) {
            (Some(file), ..) => {
                let schema = serde_json::from_str(&read(file)?);
                let schema: Value = schema.with_context(|| format!("{} is no valid JSON", file.display()))?;
                let grammar = Grammar::from_json_schema(&schema);
                ("json_schema", schema, grammar)
            }
            (_, Some(file), _) => {
                let text = read(file)?;
                let grammar = Grammar::text(&text);
                ("grammar", text.into(), grammar)
            }
            (.., Some(regex)) => ("regex", regex.as_str().into(), Grammar::regex(regex)),
            (None, None, None) => return Ok(None),
        };
        Ok(Some(Structure { grammar: grammar.map_err(|e| Usage(e.to_string()))?, field, value }))
    }
}

/// What is asked and how long the answer may be.
#[derive(Debug, clap::Args)]
#[command(next_help_heading = "Answer")]
pub(crate) struct AnswerArgs {
    /// System message: who the model is to be
    #[arg(long, value_name = "TEXT", conflicts_with = "raw")]
    system: Option<String>,
    /// Let a model that can reason first do so
    #[arg(long, overrides_with = "no_think", conflicts_with = "raw")]
    think: bool,
    /// Keep a model that can reason first from it
    #[arg(long, overrides_with = "think", conflicts_with = "raw")]
    no_think: bool,
    /// End the answer before this text; may be given several times
    #[arg(long, value_name = "TEXT", value_parser = clap::builder::NonEmptyStringValueParser::new())]
    stop: Vec<String>,
    /// Longest answer in tokens [default: as long as the context holds]
    #[arg(short = 'n', long, value_name = "N")]
    max_tokens: Option<usize>,
    /// Go on behind the token by which the model ends its answer
    #[arg(long)]
    ignore_eos: bool,
    /// Print control tokens too
    #[arg(long)]
    show_special: bool,
    /// Refuse a prompt that doesn't fit, instead of leaving out its oldest part
    #[arg(long)]
    strict_context: bool,
}

/// The knobs as the flags turn them.
///
/// # Errors
/// [`Usage`] for a value out of range.
pub(crate) fn knobs(sampling: &SamplingArgs, answer: &AnswerArgs) -> Result<Knobs, Usage> {
    Ok(Knobs {
        sampler: sampling.settings()?,
        dry_breakers: sampling.dry.dry_sequence_breaker.clone(),
        system: answer.system.clone(),
        think: match (answer.think, answer.no_think) {
            (false, false) => None,
            (think, _) => Some(think),
        },
        max_tokens: answer.max_tokens,
        stop: answer.stop.clone(),
        ignore_eos: answer.ignore_eos,
        show_special: answer.show_special,
        structure: None,
        overflow: if answer.strict_context { Overflow::Refuse } else { Overflow::DropOldest },
    })
}
