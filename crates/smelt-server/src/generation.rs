//! The engine's answers, read, from its thread to a client's task.

use std::collections::VecDeque;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use smelt_api::{ApiError, Code, KeepAlive, Progress, Timings};
use smelt_engine::tokenizer::answer::{Part, Reader, ReaderOptions, ToolCall};
use smelt_engine::{Finish, TokenInfo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::app::Call;
use crate::daemon::{Event, Request, Ticket, Token, Work};
use crate::models::OpenModel;
use crate::trace::Trace;

/// What happens to a request: [`Event`] with the answers' text read.
#[derive(Debug)]
pub(crate) enum News {
    /// It is computed from now on.
    Started { cached_tokens: usize, prompt_tokens: usize },
    /// More of the prompt is computed, where that was asked for: [`Generation::progress`] tells how much.
    Progress,
    /// The prompt's tokens, where they were asked for.
    PromptLogprobs(Vec<TokenInfo>),
    /// More of an answer, and the tokens whose text is out. Either may be empty.
    Delta { index: usize, parts: Vec<Part>, tokens: Vec<TokenInfo> },
    /// An answer ended. The seed is known where the engine ended it.
    Finished { index: usize, finish: Finish, count: Count, has_calls: bool, seed: Option<u64> },
}

/// Tokens of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct Count {
    pub(crate) all: usize,
    /// Those of them that are thought.
    pub(crate) reasoning: usize,
}

/// The answers to a prompt.
#[derive(Debug)]
struct Answering {
    answers: Vec<Reading>,
    /// Tokens of the prompt, and what of them was told so far.
    length: usize,
    told: Vec<TokenInfo>,
    clock: Clock,
    /// Dropped, it cancels.
    ticket: Option<Ticket>,
    /// Whether all answers ended.
    is_done: bool,
}

/// When the engine told what of a prompt.
#[derive(Debug, Default)]
struct Clock {
    cached_tokens: usize,
    /// Tokens of the prompt that are computed or were cached, and when that was told.
    computed_tokens: usize,
    computed: Option<Instant>,
    started: Option<Instant>,
    /// The first token, or the end of an answer without any.
    first: Option<Instant>,
    last: Option<Instant>,
}

impl Clock {
    fn note(&mut self, at: Instant, event: &Event) {
        match event {
            Event::Started { cached_tokens, .. } => {
                (self.cached_tokens, self.computed_tokens) = (*cached_tokens, *cached_tokens);
                self.started = Some(at);
            }
            Event::Progress { computed_tokens } => {
                (self.computed_tokens, self.computed) = (*computed_tokens, Some(at));
            }
            Event::Delta { .. } | Event::Finished { .. } => {
                self.first.get_or_insert(at);
                self.last = Some(at);
            }
            _ => {}
        }
    }
}

/// An answer that is read.
#[derive(Debug, Clone)]
struct Reading {
    reader: Reader,
    count: Count,
    /// Whether it was told that it ended.
    is_over: bool,
}

/// The answers to a request's prompts. Dropping it cancels what still runs.
pub(crate) struct Generation {
    inbox: Inbox,
    model: Arc<OpenModel>,
    prompts: Vec<Answering>,
    /// Until the engine has all prompts. It is never locked: with it, writers may share a generation.
    accepting: Option<tokio::sync::Mutex<Accepting>>,
    /// What was read and not told yet.
    news: VecDeque<(usize, News)>,
    /// Prompts whose answers have not all ended.
    open: usize,
}

/// The engine takes the prompts, or one of them isn't accepted.
type Accepting = Pin<Box<dyn Future<Output = Result<Vec<Ticket>, ApiError>> + Send>>;

impl Drop for Generation {
    fn drop(&mut self) {
        if self.open > 0 {
            self.inbox.trace.cancelled();
        }
    }
}

/// What the engine tells of prompts.
#[derive(Debug)]
pub(crate) struct Inbox {
    events: UnboundedReceiver<Told>,
    /// Prompts that the engine has not begun with.
    waiting: usize,
    terms: Terms,
    trace: Trace,
}

/// By when prompts must have begun.
#[derive(Debug, Clone, Copy)]
struct Terms {
    deadline: Instant,
    queue_time: Duration,
}

/// The prompt's number, when something happened to it, and what. A slow reader hears of it later.
type Told = (usize, Instant, Result<Event, ApiError>);

