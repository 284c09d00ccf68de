//! Anthropic's routes.

use std::sync::Arc;

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::anthropic::{
    Block, BlockDelta, Conversation, Count, Event as Told, MessageEnd, MessageResponse, MessagesRequest,
    StopReason, Usage,
};
use smelt_engine::Finish;
use smelt_engine::tokenizer::answer::Part;

use crate::app::{Call, json};
use crate::conversation::{ChatPrompt, Prepared, call_id, prepare};
use crate::daemon::Request;
use crate::generation::{Answer, Generation, News};
use crate::models::OpenModel;
use crate::prompt;
use crate::stream::{Framing, Gone, Pieces, respond};

pub(crate) async fn count(call: Call) -> Result<Response, ApiError> {
    let conversation = Conversation::read(&call.body)?;
    let (_, prompt) = encode(&call, conversation).await?;
    Ok(json(&Count { input_tokens: prompt.tokens.len() }))
}

/// The conversation's model and prompt.
async fn encode(call: &Call, conversation: Conversation) -> Result<(Arc<OpenModel>, Prepared), ApiError> {
    call.tolerate(&conversation.unknown);
    call.app.metrics.volatile_blocks.add(conversation.volatile as u64);
    let model = call.app.models.find(Some(&conversation.model)).await?;
    let continues = conversation.continues();
    let Conversation { messages, tools, reasoning, structure, .. } = conversation;
    let prompt = ChatPrompt { messages, tools, reasoning, structure, continues, ..ChatPrompt::default() };
    let prompt = prepare(&model, prompt).await?;
    Ok((model, prompt))
}

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let MessagesRequest { conversation, stream, sampling, limits } = MessagesRequest::read(&call.body)?;
    let (model, prompt) = encode(&call, conversation).await?;
    let request = Request {
        shown: prompt.shown,
        constraint: prompt.constraint,
        ..prompt::request(&model, prompt.tokens, &sampling, &limits)?
    };
    let generation = Generation::submit(&call, &model, vec![request], &prompt.reading).await?;
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
            Writer { pieces, call, message, stops, block: None, blocks: 0 }.write(generation)
        }));
    }
    let mut prompts = generation.collect(1).await?;
    let prompt = prompts.remove(0);
    let (prompt_tokens, cached, completion) =
        (prompt.prompt_tokens, prompt.cached_tokens, prompt.completion_tokens());
    let answer = prompt.answers.into_iter().next().unwrap_or_else(Answer::new);
    let MessageEnd { stop_reason, stop_sequence } = end(answer.finish, !answer.calls.is_empty(), &stops);
    Ok(json(&MessageResponse {
        content: blocks(answer),
        stop_reason: Some(stop_reason),
        stop_sequence,
        usage: Usage::new(prompt_tokens, cached, completion),
        ..message
    }))
}

/// The blocks of an answer, in Anthropic's order.
fn blocks(answer: Answer) -> Vec<Block> {
    let Answer { content: mut text, reasoning, calls, .. } = answer;
    let mut uses = Vec::with_capacity(calls.len());
    for call in calls {
        // One that the end has cut off is no object; what there is of it is text.
        match serde_json::from_str(&call.arguments) {
            Ok(input) => uses.push(Block::ToolUse { id: call_id("toolu_"), name: call.name, input }),
            Err(_) => text.push_str(&call.arguments),
        }
    }
    let thinking = Block::Thinking { thinking: reasoning, signature: String::new() };
    let thinks = matches!(&thinking, Block::Thinking { thinking, .. } if !thinking.is_empty());
    let speaks = !text.is_empty() || (uses.is_empty() && !thinks);
    let thinking = thinks.then_some(thinking).into_iter();
    thinking.chain(speaks.then_some(Block::Text { text })).chain(uses).collect()
}

fn end(finish: Finish, has_calls: bool, stops: &[String]) -> MessageEnd {
    let (stop_reason, stop_sequence) = match finish {
        Finish::EndOfGeneration(_) if has_calls => (StopReason::ToolUse, None),
        Finish::EndOfGeneration(_) => (StopReason::EndTurn, None),
        Finish::StopString(index) => (StopReason::StopSequence, stops.get(index).cloned()),
        Finish::ContextFull => (StopReason::ModelContextWindowExceeded, None),
        Finish::MaxTokens | Finish::Line | Finish::Cancelled => (StopReason::MaxTokens, None),
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
    /// What kind of block is open, if one is.
    block: Option<Kind>,
    /// Blocks that were begun.
    blocks: usize,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    Thinking,
    ToolUse,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let every = self.call.app.settings.limits.keep_alive;
        let (mut prompt, mut cached) = (0, 0);
        loop {
            match self.pieces.alive(every, PING, generation.next()).await? {
                Ok(Some((_, News::Started { cached_tokens, prompt_tokens }))) => {
                    (prompt, cached) = (prompt_tokens, cached_tokens);
                    self.message.usage = Usage::new(prompt, cached, 0);
                    self.tell(Told::MessageStart { message: self.message.clone() }).await?;
                    self.tell(Told::Ping).await?;
                }
                Ok(Some((_, News::Delta { parts, .. }))) => {
                    for part in parts {
                        self.part(part).await?;
                    }
                }
                Ok(Some((_, News::Finished { finish, count, has_calls, .. }))) => {
                    if self.blocks == 0 {
                        self.part(Part::Content(String::new())).await?;
                    }
                    self.close().await?;
                    let usage = Usage::new(prompt, cached, count.all);
                    let delta = end(finish, has_calls, &self.stops);
                    self.tell(Told::MessageDelta { delta, usage }).await?;
                }
                Ok(Some((_, News::Progress | News::PromptLogprobs(_)))) => {}
                Ok(None) => return self.tell(Told::MessageStop).await,
                Err(error) => return self.pieces.event("error", &self.call.error_body(&error)).await,
            }
        }
    }

    /// Writes a part, in the block that is open if it goes on with it.
    async fn part(&mut self, part: Part) -> Result<(), Gone> {
        let (kind, begin, delta) = match part {
            Part::Content(text) => {
                (Kind::Text, Block::Text { text: String::new() }, Some(BlockDelta::TextDelta { text }))
            }
            Part::Reasoning(thinking) => {
                let begin = Block::Thinking { thinking: String::new(), signature: String::new() };
                (Kind::Thinking, begin, Some(BlockDelta::ThinkingDelta { thinking }))
            }
            Part::Call(name) => {
                let input = serde_json::json!({});
                (Kind::ToolUse, Block::ToolUse { id: call_id("toolu_"), name, input }, None)
            }
            Part::Arguments(partial_json) => {
                let index = self.blocks.saturating_sub(1);
                let delta = BlockDelta::InputJsonDelta { partial_json };
                return self.tell(Told::ContentBlockDelta { index, delta }).await;
            }
        };
        if kind == Kind::ToolUse || self.block != Some(kind) {
            self.close().await?;
            self.tell(Told::ContentBlockStart { index: self.blocks, content_block: begin }).await?;
            self.block = Some(kind);
            self.blocks += 1;
        }
        match delta {
            Some(delta) => self.tell(Told::ContentBlockDelta { index: self.blocks - 1, delta }).await,
            None => Ok(()),
        }
    }

    async fn close(&mut self) -> Result<(), Gone> {
        match self.block.take() {
            Some(_) => self.tell(Told::ContentBlockStop { index: self.blocks - 1 }).await,
            None => Ok(()),
        }
    }

    async fn tell(&self, event: Told) -> Result<(), Gone> {
        self.pieces.event(event.name(), &event).await
    }
}
