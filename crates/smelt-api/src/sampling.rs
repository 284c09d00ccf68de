//! How tokens are chosen and where an answer ends: what all dialects can say, under their own names.

use std::time::Duration;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::params::{Fields, Kind, Param, Support, param, shown};

/// Stop strings that a request may have, texts that DRY stops at, and the bytes of each.
pub const MOST_STOPS: usize = 16;
const MOST_BREAKERS: usize = 16;
const MOST_STOP_BYTES: usize = 1024;
/// Stages of sampling that a request may list.
const MOST_STAGES: usize = 32;
/// Tokens that a request may bias.
const MOST_BIASES: usize = 1024;
const U31: i64 = i32::MAX as i64;

/// How tokens are chosen. What is `None` is the model's or the server's choice.
#[derive(Debug, Clone, Default, PartialEq)]
#[expect(missing_docs, reason = "the names are those of `SamplerSettings`, which explains them")]
pub struct Sampling {
    /// `Some(None)` is a new one each time.
    pub seed: Option<Option<u64>>,
    pub logit_bias: Vec<(u32, f32)>,
    pub temperature: Option<f32>,
    pub top_p: Option<f32>,
    pub top_k: Option<u32>,
    pub min_p: Option<f32>,
    pub typical_p: Option<f32>,
    pub top_n_sigma: Option<f32>,
    pub repeat_penalty: Option<f32>,
    /// `Some(None)` looks at the whole text.
    pub repeat_last_n: Option<Option<u32>>,
    pub presence_penalty: Option<f32>,
    pub frequency_penalty: Option<f32>,
    pub dry_multiplier: Option<f32>,
    pub dry_base: Option<f32>,
    pub dry_allowed_length: Option<u32>,
    pub dry_last_n: Option<Option<u32>>,
    /// Texts that DRY follows no repetition across.
    pub dry_breakers: Option<Vec<String>>,
    pub xtc_probability: Option<f32>,
    pub xtc_threshold: Option<f32>,
    pub dynatemp_range: Option<f32>,
    pub dynatemp_exponent: Option<f32>,
    /// The stages that run, in their order, by llama.cpp's names or letters.
    pub stages: Option<Vec<String>>,
    /// Whether Mirostat 2 is to choose in place of the stages.
    pub mirostat: Option<bool>,
    pub mirostat_tau: Option<f32>,
    pub mirostat_eta: Option<f32>,
}

/// Where an answer ends, and what is shown of it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Limits {
    /// Tokens of the answer; `None` for what the context holds.
    pub max_tokens: Option<usize>,
    /// Strings that end the answer.
    pub stop: Vec<String>,
    /// Go on behind a token that ends the answer.
    pub ignore_eos: bool,
    /// Spaces and tabs that lines behind the first must begin with; one with fewer ends the answer. 0 is off.
    pub indent: usize,
    /// The first line that ends so long after the first token ends the answer.
    pub line_time: Option<Duration>,
    /// Show control tokens.
    pub show_special: bool,
}

use Kind::{Any, Bool, Integer, Number, Object, Texts};
use Support::{Harmless, Only, Yes};

/// What OpenAI and Ollama have in common.
pub static COMMON: &[Param] = &[
    param("temperature", Number(0.0, 2.0), Yes, "0 always takes the likeliest token"),
    param("top_p", Number(0.0, 1.0), Yes, "keep the likeliest tokens up to this sum of probabilities"),
    param("top_k", Integer(-1, U31), Yes, "keep so many of the likeliest tokens; 0 and -1 keep all"),
    param(
        "min_p",
        Number(0.0, 1.0),
        Yes,
        "keep tokens of at least this share of the likeliest one's probability",
    ),
    param("typical_p", Number(1e-6, 1.0), Yes, "locally typical sampling; 1 is off"),
    param("repeat_penalty", Number(0.01, 100.0), Yes, "over 1 makes tokens seen lately less likely"),
    param("repeat_last_n", Integer(-1, U31), Yes, "tokens that the penalties look back at; -1 is all"),
    param("presence_penalty", Number(-2.0, 2.0), Yes, "over 0 makes tokens seen lately less likely"),
    param(
        "frequency_penalty",
        Number(-2.0, 2.0),
        Yes,
        "over 0 makes tokens less likely the more often they came",
    ),
    param(
        "seed",
        Integer(i64::MIN, i64::MAX),
        Yes,
        "the same seed gives the same answer; -1 is a random one",
    ),
    param("stop", Texts(MOST_STOPS), Yes, "strings that end the answer"),
    param("mirostat", Integer(0, 2), Yes, "2 has Mirostat 2 choose in place of the stages; 1 isn't there"),
    param("mirostat_tau", Number(1e-6, 100.0), Yes, "the surprise that Mirostat aims at, in bits"),
    param("mirostat_eta", Number(1e-6, 1.0), Yes, "how fast Mirostat follows"),
];