impl Inbox {
    /// Of so many prompts, each of which must have begun in time. What is sent arrives here.
    pub(crate) fn new(call: &Call, prompts: usize) -> (UnboundedSender<Told>, Self) {
        // Events are few and small beside the tokens that they tell of, and `max_tokens` bounds their number.
        let (sender, events) = unbounded_channel();
        let queue_time = call.app.settings.limits.queue_time;
        let terms = Terms { deadline: Instant::now() + queue_time, queue_time };
        (sender, Self { events, waiting: prompts, terms, trace: call.trace.clone() })
    }

    /// Gives the engine what is to be done about a prompt, and waits until it has it.
    ///
    /// # Errors
    /// Why it wasn't accepted, or that the wait was too long.
    pub(crate) fn submit(
        &self,
        model: &Arc<OpenModel>,
        work: Work,
        keep: Option<KeepAlive>,
        (prompt, sender): (usize, &UnboundedSender<Told>),
    ) -> impl Future<Output = Result<Ticket, ApiError>> + Send + use<> {
        let (model, sender, terms) = (model.clone(), sender.clone(), self.terms);
        async move {
            let sink = Box::new(move |event| sender.send((prompt, Instant::now(), event)).is_ok());
            let submit = model.handle.submit(&model, work, keep, sink);
            let accepted = tokio::time::timeout_at(terms.deadline, submit).await;
            accepted.unwrap_or_else(|_| Err(too_long(terms.queue_time)))
        }
    }

    /// What happens next, to which prompt, and when it did.
    ///
    /// # Errors
    /// If the request failed or the wait was too long; then nothing more comes.
    pub(crate) async fn receive(&mut self) -> Result<(usize, Instant, Event), ApiError> {
        let received = self.next_event().await;
        match &received {
            Ok((.., Event::Started { cached_tokens, prompt_tokens })) => {
                self.waiting -= 1;
                self.trace.begun(*prompt_tokens, *cached_tokens);
            }
            Ok(_) => {}
            Err(error) => self.trace.failed(error.code),
        }
        received
    }

    async fn next_event(&mut self) -> Result<(usize, Instant, Event), ApiError> {
        let received = match self.waiting {
            0 => self.events.recv().await,
            _ => {
                let received = tokio::time::timeout_at(self.terms.deadline, self.events.recv()).await;
                received.map_err(|_| too_long(self.terms.queue_time))?
            }
        };
        // The engine tells the end of each request.
        let lost = || ApiError::new(Code::Unavailable, "the server is stopping").retry_after(5);
        let (prompt, at, event) = received.ok_or_else(lost)?;
        Ok((prompt, at, event?))
    }
}

impl Generation {
    /// Gives the engine a request per prompt. All answers are read in the same way.
    ///
    /// # Errors
    /// Why one wasn't accepted; then none is answered. Where that takes longer than a stream may be silent, because the model has
    /// to be loaded first, [`Self::next`] tells it.
    pub(crate) async fn submit(
        call: &Call,
        model: &Arc<OpenModel>,
        requests: Vec<Request>,
        reading: &ReaderOptions,
    ) -> Result<Self, ApiError> {
        Self::submit_keeping(call, model, requests, reading, None).await
    }

