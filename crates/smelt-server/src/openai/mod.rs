//! OpenAI's routes.

pub(crate) mod chat;
pub(crate) mod completions;
pub(crate) mod responses;

use std::time::Duration;

use smelt_api::openai::{ChatLogprob, Common, FinishReason, TokenLogprob, Usage};
use smelt_api::{ApiError, openai};
use smelt_engine::{Finish, TokenInfo};

use crate::app::Call;
use crate::daemon::Request;
use crate::generation::Answered;
use crate::info::VERSION;
use crate::models::OpenModel;
use crate::prompt;

/// What decides about the bits of an answer: nothing beside the version does.
fn fingerprint() -> String {
    format!("smelt-{VERSION}")
}

/// Why an answer ended, in OpenAI's words.
pub(crate) fn finish_reason(finish: Finish, has_calls: bool) -> FinishReason {
    match finish {
        Finish::EndOfGeneration(_) | Finish::StopString(_) if has_calls => FinishReason::ToolCalls,
        Finish::EndOfGeneration(_) | Finish::StopString(_) => FinishReason::Stop,
        Finish::MaxTokens | Finish::Line | Finish::ContextFull | Finish::Cancelled => FinishReason::Length,
    }
}

/// A request of the engine, but for its logprobs.
pub(crate) fn request(model: &OpenModel, tokens: Vec<u32>, common: &Common) -> Result<Request, ApiError> {
    Ok(Request {
        n: common.n,
        priority: common.priority,
        progress: common.return_progress,
        fresh: common.fresh,
        ..prompt::request(model, tokens, &common.sampling, &common.limits)?
    })
}

/// How long a stream tells nothing before it gives a sign: as the request says, or the server.
pub(crate) fn silence(call: &Call, common: &Common) -> Duration {
    common.silence.unwrap_or(call.app.settings.limits.keep_alive)
}

/// The tokens of a request with all its prompts.
fn usage(prompts: &[Answered]) -> Usage {
    let sum = |count: fn(&Answered) -> usize| prompts.iter().map(count).sum();
    let reasoning = prompts.iter().flat_map(|p| &p.answers).map(|answer| answer.count.reasoning).sum();
    let completion = sum(Answered::completion_tokens);
    Usage::new(sum(|p| p.prompt_tokens), sum(|p| p.cached_tokens), completion, reasoning)
}

/// A token's probability; the least there is, where the engine has none.
fn logprob(token: &TokenInfo) -> f32 {
    token.logprob.unwrap_or(openai::LEAST_LOGPROB)
}

/// A token as chats and responses tell it.
fn chat_logprob(token: &TokenInfo) -> ChatLogprob {
    ChatLogprob {
        token: TokenLogprob::new(&token.bytes, logprob(token)),
        top_logprobs: alternatives(token).collect(),
    }
}

/// The likeliest tokens in a token's place.
fn alternatives(token: &TokenInfo) -> impl Iterator<Item = TokenLogprob> {
    token.top.iter().map(|top| TokenLogprob::new(&top.bytes, top.logprob))
}
