//! llama.cpp's own routes, which its clients and editors' plugins ask.

mod wire;

use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::openai::{Common, MOST_CHOICES, MOST_PROMPTS, Piece, Prompt, prompts};
use crate::params::{self, Kind, Param, Params, Support, param, shown};
use crate::sampling::{COMMON, EXTENSIONS};
use crate::structure::STRUCTURE;

pub use wire::*;

use Kind::{Any, Bool, Integer, Items, Text, Texts};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Alternatives per token.
const MOST_PROBS: i64 = 100;
/// Fields of an answer that a request may choose.
const MOST_FIELDS: usize = 64;
/// Tokens or texts that a request may bias, and further texts of an infill.
const MOST_BIASES: usize = 1024;
const MOST_EXTRAS: usize = 1024;
const NO_SHIFT: &str = "nothing of a prompt is ever left out: one that is too long is refused";

/// What completions and infills have in common.
static BOTH: &[Param] = &[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("stream", Bool, Yes, "send the answer piece by piece"),
    param(
        "n_predict",
        Integer(-1, U31),
        Yes,
        "tokens of the answer; 0 computes the prompt only, -1 is without limit",
    ),
    param("max_tokens", Integer(-1, U31), Yes, "another name of n_predict"),
    param("n_cmpl", Integer(1, MOST_CHOICES), Yes, "answers to each prompt"),
    param("n", Integer(1, MOST_CHOICES), Yes, "another name of n_cmpl"),
    param(
        "n_probs",
        Integer(0, MOST_PROBS),
        Yes,
        "tell the probability of each token and of so many others; 0 is off",
    ),
    param(
        "post_sampling_probs",
        Bool,
        Yes,
        "tell the probabilities that tokens are drawn with, as `prob` and `top_probs`; the model's own otherwise",
    ),
    param("return_tokens", Bool, Yes, "tell the tokens' ids too; pieces of a stream always do"),
    param(
        "timings_per_token",
        Bool,
        Yes,
        "tell the timings in every piece of a stream, not in the last one only",
    ),
    param("return_progress", Bool, Yes, "tell in a stream how far the prompt is"),
    param(
        "response_fields",
        Texts(MOST_FIELDS),
        Yes,
        "tell these fields only; `a/b` is the field `b` of `a`",
    ),
    param(
        "logit_bias",
        Any,
        Yes,
        "`[[token or text, bias]]`, or an object of them; `false` and -100 ban a token",
    ),
    param("n_keep", Integer(-1, U31), Harmless, NO_SHIFT),
    param("n_discard", Integer(0, U31), Harmless, NO_SHIFT),
    param("min_keep", Any, Only(&["0"]), "use a smaller min_p or a larger top_p"),
    param("adaptive_target", Any, Only(&["-1", "-1.0"]), "use top_p or min_p"),
    param("adaptive_decay", Any, Harmless, "only with adaptive_target, which is off"),
    param("image_data", Any, Only(&["[]"]), "prompts are text"),
    param("backend_sampling", Any, Harmless, "where tokens are chosen makes no difference"),
    param("speculative.n_max", Any, Harmless, "nothing is drafted; answers are the same with and without it"),
    param("speculative.n_min", Any, Harmless, "nothing is drafted; answers are the same with and without it"),
    param("speculative.p_min", Any, Harmless, "nothing is drafted; answers are the same with and without it"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
    param("user", Any, Harmless, "labels the request"),
];

static COMPLETION: &[Param] = &[param(
    "prompt",
    Any,
    Required,
    "a string, token ids, a list of both, `{\"prompt_string\": …}`, or a list of such prompts",
)];

static INFILL: &[Param] = &[
    param("input_prefix", Text, Required, "text in front of the answer"),
    param("input_suffix", Text, Required, "text behind the answer"),
    param("input_extra", Items(EXTRA), Yes, "further texts that the model is shown before"),
    param("prompt", Text, Yes, "what the answer begins with"),
];

static EXTRA: &[Param] =
    &[param("text", Text, Required, "what it says"), param("filename", Text, Yes, "the name of its file")];

/// The parameters of `/completion`.
pub static COMPLETION_PARAMS: &[Params] = &[COMPLETION, BOTH, STRUCTURE, COMMON, EXTENSIONS];
/// The parameters of `/infill`.
pub static INFILL_PARAMS: &[Params] = &[INFILL, BOTH, STRUCTURE, COMMON, EXTENSIONS];

/// The parameters of `/props`.
pub static PROPS_PARAMS: &[Params] =
    &[&[param("model", Text, Yes, "the model's name; may be left out if there is only one")]];
/// The parameters of `/slots`.
pub static SLOTS_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("fail_on_no_slot", Any, Yes, "1 for a 503 if all are taken"),
]];

