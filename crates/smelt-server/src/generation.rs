//! The engine's answers, from its thread to a client's task.

use std::ops::ControlFlow;
use std::time::Duration;

use smelt_api::{ApiError, Code};
use smelt_engine::scheduler::{Event, Failure, Request, SubmitError, Ticket};
use smelt_engine::{Finish, TokenInfo};
use tokio::sync::mpsc::{UnboundedReceiver, unbounded_channel};
use tokio::time::Instant;

use crate::models::Loaded;

/// The answers to a request's prompts. Dropping it cancels what still runs.
#[derive(Debug)]
pub(crate) struct Generation {
    /// The prompt's number, and what happened to it.
    events: UnboundedReceiver<(usize, Event)>,
    /// Dropped, they cancel.
    _tickets: Vec<Ticket>,
    /// Prompts whose answers have not all ended.
    open: usize,
    /// Prompts that the engine has not begun with.
    waiting: usize,
    deadline: Instant,
    queue_time: Duration,
}

impl Generation {
    /// Gives the engine a request per prompt.
    ///
    /// # Errors
    /// Why one wasn't accepted; then none is answered.
    pub(crate) fn submit(
        model: &Loaded,
        requests: Vec<Request>,
        queue_time: Duration,
    ) -> Result<Self, ApiError> {
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
        let deadline = Instant::now() + queue_time;
        Ok(Self { events, _tickets: tickets, open, waiting: open, deadline, queue_time })
    }

    /// What happens next, with the prompt's number; `None` when all answers ended.
    ///
    /// # Errors
    /// If an answer failed or the wait was too long; then nothing more comes.
    pub(crate) async fn next(&mut self) -> Result<Option<(usize, Event)>, ApiError> {
        if self.open == 0 {
            return Ok(None);
        }
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
            Some((prompt, event)) => {
                match event {
                    Event::Started { .. } => self.waiting -= 1,
                    Event::Done => self.open -= 1,
                    _ => {}
                }
                Ok(Some((prompt, event)))
            }
        }
    }

    /// All answers, in one piece.
    ///
    /// # Errors
    /// As [`Self::next`].
    pub(crate) async fn collect(mut self, choices: usize) -> Result<Vec<Answered>, ApiError> {
        let mut prompts: Vec<Answered> = (0..self.open).map(|_| Answered::new(choices)).collect();
        while let Some((prompt, event)) = self.next().await? {
            prompts[prompt].take(event);
        }
        Ok(prompts)
    }
}

fn failure_error(failure: &Failure) -> ApiError {
    let code = match failure {
        // What the request asked for leaves no token to choose.
        Failure::Engine(error) if matches!(**error, smelt_engine::Error::Sampler(_)) => Code::InvalidValue,
        _ => Code::Internal,
    };
    ApiError::new(code, failure.to_string())
}

fn refusal(error: SubmitError) -> ApiError {
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
    pub(crate) text: String,
    pub(crate) tokens: Vec<TokenInfo>,
    pub(crate) finish: Finish,
    pub(crate) completion_tokens: usize,
    /// When the first token came.
    pub(crate) first: Option<Instant>,
}

impl Answered {
    fn new(choices: usize) -> Self {
        let answer = || Answer {
            text: String::new(),
            tokens: Vec::new(),
            finish: Finish::Cancelled,
            completion_tokens: 0,
            first: None,
        };
        let answers = (0..choices).map(|_| answer()).collect();
        Self { answers, prompt_tokens: 0, cached_tokens: 0, prompt: Vec::new() }
    }

    fn take(&mut self, event: Event) {
        match event {
            Event::Started { cached_tokens, prompt_tokens } => {
                self.prompt_tokens = prompt_tokens;
                self.cached_tokens = cached_tokens;
            }
            Event::PromptLogprobs(tokens) => self.prompt = tokens,
            Event::Delta { index, text, tokens } => {
                let answer = &mut self.answers[index];
                answer.first = answer.first.or_else(|| Some(Instant::now()));
                answer.text.push_str(&text);
                answer.tokens.extend(tokens);
            }
            Event::Finished { index, finish, usage } => {
                let answer = &mut self.answers[index];
                answer.finish = finish;
                answer.completion_tokens = usage.completion_tokens;
            }
            Event::Done | Event::Failed(_) => {}
        }
    }

    /// Tokens of all answers.
    pub(crate) fn completion_tokens(&self) -> usize {
        self.answers.iter().map(|answer| answer.completion_tokens).sum()
    }
}
