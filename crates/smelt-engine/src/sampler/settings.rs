//! What the user can set about sampling, with the ranges.

use std::sync::Arc;

use serde::{Deserialize, Serialize};

use super::SampleError;
use super::dry::MAX_BREAKER_TOKENS;

/// One step that narrows or reshapes the candidates.
///
/// Logit bias, the repetition penalties and DRY are not stages: they edit the model's logits and always come first,
/// in that order, so that no order of stages can drop a token before its bias counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Stage {
    /// Keeps logits within n standard deviations of the greatest ([`SamplerSettings::top_n_sigma`]).
    TopNSigma,
    /// Keeps the k greatest logits ([`SamplerSettings::top_k`]).
    TopK,
    /// Locally typical sampling, arXiv 2202.00666 ([`SamplerSettings::typical_p`]).
    Typical,
    /// Nucleus sampling, arXiv 1904.09751 ([`SamplerSettings::top_p`]).
    TopP,
    /// Keeps tokens at least `min_p` times as likely as the likeliest, arXiv 2407.01082 ([`SamplerSettings::min_p`]).
    MinP,
    /// Excludes the top choices: with some probability, drops all but the least likely of the tokens above a
    /// threshold ([`SamplerSettings::xtc_probability`]).
    Xtc,
    /// Divides the logits by the (dynamic) temperature ([`SamplerSettings::temperature`]).
    Temperature,
    /// For text between other text: ends early, and joins tokens of which one begins another. It has to know
    /// the vocabulary ([`super::Sampler::knowing`]).
    Infill,
}

impl Stage {
    /// The order in which llama.cpp runs the stages.
    pub const DEFAULT_CHAIN: [Self; 7] =
        [Self::TopNSigma, Self::TopK, Self::Typical, Self::TopP, Self::MinP, Self::Xtc, Self::Temperature];

    /// The stage's name in settings and messages.
    pub const fn name(self) -> &'static str {
        match self {
            Self::TopNSigma => "top_n_sigma",
            Self::TopK => "top_k",
            Self::Typical => "typical_p",
            Self::TopP => "top_p",
            Self::MinP => "min_p",
            Self::Xtc => "xtc",
            Self::Temperature => "temperature",
            Self::Infill => "infill",
        }
    }
}

/// Mirostat 2 (arXiv 2007.14966): truncates so that the mean surprise of the drawn tokens approaches `tau` bits.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
pub struct Mirostat {
    /// The wanted surprise in bits, over 0 to 100.
    pub tau: f32,
    /// How fast the threshold follows the error, over 0 to 1.
    pub eta: f32,
}

impl Default for Mirostat {
    fn default() -> Self {
        Self { tau: 5.0, eta: 0.1 }
    }
}

/// How the next token is chosen from the model's logits.
///
/// [`Default`] is a sane general choice: temperature 0.8, top-k 40, top-p 0.95, min-p 0.05, the rest off.
/// [`SamplerSettings::neutral`] draws from the model's own distribution, [`SamplerSettings::greedy`] takes the
/// likeliest token.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct SamplerSettings {
    /// Seed of the random draws; `None` picks one, which [`super::Sampler::seed`] reports.
    pub seed: Option<u64>,
    /// Added to the logits of these tokens; −inf bans a token. Several entries for a token add up.
    #[serde(with = "biases")]
    pub logit_bias: Vec<(u32, f32)>,
    /// How many of the latest tokens the three penalties look at; `None` is all of them, 0 switches them off.
    pub penalty_last_n: Option<u32>,
    /// Divides positive and multiplies other logits of tokens seen in the window; 1 is off.
    pub repeat_penalty: f32,
    /// Subtracted once from the logits of tokens seen in the window; 0 is off.
    pub presence_penalty: f32,
    /// Subtracted per occurrence in the window; 0 is off.
    pub frequency_penalty: f32,
    /// DRY: scale of the penalty on tokens that would extend a repeated sequence; 0 is off.
    pub dry_multiplier: f32,
    /// DRY: growth of the penalty per token of repetition.
    pub dry_base: f32,
    /// DRY: repetitions up to this length go free.
    pub dry_allowed_length: u32,
    /// DRY: how many of the latest tokens are searched; `None` is all of them, 0 switches DRY off.
    pub dry_last_n: Option<u32>,
    /// DRY: token sequences that no repetition is followed across; see [`super::breaker_sequences`].
    pub dry_breakers: Arc<[Vec<u32>]>,
    /// Keep logits of at least max − n·σ, where σ is the standard deviation of the unmasked logits; 0 is off.
    pub top_n_sigma: f32,
    /// Keep this many of the greatest logits; 0 is off.
    pub top_k: u32,
    /// Keep the most typical tokens until their probabilities reach this sum; 1 is off.
    pub typical_p: f32,
    /// Keep the likeliest tokens until their probabilities reach this sum; 1 is off.
    pub top_p: f32,
    /// Keep tokens of at least this share of the likeliest one's probability; 0 is off.
    pub min_p: f32,
    /// How often XTC acts, 0 (off) to 1.
    pub xtc_probability: f32,
    /// XTC drops every token of at least this probability but the least likely of them; over 0.5 it never acts.
    pub xtc_threshold: f32,
    /// 0 is greedy: the greatest logit after bias and penalties, on ties the lowest id, and no random draw.
    pub temperature: f32,
    /// Lets the temperature vary by this much either way with the entropy of the candidates; 0 is off.
    pub dynatemp_range: f32,
    /// How entropy maps into that range: its share of the greatest possible entropy, to this power.
    pub dynatemp_exponent: f32,
    /// Replaces every stage but the temperature. Has no effect when greedy.
    pub mirostat: Option<Mirostat>,
    /// The stages in the order they run. A stage that is not listed does not run.
    pub chain: Vec<Stage>,
}