/// What completions and infills have in common, once read.
#[derive(Debug, Clone, PartialEq)]
pub struct Wishes {
    /// What OpenAI's completions have too.
    pub common: Common,
    /// The biases, of which texts count for each of their tokens.
    pub biases: Vec<(Piece, f32)>,
    /// Alternatives per token; `None` for no probabilities.
    pub n_probs: Option<usize>,
    /// They are those behind sampling.
    pub post_sampling_probs: bool,
    /// Tell the tokens' ids.
    pub return_tokens: bool,
    /// The fields that are told, all if there is none.
    pub response_fields: Vec<String>,
}

/// A request of `/completion`.
#[derive(Debug, Clone, PartialEq)]
pub struct CompletionRequest {
    /// The prompts.
    pub prompts: Vec<Prompt>,
    /// How to answer.
    pub wishes: Wishes,
}

/// A request of `/infill`.
#[derive(Debug, Clone, PartialEq)]
pub struct InfillRequest {
    /// Text in front of the answer.
    pub prefix: String,
    /// Text behind it.
    pub suffix: String,
    /// What the answer begins with.
    pub prompt: String,
    /// Files that the model is shown before: names, where they are known, and texts.
    pub extra: Vec<(Option<String>, String)>,
    /// How to answer.
    pub wishes: Wishes,
}

impl CompletionRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = params::Fields::parse(body, COMPLETION_PARAMS)?;
        let prompt = fields.take("prompt").unwrap_or_default();
        let prompts = prompts("prompt", prompt, MOST_PROMPTS)?;
        Ok(Self { prompts, wishes: Wishes::read(&mut fields)? })
    }
}

impl InfillRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = params::Fields::parse(body, INFILL_PARAMS)?;
        let extra = fields.list("input_extra").unwrap_or_default();
        if extra.len() > MOST_EXTRAS {
            let problem = format!("has {} entries, but at most {MOST_EXTRAS} are taken", extra.len());
            return Err(ApiError::value("input_extra", problem));
        }
        let file = |(i, value): (usize, Value)| match value {
            Value::Object(file) => {
                let mut file = params::Fields::nested(file, &[EXTRA], &format!("input_extra[{i}]"))?;
                Ok((file.text("filename"), file.text("text").unwrap_or_default()))
            }
            other => {
                let problem = format!("must be an object with a `text`, not {}", shown(&other));
                Err(ApiError::value(format!("input_extra[{i}]"), problem))
            }
        };
        Ok(Self {
            extra: extra.into_iter().enumerate().map(file).collect::<Result<_, _>>()?,
            prefix: fields.text("input_prefix").unwrap_or_default(),
            suffix: fields.text("input_suffix").unwrap_or_default(),
            prompt: fields.text("prompt").unwrap_or_default(),
            wishes: Wishes::read(&mut fields)?,
        })
    }
}

impl Wishes {
    fn read(fields: &mut params::Fields) -> Result<Self, ApiError> {
        let biases = fields.take("logit_bias").map(biases).transpose()?.unwrap_or_default();
        let n = fields.count("n_cmpl");
        let common = Common::read(fields)?;
        Ok(Self {
            biases,
            n_probs: fields.count("n_probs").filter(|n| *n > 0),
            post_sampling_probs: fields.bool("post_sampling_probs").unwrap_or(false),
            return_tokens: fields.bool("return_tokens").unwrap_or(false),
            response_fields: fields.texts("response_fields"),
            common: Common { n: n.unwrap_or(common.n), ..common },
        })
    }
}

/// Biases as pairs, or as an object whose names are ids or texts.
fn biases(value: Value) -> Result<Vec<(Piece, f32)>, ApiError> {
    let wrong = |value: &Value| {
        let problem = format!("must hold pairs of a token's id or a text and a bias, not {}", shown(value));
        ApiError::value("logit_bias", problem)
    };
    let too_many = |n: usize| {
        let problem = format!("has {n} entries, but at most {MOST_BIASES} are taken");
        Err(ApiError::value("logit_bias", problem))
    };
    let piece = |value: &Value| match value {
        Value::String(text) => Ok(Piece::Text(text.clone())),
        id => match id.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(id) => Ok(Piece::Token(id)),
            None => Err(wrong(id)),
        },
    };
    let named = |name: String| name.parse().map_or(Piece::Text(name), Piece::Token);
    match value {
        Value::Array(pairs) if pairs.len() > MOST_BIASES => too_many(pairs.len()),
        Value::Object(pairs) if pairs.len() > MOST_BIASES => too_many(pairs.len()),
        Value::Array(pairs) => pairs
            .iter()
            .map(|pair| match pair.as_array().map(Vec::as_slice) {
                Some([target, bias]) => Ok((piece(target)?, strength(bias)?)),
                _ => Err(wrong(pair)),
            })
            .collect(),
        Value::Object(pairs) => {
            pairs.into_iter().map(|(name, bias)| Ok((named(name), strength(&bias)?))).collect()
        }
        other => Err(wrong(&other)),
    }
}

