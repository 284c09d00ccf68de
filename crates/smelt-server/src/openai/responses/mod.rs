//! `/v1/responses`.

mod assembly;
mod store;

use crate::daemon::Request;
use axum::response::Response as Reply;
use jiff::Timestamp;
use smelt_api::params::Fields;
use smelt_api::responses::{
    Conversation, Deleted, Event, Failure, IncompleteDetails, InputTokens, ItemList, Listing, Numbered,
    RETRIEVE_PARAMS, Response, ResponsesRequest, Status, Usage, reference, with_id,
};
use smelt_api::{ApiError, Code};
use smelt_engine::Finish;

use self::assembly::{Assembly, Extras};
use self::store::Kept;
pub(crate) use self::store::Store;
use super::{request, silence};
use crate::app::{Call, json};
use crate::conversation::{ChatPrompt, Prepared, call_id, prepare};
use crate::generation::{Generation, News};
use crate::info::seconds;
use crate::models::OpenModel;
use crate::stream::{Framing, Gone, Pieces, respond};

use std::sync::Arc;
use std::time::Duration;

pub(crate) async fn create(call: Call) -> Result<Reply, ApiError> {
    let mut wanted = ResponsesRequest::read(&call.body)?;
    let (model, prompt) = encode(&call, &mut wanted.conversation).await?;
    let logprobs = wanted.top_logprobs;
    let request = Request {
        logprobs,
        shown: prompt.shown,
        constraint: prompt.constraint,
        ..request(&model, prompt.tokens, &wanted.common)?
    };
    let generation = Generation::submit(&call, &model, vec![request], &prompt.reading).await?;
    let id = call_id("resp_");
    let extras = Extras { logprobs: logprobs.is_some(), encrypted_reasoning: wanted.encrypted_reasoning };
    let writer = Writer {
        assembly: Assembly::new(id.trim_start_matches("resp_"), extras),
        response: Response {
            id,
            object: "response",
            created_at: seconds(Timestamp::now()),
            completed_at: None,
            status: Status::InProgress,
            error: None,
            incomplete_details: None,
            model: model.name().to_owned(),
            output: Vec::new(),
            usage: None,
            repeated: wanted.repeated,
        },
        kept: wanted.store.then_some((wanted.conversation.input, wanted.conversation.previous)),
        prompt: (0, 0),
        silence: silence(&call, &wanted.common),
        call,
    };
    match wanted.common.stream {
        Some(_) => {
            Ok(respond(Framing::Events, |pieces| Stream { pieces, number: 0, writer }.write(generation)))
        }
        None => writer.collect(generation).await,
    }
}

/// How many tokens a request's conversation has.
pub(crate) async fn count(call: Call) -> Result<Reply, ApiError> {
    let (_, prompt) = encode(&call, &mut Conversation::read(&call.body)?).await?;
    Ok(json(&InputTokens { object: "response.input_tokens", input_tokens: prompt.tokens.len() }))
}

pub(crate) async fn retrieve(call: Call) -> Result<Reply, ApiError> {
    Fields::query(&call.query, RETRIEVE_PARAMS)?;
    let kept = call.app.responses.get(call.tail.as_deref().unwrap_or_default(), call.key, None)?;
    Ok(json(&kept.response))
}

pub(crate) async fn delete(call: Call) -> Result<Reply, ApiError> {
    let id = call.tail.unwrap_or_default();
    call.app.responses.remove(&id, call.key)?;
    Ok(json(&Deleted { id, object: "response", deleted: true }))
}

/// The items that a response answered, with those of the responses that it goes on behind.
pub(crate) async fn input_items(call: Call) -> Result<Reply, ApiError> {
    let listing = Listing::read(&call.query)?;
    let id = call.tail.as_deref().unwrap_or_default();
    let kept = call.app.responses.get(id, call.key, None)?;
    let mut items = match kept.previous.as_deref() {
        Some(previous) => call.app.responses.items(previous, call.key)?,
        None => Vec::new(),
    };
    items.extend(kept.input.iter().cloned());
    if listing.newest_first {
        items.reverse();
    }
    if let Some(after) = listing.after {
        let at = items.iter().position(|item| item["id"] == after.as_str());
        let at =
            at.ok_or_else(|| ApiError::value("after", format!("is {after:?}, which is none of its items")))?;
        items.drain(..=at);
    }
    let has_more = items.len() > listing.limit;
    items.truncate(listing.limit);
    let id = |item: Option<&serde_json::Value>| item.and_then(|item| item["id"].as_str()).map(str::to_owned);
    let (first_id, last_id) = (id(items.first()), id(items.last()));
    Ok(json(&ItemList { object: "list", data: items, first_id, last_id, has_more }))
}

