//! `/v1/completions`.

use std::time::Duration;

use axum::response::Response;
use jiff::Timestamp;
use serde_json::{Map, Value};
use smelt_api::ApiError;
use smelt_api::openai::{
    Completion, CompletionRequest, LEAST_LOGPROB, Prompt, StreamOptions, TextChoice, TextLogprobs, Usage,
    token_text,
};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::answer::ReaderOptions;
use smelt_engine::{Finish, TokenInfo};

use super::{fingerprint, finish_reason, request, silence, usage};
use crate::app::{Call, json};
use crate::daemon::Request;
use crate::generation::{Generation, News, text};
use crate::info::seconds;
use crate::prompt::{self, beside};
use crate::stream::{Framing, Gone, Pieces, respond};
use crate::structure;

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let wanted = CompletionRequest::read(&call.body)?;
    call.tolerate(&wanted.common.unknown);
    let model = call.app.models.find(wanted.common.model.as_deref()).await?;
    let (logprobs, mut common) = (wanted.logprobs, wanted.common);
    let form = Form { add_special: wanted.add_special, echo: wanted.echo };
    let encoding = model.clone();
    let encoded = beside(move || {
        let model = encoding.model();
        let suffix = wanted.suffix.as_deref();
        let encode = |prompt| encode(model, prompt, suffix, form);
        wanted.prompts.into_iter().map(encode).collect::<Result<Vec<_>, _>>()
    });
    let (prompts, echoes): (Vec<Vec<u32>>, Vec<Option<String>>) = encoded.await?.into_iter().unzip();
    let constraint = common.structure.take().map(structure::requirement).transpose()?;
    let requests = prompts.into_iter().map(|tokens| {
        let constraint = constraint.clone();
        let prompt_logprobs = form.echo && logprobs.is_some();
        Ok(Request { logprobs, prompt_logprobs, constraint, ..request(&model, tokens, &common)? })
    });
    let requests = requests.collect::<Result<Vec<_>, ApiError>>()?;
    let generation = Generation::submit(&call, &model, requests, &ReaderOptions::default()).await?;
    let chunk = Completion {
        id: format!("cmpl-{}", call.id),
        object: "text_completion",
        created: seconds(Timestamp::now()),
        model: model.name().to_owned(),
        system_fingerprint: fingerprint(),
        choices: Vec::new(),
        usage: None,
        timings: None,
        prompt_progress: None,
    };
    let (n, silence, stop) = (common.n, silence(&call, &common), common.limits.stop);
    let choices = |echo: &Option<String>| {
        (0..n).map(|_| Choice::new(echo.clone(), logprobs.is_some())).collect::<Vec<Choice>>()
    };
    let choices: Vec<Choice> = echoes.iter().flat_map(choices).collect();
    let (always, tells_progress) = (common.timings_per_token, common.return_progress);
    match common.stream {
        Some(options) => Ok(respond(Framing::Events, |pieces| {
            Writer { pieces, call, chunk, options, always, tells_progress, silence, n, stop, choices }
                .write(generation)
        })),
        None => complete(chunk, generation, n, &stop, choices).await,
    }
}

/// What is done with a prompt.
#[derive(Debug, Clone, Copy)]
struct Form {
    /// BOS is added where the vocabulary asks for it.
    add_special: bool,
    /// It is repeated in front of the answer.
    echo: bool,
}

/// A prompt's tokens, and its text if it is to be repeated.
fn encode(
    model: &smelt_engine::Model,
    prompt: Prompt,
    suffix: Option<&str>,
    form: Form,
) -> Result<(Vec<u32>, Option<String>), ApiError> {
    let Form { add_special, echo } = form;
    let mut echoed = match &prompt {
        Prompt::Text(text) if echo => Some(text.clone()),
        _ => None,
    };
    let tokens = match (prompt, suffix) {
        (Prompt::Text(text), Some(suffix)) => prompt::encode_around(model, &text, suffix)?,
        (prompt, _) => prompt::encode(model, prompt, (Special::Parse, add_special), "prompt")?,
    };
    if echo && echoed.is_none() {
        echoed = Some(model.tokenizer().decode(&tokens, true));
    }
    Ok((tokens, echoed))
}

async fn complete(
    chunk: Completion,
    generation: Generation,
    n: usize,
    stop: &[String],
    mut choices: Vec<Choice>,
) -> Result<Response, ApiError> {
    let prompts = generation.collect(n).await?;
    let usage = Some(Some(usage(&prompts)));
    // Of several prompts, each has its own.
    let timings = prompts.first().filter(|_| prompts.len() == 1).map(|prompt| prompt.timings);
    let mut done = Vec::with_capacity(choices.len());
    for (p, prompt) in prompts.into_iter().enumerate() {
        for (i, answer) in prompt.answers.into_iter().enumerate() {
            let index = p * n + i;
            let choice = &mut choices[index];
            let (mut text, mut logprobs) = choice.begin(&prompt.prompt);
            text.push_str(&answer.content);
            if let Some(logprobs) = &mut logprobs {
                choice.add(&answer.tokens, logprobs);
            }
            done.push(TextChoice {
                index,
                text,
                logprobs,
                finish_reason: Some(finish_reason(answer.finish, false)),
                stop_reason: stop_reason(answer.finish, stop),
            });
        }
    }
    Ok(json(&Completion { choices: done, usage, timings, ..chunk }))
}

/// The stop string that ended an answer.
fn stop_reason(finish: Finish, stop: &[String]) -> Option<String> {
    match finish {
        Finish::StopString(index) => stop.get(index).cloned(),
        _ => None,
    }
}

/// What is known of an answer while it is told.
struct Choice {
    /// The prompt, if it is to be repeated.
    echo: Option<String>,
    /// Characters of the tokens so far.
    offset: usize,
    with_logprobs: bool,
}