impl Default for SamplerSettings {
    fn default() -> Self {
        Self { temperature: 0.8, top_k: 40, top_p: 0.95, min_p: 0.05, ..Self::neutral() }
    }
}

/// Biases as the bits of their numbers: JSON has no infinity.
mod biases {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    pub(super) fn serialize<S: Serializer>(biases: &[(u32, f32)], to: S) -> Result<S::Ok, S::Error> {
        let bits = biases.iter().map(|(token, bias)| (*token, bias.to_bits()));
        bits.collect::<Vec<(u32, u32)>>().serialize(to)
    }

    pub(super) fn deserialize<'a, D: Deserializer<'a>>(from: D) -> Result<Vec<(u32, f32)>, D::Error> {
        let bits = Vec::<(u32, u32)>::deserialize(from)?;
        Ok(bits.into_iter().map(|(token, bits)| (token, f32::from_bits(bits))).collect())
    }
}

/// A numeric setting: name, value, range, the range as text, and the value that switches it off.
type Range = (&'static str, fn(&SamplerSettings) -> f32, f32, f32, &'static str, &'static str);

const NEUTRAL_IS_0: &str = "0 switches it off";
const NEUTRAL_IS_1: &str = "1 switches it off";
/// The least value that counts as "greater than 0".
const TINY: f32 = f32::MIN_POSITIVE;

const RANGES: [Range; 16] = [
    ("temperature", |s| s.temperature, 0.0, 100.0, "between 0 and 100", "0 is greedy"),
    ("dynatemp_range", |s| s.dynatemp_range, 0.0, 100.0, "between 0 and 100", NEUTRAL_IS_0),
    ("dynatemp_exponent", |s| s.dynatemp_exponent, TINY, 100.0, "over 0 and at most 100", "1 is usual"),
    ("top_n_sigma", |s| s.top_n_sigma, 0.0, 100.0, "between 0 and 100", NEUTRAL_IS_0),
    ("typical_p", |s| s.typical_p, TINY, 1.0, "over 0 and at most 1", NEUTRAL_IS_1),
    ("top_p", |s| s.top_p, 0.0, 1.0, "between 0 and 1", NEUTRAL_IS_1),
    ("min_p", |s| s.min_p, 0.0, 1.0, "between 0 and 1", NEUTRAL_IS_0),
    ("xtc_probability", |s| s.xtc_probability, 0.0, 1.0, "between 0 and 1", NEUTRAL_IS_0),
    ("xtc_threshold", |s| s.xtc_threshold, 0.0, 1.0, "between 0 and 1", "0.1 is usual"),
    ("repeat_penalty", |s| s.repeat_penalty, 0.01, 100.0, "between 0.01 and 100", NEUTRAL_IS_1),
    ("presence_penalty", |s| s.presence_penalty, -100.0, 100.0, "between -100 and 100", NEUTRAL_IS_0),
    ("frequency_penalty", |s| s.frequency_penalty, -100.0, 100.0, "between -100 and 100", NEUTRAL_IS_0),
    ("dry_multiplier", |s| s.dry_multiplier, 0.0, 100.0, "between 0 and 100", NEUTRAL_IS_0),
    ("dry_base", |s| s.dry_base, 1.0, 100.0, "between 1 and 100", "1.75 is usual"),
    (
        "mirostat.tau",
        |s| s.mirostat.unwrap_or_default().tau,
        TINY,
        100.0,
        "over 0 and at most 100",
        "5 is usual",
    ),
    (
        "mirostat.eta",
        |s| s.mirostat.unwrap_or_default().eta,
        TINY,
        1.0,
        "over 0 and at most 1",
        "0.1 is usual",
    ),
];

impl SamplerSettings {
    /// The model's own distribution: temperature 1 and everything else off.
    pub fn neutral() -> Self {
        Self {
            seed: None,
            logit_bias: Vec::new(),
            penalty_last_n: Some(64),
            repeat_penalty: 1.0,
            presence_penalty: 0.0,
            frequency_penalty: 0.0,
            dry_multiplier: 0.0,
            dry_base: 1.75,
            dry_allowed_length: 2,
            dry_last_n: None,
            dry_breakers: Arc::new([]),
            top_n_sigma: 0.0,
            top_k: 0,
            typical_p: 1.0,
            top_p: 1.0,
            min_p: 0.0,
            xtc_probability: 0.0,
            xtc_threshold: 0.1,
            temperature: 1.0,
            dynatemp_range: 0.0,
            dynatemp_exponent: 1.0,
            mirostat: None,
            chain: Stage::DEFAULT_CHAIN.to_vec(),
        }
    }

    /// Always the likeliest token; the lowest id on ties.
    pub fn greedy() -> Self {
        Self { temperature: 0.0, ..Self::neutral() }
    }

    /// Whether the token is the arg max and no random number is used.
    pub fn is_greedy(&self) -> bool {
        self.temperature == 0.0
    }

    /// Checks every setting that does not depend on the vocabulary.
    ///
    /// # Errors
    /// [`SampleError::Setting`] for a number out of range, [`SampleError::Bias`], [`SampleError::Breaker`] or
    /// [`SampleError::RepeatedStage`].
    pub fn validate(&self) -> Result<(), SampleError> {
        for &(field, value, low, high, range, off) in &RANGES {
            let value = value(self);
            // `contains` is false for NaN.
            if !(low..=high).contains(&value) {
                return Err(SampleError::Setting { field, value, range, off });
            }
        }
        for &(token, bias) in &self.logit_bias {
            if bias.is_nan() || bias == f32::INFINITY {
                return Err(SampleError::Bias { token, bias });
            }
        }
        for breaker in &*self.dry_breakers {
            if breaker.is_empty() || breaker.len() > MAX_BREAKER_TOKENS {
                return Err(SampleError::Breaker { len: breaker.len(), max: MAX_BREAKER_TOKENS });
            }
        }
        for (i, stage) in self.chain.iter().enumerate() {
            if self.chain[..i].contains(stage) {
                return Err(SampleError::RepeatedStage { stage: stage.name() });
            }
        }
        Ok(())
    }

    /// Checks the tokens that the settings name.
    pub(super) fn validate_tokens(&self, vocab_size: usize) -> Result<(), SampleError> {
        let biased = self.logit_bias.iter().map(|&(token, _)| ("logit_bias", token));
        let breakers = self.dry_breakers.iter().flatten().map(|&token| ("dry_breakers", token));
        for (field, token) in biased.chain(breakers) {
            if token as usize >= vocab_size {
                return Err(SampleError::UnknownToken { field, token, vocab_size });
            }
        }
        Ok(())
    }

    /// Whether running the stage can change anything.
    pub(super) fn is_active(&self, stage: Stage) -> bool {
        match stage {
            Stage::TopNSigma => self.top_n_sigma > 0.0,
            Stage::TopK => self.top_k > 0,
            Stage::Typical => self.typical_p < 1.0,
            Stage::TopP => self.top_p < 1.0,
            Stage::MinP => self.min_p > 0.0,
            Stage::Xtc => self.xtc_probability > 0.0 && self.xtc_threshold <= 0.5,
            Stage::Temperature => self.temperature != 1.0 || self.dynatemp_range > 0.0,
            Stage::Infill => true,
        }
    }

    pub(super) fn penalties_active(&self) -> bool {
        self.repeat_penalty != 1.0 || self.presence_penalty != 0.0 || self.frequency_penalty != 0.0
    }

    pub(super) fn dry_active(&self) -> bool {
        self.dry_multiplier > 0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn settings_pass_through_json_unchanged() {
        let settings = SamplerSettings {
            seed: Some(u64::MAX),
            logit_bias: vec![(7, f32::NEG_INFINITY), (8, -0.1), (9, f32::MIN_POSITIVE)],
            dry_breakers: vec![vec![1, 2], vec![3]].into(),
            temperature: 0.7,
            top_p: 1.0 - f32::EPSILON,
            mirostat: Some(Mirostat { tau: 4.999_999_5, eta: 1e-38 }),
            chain: vec![Stage::TopP, Stage::Temperature],
            ..SamplerSettings::default()
        };
        let text = serde_json::to_string(&settings).unwrap();
        assert_eq!(serde_json::from_str::<SamplerSettings>(&text).unwrap(), settings);
    }
}
