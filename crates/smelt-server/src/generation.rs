//! The engine's answers, read, from its thread to a client's task.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use smelt_api::{ApiError, Code, KeepAlive};
use smelt_engine::scheduler::Usage;
use smelt_engine::tokenizer::answer::{Part, Reader, ReaderOptions, ToolCall};
use smelt_engine::{Finish, TokenInfo};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};
use tokio::time::Instant;

use crate::daemon::{Event, Request, Ticket, Token, Work};
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
    model: Arc<Loaded>,
    /// Of each prompt, those of its answers.
    readers: Vec<Vec<Reader>>,
    /// Of each answer, tokens of thought.
    reasoning: Vec<Vec<usize>>,
    /// Of each prompt, what of its tokens was told so far, and how many there are.
    prompts: Vec<(Vec<TokenInfo>, usize)>,
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
    events: UnboundedReceiver<Told>,
    /// Prompts that the engine has not begun with.
    waiting: usize,
    deadline: Instant,
    queue_time: Duration,
}

/// The prompt's number, and what happened to it.
type Told = (usize, Result<Event, ApiError>);

impl Inbox {
    /// Of so many prompts, each of which must have begun in time. What is sent arrives here.
    pub(crate) fn new(prompts: usize, queue_time: Duration) -> (UnboundedSender<Told>, Self) {
        // Events are few and small beside the tokens that they tell of, and `max_tokens` bounds their number.
        let (sender, events) = unbounded_channel();
        let deadline = Instant::now() + queue_time;
        (sender, Self { events, waiting: prompts, deadline, queue_time })
    }

    /// Gives the engine what is to be done about a prompt, and waits until it has it.
    ///
    /// # Errors
    /// Why it wasn't accepted, or that the wait was too long.
    pub(crate) async fn submit(
        &mut self,
        model: &Arc<Loaded>,
        work: Work,
        keep: Option<KeepAlive>,
        (prompt, sender): (usize, &UnboundedSender<Told>),
    ) -> Result<Ticket, ApiError> {
        let sender = sender.clone();
        let sink = Box::new(move |event| sender.send((prompt, event)).is_ok());
        let submit = model.handle.submit(model, work, keep, sink);
        let accepted = tokio::time::timeout_at(self.deadline, submit).await;
        accepted.unwrap_or_else(|_| Err(too_long(self.queue_time)))
    }

    /// What happens next.
    ///
    /// # Errors
    /// If the request failed or the wait was too long; then nothing more comes.
    pub(crate) async fn receive(&mut self) -> Result<(usize, Event), ApiError> {
        let received = match self.waiting {
            0 => self.events.recv().await,
            _ => {
                let received = tokio::time::timeout_at(self.deadline, self.events.recv()).await;
                received.map_err(|_| too_long(self.queue_time))?
            }
        };
        // The engine tells the end of each request.
        let lost = || ApiError::new(Code::Unavailable, "the server is stopping").retry_after(5);
        let (prompt, event) = received.ok_or_else(lost)?;
        let event = event?;
        self.waiting -= usize::from(matches!(event, Event::Started { .. }));
        Ok((prompt, event))
    }
}

impl Generation {
    /// Gives the engine a request per prompt. All answers are read in the same way.
    ///
    /// # Errors
    /// Why one wasn't accepted; then none is answered.
    pub(crate) async fn submit(
        model: &Arc<Loaded>,
        requests: Vec<Request>,
        reading: &ReaderOptions,
        queue_time: Duration,
    ) -> Result<Self, ApiError> {
        Self::submit_keeping(model, requests, reading, queue_time, None).await
    }

    /// The same, and says how long the model is to be kept when nobody uses it any more.
    ///
    /// # Errors
    /// As [`Self::submit`].
    pub(crate) async fn submit_keeping(
        model: &Arc<Loaded>,
        requests: Vec<Request>,
        reading: &ReaderOptions,
        queue_time: Duration,
        keep: Option<KeepAlive>,
    ) -> Result<Self, ApiError> {
        let reader = Reader::new(reading.clone());
        let readers = requests.iter().map(|request| vec![reader.clone(); request.n]).collect();
        let reasoning = requests.iter().map(|request| vec![0; request.n]).collect();
        let prompts = requests.iter().map(|request| (Vec::new(), request.prompt.len())).collect();
        let (sender, mut inbox) = Inbox::new(requests.len(), queue_time);
        let open = requests.len();
        let mut tickets = Vec::with_capacity(open);
        for (prompt, request) in requests.into_iter().enumerate() {
            let work = Work::Generate(request.into());
            tickets.push(inbox.submit(model, work, keep, (prompt, &sender)).await?);
        }
        Ok(Self {
            inbox,
            model: model.clone(),
            readers,
            reasoning,
            prompts,
            news: VecDeque::new(),
            _tickets: tickets,
            open,
        })
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
        let tokenizer = self.model.model().tokenizer();
        let infos = |tokens: Vec<Token>| tokens.into_iter().map(|token| token.info(tokenizer));
        let news = match event {
            Event::Started { cached_tokens, prompt_tokens } => News::Started { cached_tokens, prompt_tokens },
            Event::PromptLogprobs(tokens) => {
                let (told, all) = &mut self.prompts[prompt];
                told.extend(infos(tokens));
                if told.len() < *all {
                    return;
                }
                News::PromptLogprobs(std::mem::take(told))
            }
            Event::Delta { index, text, tokens } => {
                let reader = &mut self.readers[prompt][index];
                let was_thinking = reader.is_thinking();
                let parts = reader.push(&text);
                if was_thinking || reader.is_thinking() {
                    self.reasoning[prompt][index] += tokens.len();
                }
                let tokens = infos(tokens).collect();
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
            // Nobody here asks for the first, and the others are the supervisor's to hear.
            Event::Pooled { .. }
            | Event::Accepted
            | Event::Refused(_)
            | Event::CommitReady
            | Event::Failed(_) => return,
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