/// What only servers of one's own have, under the names of llama.cpp, vLLM and SGLang.
pub static EXTENSIONS: &[Param] = &[
    param("repetition_penalty", Number(0.01, 100.0), Yes, "another name of repeat_penalty"),
    param(
        "top_n_sigma",
        Number(-1.0, 100.0),
        Yes,
        "keep logits within so many standard deviations of the greatest",
    ),
    param("typ_p", Number(1e-6, 1.0), Yes, "another name of typical_p"),
    param(
        "dry_multiplier",
        Number(0.0, 100.0),
        Yes,
        "DRY: scale of the penalty on repeated sequences; 0 is off",
    ),
    param("dry_base", Number(1.0, 100.0), Yes, "DRY: growth of the penalty per token"),
    param("dry_allowed_length", Integer(0, U31), Yes, "DRY: repetitions up to this length go free"),
    param("dry_penalty_last_n", Integer(-1, U31), Yes, "DRY: tokens that are searched; -1 is all"),
    param(
        "dry_sequence_breakers",
        Texts(MOST_BREAKERS),
        Yes,
        "DRY: texts that no repetition is followed across; line feed, colon, quote and star",
    ),
    param("xtc_probability", Number(0.0, 1.0), Yes, "how often the likeliest tokens are excluded"),
    param("xtc_threshold", Number(0.0, 1.0), Yes, "what counts as a likeliest token for XTC"),
    param("dynatemp_range", Number(0.0, 100.0), Yes, "how far the temperature follows the entropy"),
    param("dynatemp_exponent", Number(1e-6, 100.0), Yes, "how it follows it"),
    param("ignore_eos", Bool, Yes, "go on behind a token that ends the answer"),
    param("skip_special_tokens", Bool, Yes, "false shows control tokens"),
    param("min_tokens", Any, Only(&["0"]), "use ignore_eos with max_tokens"),
    param("stop_token_ids", Any, Only(&["[]"]), "use stop with the tokens' texts"),
    param("include_stop_str_in_output", Any, Only(&["false"]), "an answer ends before its stop string"),
    param("no_stop_trim", Any, Only(&["false"]), "an answer ends before its stop string"),
    param("bad_words", Any, Only(&["[]"]), "ban tokens with logit_bias"),
    param("allowed_token_ids", Any, Only(&["[]"]), "use logit_bias"),
    param("use_beam_search", Any, Only(&["false"]), "answers are sampled"),
    param("best_of", Any, Only(&["1"]), "use n, and choose among the answers by their logprobs"),
    param("length_penalty", Any, Only(&["1", "1.0"]), "it belongs to beam search"),
    param("early_stopping", Any, Only(&["false"]), "it belongs to beam search"),
    param("truncate_prompt_tokens", Any, Only(&[]), "a prompt that is too long is refused, never cut"),
    param("prompt_logprobs", Any, Only(&["false", "0"]), "only the answer has logprobs"),
    param("return_hidden_states", Any, Only(&["false"]), "a server has none to give"),
    param("lora", Any, Only(&["[]"]), "adapters are not implemented yet"),
    param("lora_path", Any, Only(&[]), "adapters are not implemented yet"),
    param(
        "samplers",
        Any,
        Yes,
        "the stages that run, in their order: a list of names, or a text of letters; `penalties` and `dry` come first",
    ),
    param(
        "n_indent",
        Integer(0, 1024),
        Yes,
        "spaces and tabs that every line behind the first begins with; in front of one with fewer the answer ends",
    ),
    param(
        "t_max_predict_ms",
        Integer(-1, U31),
        Yes,
        "the first line that ends so long after the first token ends the answer; 0 and -1 are off",
    ),
    param(
        "t_max_prompt_ms",
        Integer(-1, U31),
        Harmless,
        "llama.cpp has only the name; go away to end a request",
    ),
    param("cache_prompt", Bool, Yes, "false computes the whole prompt again; the answer is the same"),
    param(
        "n_cache_reuse",
        Integer(0, U31),
        Harmless,
        "the cache finds equal beginnings only, so that no answer depends on what it has",
    ),
    param(
        "id_slot",
        Integer(-1, U31),
        Harmless,
        "all answers share one cache, which finds what a prompt begins with wherever it was computed",
    ),
    param(
        "sse_ping_interval",
        Integer(-1, 86_400),
        Yes,
        "seconds after which a stream that tells nothing sends a comment; 0 and -1 send none",
    ),
];

