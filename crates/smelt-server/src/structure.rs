//! What answers must look like, as grammars.

use smelt_api::{ApiError, Code, Form, Structure};
use smelt_engine::{Grammar, GrammarError};

use crate::daemon::Requirement;

/// What a request asks an answer to look like. The engine compiles it.
///
/// # Errors
/// Why it can't be enforced, as far as that is known without a model: for a schema, the keyword.
pub(crate) fn requirement(wanted: Structure) -> Result<Requirement, ApiError> {
    let grammar = match wanted.form {
        Form::JsonObject => Grammar::json_object(),
        Form::Schema(schema) => Grammar::from_json_schema(&schema),
        Form::Regex(regex) => Grammar::regex(&regex),
        Form::Choice(texts) => Grammar::choice(&texts),
        Form::Grammar(text) => Grammar::text(&text),
    };
    let param = wanted.param;
    match grammar {
        Ok(grammar) => Ok(Requirement { param, grammar: Some(grammar), ..Requirement::default() }),
        Err(error) => Err(refusal(param, &error)),
    }
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
