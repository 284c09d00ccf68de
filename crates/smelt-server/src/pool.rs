//! Numbers of texts, from the engine's thread to a client's task.

use std::sync::Arc;

use smelt_api::{ApiError, Code, KeepAlive};
use smelt_engine::scheduler::{PoolRequest, Text};

use crate::app::Call;
use crate::daemon::{Event, Work};
use crate::generation::Inbox;
use crate::models::OpenModel;

/// What comes of a request's texts, in their order. Dropping the future cancels the request; `keep` says how long the
/// model is kept when nobody uses it any more.
///
/// # Errors
/// Why it wasn't accepted or failed, or that the wait was too long.
pub(crate) async fn pool(
    call: &Call,
    model: &Arc<OpenModel>,
    request: PoolRequest,
    keep: Option<KeepAlive>,
) -> Result<Vec<Vec<f32>>, ApiError> {
    let mut all = vec![Vec::new(); request.texts.len()];
    call.trace.asks(model.name());
    let (sender, mut inbox) = Inbox::new(call, 1);
    let _ticket = inbox.submit(model, Work::Pool(request.into()), keep, (0, &sender)).await?;
    loop {
        match inbox.receive().await?.2 {
            Event::Pooled { index, values } => all[index] = values.into_iter().map(f32::from_bits).collect(),
            Event::Done => return Ok(all),
            _ => {}
        }
    }
}

/// Checks that every text fits the context: `param` names them.
///
/// # Errors
/// Which one doesn't, with both numbers.
pub(crate) fn check_lengths(texts: &[Text], context: usize, param: &str) -> Result<(), ApiError> {
    let Some((i, text)) = texts.iter().enumerate().find(|(_, text)| text.tokens.len() > context) else {
        return Ok(());
    };
    let param = if texts.len() > 1 { format!("{param}[{i}]") } else { param.to_owned() };
    Err(too_long(param, text.tokens.len(), context))
}

/// What is told of a text of `n` tokens that doesn't fit the context.
pub(crate) fn too_long(param: String, n: usize, context: usize) -> ApiError {
    let message = format!(
        "This model's maximum context length is {context} tokens, but `{param}` has {n} tokens. Shorten the text."
    );
    let error = ApiError::new(Code::ContextLengthExceeded, message);
    ApiError { param: Some(param), lengths: Some((n, context)), ..error }
}
