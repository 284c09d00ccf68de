//! What a model is to think before it answers.

use serde_json::Value;

use crate::error::ApiError;
use crate::params::{Fields, Kind, Param, Support, param, shown};

use Kind::{Integer, Text};
use Support::Yes;

const U31: i64 = i32::MAX as i64;

/// How much a model is to think before it answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Effort {
    /// Not at all.
    None,
    /// As little as it can.
    Minimal,
    /// Little.
    Low,
    /// As usual.
    Medium,
    /// Much.
    High,
    /// As much as it can.
    Max,
}

/// The efforts: the word, and how many tokens of thought they allow where the template makes no difference between them.
static EFFORTS: &[(&str, Effort, Option<usize>)] = &[
    ("none", Effort::None, Some(0)),
    ("minimal", Effort::Minimal, Some(512)),
    ("low", Effort::Low, Some(2048)),
    ("medium", Effort::Medium, Some(8192)),
    ("high", Effort::High, Some(24_576)),
    ("xhigh", Effort::Max, None),
    ("max", Effort::Max, None),
];

impl Effort {
    /// Its name.
    #[must_use]
    pub fn name(self) -> &'static str {
        EFFORTS.iter().find(|(_, effort, _)| *effort == self).map_or("", |(name, ..)| name)
    }

    /// The tokens of thought that it allows; `None` for any number.
    #[must_use]
    pub fn budget(self) -> Option<usize> {
        EFFORTS.iter().find(|(_, effort, _)| *effort == self).and_then(|(.., budget)| *budget)
    }

    pub(crate) fn read(word: &str, path: &str) -> Result<Self, ApiError> {
        EFFORTS.iter().find(|(name, ..)| *name == word).map(|(_, effort, _)| *effort).ok_or_else(|| {
            let names: Vec<&str> = EFFORTS.iter().map(|(name, ..)| *name).collect();
            ApiError::value(path, format!("is {word:?}, which is none of {}", names.join(", ")))
        })
    }
}

/// What a request says of reasoning.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Reasoning {
    /// How much; `None` for what the template does by itself.
    pub effort: Option<Effort>,
    /// Tokens of it, at most.
    pub budget: Option<usize>,
    /// Leave it in the content, with its marks.
    pub in_content: bool,
    /// The parameter that said so.
    pub param: &'static str,
}

/// Names of the budget: Smelt's and those of other engines.
const BUDGETS: [&str; 3] = ["thinking_budget", "thinking_budget_tokens", "thinking_token_budget"];

/// The parameters of chat completions about reasoning.
pub(crate) static CHAT: &[Param] = &[
    param("reasoning_effort", Text, Yes, "how much to think: none, minimal, low, medium, high, xhigh"),
    param("thinking_budget", Integer(-1, U31), Yes, "tokens of reasoning, at most; -1 for any number"),
    param("thinking_budget_tokens", Integer(-1, U31), Yes, "the same, in llama.cpp's word"),
    param("thinking_token_budget", Integer(-1, U31), Yes, "the same, in vLLM's word"),
    param("reasoning_format", Text, Yes, "none leaves reasoning in the content; auto and deepseek part it"),
];

impl Reasoning {
    /// Reads what [`CHAT`] has of it.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let effort = fields.text("reasoning_effort");
        let effort = effort.map(|word| Effort::read(&word, "reasoning_effort")).transpose()?;
        let in_content = match fields.text("reasoning_format").as_deref() {
            None | Some("auto" | "deepseek") => false,
            Some("none") => true,
            Some(_) => return Err(ApiError::value("reasoning_format", "must be auto, deepseek or none")),
        };
        let budget = BUDGETS.iter().find_map(|name| Some((*name, fields.count(name)?)));
        let param = if effort.is_some() { "reasoning_effort" } else { budget.map_or("", |(name, _)| name) };
        Ok(Self { effort, budget: budget.map(|(_, tokens)| tokens), in_content, param })
    }

    /// Reads Anthropic's `thinking`.
    pub(crate) fn read_anthropic(fields: &mut Fields) -> Result<Self, ApiError> {
        let Some(thinking) = fields.take("thinking") else { return Ok(Self::default()) };
        let effort = match thinking["type"].as_str() {
            Some("enabled" | "adaptive") => Some(Effort::Max),
            Some("disabled") => Some(Effort::None),
            _ => return Err(ApiError::value("thinking.type", "must be enabled, adaptive or disabled")),
        };
        let budget = match &thinking["budget_tokens"] {
            Value::Null => None,
            count => Some(count.as_u64().and_then(|n| usize::try_from(n).ok()).ok_or_else(|| {
                ApiError::value("thinking.budget_tokens", format!("must be a count, not {}", shown(count)))
            })?),
        };
        Ok(Self { effort, budget, in_content: false, param: "thinking" })
    }

    /// Reads Ollama's `think`.
    pub(crate) fn read_ollama(fields: &mut Fields) -> Result<Self, ApiError> {
        let effort = match fields.take("think") {
            None => None,
            Some(Value::Bool(true)) => Some(Effort::Max),
            Some(Value::Bool(false)) => Some(Effort::None),
            Some(Value::String(word)) => Some(Effort::read(&word, "think")?),
            Some(other) => {
                let problem = format!("must be true, false or an effort, not {}", shown(&other));
                return Err(ApiError::value("think", problem));
            }
        };
        Ok(Self { effort, param: "think", ..Self::default() })
    }
}