/// A bias. What OpenAI documents as a ban is one here too, and so is `false`.
fn strength(bias: &Value) -> Result<f32, ApiError> {
    match bias.as_f64() {
        _ if *bias == Value::Bool(false) => Ok(f32::NEG_INFINITY),
        Some(bias) if bias <= -100.0 => Ok(f32::NEG_INFINITY),
        #[expect(clippy::cast_possible_truncation, reason = "within -100 to 100")]
        Some(bias) if bias <= 100.0 => Ok(bias as f32),
        _ => {
            let problem = format!("must have biases up to 100, or false, not {}", shown(bias));
            Err(ApiError::value("logit_bias", problem))
        }
    }
}

/// The fields of an answer that `names` asks for, all if there is none. A name that is not there is left out.
#[must_use]
pub fn choose_fields(answer: Value, names: &[String]) -> Value {
    if names.is_empty() {
        return answer;
    }
    let find = |name: &String| {
        let value = name.split('/').try_fold(&answer, |value, key| value.get(key))?;
        Some((name.clone(), value.clone()))
    };
    Value::Object(names.iter().filter_map(find).collect::<Map<_, _>>())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn read(body: &Value) -> Result<CompletionRequest, ApiError> {
        CompletionRequest::read(body.to_string().as_bytes())
    }

    #[test]
    fn prompts_come_in_many_forms() {
        let text = |text: &str| Prompt::Text(text.to_owned());
        let mixed = Prompt::Mixed(vec![Piece::Token(1), Piece::Text("a".to_owned())]);
        let cases = [
            (json!("a"), vec![text("a")]),
            (json!([1, 2]), vec![Prompt::Tokens(vec![1, 2])]),
            (json!([1, "a"]), vec![mixed.clone()]),
            (json!({"prompt_string": "a"}), vec![text("a")]),
            (json!({"content": [{"type": "text", "text": "a "}, {"text": "b"}]}), vec![text("a b")]),
            (json!(["a"]), vec![text("a")]),
            (json!(["a", [1, "a"], {"prompt_string": "b"}]), vec![text("a"), mixed, text("b")]),
        ];
        for (prompt, prompts) in cases {
            assert_eq!(read(&json!({"prompt": prompt})).unwrap().prompts, prompts, "{prompt}");
        }
        let wrong = [
            json!([]),
            json!(true),
            json!([1, [2]]),
            json!([-1]),
            json!([1.5]),
            json!({}),
            json!({"content": "a"}),
            json!({"content": [{"type": "image_url"}]}),
            json!({"prompt_string": "a", "multimodal_data": ["AAAA"]}),
        ];
        for prompt in wrong {
            assert!(read(&json!({"prompt": prompt})).is_err(), "{prompt}");
        }
    }

    #[test]
    fn biases_name_tokens_or_texts() {
        let biases = |bias: Value| read(&json!({"prompt": "a", "logit_bias": bias})).map(|r| r.wishes.biases);
        let (token, text) = (Piece::Token(5), Piece::Text("so".to_owned()));
        let wanted = vec![(token.clone(), 1.5), (text.clone(), f32::NEG_INFINITY)];
        assert_eq!(biases(json!([[5, 1.5], ["so", false]])).unwrap(), wanted);
        assert_eq!(biases(json!({"5": 1.5, "so": -100})).unwrap(), wanted);
        for wrong in
            [json!("5"), json!([5, 1]), json!([[5]]), json!([[5, true]]), json!([[-5, 1]]), json!({"5": 101})]
        {
            assert_eq!(biases(wrong.clone()).unwrap_err().param.as_deref(), Some("logit_bias"), "{wrong}");
        }
    }

    #[test]
    fn fields_are_chosen_by_their_paths() {
        let answer = json!({"content": "x", "timings": {"prompt_n": 3}});
        let names = ["content", "timings/prompt_n", "no/such"].map(str::to_owned);
        assert_eq!(choose_fields(answer.clone(), &names), json!({"content": "x", "timings/prompt_n": 3}));
        assert_eq!(choose_fields(answer.clone(), &[]), answer);
    }
}
