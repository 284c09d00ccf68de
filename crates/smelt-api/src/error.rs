//! Errors in the shape that each dialect's clients expect.

use serde_json::{Value, json};

/// Whose clients speak.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Dialect {
    /// OpenAI, and Smelt's own routes.
    OpenAi,
    /// Anthropic.
    Anthropic,
    /// Ollama.
    Ollama,
}

/// What kind of failure it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Code {
    /// The body is no JSON object.
    InvalidJson,
    /// A parameter has the wrong type or is out of its range.
    InvalidValue,
    /// A parameter is missing.
    MissingParameter,
    /// A parameter that is known and not supported.
    UnsupportedParameter,
    /// The prompt doesn't fit the context.
    ContextLengthExceeded,
    /// No key, or a wrong one.
    InvalidApiKey,
    /// A web page of another origin, or another host's name.
    ForbiddenOrigin,
    /// The operator doesn't allow it.
    Forbidden,
    /// There is no such model.
    ModelNotFound,
    /// There is no such route.
    NotFound,
    /// The route has other methods.
    MethodNotAllowed,
    /// The request did not arrive in time.
    RequestTimeout,
    /// The body is larger than the limit.
    TooLarge,
    /// The model computed nonsense, or the server is broken.
    Internal,
    /// A model could not be fetched from where it is.
    PullFailed,
    /// The queue is full, or the wait was too long.
    Overloaded,
    /// The model is being loaded, or the server is stopping.
    Unavailable,
    /// The engine was lost in the middle of the request, and is started again.
    EngineFailed,
    /// There is no memory for the model.
    InsufficientMemory,
}

/// A kind of failure: HTTP status, OpenAI's `code` and `type`, Anthropic's `type`.
type Row = (Code, u16, &'static str, &'static str, &'static str);

const INVALID: &str = "invalid_request_error";
static ROWS: &[Row] = &[
    (Code::InvalidJson, 400, "invalid_json", INVALID, INVALID),
    (Code::InvalidValue, 400, "invalid_value", INVALID, INVALID),
    (Code::MissingParameter, 400, "missing_required_parameter", INVALID, INVALID),
    (Code::UnsupportedParameter, 400, "unsupported_parameter", INVALID, INVALID),
    (Code::ContextLengthExceeded, 400, "context_length_exceeded", INVALID, INVALID),
    (Code::InvalidApiKey, 401, "invalid_api_key", "authentication_error", "authentication_error"),
    (Code::ForbiddenOrigin, 403, "forbidden_origin", "permission_error", "permission_error"),
    (Code::Forbidden, 403, "forbidden", "permission_error", "permission_error"),
    (Code::ModelNotFound, 404, "model_not_found", "not_found_error", "not_found_error"),
    (Code::NotFound, 404, "not_found", "not_found_error", "not_found_error"),
    (Code::MethodNotAllowed, 405, "method_not_allowed", INVALID, INVALID),
    (Code::RequestTimeout, 408, "request_timeout", "timeout_error", "timeout_error"),
    (Code::TooLarge, 413, "request_too_large", INVALID, "request_too_large"),
    (Code::Internal, 500, "internal_error", "server_error", "api_error"),
    (Code::PullFailed, 502, "pull_failed", "server_error", "api_error"),
    (Code::Overloaded, 503, "overloaded", "overloaded_error", "overloaded_error"),
    (Code::Unavailable, 503, "unavailable", "unavailable_error", "api_error"),
    (Code::EngineFailed, 503, "engine_failed", "server_error", "api_error"),
    (Code::InsufficientMemory, 503, "insufficient_memory", "overloaded_error", "overloaded_error"),
];

impl Code {
    fn row(self) -> &'static Row {
        ROWS.iter().find(|row| row.0 == self).unwrap_or(&ROWS[0])
    }

    /// The HTTP status.
    #[must_use]
    pub fn status(self) -> u16 {
        self.row().1
    }

    /// The word for programs.
    #[must_use]
    pub fn name(self) -> &'static str {
        self.row().2
    }
}

/// An error that a client gets.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ApiError {
    /// What kind.
    pub code: Code,
    /// What is wrong, and what to do.
    pub message: String,
    /// The parameter to blame, as a path: `messages[2].content`.
    pub param: Option<String>,
    /// Seconds after which to try again.
    pub retry_after: Option<u32>,
    /// For [`Code::ContextLengthExceeded`]: tokens of the prompt, tokens of the context.
    pub lengths: Option<(usize, usize)>,
}

