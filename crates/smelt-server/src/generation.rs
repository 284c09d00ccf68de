//! The engine's answers, read, from its thread to a client's task.

use std::collections::VecDeque;
use std::ops::ControlFlow;
use std::time::Duration;

use smelt_api::{ApiError, Code};
use smelt_engine::scheduler::{Event, Failure, Request, SubmitError, Ticket, Usage};
use smelt_engine::tokenizer::answer::{Part, Reader, ReaderOptions, ToolCall};
use smelt_engine::{Finish, TokenInfo};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::models::Loaded;

/// What happens to a request: [`Event`] with the answers' text read.
#[derive(Debug)]
pub(crate) enum News {
    /// It is computed from now on.
    Started { cached_tokens: usize, prompt_tokens: usize },
    /// The prompt's tokens, where they were asked for.
    PromptLogprobs(Vec<TokenInfo>),
    /// More of an answer, and the tokens whose text is out. Either may be empty.
    Delta { index: usize, parts: Vec<Part>, tokens: Vec<TokenInfo> },
    /// An answer ended.
    Finished { index: usize, finish: Finish, usage: Usage, has_calls: bool, reasoning_tokens: usize },
}

/// The answers to a request's prompts. Dropping it cancels what still runs.
#[derive(Debug)]
pub(crate) struct Generation {
    inbox: Inbox,
    /// Of each prompt, those of its answers.
    readers: Vec<Vec<Reader>>,
    /// Of each answer, tokens of thought.
    reasoning: Vec<Vec<usize>>,
    /// What was read and not told yet.
    news: VecDeque<(usize, News)>,
    /// Dropped, they cancel.
    _tickets: Vec<Ticket>,
    /// Prompts whose answers have not all ended.
    open: usize,
}

/// What the engine tells of prompts.
#[derive(Debug)]
pub(crate) struct Inbox {
    /// The prompt's number, and what happened to it.
    events: UnboundedReceiver<(usize, Event)>,
    /// Prompts that the engine has not begun with.
    waiting: usize,
    deadline: Instant,
    queue_time: Duration,
}

impl Inbox {
    /// Of so many prompts, each of which must have begun in time.
    pub(crate) fn new(
        events: UnboundedReceiver<(usize, Event)>,
        prompts: usize,
        queue_time: Duration,
    ) -> Self {
        Self { events, waiting: prompts, deadline: Instant::now() + queue_time, queue_time }
    }

    /// What happens next.
    ///
    /// # Errors
    /// If the request failed or the wait was too long; then nothing more comes.
    pub(crate) async fn receive(&mut self) -> Result<(usize, Event), ApiError> {
        let received = match self.waiting {
            0 => self.events.recv().await,
            _ => tokio::time::timeout_at(self.deadline, self.events.recv()).await.map_err(|_| {
                let message =
                    format!("the engine had no time for the request in {} s", self.queue_time.as_secs());
                ApiError::new(Code::Overloaded, message).retry_after(30)
            })?,
        };
        match received {
            None | Some((_, Event::Failed(Failure::Stopped))) => {
                let message =
                    "the server is stopping, and the answer is not complete; send the request again";
                Err(ApiError::new(Code::Unavailable, message).retry_after(5))
            }
            Some((_, Event::Failed(failure))) => {
                tracing::error!(%failure, "an answer failed");
                Err(failure_error(&failure))
            }
            Some(event) => {
                self.waiting -= usize::from(matches!(event.1, Event::Started { .. }));
                Ok(event)
            }
        }
    }
}

impl Generation {
    /// Gives the engine a request per prompt. All answers are read in the same way.
    ///
    /// # Errors
    /// Why one wasn't accepted; then none is answered.
    pub(crate) fn submit(
        model: &Loaded,
        requests: Vec<Request>,
        reading: &ReaderOptions,
        queue_time: Duration,
    ) -> Result<Self, ApiError> {
        let reader = Reader::new(reading.clone());
        let readers = requests.iter().map(|request| vec![reader.clone(); request.n]).collect();
        let reasoning = requests.iter().map(|request| vec![0; request.n]).collect();
        // Events are few and small beside the tokens that they tell of, and `max_tokens` bounds their number.
        let (sender, events) = unbounded_channel();
        let open = requests.len();
        let submit = |(prompt, request): (usize, Request)| {
            let sender = sender.clone();
            let sink = move |event| match sender.send((prompt, event)) {
                Ok(()) => ControlFlow::Continue(()),
                Err(_) => ControlFlow::Break(()),
            };
            model.handle.submit(request, Box::new(sink)).map_err(refusal)
        };
        let tickets = requests.into_iter().enumerate().map(submit).collect::<Result<_, _>>()?;
        let inbox = Inbox::new(events, open, queue_time);
        Ok(Self { inbox, readers, reasoning, news: VecDeque::new(), _tickets: tickets, open })
    }

