//! Ollama's routes that answer.

use std::sync::Arc;
use std::time::{Duration, Instant};

use axum::response::Response;
use jiff::Timestamp;
use smelt_api::ollama::{
    Answer as Piece, AnswerMessage, Call as ToolCall, CalledFunction, ChatRequest, Common, End,
    GenerateRequest,
};
use smelt_api::{ApiError, ChatMessage, KeepAlive, Role};
use smelt_engine::Finish;
use smelt_engine::tokenizer::answer::{Part, ReaderOptions, ToolCall as CompleteCall};

use crate::app::{Call, json};
use crate::conversation::{ChatPrompt, Prepared, call_id, prepare};
use crate::daemon::Request;
use crate::generation::{Answer, Generation, News};
use crate::models::OpenModel;
use crate::prompt::{self, beside};
use crate::stream::{Framing, Gone, Pieces, respond};
use crate::structure;

/// Which of the two routes answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Chat,
    Generate,
}

pub(crate) async fn chat(call: Call) -> Result<Response, ApiError> {
    let ChatRequest { mut common, messages, tools } = ChatRequest::read(&call.body)?;
    call.tolerate(&common.unknown);
    let model = call.app.models.find(Some(&common.model)).await?;
    if messages.is_empty() {
        return load(&call, &model, Form::Chat, &common).await;
    }
    let (reasoning, structure) = (common.reasoning, common.structure.take());
    let prompt = ChatPrompt { messages, tools, reasoning, structure, ..ChatPrompt::default() };
    let prompt = prepare_chat(&model, prompt).await?;
    answer(call, model, Form::Chat, common, prompt).await
}

pub(crate) async fn generate(call: Call) -> Result<Response, ApiError> {
    let GenerateRequest { mut common, prompt: text, system, raw, suffix } =
        GenerateRequest::read(&call.body)?;
    call.tolerate(&common.unknown);
    let model = call.app.models.find(Some(&common.model)).await?;
    if text.is_empty() && suffix.is_none() {
        return load(&call, &model, Form::Generate, &common).await;
    }
    let structure = common.structure.take();
    let prompt = if raw || suffix.is_some() {
        let constraint = structure.map(structure::requirement).transpose()?;
        let model = model.clone();
        let encoded = beside(move || {
            let tokens = match suffix {
                Some(suffix) => prompt::encode_around(model.model(), &text, &suffix)?,
                None => prompt::encode_text(model.model(), &text, true),
            };
            Ok((text, tokens))
        });
        let (text, tokens) = encoded.await?;
        Prepared { text, tokens, reading: ReaderOptions::default(), shown: Arc::default(), constraint }
    } else {
        let system = system.map(|text| ChatMessage::new(Role::System, text));
        let messages = system.into_iter().chain([ChatMessage::new(Role::User, text)]).collect();
        let reasoning = common.reasoning;
        prepare_chat(&model, ChatPrompt { messages, reasoning, structure, ..ChatPrompt::default() }).await?
    };
    answer(call, model, Form::Generate, common, prompt).await
}

/// As Ollama does, an answer goes on in a last message of the assistant that calls nothing.
async fn prepare_chat(model: &Arc<OpenModel>, prompt: ChatPrompt) -> Result<Prepared, ApiError> {
    let is_begun = |m: &ChatMessage| m.role == Role::Assistant && m.tool_calls.is_empty();
    let continues = prompt.messages.last().is_some_and(is_begun);
    prepare(model, ChatPrompt { continues, ..prompt }).await
}

/// Answers a request without a prompt, which asks for the model to be loaded, or to be unloaded if it is kept for no time.
async fn load(
    call: &Call,
    model: &Arc<OpenModel>,
    form: Form,
    common: &Common,
) -> Result<Response, ApiError> {
    let done_reason = match common.keep_alive {
        Some(keep @ KeepAlive::For(Duration::ZERO)) => {
            model.handle.keep(keep);
            "unload"
        }
        keep => {
            model.handle.load(model, keep).await?;
            "load"
        }
    };
    let end = End { done_reason, total_duration: nanoseconds(call.arrival), ..End::default() };
    Ok(json(&piece(form, &common.model, Answer::new(), Some(end))))
}

/// A piece of an answer, or all of it.
fn piece(form: Form, model: &str, answer: Answer, end: Option<End>) -> Piece {
    let Answer { content, reasoning, calls, .. } = answer;
    let reasoning = (!reasoning.is_empty()).then_some(reasoning);
    let (message, response, thinking) = match form {
        Form::Chat => {
            let (content, tool_calls) = called(content, calls);
            let message = AnswerMessage { role: "assistant", content, thinking: reasoning, tool_calls };
            (Some(message), None, None)
        }
        Form::Generate => (None, Some(content), reasoning),
    };
    Piece {
        model: model.to_owned(),
        created_at: Timestamp::now().to_string(),
        message,
        response,
        thinking,
        done: end.is_some(),
        end,
    }
}

