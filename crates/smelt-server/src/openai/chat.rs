//! `/v1/chat/completions`.

use std::sync::Arc;
use std::time::Duration;

use axum::response::Response;
use jiff::Timestamp;
use smelt_api::llamacpp::AppliedTemplate;
use smelt_api::openai::{
    AssistantMessage, Call as ToolCall, ChatChoice, ChatChunk, ChatCompletion, ChatDelta, ChatLogprobs,
    ChatRequest, Delta, StreamOptions, Usage, Verbose,
};
use smelt_api::responses::InputTokens;
use smelt_api::{ApiError, Timings};
use smelt_engine::TokenInfo;
use smelt_engine::tokenizer::answer::{Part, ToolCall as CompleteCall};

use super::{chat_logprob, fingerprint, finish_reason, request, silence, usage};
use crate::app::{Call, json};
use crate::conversation::{ChatPrompt, Prepared, call_id, prepare};
use crate::daemon::Request;
use crate::generation::{Answer, Answered, Generation, News};
use crate::info::seconds;
use crate::models::OpenModel;
use crate::stream::{Framing, Gone, Pieces, respond};

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let Asked { wanted, model, prompt } = ask(&call).await?;
    let logprobs = wanted.top_logprobs;
    let verbose = wanted.verbose.then_some(Verbose { prompt: prompt.text });
    let request = Request {
        logprobs,
        shown: prompt.shown,
        constraint: prompt.constraint,
        ..request(&model, prompt.tokens, &wanted.common)?
    };
    let n = request.n;
    let generation = Generation::submit(&call, &model, vec![request], &prompt.reading).await?;
    let head = Head { id: format!("chatcmpl-{}", call.id), created: seconds(Timestamp::now()), model };
    let silence = silence(&call, &wanted.common);
    match wanted.common.stream {
        Some(options) => Ok(respond(Framing::Events, |pieces| {
            let writer = Writer {
                pieces,
                call,
                head,
                options,
                calls: vec![0; n],
                with_logprobs: logprobs.is_some(),
                always: wanted.common.timings_per_token,
                tells_progress: wanted.common.return_progress,
                silence,
                timings: None,
                verbose,
            };
            writer.write(generation)
        })),
        None => {
            let prompts = generation.collect(n).await?;
            Ok(json(&ChatCompletion { verbose, ..completion(head, prompts, logprobs.is_some()) }))
        }
    }
}

/// How many tokens a conversation has.
pub(crate) async fn count(call: Call) -> Result<Response, ApiError> {
    let input_tokens = ask(&call).await?.prompt.tokens.len();
    Ok(json(&InputTokens { object: "response.input_tokens", input_tokens }))
}

/// The prompt that the chat template makes of a conversation.
pub(crate) async fn apply_template(call: Call) -> Result<Response, ApiError> {
    Ok(json(&AppliedTemplate { prompt: ask(&call).await?.prompt.text }))
}

/// A conversation that is ready to be answered.
struct Asked {
    wanted: ChatRequest,
    model: Arc<OpenModel>,
    prompt: Prepared,
}

async fn ask(call: &Call) -> Result<Asked, ApiError> {
    let mut wanted = ChatRequest::read(&call.body)?;
    call.tolerate(&wanted.common.unknown);
    let model = call.app.models.find(wanted.common.model.as_deref()).await?;
    let prompt = ChatPrompt {
        messages: std::mem::take(&mut wanted.messages),
        tools: std::mem::take(&mut wanted.tools),
        reasoning: wanted.reasoning,
        structure: wanted.common.structure.take(),
        kwargs: std::mem::take(&mut wanted.template_kwargs),
        continues: wanted.continue_final_message,
        closed: !wanted.add_generation_prompt && !wanted.continue_final_message,
    };
    let prompt = prepare(&model, prompt).await?;
    Ok(Asked { wanted, model, prompt })
}

/// What all chunks of an answer say.
struct Head {
    id: String,
    created: u64,
    model: Arc<OpenModel>,
}

fn completion(head: Head, prompts: Vec<Answered>, with_logprobs: bool) -> ChatCompletion {
    let usage = usage(&prompts);
    let timings = prompts.first().map(|prompt| prompt.timings).unwrap_or_default();
    let answers = prompts.into_iter().flat_map(|prompt| prompt.answers).enumerate();
    let choices = answers.map(|(index, answer)| ChatChoice {
        index,
        logprobs: with_logprobs.then(|| logprobs(&answer.tokens)),
        finish_reason: finish_reason(answer.finish, !answer.calls.is_empty()),
        message: message(answer),
    });
    ChatCompletion {
        choices: choices.collect(),
        id: head.id,
        object: "chat.completion",
        created: head.created,
        model: head.model.name().to_owned(),
        system_fingerprint: fingerprint(),
        usage,
        timings,
        verbose: None,
    }
}

fn message(answer: Answer) -> AssistantMessage {
    let Answer { content, reasoning, calls, .. } = answer;
    let is_silent = content.is_empty() && !calls.is_empty();
    let call = |call: CompleteCall| ToolCall::new(None, call_id("call_"), call.name, call.arguments);
    AssistantMessage {
        role: "assistant",
        content: (!is_silent).then_some(content),
        refusal: None,
        reasoning_content: (!reasoning.is_empty()).then_some(reasoning),
        tool_calls: calls.into_iter().map(call).collect(),
    }
}

fn logprobs(tokens: &[TokenInfo]) -> ChatLogprobs {
    ChatLogprobs { content: tokens.iter().map(chat_logprob).collect(), refusal: None }
}

