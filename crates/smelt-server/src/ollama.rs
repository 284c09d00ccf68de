//! Ollama's routes that answer.

use std::sync::Arc;
use std::time::Instant;

use axum::response::Response;
use jiff::Timestamp;
use smelt_api::ollama::{Answer, AnswerMessage, ChatRequest, Common, End, GenerateRequest};
use smelt_api::{ApiError, ChatMessage, Role};
use smelt_engine::Finish;
use smelt_engine::scheduler::{Event, Request};

use crate::app::{Call, json};
use crate::generation::Generation;
use crate::models::Loaded;
use crate::prompt::{self, ChatPrompt, beside};
use crate::stream::{Framing, Gone, Pieces, respond};

/// Which of the two routes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Chat,
    Generate,
}

pub(crate) async fn chat(call: Call) -> Result<Response, ApiError> {
    let ChatRequest { common, messages } = ChatRequest::read(&call.body)?;
    call.tolerate(&common.unknown);
    let model = call.app.models.find(Some(&common.model))?;
    if messages.is_empty() {
        return Ok(loaded(&call, Form::Chat, &common));
    }
    let tokens = encode_chat(&model, messages).await?;
    answer(call, model, Form::Chat, common, tokens).await
}

pub(crate) async fn generate(call: Call) -> Result<Response, ApiError> {
    let GenerateRequest { common, prompt: text, system, raw } = GenerateRequest::read(&call.body)?;
    call.tolerate(&common.unknown);
    let model = call.app.models.find(Some(&common.model))?;
    if text.is_empty() {
        return Ok(loaded(&call, Form::Generate, &common));
    }
    let tokens = if raw {
        let model = model.clone();
        beside(move || Ok(prompt::encode_text(model.model(), &text, true))).await?
    } else {
        let system = system.map(|text| ChatMessage::new(Role::System, text));
        encode_chat(&model, system.into_iter().chain([ChatMessage::new(Role::User, text)]).collect()).await?
    };
    answer(call, model, Form::Generate, common, tokens).await
}

/// As Ollama does, an answer goes on in a last message of the assistant.
async fn encode_chat(model: &Arc<Loaded>, messages: Vec<ChatMessage>) -> Result<Vec<u32>, ApiError> {
    let continues = messages.last().is_some_and(|m| m.role == Role::Assistant);
    prompt::chat(model, ChatPrompt { messages, continues, ..ChatPrompt::default() }).await
}

/// The answer to a request without a prompt, which asks for the model to be loaded. It is.
fn loaded(call: &Call, form: Form, common: &Common) -> Response {
    let end = End { done_reason: "load", total_duration: nanoseconds(call.arrival), ..End::default() };
    json(&piece(form, &common.model, String::new(), Some(end)))
}

fn piece(form: Form, model: &str, text: String, end: Option<End>) -> Answer {
    let (message, response) = match form {
        Form::Chat => (Some(AnswerMessage { role: "assistant", content: text }), None),
        Form::Generate => (None, Some(text)),
    };
    Answer {
        model: model.to_owned(),
        created_at: Timestamp::now().to_string(),
        message,
        response,
        done: end.is_some(),
        end,
    }
}

fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The tokens that an answer may have within `num_ctx`, which a request can set below the server's context.
///
/// # Errors
/// If the prompt doesn't fit, or more is asked for than there is.
fn most_tokens(common: &Common, prompt: usize, context: usize) -> Result<Option<usize>, ApiError> {
    let Some(num_ctx) = common.num_ctx else { return Ok(common.limits.max_tokens) };
    if num_ctx > context {
        let problem =
            format!("is {num_ctx}, but the server's context is {context} tokens; start it with a larger one");
        return Err(ApiError::value("options.num_ctx", problem));
    }
    if prompt > num_ctx {
        return Err(ApiError::context_length(prompt, num_ctx));
    }
    let room = num_ctx - prompt;
    Ok(Some(common.limits.max_tokens.map_or(room, |most| most.min(room))))
}

async fn answer(
    call: Call,
    model: Arc<Loaded>,
    form: Form,
    common: Common,
    tokens: Vec<u32>,
) -> Result<Response, ApiError> {
    let request = Request {
        max_tokens: most_tokens(&common, tokens.len(), model.handle.context())?,
        stop: common.limits.stop.clone(),
        ..Request::new(tokens, prompt::sampler(model.model(), &common.sampling)?)
    };
    let generation = Generation::submit(&model, vec![request], call.app.settings.limits.queue_time)?;
    if common.stream {
        return Ok(respond(Framing::Lines, |pieces| {
            Writer { pieces, clock: Clock::new(call.arrival), call, form, model: common.model }
                .write(generation)
        }));
    }
    let mut generation = generation;
    let mut clock = Clock::new(call.arrival);
    let mut text = String::new();
    while let Some((_, event)) = generation.next().await? {
        clock.take(&event);
        if let Event::Delta { text: more, .. } = event {
            text.push_str(&more);
        }
    }
    Ok(json(&piece(form, &common.model, text, Some(clock.end()))))
}

/// Counts and times of an answer.
struct Clock {
    arrival: Instant,
    started: Option<Instant>,
    first: Option<Instant>,
    end: End,
}

impl Clock {
    fn new(arrival: Instant) -> Self {
        Self { arrival, started: None, first: None, end: End { done_reason: "stop", ..End::default() } }
    }

    fn take(&mut self, event: &Event) {
        match event {
            Event::Started { prompt_tokens, .. } => {
                self.started = Some(Instant::now());
                self.end.prompt_eval_count = *prompt_tokens;
            }
            Event::Delta { .. } if self.first.is_none() => {
                self.first = Some(Instant::now());
                self.end.prompt_eval_duration = self.started.map_or(0, nanoseconds);
            }
            Event::Finished { finish, usage, .. } => {
                self.end.eval_count = usage.completion_tokens;
                self.end.eval_duration = self.first.map_or(0, nanoseconds);
                if matches!(finish, Finish::MaxTokens | Finish::ContextFull) {
                    self.end.done_reason = "length";
                }
            }
            _ => {}
        }
    }

    fn end(&self) -> End {
        End { total_duration: nanoseconds(self.arrival), ..self.end }
    }
}

/// Writes an answer line by line.
struct Writer {
    pieces: Pieces,
    call: Call,
    form: Form,
    model: String,
    clock: Clock,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        loop {
            match generation.next().await {
                Ok(Some((_, event))) => {
                    self.clock.take(&event);
                    if let Event::Delta { text, .. } = event
                        && !text.is_empty()
                    {
                        self.pieces.json(&piece(self.form, &self.model, text, None)).await?;
                    }
                }
                Ok(None) => {
                    let end = Some(self.clock.end());
                    return self.pieces.json(&piece(self.form, &self.model, String::new(), end)).await;
                }
                Err(error) => return self.pieces.json(&self.call.error_body(&error)).await,
            }
        }
    }
}