/// Calls in Ollama's form. One that the end has cut off has no object; what there is of it is text.
fn called(mut content: String, calls: Vec<CompleteCall>) -> (String, Vec<ToolCall>) {
    let mut told = Vec::with_capacity(calls.len());
    for (index, call) in calls.into_iter().enumerate() {
        match serde_json::from_str(&call.arguments) {
            Ok(arguments) => {
                let function = CalledFunction { index, name: call.name, arguments };
                told.push(ToolCall { id: call_id("call_"), function });
            }
            Err(_) => content.push_str(&call.arguments),
        }
    }
    (content, told)
}

pub(crate) fn nanoseconds(since: Instant) -> u64 {
    u64::try_from(since.elapsed().as_nanos()).unwrap_or(u64::MAX)
}

/// The tokens that an answer may have within `num_ctx`, which a request can set below the server's context.
///
/// # Errors
/// If the prompt doesn't fit, or more is asked for than there is.
fn most_tokens(num_ctx: Option<usize>, request: &Request, context: usize) -> Result<Option<usize>, ApiError> {
    let (Some(num_ctx), prompt) = (num_ctx, request.prompt.len()) else { return Ok(request.max_tokens) };
    if num_ctx > context {
        let problem =
            format!("is {num_ctx}, but the server's context is {context} tokens; start it with a larger one");
        return Err(ApiError::value("options.num_ctx", problem));
    }
    if prompt > num_ctx {
        return Err(ApiError::context_length(prompt, num_ctx));
    }
    let room = num_ctx - prompt;
    Ok(Some(request.max_tokens.map_or(room, |most| most.min(room))))
}

async fn answer(
    call: Call,
    model: Arc<OpenModel>,
    form: Form,
    common: Common,
    prompt: Prepared,
) -> Result<Response, ApiError> {
    let mut request = Request {
        shown: prompt.shown,
        constraint: prompt.constraint,
        ..prompt::request(&model, prompt.tokens, &common.sampling, &common.limits)?
    };
    request.max_tokens = most_tokens(common.num_ctx, &request, model.context)?;
    let (reading, keep) = (&prompt.reading, common.keep_alive);
    let generation = Generation::submit_keeping(&call, &model, vec![request], reading, keep).await?;
    if common.stream {
        return Ok(respond(Framing::Lines, |pieces| {
            Writer { pieces, clock: Clock::new(call.arrival), call, form, model: common.model, calls: 0 }
                .write(generation)
        }));
    }
    let mut generation = generation;
    let mut clock = Clock::new(call.arrival);
    let mut answer = Answer::new();
    while let Some((_, news)) = generation.next().await? {
        clock.take(&news);
        if let News::Delta { parts, .. } = news {
            parts.into_iter().for_each(|part| answer.add(part));
        }
    }
    Ok(json(&piece(form, &common.model, answer, Some(clock.end()))))
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

    fn take(&mut self, news: &News) {
        match news {
            News::Started { prompt_tokens, .. } => {
                self.started = Some(Instant::now());
                self.end.prompt_eval_count = *prompt_tokens;
            }
            News::Delta { .. } if self.first.is_none() => {
                self.first = Some(Instant::now());
                self.end.prompt_eval_duration = self.started.map_or(0, nanoseconds);
            }
            News::Finished { finish, count, .. } => {
                self.end.eval_count = count.all;
                self.end.eval_duration = self.first.map_or(0, nanoseconds);
                if matches!(finish, Finish::MaxTokens | Finish::Line | Finish::ContextFull) {
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
    /// Calls that were told.
    calls: usize,
}

impl Writer {
    async fn write(mut self, mut generation: Generation) -> Result<(), Gone> {
        // A call is told whole: when anything else follows it.
        let mut answer = Answer::new();
        loop {
            match generation.next().await {
                Ok(Some((_, news))) => {
                    self.clock.take(&news);
                    let News::Delta { parts, .. } = news else { continue };
                    for part in parts {
                        let goes_on = match part {
                            Part::Arguments(_) => true,
                            Part::Call(_) => false,
                            Part::Content(_) | Part::Reasoning(_) => answer.calls.is_empty(),
                        };
                        if !goes_on {
                            self.tell(&mut answer).await?;
                        }
                        answer.add(part);
                    }
                    if answer.calls.is_empty() {
                        self.tell(&mut answer).await?;
                    }
                }
                Ok(None) => {
                    self.tell(&mut answer).await?;
                    let end = Some(self.clock.end());
                    return self.pieces.json(&piece(self.form, &self.model, Answer::new(), end)).await;
                }
                Err(error) => return self.pieces.json(&self.call.error_body(&error)).await,
            }
        }
    }

    /// Tells what there is of an answer, and leaves nothing.
    async fn tell(&mut self, answer: &mut Answer) -> Result<(), Gone> {
        let answer = std::mem::replace(answer, Answer::new());
        if answer.content.is_empty() && answer.reasoning.is_empty() && answer.calls.is_empty() {
            return Ok(());
        }
        let mut piece = piece(self.form, &self.model, answer, None);
        for call in piece.message.iter_mut().flat_map(|message| &mut message.tool_calls) {
            call.function.index = self.calls;
            self.calls += 1;
        }
        self.pieces.json(&piece).await
    }
}