    /// What happens next, with the prompt's number; `None` when all answers ended.
    ///
    /// # Errors
    /// If an answer failed or the wait was too long; then nothing more comes.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, News)>, ApiError> {
        loop {
            if let Some(news) = self.news.pop_front() {
                return Ok(Some(news));
            }
            if self.open == 0 {
                return Ok(None);
            }
            let (prompt, event) = self.inbox.receive().await?;
            self.read(prompt, event);
        }
    }

    fn read(&mut self, prompt: usize, event: Event) {
        let news = match event {
            Event::Started { cached_tokens, prompt_tokens } => News::Started { cached_tokens, prompt_tokens },
            Event::PromptLogprobs(tokens) => News::PromptLogprobs(tokens),
            Event::Delta { index, text, tokens } => {
                let reader = &mut self.readers[prompt][index];
                let was_thinking = reader.is_thinking();
                let parts = reader.push(&text);
                if was_thinking || reader.is_thinking() {
                    self.reasoning[prompt][index] += tokens.len();
                }
                News::Delta { index, parts, tokens }
            }
            Event::Finished { index, finish, usage } => {
                let reader = &mut self.readers[prompt][index];
                let (parts, tokens) = (reader.finish(), Vec::new());
                let has_calls = reader.has_calls();
                if !parts.is_empty() {
                    self.news.push_back((prompt, News::Delta { index, parts, tokens }));
                }
                let reasoning_tokens = self.reasoning[prompt][index];
                News::Finished { index, finish, usage, has_calls, reasoning_tokens }
            }
            Event::Done => {
                self.open -= 1;
                return;
            }
            // Nobody here asks for the first, and the inbox has seen to the second.
            Event::Pooled { .. } | Event::Failed(_) => return,
        };
        self.news.push_back((prompt, news));
    }

    /// All answers, in one piece.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) async fn collect(mut self, choices: usize) -> Result<Vec<Answered>, ApiError> {
        let mut prompts: Vec<Answered> = (0..self.open).map(|_| Answered::new(choices)).collect();
        while let Some((prompt, news)) = self.next().await? {
            prompts[prompt].take(news);
        }
        Ok(prompts)
    }
}

fn failure_error(failure: &Failure) -> ApiError {
    let code = match failure {
        // What the request asked for leaves no token to choose, or grew too complex.
        Failure::Engine(error) => match **error {
            smelt_engine::Error::Sampler(_) | smelt_engine::Error::Constraint(_) => Code::InvalidValue,
            _ => Code::Internal,
        },
        _ => Code::Internal,
    };
    ApiError::new(code, failure.to_string())
}

/// Why a request wasn't accepted, for its client.
pub(crate) fn refusal(error: SubmitError) -> ApiError {
    match error {
        SubmitError::QueueFull { retry_after, .. } => {
            let seconds = u32::try_from(retry_after.as_secs()).unwrap_or(u32::MAX);
            ApiError::new(Code::Overloaded, error.to_string()).retry_after(seconds.max(1))
        }
        SubmitError::TooLong { prompt_tokens, context } => ApiError::context_length(prompt_tokens, context),
        SubmitError::Stopping => ApiError::new(Code::Unavailable, error.to_string()).retry_after(5),
        SubmitError::Stopped(_) => ApiError::new(Code::Internal, error.to_string()),
        SubmitError::Invalid(error) => ApiError::new(Code::InvalidValue, error.to_string()),
    }
}

/// The answers to one prompt.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answers: Vec<Answer>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    /// The prompt's tokens, where they were asked for.
    pub(crate) prompt: Vec<TokenInfo>,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) finish: Finish,
    pub(crate) completion_tokens: usize,
    /// Of those, tokens of thought.
    pub(crate) reasoning_tokens: usize,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self {
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
            finish: Finish::Cancelled,
            completion_tokens: 0,
            reasoning_tokens: 0,
        }
    }

    pub(crate) fn add(&mut self, part: Part) {
        match part {
            Part::Content(text) => self.content.push_str(&text),
            Part::Reasoning(text) => self.reasoning.push_str(&text),
            Part::Call(name) => self.calls.push(ToolCall { name, arguments: String::new() }),
            Part::Arguments(text) => {
                if let Some(call) = self.calls.last_mut() {
                    call.arguments.push_str(&text);
                }
            }
        }
    }
}

impl Answered {
    fn new(choices: usize) -> Self {
        let answers = (0..choices).map(|_| Answer::new()).collect();
        Self { answers, prompt_tokens: 0, cached_tokens: 0, prompt: Vec::new() }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Started { cached_tokens, prompt_tokens } => {
                self.prompt_tokens = prompt_tokens;
                self.cached_tokens = cached_tokens;
            }
            News::PromptLogprobs(tokens) => self.prompt = tokens,
            News::Delta { index, parts, tokens } => {
                let answer = &mut self.answers[index];
                parts.into_iter().for_each(|part| answer.add(part));
                answer.tokens.extend(tokens);
            }
            News::Finished { index, finish, usage, reasoning_tokens, .. } => {
                let answer = &mut self.answers[index];
                answer.reasoning_tokens = reasoning_tokens;
                answer.finish = finish;
                answer.completion_tokens = usage.completion_tokens;
            }
        }
    }

    /// Tokens of all answers.
    pub(crate) fn completion_tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.completion_tokens).sum()
    }
}

/// The text of parts that are content: of an answer that is read as such.
pub(crate) fn text(parts: Vec<Part>) -> String {
    let text = |part| match part {
        Part::Content(text) => text,
        Part::Reasoning(_) | Part::Call(_) | Part::Arguments(_) => String::new(),
    };
    parts.into_iter().map(text).collect()
}
