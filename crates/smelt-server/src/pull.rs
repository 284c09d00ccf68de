//! Ollama's `/api/pull`.
//!
//! A server offers the models that it was started with, so that nobody who can reach it fills its disk or has it fetch
//! what they like: a pull of one of these succeeds at once, which is what programs need that pull before they ask. Any
//! other is the operator's to pull.

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::ollama::{PullRequest, Pulled};

use crate::app::{Call, json};
use crate::stream::{Framing, respond};

/// What Ollama tells of a pull that has nothing to fetch.
const STEPS: [&str; 2] = ["pulling manifest", "success"];

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let wanted = PullRequest::read(&call.body)?;
    call.tolerate(&wanted.unknown);
    if let Err(mut error) = call.app.models.offer(&wanted.model) {
        error.message.push_str("; pull others with `smelt pull`, and name them to `smelt serve`");
        return Err(error);
    }
    let [.., last] = STEPS;
    Ok(match wanted.stream {
        false => json(&Pulled { status: last }),
        true => respond(Framing::Lines, |pieces| async move {
            for status in STEPS {
                pieces.json(&Pulled { status }).await?;
            }
            Ok(())
        }),
    })
}