/// Writes an answer chunk by chunk.
struct Writer {
    pieces: Pieces,
    call: Call,
    head: Head,
    options: StreamOptions,
    /// Calls that each answer has begun.
    calls: Vec<usize>,
    with_logprobs: bool,
    /// Tell the timings in every chunk.
    always: bool,
    /// Tell how far the prompt is.
    tells_progress: bool,
    /// How long it may tell nothing.
    silence: Duration,
    /// What the next chunk tells of them.
    timings: Option<Timings>,
    /// What the next chunk tells of the prompt.
    verbose: Option<Verbose>,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let (mut prompt, mut cached, mut completion, mut reasoning) = (0, 0, 0, 0);
        loop {
            match self.pieces.alive(self.silence, ": waiting\n\n", generation.next()).await? {
                Ok(Some((_, news))) => {
                    match &news {
                        News::Started { cached_tokens, prompt_tokens } => {
                            (prompt, cached) = (*prompt_tokens, *cached_tokens);
                        }
                        News::Finished { count, .. } => {
                            completion += count.all;
                            reasoning += count.reasoning;
                        }
                        _ => {}
                    }
                    let is_told = match &news {
                        News::Finished { .. } => !self.options.include_usage || self.always,
                        News::Delta { .. } => self.always,
                        News::Started { .. } | News::Progress | News::PromptLogprobs(_) => false,
                    };
                    self.timings = is_told.then(|| generation.timings(0));
                    let is_progress = matches!(news, News::Started { .. } | News::Progress);
                    self.tell(news).await?;
                    if is_progress && self.tells_progress {
                        self.tell_progress(&generation).await?;
                    }
                }
                Ok(None) => break,
                Err(error) => {
                    self.pieces.json(&self.call.error_body(&error)).await?;
                    return self.pieces.write("data: [DONE]\n\n").await;
                }
            }
        }
        if self.options.include_usage {
            self.timings = Some(generation.timings(0));
            let usage = Some(Some(Usage::new(prompt, cached, completion, reasoning)));
            let chunk = ChatChunk { usage, ..self.chunk(Vec::new()) };
            self.pieces.json(&chunk).await?;
        }
        self.pieces.write("data: [DONE]\n\n").await
    }

    async fn tell(&mut self, news: News) -> Result<(), Gone> {
        match news {
            News::Started { .. } => {
                for index in 0..self.calls.len() {
                    let content = Some(String::new());
                    let delta = Delta { role: Some("assistant"), content, ..Delta::default() };
                    self.delta(index, delta, None, None).await?;
                }
                Ok(())
            }
            News::Delta { index, parts, tokens } => {
                let mut logprobs = (self.with_logprobs && !tokens.is_empty()).then(|| logprobs(&tokens));
                for part in parts {
                    let delta = self.part(index, part);
                    self.delta(index, delta, logprobs.take(), None).await?;
                }
                if logprobs.is_some() {
                    // The tokens' text is no part yet.
                    let delta = Delta { content: Some(String::new()), ..Delta::default() };
                    self.delta(index, delta, logprobs, None).await?;
                }
                Ok(())
            }
            News::Finished { index, finish, has_calls, .. } => {
                self.delta(index, Delta::default(), None, Some(finish_reason(finish, has_calls))).await
            }
            News::Progress | News::PromptLogprobs(_) => Ok(()),
        }
    }

    async fn tell_progress(&mut self, generation: &Generation) -> Result<(), Gone> {
        self.timings = self.always.then(|| generation.timings(0));
        let prompt_progress = Some(generation.progress(0));
        // Clients look for a choice in every chunk.
        let (index, delta) = (0, Delta::default());
        let choices = vec![ChatDelta { index, delta, logprobs: None, finish_reason: None }];
        let chunk = ChatChunk { prompt_progress, ..self.chunk(choices) };
        self.pieces.json(&chunk).await
    }

    fn part(&mut self, index: usize, part: Part) -> Delta {
        let calls = &mut self.calls[index];
        match part {
            Part::Content(text) => Delta { content: Some(text), ..Delta::default() },
            Part::Reasoning(text) => Delta { reasoning_content: Some(text), ..Delta::default() },
            Part::Call(name) => {
                let call = ToolCall::new(Some(*calls), call_id("call_"), name, String::new());
                *calls += 1;
                Delta { tool_calls: vec![call], ..Delta::default() }
            }
            Part::Arguments(text) => {
                Delta { tool_calls: vec![ToolCall::more(calls.saturating_sub(1), text)], ..Delta::default() }
            }
        }
    }

    async fn delta(
        &mut self,
        index: usize,
        delta: Delta,
        logprobs: Option<ChatLogprobs>,
        finish_reason: Option<smelt_api::openai::FinishReason>,
    ) -> Result<(), Gone> {
        let chunk = self.chunk(vec![ChatDelta { index, delta, logprobs, finish_reason }]);
        self.pieces.json(&chunk).await
    }

    fn chunk(&mut self, choices: Vec<ChatDelta>) -> ChatChunk {
        ChatChunk {
            id: self.head.id.clone(),
            object: "chat.completion.chunk",
            created: self.head.created,
            model: self.head.model.name().to_owned(),
            system_fingerprint: fingerprint(),
            choices,
            usage: self.options.include_usage.then_some(None),
            timings: self.timings,
            prompt_progress: None,
            verbose: self.verbose.take(),
        }
    }
}