/// Beside [`EXTENSIONS`], on routes that are not llama.cpp's own: these take more forms.
pub static NARROWER: &[Param] = &[
    param("logit_bias", Object, Yes, "adds -100 to 100 to tokens, by id; -100 bans one"),
    param("n_predict", Integer(-1, U31), Yes, "another name of max_tokens; -1 is without limit"),
];

/// −1 for "no limit".
fn limit(n: i64) -> Option<u32> {
    u32::try_from(n).ok()
}

/// A seed; −1 has the engine choose a new one, as in vLLM, llama.cpp and Ollama.
fn seed(n: i64) -> Option<u64> {
    (n != -1).then(|| u64::from_ne_bytes(n.to_ne_bytes()))
}

impl Sampling {
    /// Takes what [`COMMON`] and [`EXTENSIONS`] name out of a request.
    ///
    /// # Errors
    /// If the logit bias or the list of stages is malformed.
    pub fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let dry_breakers = breakers(fields)?;
        let stages = stages(fields)?;
        if fields.integer("mirostat") == Some(1) {
            return Err(ApiError::unsupported(fields.path("mirostat"), "use 2"));
        }
        let number = |name: &str| fields.number(name);
        let count = |name: &str| fields.integer(name).and_then(limit);
        let mut sampling = Self {
            seed: fields.integer("seed").map(seed),
            logit_bias: Vec::new(),
            temperature: number("temperature"),
            top_p: number("top_p"),
            top_k: fields.integer("top_k").map(|k| limit(k).unwrap_or(0)),
            min_p: number("min_p"),
            typical_p: number("typical_p").or(number("typ_p")),
            top_n_sigma: number("top_n_sigma").map(|n| n.max(0.0)),
            repeat_penalty: number("repeat_penalty").or(number("repetition_penalty")),
            repeat_last_n: fields.integer("repeat_last_n").map(limit),
            presence_penalty: number("presence_penalty"),
            frequency_penalty: number("frequency_penalty"),
            dry_multiplier: number("dry_multiplier"),
            dry_base: number("dry_base"),
            dry_allowed_length: count("dry_allowed_length"),
            dry_last_n: fields.integer("dry_penalty_last_n").map(limit),
            dry_breakers,
            xtc_probability: number("xtc_probability"),
            xtc_threshold: number("xtc_threshold"),
            dynatemp_range: number("dynatemp_range"),
            dynatemp_exponent: number("dynatemp_exponent"),
            stages,
            mirostat: fields.integer("mirostat").map(|version| version == 2),
            mirostat_tau: number("mirostat_tau"),
            mirostat_eta: number("mirostat_eta"),
        };
        if let Some(bias) = fields.object("logit_bias") {
            sampling.logit_bias = logit_bias(&bias, &fields.path("logit_bias"))?;
        }
        Ok(sampling)
    }
}