/// The conversation's model and prompt.
async fn encode(
    call: &Call,
    conversation: &mut Conversation,
) -> Result<(Arc<OpenModel>, Prepared), ApiError> {
    call.tolerate(&conversation.unknown);
    let model = call.app.models.find(conversation.model.as_deref()).await?;
    let responses = &call.app.responses;
    for (i, item) in conversation.input.iter_mut().enumerate() {
        if let Some(id) = reference(item) {
            *item = responses.item(id, call.key, &format!("input[{i}].id"))?;
        }
    }
    let before = match conversation.previous.as_deref() {
        Some(previous) => responses.items(previous, call.key)?,
        None => Vec::new(),
    };
    let prompt = ChatPrompt {
        messages: conversation.messages(before)?,
        tools: std::mem::take(&mut conversation.tools),
        reasoning: conversation.reasoning,
        structure: conversation.structure.take(),
        kwargs: std::mem::take(&mut conversation.template_kwargs),
        ..ChatPrompt::default()
    };
    let prompt = prepare(&model, prompt).await?;
    Ok((model, prompt))
}

/// A response that is being made.
struct Writer {
    call: Call,
    /// How long a stream of it may tell nothing.
    silence: Duration,
    response: Response,
    assembly: Assembly,
    /// The input, and what it goes on behind, if the response is to be kept.
    kept: Option<(Vec<serde_json::Value>, Option<String>)>,
    /// Tokens of the prompt, and those of them from the cache.
    prompt: (usize, usize),
}

impl Writer {
    /// The whole response.
    async fn collect(mut self, mut generation: Generation) -> Result<Reply, ApiError> {
        while let Some((_, news)) = generation.next().await? {
            self.take(news);
        }
        self.keep();
        Ok(json(&self.response))
    }

    /// Takes news, and tells what is to be told of it.
    fn take(&mut self, news: News) -> Vec<Event> {
        match news {
            News::Started { cached_tokens, prompt_tokens } => {
                self.prompt = (prompt_tokens, cached_tokens);
                vec![Event::InProgress { response: self.response.clone() }]
            }
            News::Progress | News::PromptLogprobs(_) => Vec::new(),
            News::Delta { parts, tokens, .. } => self.assembly.take(parts, tokens),
            News::Finished { finish, count, .. } => {
                let (prompt, cached) = self.prompt;
                self.response.usage = Some(Usage::new(prompt, cached, count.all, count.reasoning));
                let is_complete = matches!(finish, Finish::EndOfGeneration(_) | Finish::StopString(_));
                let status = if is_complete { Status::Completed } else { Status::Incomplete };
                let mut events = self.end(status);
                let response = self.response.clone();
                events.push(match is_complete {
                    true => Event::Completed { response },
                    false => Event::Incomplete { response },
                });
                events
            }
        }
    }

    /// Ends the response, and the item that is open.
    fn end(&mut self, status: Status) -> Vec<Event> {
        let events = self.assembly.finish(status);
        let response = &mut self.response;
        response.status = status;
        response.output = self.assembly.items().to_vec();
        response.completed_at = (status == Status::Completed).then(|| seconds(Timestamp::now()));
        let reason = "max_output_tokens";
        response.incomplete_details = (status == Status::Incomplete).then_some(IncompleteDetails { reason });
        events
    }

    /// Ends the response because of an error.
    fn fail(&mut self, error: &ApiError) -> Vec<Event> {
        let code = match error.code {
            Code::InvalidValue => "invalid_prompt",
            _ => "server_error",
        };
        self.response.error = Some(Failure { code, message: error.message.clone() });
        let mut events = self.end(Status::Failed);
        events.push(Event::Failed { response: self.response.clone() });
        events
    }

    fn keep(&mut self) {
        let Some((input, previous)) = self.kept.take() else { return };
        let id = self.response.id.trim_start_matches("resp_");
        let items = input.into_iter().enumerate().map(|(i, item)| with_id(item, &format!("{id}in{i}")));
        let response = serde_json::to_value(&self.response).unwrap_or_default();
        self.call.app.responses.put(Kept {
            response,
            input: items.collect(),
            previous,
            owner: self.call.key,
        });
    }
}

/// Writes a response event by event.
struct Stream {
    pieces: Pieces,
    number: usize,
    writer: Writer,
}

impl Stream {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let response = self.writer.response.clone();
        self.tell(vec![Event::Created { response }]).await?;
        loop {
            match self.pieces.alive(self.writer.silence, ": waiting\n\n", generation.next()).await? {
                Ok(Some((_, news))) => {
                    let is_end = matches!(news, News::Finished { .. });
                    let events = self.writer.take(news);
                    // Whoever has seen the end may ask for the response.
                    if is_end {
                        self.writer.keep();
                    }
                    self.tell(events).await?;
                }
                Ok(None) => return Ok(()),
                Err(error) => {
                    let events = self.writer.fail(&error);
                    self.writer.keep();
                    return self.tell(events).await;
                }
            }
        }
    }

    async fn tell(&mut self, events: Vec<Event>) -> Result<(), Gone> {
        for event in events {
            let name = event.name();
            let numbered = Numbered { sequence_number: self.number, event };
            self.number += 1;
            self.pieces.event(name, &numbered).await?;
        }
        Ok(())
    }
}
