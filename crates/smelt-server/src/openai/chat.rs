//! `/v1/chat/completions`.

use std::sync::Arc;

use axum::response::Response;
use jiff::Timestamp;
use smelt_api::ApiError;
use smelt_api::openai::{
    AssistantMessage, ChatChoice, ChatChunk, ChatCompletion, ChatDelta, ChatLogprob, ChatLogprobs,
    ChatRequest, Delta, StreamOptions, TokenLogprob, Usage,
};
use smelt_engine::TokenInfo;
use smelt_engine::scheduler::{Event, Request};

use super::{alternatives, fingerprint, finish_reason, logprob, request, usage};
use crate::app::{Call, json};
use crate::generation::{Answered, Generation};
use crate::info::seconds;
use crate::models::Loaded;
use crate::prompt::{self, ChatPrompt};
use crate::stream::{Framing, Gone, Pieces, respond};

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let mut wanted = ChatRequest::read(&call.body)?;
    call.tolerate(&wanted.common.unknown);
    let model = call.app.models.find(wanted.common.model.as_deref())?;
    let prompt = ChatPrompt {
        messages: std::mem::take(&mut wanted.messages),
        kwargs: std::mem::take(&mut wanted.template_kwargs),
        continues: wanted.continue_final_message,
        closed: false,
    };
    let tokens = prompt::chat(&model, prompt).await?;
    let logprobs = wanted.top_logprobs;
    let request = Request { logprobs, ..request(&model, tokens, &wanted.common)? };
    let n = request.n;
    let generation = Generation::submit(&model, vec![request], call.app.settings.limits.queue_time)?;
    let head = Head { id: format!("chatcmpl-{}", call.id), created: seconds(Timestamp::now()), model };
    match wanted.common.stream {
        Some(options) => Ok(respond(Framing::Events, |pieces| {
            let writer = Writer { pieces, call, head, options, n, with_logprobs: logprobs.is_some() };
            writer.write(generation)
        })),
        None => {
            let prompts = generation.collect(n).await?;
            Ok(json(&completion(head, prompts, logprobs.is_some())))
        }
    }
}

/// What all chunks of an answer say.
struct Head {
    id: String,
    created: u64,
    model: Arc<Loaded>,
}

fn completion(head: Head, prompts: Vec<Answered>, with_logprobs: bool) -> ChatCompletion {
    let usage = usage(&prompts);
    let answers = prompts.into_iter().flat_map(|prompt| prompt.answers).enumerate();
    let choices = answers.map(|(index, answer)| ChatChoice {
        index,
        logprobs: with_logprobs.then(|| logprobs(&answer.tokens)),
        message: AssistantMessage { role: "assistant", content: answer.text, refusal: None },
        finish_reason: finish_reason(answer.finish),
    });
    ChatCompletion {
        choices: choices.collect(),
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model.name().to_owned(),
        system_fingerprint: fingerprint(),
        usage,
    }
}

fn logprobs(tokens: &[TokenInfo]) -> ChatLogprobs {
    let entry = |token: &TokenInfo| ChatLogprob {
        token: TokenLogprob::new(&token.bytes, logprob(token)),
        top_logprobs: alternatives(token).collect(),
    };
    ChatLogprobs { content: tokens.iter().map(entry).collect(), refusal: None }
}

/// Writes an answer chunk by chunk.
struct Writer {
    pieces: Pieces,
    call: Call,
    head: Head,
    options: StreamOptions,
    n: usize,
    with_logprobs: bool,
}

impl Writer {
    async fn write(self, mut generation: Generation) -> Result<(), Gone> {
        let every = self.call.app.settings.limits.keep_alive;
        let (mut prompt, mut cached, mut completion) = (0, 0, 0);
        loop {
            match self.pieces.alive(every, ": waiting\n\n", generation.next()).await? {
                Ok(Some((_, event))) => {
                    match &event {
                        Event::Started { cached_tokens, prompt_tokens } => {
                            (prompt, cached) = (*prompt_tokens, *cached_tokens);
                        }
                        Event::Finished { usage, .. } => completion += usage.completion_tokens,
                        _ => {}
                    }
                    self.tell(event).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    self.pieces.json(&self.call.error_body(&error)).await?;
                    return self.pieces.write("data: [DONE]\n\n").await;
                }
            }
        }
        if self.options.include_usage {
            let usage = Some(Some(Usage::new(prompt, cached, completion)));
            self.pieces.json(&ChatChunk { usage, ..self.chunk(Vec::new()) }).await?;
        }
        self.pieces.write("data: [DONE]\n\n").await
    }

    async fn tell(&self, event: Event) -> Result<(), Gone> {
        match event {
            Event::Started { .. } => {
                for index in 0..self.n {
                    let delta = Delta { role: Some("assistant"), content: Some(String::new()) };
                    self.delta(index, delta, None, None).await?;
                }
                Ok(())
            }
            Event::Delta { index, text, tokens } => {
                let logprobs = (self.with_logprobs && !tokens.is_empty()).then(|| logprobs(&tokens));
                if text.is_empty() && logprobs.is_none() {
                    return Ok(());
                }
                self.delta(index, Delta { role: None, content: Some(text) }, logprobs, None).await
            }
            Event::Finished { index, finish, .. } => {
                self.delta(index, Delta::default(), None, Some(finish_reason(finish))).await
            }
            Event::PromptLogprobs(_) | Event::Done | Event::Failed(_) => Ok(()),
        }
    }

    async fn delta(
        &self,
        index: usize,
        delta: Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<smelt_api::openai::FinishReason>,
    ) -> Result<(), Gone> {
        self.pieces.json(&self.chunk(vec![ChatDelta { index, delta, logprobs, finish_reason }])).await
    }

    fn chunk(&self, choices: Vec<ChatDelta>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.name().to_owned(),
            system_fingerprint: fingerprint(),
            choices,
            usage: self.options.include_usage.then_some(None),
        }
    }
}