/// The texts that DRY stops at, if any are named.
fn breakers(fields: &mut Fields) -> Result<Option<Vec<String>>, ApiError> {
    if fields.get("dry_sequence_breakers").is_none() {
        return Ok(None);
    }
    let path = fields.path("dry_sequence_breakers");
    let texts = fields.texts("dry_sequence_breakers");
    check_stops(&texts, &path)?;
    Ok(Some(texts))
}

/// The names of stages, if they are listed: those of a list, or the letters of a text.
fn stages(fields: &mut Fields) -> Result<Option<Vec<String>>, ApiError> {
    let path = fields.path("samplers");
    let name = |value: Value| match value {
        Value::String(name) => Ok(name),
        other => Err(ApiError::value(&path, format!("must hold names, not {}", shown(&other)))),
    };
    let names: Vec<String> = match fields.take("samplers") {
        None => return Ok(None),
        Some(Value::String(letters)) => letters.chars().map(String::from).collect(),
        Some(Value::Array(names)) => names.into_iter().map(name).collect::<Result<_, _>>()?,
        Some(other) => {
            let problem = format!("must be a list of names or a text of letters, not {}", shown(&other));
            return Err(ApiError::value(&path, problem));
        }
    };
    if names.len() > MOST_STAGES {
        let problem = format!("has {} names, but at most {MOST_STAGES} are taken", names.len());
        return Err(ApiError::value(&path, problem));
    }
    Ok(Some(names))
}

/// OpenAI's map from ids, as strings, to biases.
fn logit_bias(bias: &Map<String, Value>, path: &str) -> Result<Vec<(u32, f32)>, ApiError> {
    if bias.len() > MOST_BIASES {
        return Err(ApiError::value(
            path,
            format!("has {} tokens, but at most {MOST_BIASES} are taken", bias.len()),
        ));
    }
    let entry = |(token, bias): (&String, &Value)| {
        let id = token
            .parse()
            .map_err(|_| ApiError::value(path, format!("has the key {token:?}, which is no token id")))?;
        let range = -100.0..=100.0;
        let value = bias.as_f64().filter(|b| range.contains(b)).ok_or_else(|| {
            let problem = format!("must be a number from -100 to 100, not {}", shown(bias));
            ApiError::value(format!("{path}.{token}"), problem)
        })?;
        // OpenAI documents -100 as a ban, and only minus infinity is one for certain.
        #[expect(clippy::cast_possible_truncation, reason = "within -100 to 100")]
        let value = if value <= -100.0 { f32::NEG_INFINITY } else { value as f32 };
        Ok((id, value))
    };
    bias.iter().map(entry).collect()
}

impl Limits {
    /// Takes the limits out of a request; `names` are the dialect's words for the greatest number of tokens, the first
    /// that is given counts.
    ///
    /// # Errors
    /// If a stop string is empty or too long.
    pub fn read(fields: &mut Fields, names: &[&str], stop: &str) -> Result<Self, ApiError> {
        let path = fields.path(stop);
        let stop = fields.texts(stop);
        check_stops(&stop, &path)?;
        let most = names.iter().find_map(|name| fields.integer(name));
        let line_time = fields.integer("t_max_predict_ms").and_then(|ms| u64::try_from(ms).ok());
        Ok(Self {
            // Ollama and llama.cpp say "no limit" by a negative number.
            max_tokens: most.and_then(|n| usize::try_from(n).ok()),
            stop,
            ignore_eos: fields.bool("ignore_eos").unwrap_or(false),
            indent: fields.count("n_indent").unwrap_or(0),
            line_time: line_time.filter(|ms| *ms > 0).map(Duration::from_millis),
            show_special: !fields.bool("skip_special_tokens").unwrap_or(true),
        })
    }
}

fn check_stops(stop: &[String], path: &str) -> Result<(), ApiError> {
    match stop.iter().find(|s| s.is_empty() || s.len() > MOST_STOP_BYTES) {
        None => Ok(()),
        Some(s) if s.is_empty() => Err(ApiError::value(path, "must not hold an empty string")),
        Some(s) => {
            let problem =
                format!("has a string of {} bytes, but at most {MOST_STOP_BYTES} are taken", s.len());
            Err(ApiError::value(path, problem))
        }
    }
}
