//! What llama.cpp's routes answer.

use serde::Serialize;
use serde_json::Value;

use crate::openai::LEAST_LOGPROB;
use crate::timings::{Progress, Timings};

/// How an answer was made, or is unless a request says otherwise. What is off has the value that says so.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[expect(missing_docs, reason = "the names are llama.cpp's parameters, which the request's table explains")]
pub struct GenerationSettings {
    /// The one in use; −1 for a random one.
    pub seed: Value,
    pub temperature: f32,
    pub dynatemp_range: f32,
    pub dynatemp_exponent: f32,
    pub top_k: u32,
    pub top_p: f32,
    pub min_p: f32,
    pub top_n_sigma: f32,
    pub xtc_probability: f32,
    pub xtc_threshold: f32,
    pub typical_p: f32,
    /// −1 for the whole text.
    pub repeat_last_n: i64,
    pub repeat_penalty: f32,
    pub presence_penalty: f32,
    pub frequency_penalty: f32,
    pub dry_multiplier: f32,
    pub dry_base: f32,
    pub dry_allowed_length: u32,
    /// −1 for the whole text.
    pub dry_penalty_last_n: i64,
    /// 0 or 2.
    pub mirostat: u8,
    pub mirostat_tau: f32,
    pub mirostat_eta: f32,
    pub adaptive_target: f32,
    pub adaptive_decay: f32,
    pub stop: Vec<String>,
    /// −1 for no limit.
    pub max_tokens: i64,
    /// The same.
    pub n_predict: i64,
    pub n_keep: i64,
    pub n_discard: i64,
    pub ignore_eos: bool,
    pub stream: bool,
    pub logit_bias: Vec<Bias>,
    pub n_probs: usize,
    pub min_keep: usize,
    /// The stages in the order in which they run.
    pub samplers: Vec<&'static str>,
    pub timings_per_token: bool,
    pub post_sampling_probs: bool,
    pub lora: [Value; 0],
}

/// What is added to a token's logit.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Bias {
    /// The token.
    pub token: u32,
    /// Null for minus infinity, which bans it.
    pub bias: Option<f32>,
}

/// Why an answer ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum StopType {
    /// It goes on.
    None,
    /// The model ended it.
    Eos,
    /// `n_predict`, or the context is full.
    Limit,
    /// A stop string.
    Word,
}

/// A token and its probability.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TokenProbability {
    /// Its id.
    pub id: u32,
    /// Its text; bytes that are no UTF-8 become U+FFFD.
    pub token: String,
    /// Its exact bytes.
    pub bytes: Vec<u8>,
    /// How probable it is.
    #[serde(flatten)]
    pub probability: Probability,
}

/// How probable a token is, and the likeliest in its place, where it is one of an answer.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(untagged)]
#[expect(missing_docs, reason = "the variants explain them")]
pub enum Probability {
    /// As the model has it: the logarithm.
    Own {
        logprob: f32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top_logprobs: Option<Vec<TokenProbability>>,
    },
    /// As it was drawn.
    Drawn {
        prob: f32,
        #[serde(skip_serializing_if = "Option::is_none")]
        top_probs: Option<Vec<TokenProbability>>,
    },
}

impl TokenProbability {
    /// Of a token's bytes and ln p, with others in its place if there is to be a list of them.
    #[must_use]
    pub fn new((id, bytes): (u32, &[u8]), logprob: f32, drawn: bool, top: Option<Vec<Self>>) -> Self {
        let token = String::from_utf8_lossy(bytes).into_owned();
        let probability = match drawn {
            false => Probability::Own { logprob: logprob.max(LEAST_LOGPROB), top_logprobs: top },
            true => Probability::Drawn { prob: logprob.exp(), top_probs: top },
        };
        Self { id, token, bytes: bytes.to_vec(), probability }
    }
}

/// An answer, or the last piece of one that is streamed.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Completion {
    /// Which of the request's answers.
    pub index: usize,
    /// Its text; in a last piece what was not told yet.
    pub content: String,
    /// Its tokens, where they were asked for.
    pub tokens: Vec<u32>,
    /// True.
    pub stop: bool,
    /// The model's name.
    pub model: String,
    /// Tokens of the answer.
    pub tokens_predicted: usize,
    /// Tokens of the prompt.
    pub tokens_evaluated: usize,
    /// How it was made.
    pub generation_settings: GenerationSettings,
    /// The prompt, from its tokens.
    pub prompt: String,
    /// Whether there is a line's end in it.
    pub has_new_line: bool,
    /// Whether the context was too small for it.
    pub truncated: bool,
    /// Why it ended.
    pub stop_type: StopType,
    /// The stop string that ended it, or nothing.
    pub stopping_word: String,
    /// Tokens of the prompt that were in the cache.
    pub tokens_cached: usize,
    /// How long it took.
    pub timings: Timings,
    /// The tokens' probabilities, where they were asked for; a stream tells them in its pieces.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_probabilities: Option<Vec<TokenProbability>>,
}

/// A piece of an answer that goes on.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct CompletionPiece {
    /// Which of the request's answers.
    pub index: usize,
    /// More text.
    pub content: String,
    /// The tokens whose text is out with it.
    pub tokens: Vec<u32>,
    /// False.
    pub stop: bool,
    /// Tokens of the answer so far.
    pub tokens_predicted: usize,
    /// Tokens of the prompt.
    pub tokens_evaluated: usize,
    /// How long it took so far, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub timings: Option<Timings>,
    /// How far the prompt is, in a piece that tells nothing else.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub prompt_progress: Option<Progress>,
    /// The tokens' probabilities, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub completion_probabilities: Option<Vec<TokenProbability>>,
}

/// What a server is, as `/props` tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Props {
    /// What holds unless a request says otherwise.
    pub default_generation_settings: DefaultSettings,
    /// Answers that are computed at once.
    pub total_slots: usize,
    /// The model's name.
    pub model_alias: String,
    /// The name of its file.
    pub model_path: String,
    /// Its chat template; empty if it has none that compiles.
    pub chat_template: String,
    /// What the template can express.
    pub chat_template_caps: TemplateCaps,
    /// What prompts may hold beside text.
    pub modalities: Modalities,
    /// The text of the token that begins a text; empty if there is none.
    pub bos_token: String,
    /// And of the one that ends it.
    pub eos_token: String,
    /// `smelt-` and the version.
    pub build_info: String,
    /// Whether the model is not loaded, and the next request waits for it.
    pub is_sleeping: bool,
}

/// What holds unless a request says otherwise.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DefaultSettings {
    /// Tokens that a prompt may have with its answer.
    pub n_ctx: usize,
    /// How tokens are chosen.
    pub params: GenerationSettings,
}

/// What a chat template can express.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TemplateCaps {
    /// Tools are told to the model.
    pub supports_tools: bool,
    /// Calls of earlier turns are.
    pub supports_tool_calls: bool,
    /// The model may think before it answers.
    pub supports_thinking: bool,
}

/// What prompts may hold beside text.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Modalities {
    /// Pictures.
    pub vision: bool,
    /// Sound.
    pub audio: bool,
}

/// A place for an answer, as `/slots` tells it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Slot {
    /// Its number.
    pub id: usize,
    /// Tokens that a prompt may have with its answer.
    pub n_ctx: usize,
    /// Nothing is drafted.
    pub speculative: bool,
    /// Whether an answer is computed there.
    pub is_processing: bool,
}

/// A conversation's prompt, as `/apply-template` tells it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct AppliedTemplate {
    /// The prompt.
    pub prompt: String,
}