impl ApiError {
    /// An error of no parameter.
    pub fn new(code: Code, message: impl Into<String>) -> Self {
        Self { code, message: message.into(), param: None, retry_after: None, lengths: None }
    }

    /// A parameter with a value that can't be.
    pub fn value(param: impl Into<String>, problem: impl std::fmt::Display) -> Self {
        let param = param.into();
        let message = format!("`{param}` {problem}");
        Self { param: Some(param), ..Self::new(Code::InvalidValue, message) }
    }

    /// A parameter that is missing.
    pub fn missing(param: impl Into<String>) -> Self {
        let param = param.into();
        let message = format!("`{param}` is missing, and it is required");
        Self { param: Some(param), ..Self::new(Code::MissingParameter, message) }
    }

    /// A parameter that is known and not supported; `hint` says what works instead.
    pub fn unsupported(param: impl Into<String>, hint: impl std::fmt::Display) -> Self {
        let param = param.into();
        let message = format!("`{param}` is not supported here: {hint}");
        Self { param: Some(param), ..Self::new(Code::UnsupportedParameter, message) }
    }

    /// A prompt of `prompt` tokens for a context of `context`.
    #[must_use]
    pub fn context_length(prompt: usize, context: usize) -> Self {
        let message = format!(
            "This model's maximum context length is {context} tokens, but the prompt has {prompt} tokens and at least \
             one is needed for the answer: it exceeds the available context size. Shorten the prompt, or start the server with a larger context."
        );
        Self { lengths: Some((prompt, context)), ..Self::new(Code::ContextLengthExceeded, message) }
    }

    /// The same, to be tried again after `seconds`.
    #[must_use]
    pub fn retry_after(self, seconds: u32) -> Self {
        Self { retry_after: Some(seconds), ..self }
    }

    /// The body of the response.
    #[must_use]
    pub fn body(&self, dialect: Dialect, request_id: &str) -> Value {
        let (_, _, code, openai, anthropic) = self.code.row();
        match dialect {
            Dialect::OpenAi => {
                let mut error =
                    json!({"message": self.message, "type": openai, "param": self.param, "code": code});
                if let Some((prompt, context)) = self.lengths {
                    error["n_prompt_tokens"] = prompt.into();
                    error["n_ctx"] = context.into();
                }
                json!({"error": error})
            }
            Dialect::Anthropic => {
                // The words are Anthropic's, because agents look for them.
                let message = self.lengths.map_or_else(
                    || self.message.clone(),
                    |(prompt, context)| format!("prompt is too long: {prompt} tokens > {context} maximum"),
                );
                json!({
                    "type": "error", "error": {"type": anthropic, "message": message}, "request_id": request_id,
                })
            }
            Dialect::Ollama => json!({"error": self.message}),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_code_has_a_row() {
        let code = |status, name| ROWS.iter().any(|r| r.1 == status && r.2 == name);
        for row in ROWS {
            assert_eq!(row.0.status(), row.1);
            assert!(code(row.0.status(), row.0.name()));
        }
        assert_eq!(Code::Unavailable.status(), 503);
        assert_eq!(ROWS.len(), Code::InsufficientMemory as usize + 1, "a row for every kind");
    }

    #[test]
    fn each_dialect_has_its_own_shape() {
        let error = ApiError::context_length(5000, 4096);
        let openai = error.body(Dialect::OpenAi, "r");
        assert_eq!(openai["error"]["code"], "context_length_exceeded");
        assert_eq!(
            (&openai["error"]["n_prompt_tokens"], &openai["error"]["n_ctx"]),
            (&5000.into(), &4096.into())
        );
        assert!(
            openai["error"]["message"].as_str().is_some_and(|m| m.contains("5000") && m.contains("4096"))
        );
        assert_eq!(
            error.body(Dialect::Anthropic, "r"),
            json!({
                "type": "error", "request_id": "r",
                "error": {"type": "invalid_request_error", "message": "prompt is too long: 5000 tokens > 4096 maximum"},
            })
        );
        assert_eq!(error.body(Dialect::Ollama, "r"), json!({"error": error.message}));
        let missing = ApiError::missing("messages").body(Dialect::OpenAi, "r");
        assert_eq!(missing["error"]["param"], "messages");
        assert_eq!(missing["error"]["type"], "invalid_request_error");
    }
}
