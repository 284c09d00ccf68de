//! Anthropic's routes.

use std::sync::Arc;

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::anthropic::{
    Conversation, Count, Event as Told, MessageEnd, MessageResponse, MessagesRequest, StopReason, TextBlock,
    TextDelta, Usage,
};
use smelt_engine::Finish;
use smelt_engine::scheduler::{Event, Request};

use crate::app::{Call, json};
use crate::generation::Generation;
use crate::models::Loaded;
use crate::prompt::{self, ChatPrompt};
use crate::stream::{Framing, Gone, Pieces, respond};

pub(crate) async fn count(call: Call) -> Result<Response, ApiError> {
    let conversation = Conversation::read(&call.body)?;
    let (_, tokens) = encode(&call, conversation).await?;
    Ok(json(&Count { input_tokens: tokens.len() }))
}

/// The conversation's model and tokens.
async fn encode(call: &Call, conversation: Conversation) -> Result<(Arc<Loaded>, Vec<u32>), ApiError> {
    call.tolerate(&conversation.unknown);
    call.app.metrics.volatile_blocks.add(conversation.volatile as u64);
    let model = call.app.models.find(Some(&conversation.model))?;
    let continues = conversation.continues();
    let prompt = ChatPrompt { messages: conversation.messages, continues, ..ChatPrompt::default() };
    let tokens = prompt::chat(&model, prompt).await?;
    Ok((model, tokens))
}

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let MessagesRequest { conversation, stream, sampling, limits } = MessagesRequest::read(&call.body)?;
    let (model, tokens) = encode(&call, conversation).await?;
    let request = Request {
        max_tokens: limits.max_tokens,
        stop: limits.stop.clone(),
        ..Request::new(tokens, prompt::sampler(model.model(), &sampling)?)
    };
    let generation = Generation::submit(&model, vec![request], call.app.settings.limits.queue_time)?;
    let message = MessageResponse {
        id: format!("msg_{}", call.id),
        kind: "message",
        role: "assistant",
        model: model.name().to_owned(),
        content: Vec::new(),
        stop_reason: None,
        stop_sequence: None,
        usage: Usage::new(0, 0, 0),
    };
    let stops = limits.stop;
    if stream {
        return Ok(respond(Framing::Events, |pieces| {
            Writer { pieces, call, message, stops }.write(generation)
        }));
    }
    let mut prompts = generation.collect(1).await?;
    let prompt = prompts.remove(0);
    let (prompt_tokens, cached, completion) =
        (prompt.prompt_tokens, prompt.cached_tokens, prompt.completion_tokens());
    let answers = prompt.answers.into_iter().next();
    let (text, finish) = answers.map_or((String::new(), Finish::Cancelled), |a| (a.text, a.finish));
    let MessageEnd { stop_reason, stop_sequence } = end(finish, &stops);
    Ok(json(&MessageResponse {
        content: vec![TextBlock { kind: "text", text }],
        stop_reason: Some(stop_reason),
        stop_sequence,
        usage: Usage::new(prompt_tokens, cached, completion),
        ..message
    }))
}

fn end(finish: Finish, stops: &[String]) -> MessageEnd {
    let (stop_reason, stop_sequence) = match finish {
        Finish::EndOfGeneration(_) => (StopReason::EndTurn, None),
        Finish::StopString(index) => (StopReason::StopSequence, stops.get(index).cloned()),
        Finish::ContextFull => (StopReason::ModelContextWindowExceeded, None),
        Finish::MaxTokens | Finish::Cancelled => (StopReason::MaxTokens, None),
    };
    MessageEnd { stop_reason, stop_sequence }
}

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";

/// Writes an answer event by event.
struct Writer {
    pieces: Pieces,
    call: Call,
    message: MessageResponse,
    stops: Vec<String>,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let every = self.call.app.settings.limits.keep_alive;
        let (mut prompt, mut cached) = (0, 0);
        loop {
            match self.pieces.alive(every, PING, generation.next()).await? {
                Ok(Some((_, Event::Started { cached_tokens, prompt_tokens }))) => {
                    (prompt, cached) = (prompt_tokens, cached_tokens);
                    self.message.usage = Usage::new(prompt, cached, 0);
                    self.tell(Told::MessageStart { message: self.message.clone() }).await?;
                    let content_block = TextBlock { kind: "text", text: String::new() };
                    self.tell(Told::ContentBlockStart { index: 0, content_block }).await?;
                    self.tell(Told::Ping).await?;
                }
                Ok(Some((_, Event::Delta { text, .. }))) if !text.is_empty() => {
                    let delta = TextDelta { kind: "text_delta", text };
                    self.tell(Told::ContentBlockDelta { index: 0, delta }).await?;
                }
                Ok(Some((_, Event::Finished { finish, usage, .. }))) => {
                    self.tell(Told::ContentBlockStop { index: 0 }).await?;
                    let usage = Usage::new(prompt, cached, usage.completion_tokens);
                    self.tell(Told::MessageDelta { delta: end(finish, &self.stops), usage }).await?;
                }
                Ok(Some(_)) => {}
                Ok(None) => return self.tell(Told::MessageStop).await,
                Err(error) => return self.pieces.event("error", &self.call.error_body(&error)).await,
            }
        }
    }

    async fn tell(&self, event: Told) -> Result<(), Gone> {
        self.pieces.event(event.name(), &event).await
    }
}