    /// The same, and says how long the model is to be kept when nobody uses it any more.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) async fn submit_keeping(
        call: &Call,
        model: &Arc<OpenModel>,
        requests: Vec<Request>,
        reading: &ReaderOptions,
        keep: Option<KeepAlive>,
    ) -> Result<Self, ApiError> {
        call.trace.asks(model.name());
        requests.iter().take(1).for_each(|request| call.trace.wishes(request));
        let begun = Reading { reader: Reader::new(reading.clone()), count: Count::default(), is_over: false };
        let open = requests.len();
        let (sender, inbox) = Inbox::new(call, open);
        let mut prompts = Vec::with_capacity(open);
        let mut submissions = Vec::with_capacity(open);
        for (prompt, request) in requests.into_iter().enumerate() {
            let (answers, length) = (vec![begun.clone(); request.n], request.prompt.len());
            prompts.push(Answering {
                answers,
                length,
                told: Vec::new(),
                clock: Clock::default(),
                ticket: None,
                is_done: false,
            });
            submissions.push(inbox.submit(model, Work::Generate(request.into()), keep, (prompt, &sender)));
        }
        let accepting: Accepting = Box::pin(async move {
            let mut tickets = Vec::with_capacity(submissions.len());
            for submission in submissions {
                tickets.push(submission.await?);
            }
            Ok(tickets)
        });
        let (model, news) = (model.clone(), VecDeque::new());
        let mut generation = Self { inbox, model, prompts, accepting: Some(accepting.into()), news, open };
        let silence = call.app.settings.limits.keep_alive;
        // What takes longer goes on in `next`.
        tokio::time::timeout(silence, generation.accepted()).await.unwrap_or(Ok(()))?;
        Ok(generation)
    }

    /// Waits until the engine has all prompts.
    async fn accepted(&mut self) -> Result<(), ApiError> {
        let Some(accepting) = &mut self.accepting else { return Ok(()) };
        let tickets = accepting.get_mut().await;
        self.accepting = None;
        let tickets = tickets.inspect_err(|error| self.inbox.trace.failed(error.code))?;
        for (prompt, ticket) in self.prompts.iter_mut().zip(tickets) {
            prompt.ticket = Some(ticket);
        }
        Ok(())
    }

    /// What happens next, with the prompt's number; `None` when all answers ended.
    ///
    /// # Errors
    /// If an answer failed or the wait was too long; then nothing more comes.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, News)>, ApiError> {
        self.accepted().await?;
        loop {
            if let Some((prompt, news)) = self.news.pop_front() {
                self.tell(&news);
                return Ok(Some((prompt, news)));
            }
            if self.open == 0 {
                return Ok(None);
            }
            let (prompt, at, event) = self.inbox.receive().await?;
            self.prompts[prompt].clock.note(at, &event);
            self.read(prompt, event);
        }
    }

    /// Tells the request's span of it.
    fn tell(&self, news: &News) {
        match news {
            News::Delta { tokens, .. } if !tokens.is_empty() => self.inbox.trace.token(),
            News::Finished { finish, count, has_calls, .. } => {
                self.inbox.trace.answered(count.all, *finish, *has_calls);
            }
            _ => {}
        }
    }

    fn read(&mut self, prompt: usize, event: Event) {
        let tokenizer = self.model.model().tokenizer();
        let infos = |tokens: Vec<Token>| tokens.into_iter().map(|token| token.info(tokenizer));
        let Answering { answers, length, told, ticket, is_done, .. } = &mut self.prompts[prompt];
        let mut tell = |news| self.news.push_back((prompt, news));
        match event {
            // What was on its way when the last answer was cut off.
            _ if *is_done => {}
            Event::Started { cached_tokens, prompt_tokens } => {
                tell(News::Started { cached_tokens, prompt_tokens });
            }
            Event::Progress { .. } => tell(News::Progress),
            Event::PromptLogprobs(tokens) => {
                told.extend(infos(tokens));
                if told.len() >= *length {
                    tell(News::PromptLogprobs(std::mem::take(told)));
                }
            }
            Event::Delta { index, text, tokens } if !answers[index].is_over => {
                let answer = &mut answers[index];
                let last = tokens.last().map_or(0, Token::id);
                let parts = answer.push(&text, tokens.len());
                tell(News::Delta { index, parts, tokens: infos(tokens).collect() });
                if !answer.reader.is_over() {
                    return;
                }
                // Nothing that follows is wanted, so the model needn't say it.
                tell(answer.end(index, Finish::EndOfGeneration(last), None));
                if answers.iter().all(|answer| answer.is_over) {
                    (*ticket, *is_done) = (None, true);
                    self.open -= 1;
                }
            }
            Event::Finished { index, finish, usage } if !answers[index].is_over => {
                let answer = &mut answers[index];
                let parts = answer.reader.finish();
                if !parts.is_empty() {
                    tell(News::Delta { index, parts, tokens: Vec::new() });
                }
                answer.count.all = usage.completion_tokens;
                tell(answer.end(index, finish, Some(usage.seed)));
            }
            Event::Done => {
                *is_done = true;
                self.open -= 1;
            }
            // Nobody here asks for pools, and the others are the supervisor's to hear.
            Event::Delta { .. }
            | Event::Finished { .. }
            | Event::Pooled { .. }
            | Event::Accepted
            | Event::Refused(_)
            | Event::CommitReady
            | Event::Failed(_) => {}
        }
    }

    /// How long a prompt and its answers took so far.
    pub(crate) fn timings(&self, prompt: usize) -> Timings {
        let Answering { answers, length, clock, .. } = &self.prompts[prompt];
        let between = |from: Option<Instant>, to: Option<Instant>| match (from, to) {
            (Some(from), Some(to)) => to.saturating_duration_since(from),
            _ => Duration::ZERO,
        };
        let predicted = answers.iter().map(|answer| answer.count.all).sum();
        let computed = clock.first.map_or(clock.computed_tokens, |_| *length) - clock.cached_tokens;
        Timings::new(
            clock.cached_tokens,
            (computed, between(clock.started, clock.first.or(clock.computed))),
            (predicted, between(clock.first, clock.last)),
        )
    }

    /// How far a prompt is.
    pub(crate) fn progress(&self, prompt: usize) -> Progress {
        let Answering { length, clock, .. } = &self.prompts[prompt];
        let time = match (clock.started, clock.computed) {
            (Some(started), Some(computed)) => computed.saturating_duration_since(started),
            _ => Duration::ZERO,
        };
        Progress {
            total: *length,
            cache: clock.cached_tokens,
            processed: clock.computed_tokens,
            time_ms: u64::try_from(time.as_millis()).unwrap_or(u64::MAX),
        }
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
        for (i, prompt) in prompts.iter_mut().enumerate() {
            prompt.timings = self.timings(i);
        }
        Ok(prompts)
    }
}

