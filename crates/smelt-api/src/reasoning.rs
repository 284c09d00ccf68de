//! What a model is to think before it answers.

use serde_json::Value;

use crate::error::ApiError;
use crate::params::{Fields, Kind, Param, Support, param, shown};

use Kind::{Any, Integer, Text, Word};
use Support::{Harmless, Only, Required, Yes};

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

    /// The effort of that name.
    #[must_use]
    pub fn from_name(word: &str) -> Option<Self> {
        EFFORTS.iter().find(|(name, ..)| *name == word).map(|(_, effort, _)| *effort)
    }

    pub(crate) fn read(word: &str, path: &str) -> Result<Self, ApiError> {
        Self::from_name(word).ok_or_else(|| {
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
    /// The model may as well not reason.
    pub is_permission: bool,
    /// The parameter that said so.
    pub param: &'static str,
}

/// The `reasoning` of responses.
pub(crate) static RESPONSES: &[Param] = &[
    param("effort", Text, Yes, "how much to think: none, minimal, low, medium, high, xhigh"),
    param("summary", Any, Harmless, "the reasoning itself is told"),
    param("generate_summary", Any, Harmless, "the reasoning itself is told"),
    param("context", Any, Harmless, "the template takes earlier reasoning, or leaves it"),
    param("mode", Any, Only(&["\"standard\""]), "use effort"),
];

/// Anthropic's `thinking`.
pub(crate) static THINKING: &[Param] = &[
    param("type", Word(&["enabled", "adaptive", "disabled"]), Required, "whether to think"),
    param("budget_tokens", Integer(0, U31), Yes, "tokens of thought, at most"),
    param("display", Any, Harmless, "thoughts are told"),
];

/// Names of the budget: Smelt's and those of other engines.
const BUDGET_NAMES: [&str; 3] = ["thinking_budget", "thinking_budget_tokens", "thinking_token_budget"];

/// The parameters of chat completions about reasoning, beside [`BUDGETS`].
pub(crate) static CHAT: &[Param] =
    &[param("reasoning_effort", Text, Yes, "how much to think: none, minimal, low, medium, high, xhigh")];

/// The parameters that engines of one's own have.
pub(crate) static BUDGETS: &[Param] = &[
    param("thinking_budget", Integer(-1, U31), Yes, "tokens of reasoning, at most; -1 for any number"),
    param("thinking_budget_tokens", Integer(-1, U31), Yes, "the same, in llama.cpp's word"),
    param("thinking_token_budget", Integer(-1, U31), Yes, "the same, in vLLM's word"),
    param("reasoning_format", Text, Yes, "none leaves reasoning in the content; auto and deepseek part it"),
];

impl Reasoning {
    /// Reads what [`CHAT`] and [`BUDGETS`] have of it.
    pub(crate) fn read(fields: &mut Fields) -> Result<Self, ApiError> {
        let effort = fields.text("reasoning_effort");
        Self::with_budget(effort, "reasoning_effort", fields)
    }

    /// Reads the `reasoning` of responses, and what [`BUDGETS`] have.
    pub(crate) fn read_responses(fields: &mut Fields) -> Result<Self, ApiError> {
        let effort = match fields.object("reasoning") {
            Some(reasoning) => Fields::nested(reasoning, &[RESPONSES], "reasoning")?.text("effort"),
            None => None,
        };
        Self::with_budget(effort, "reasoning.effort", fields)
    }

    fn with_budget(
        effort: Option<String>,
        param: &'static str,
        fields: &mut Fields,
    ) -> Result<Self, ApiError> {
        let effort = effort.map(|word| Effort::read(&word, param)).transpose()?;
        let in_content = match fields.text("reasoning_format").as_deref() {
            None | Some("auto" | "deepseek") => false,
            Some("none") => true,
            Some(_) => return Err(ApiError::value("reasoning_format", "must be auto, deepseek or none")),
        };
        let given: Vec<&'static str> =
            BUDGET_NAMES.into_iter().filter(|name| fields.get(name).is_some()).collect();
        if let [first, second, ..] = given.as_slice() {
            return Err(ApiError::value(*second, format!("can't be had together with `{first}`")));
        }
        let budget = given.first().copied();
        let param = if effort.is_some() { param } else { budget.unwrap_or("") };
        Ok(Self {
            effort,
            budget: budget.and_then(|name| fields.count(name)),
            in_content,
            param,
            ..Self::default()
        })
    }

    /// Reads Anthropic's `thinking`, and `effort` of its `output_config`.
    pub(crate) fn read_anthropic(fields: &mut Fields) -> Result<Self, ApiError> {
        const EFFORT: &str = "output_config.effort";
        let word = fields.get("output_config").and_then(|config| config["effort"].as_str());
        let effort = word.map(|word| Effort::read(word, EFFORT)).transpose()?;
        // High is what a request means that says nothing.
        let unusual = effort.filter(|effort| *effort != Effort::High);
        let Some(thinking) = fields.object("thinking") else {
            return Ok(Self { effort: unusual, param: EFFORT, ..Self::default() });
        };
        let mut thinking = Fields::nested(thinking, &[THINKING], "thinking")?;
        let word = thinking.text("type");
        let effort = match word.as_deref() {
            Some("disabled") if unusual.is_some() => {
                return Err(ApiError::value(EFFORT, "is about thinking, which is disabled"));
            }
            Some("disabled") => Some(Effort::None),
            _ => effort.or(Some(Effort::Max)),
        };
        let is_permission = word.as_deref() == Some("adaptive");
        let budget = thinking.count("budget_tokens");
        Ok(Self { effort, budget, is_permission, param: "thinking", ..Self::default() })
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