impl Choice {
    fn new(echo: Option<String>, with_logprobs: bool) -> Self {
        Self { echo, offset: 0, with_logprobs }
    }

    /// What stands in front of the answer.
    fn begin(&mut self, prompt: &[TokenInfo]) -> (String, Option<TextLogprobs>) {
        let mut logprobs = self.with_logprobs.then(TextLogprobs::default);
        if let Some(logprobs) = &mut logprobs {
            self.add(prompt, logprobs);
        }
        (self.echo.take().unwrap_or_default(), logprobs)
    }

    fn add(&mut self, tokens: &[TokenInfo], to: &mut TextLogprobs) {
        for token in tokens {
            to.tokens.push(token_text(&token.bytes));
            to.token_logprobs.push(token.logprob.map(|x| x.max(LEAST_LOGPROB)));
            // The first token of a prompt comes without any.
            to.top_logprobs.push(token.logprob.map(|_| {
                let entry = |bytes: &[u8], x: f32| (token_text(bytes), Value::from(x.max(LEAST_LOGPROB)));
                let top: Map<String, Value> = token.top.iter().map(|t| entry(&t.bytes, t.logprob)).collect();
                top
            }));
            to.text_offset.push(self.offset);
            // A character counts where it begins: tokens may part one.
            self.offset += token.bytes.iter().filter(|byte| **byte & 0xc0 != 0x80).count();
        }
    }
}

/// Writes answers chunk by chunk.
struct Writer {
    pieces: Pieces,
    call: Call,
    chunk: Completion,
    options: StreamOptions,
    /// Tell the timings in every chunk.
    always: bool,
    /// Tell how far prompts are.
    tells_progress: bool,
    /// How long it may tell nothing.
    silence: Duration,
    n: usize,
    stop: Vec<String>,
    choices: Vec<Choice>,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        let mut total = (0, 0, 0);
        loop {
            match self.pieces.alive(self.silence, ": waiting\n\n", generation.next()).await? {
                Ok(Some((prompt, news))) => {
                    match &news {
                        News::Started { cached_tokens, prompt_tokens } => {
                            total.0 += prompt_tokens;
                            total.1 += cached_tokens;
                        }
                        News::Finished { count, .. } => total.2 += count.all,
                        _ => {}
                    }
                    self.time(&generation, prompt, &news);
                    let is_progress = matches!(news, News::Started { .. } | News::Progress);
                    if is_progress && self.tells_progress {
                        let timings = self.always.then(|| generation.timings(prompt));
                        let prompt_progress = Some(generation.progress(prompt));
                        let chunk = Completion { timings, prompt_progress, ..self.chunk.clone() };
                        self.pieces.json(&chunk).await?;
                    }
                    self.tell(prompt, news).await?;
                }
                Ok(None) => break,
                Err(error) => {
                    self.pieces.json(&self.call.error_body(&error)).await?;
                    return self.pieces.write("data: [DONE]\n\n").await;
                }
            }
        }
        if self.options.include_usage {
            let usage = Some(Some(Usage::new(total.0, total.1, total.2, 0)));
            self.pieces.json(&Completion { usage, ..self.chunk.clone() }).await?;
        }
        self.pieces.write("data: [DONE]\n\n").await
    }

    /// Has the next chunk tell the timings, if it is to.
    fn time(&mut self, generation: &Generation, prompt: usize, news: &News) {
        let is_told = match news {
            News::Finished { .. } => true,
            News::Delta { .. } => self.always,
            News::Started { .. } | News::Progress | News::PromptLogprobs(_) => false,
        };
        self.chunk.timings = is_told.then(|| generation.timings(prompt));
    }

    async fn tell(&mut self, prompt: usize, news: News) -> Result<(), Gone> {
        match news {
            News::PromptLogprobs(tokens) => {
                for i in 0..self.n {
                    self.begin(prompt * self.n + i, &tokens).await?;
                }
                Ok(())
            }
            News::Delta { index, parts, tokens } => {
                let text = text(parts);
                let index = prompt * self.n + index;
                self.begin(index, &[]).await?;
                let choice = &mut self.choices[index];
                let logprobs = (choice.with_logprobs && !tokens.is_empty()).then(|| {
                    let mut logprobs = TextLogprobs::default();
                    choice.add(&tokens, &mut logprobs);
                    logprobs
                });
                if text.is_empty() && logprobs.is_none() {
                    return Ok(());
                }
                self.choice(index, text, logprobs, None).await
            }
            News::Finished { index, finish, .. } => {
                let index = prompt * self.n + index;
                self.begin(index, &[]).await?;
                self.choice(index, String::new(), None, Some(finish)).await
            }
            News::Started { .. } | News::Progress => Ok(()),
        }
    }

    /// Repeats the prompt, once, if that is asked for.
    async fn begin(&mut self, index: usize, prompt: &[TokenInfo]) -> Result<(), Gone> {
        if self.choices[index].echo.is_none() {
            return Ok(());
        }
        let (text, logprobs) = self.choices[index].begin(prompt);
        self.choice(index, text, logprobs, None).await
    }

    async fn choice(
        &self,
        index: usize,
        text: String,
        logprobs: Option<TextLogprobs>,
        finish: Option<Finish>,
    ) -> Result<(), Gone> {
        let choices = vec![TextChoice {
            index,
            text,
            logprobs,
            finish_reason: finish.map(|finish| finish_reason(finish, false)),
            stop_reason: finish.and_then(|finish| stop_reason(finish, &self.stop)),
        }];
        let usage = self.options.include_usage.then_some(None);
        self.pieces.json(&Completion { choices, usage, ..self.chunk.clone() }).await
    }
}