impl Reading {
    /// Reads more of it, which so many tokens said.
    fn push(&mut self, text: &str, tokens: usize) -> Vec<Part> {
        let was_thinking = self.reader.is_thinking();
        let parts = self.reader.push(text);
        self.count.all += tokens;
        if was_thinking || self.reader.is_thinking() {
            self.count.reasoning += tokens;
        }
        parts
    }

    fn end(&mut self, index: usize, finish: Finish, seed: Option<u64>) -> News {
        self.is_over = true;
        News::Finished { index, finish, count: self.count, has_calls: self.reader.has_calls(), seed }
    }
}

fn too_long(queue_time: Duration) -> ApiError {
    let message = format!("the engine had no time for the request in {} s", queue_time.as_secs());
    ApiError::new(Code::Overloaded, message).retry_after(30)
}

/// The answers to one prompt.
#[derive(Debug)]
pub(crate) struct Answered {
    pub(crate) answers: Vec<Answer>,
    pub(crate) prompt_tokens: usize,
    pub(crate) cached_tokens: usize,
    /// The prompt's tokens, where they were asked for.
    pub(crate) prompt: Vec<TokenInfo>,
    pub(crate) timings: Timings,
}

/// One answer.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) content: String,
    pub(crate) reasoning: String,
    pub(crate) calls: Vec<ToolCall>,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) finish: Finish,
    pub(crate) count: Count,
    /// The seed in use, where the engine ended the answer.
    pub(crate) seed: Option<u64>,
}

impl Answer {
    pub(crate) fn new() -> Self {
        Self {
            content: String::new(),
            reasoning: String::new(),
            calls: Vec::new(),
            tokens: Vec::new(),
            finish: Finish::Cancelled,
            count: Count::default(),
            seed: None,
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
        Self { answers, prompt_tokens: 0, cached_tokens: 0, prompt: Vec::new(), timings: Timings::default() }
    }

    fn take(&mut self, news: News) {
        match news {
            News::Started { cached_tokens, prompt_tokens } => {
                self.prompt_tokens = prompt_tokens;
                self.cached_tokens = cached_tokens;
            }
            News::Progress => {}
            News::PromptLogprobs(tokens) => self.prompt = tokens,
            News::Delta { index, parts, tokens } => {
                let answer = &mut self.answers[index];
                parts.into_iter().for_each(|part| answer.add(part));
                answer.tokens.extend(tokens);
            }
            News::Finished { index, finish, count, seed, .. } => {
                let answer = &mut self.answers[index];
                (answer.finish, answer.count, answer.seed) = (finish, count, seed);
            }
        }
    }

    /// Tokens of all answers.
    pub(crate) fn completion_tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.count.all).sum()
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
