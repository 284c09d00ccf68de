//! What answers must look like, as the engine's constraints.

use std::sync::Arc;

use smelt_api::{ApiError, Code, Form, Structure};
use smelt_engine::tokenizer::answer::ThinkTags;
use smelt_engine::{Constraint, Grammar, GrammarError, Model};

use crate::models::Loaded;
use crate::prompt::beside;

/// The constraint that a request asks for. Compiling one may take a while, so it is done beside the tasks of other
/// requests.
///
/// # Errors
/// Why it can't be enforced: for a schema, the keyword.
pub(crate) async fn constraint(
    model: &Arc<Loaded>,
    wanted: Option<Structure>,
) -> Result<Option<Box<dyn Constraint>>, ApiError> {
    let Some(wanted) = wanted else { return Ok(None) };
    let model = model.clone();
    beside(move || constrain(model.model(), wanted, None).map(Some)).await
}

/// The same at once. Of a model that thinks, what is behind its `thoughts` is constrained, whose block the prompt may have
/// opened.
///
/// # Errors
/// As [`constraint`].
pub(crate) fn constrain(
    model: &Model,
    wanted: Structure,
    thoughts: Option<(&'static ThinkTags, bool)>,
) -> Result<Box<dyn Constraint>, ApiError> {
    let grammar = match wanted.form {
        Form::JsonObject => Grammar::json_object(),
        Form::Schema(schema) => Grammar::from_json_schema(&schema),
        Form::Regex(regex) => Grammar::regex(&regex),
        Form::Choice(texts) => Grammar::choice(&texts),
        Form::Grammar(text) => Grammar::text(&text),
    };
    let constraint = grammar.and_then(|grammar| match thoughts {
        None => model.constrain(&grammar),
        Some((tags, is_open)) => model.constrain_behind_thoughts(&grammar, tags, is_open),
    });
    constraint.map_err(|error| refusal(wanted.param, &error))
}

/// Why a grammar that `param` asks for can't be enforced.
pub(crate) fn refusal(param: String, error: &GrammarError) -> ApiError {
    match error {
        GrammarError::Vocabulary(_) => ApiError::unsupported(param, error),
        GrammarError::Keyword { .. } | GrammarError::TooLarge { .. } | GrammarError::Invalid(_) => {
            ApiError { param: Some(param), ..ApiError::new(Code::InvalidValue, error.to_string()) }
        }
    }
}
