//! The way to a model's supervisor.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use jiff::Timestamp;
use smelt_api::{ApiError, Code, KeepAlive};
use smelt_engine::Finish;
use smelt_engine::scheduler::{PoolRequest, Stats};
use tokio::sync::mpsc::UnboundedSender;
use tokio::sync::oneshot;

use super::protocol::{Event, Request};
use super::supervisor::State;
use crate::models::OpenModel;

/// For figures from an engine that has other things to do.
const FIGURES: Duration = Duration::from_secs(1);

/// What a supervisor is told.
pub(super) enum Command {
    Submit(Submission),
    Cancel(u64),
    /// Load the model, if it isn't.
    Load {
        model: Arc<OpenModel>,
        keep: Option<KeepAlive>,
        reply: oneshot::Sender<Result<(), ApiError>>,
    },
    /// Keep the engine for so long when nobody uses it.
    Keep(KeepAlive),
    /// Unload the model if nobody uses it. The reply comes when it is gone, or won't go.
    Unload(oneshot::Sender<()>),
    Stats(oneshot::Sender<Stats>),
    /// Take no more, give what is open some time, and end.
    Stop {
        drain: Duration,
    },
}

/// Takes what happens to a request; false when nobody wants to know any more.
pub(crate) type Sink = Box<dyn FnMut(Result<Event, ApiError>) -> bool + Send>;

/// A request on its way.
pub(super) struct Submission {
    pub(super) attempt: u64,
    pub(super) model: Arc<OpenModel>,
    pub(super) work: Work,
    pub(super) keep: Option<KeepAlive>,
    pub(super) voice: Voice,
}

/// What is to be done.
pub(crate) enum Work {
    /// Text is to be written.
    Generate(Box<Request>),
    /// Numbers are to be computed.
    Pool(Box<PoolRequest>),
}

/// Tells what becomes of a request: whether it was accepted, then its events.
pub(super) struct Voice {
    sink: Sink,
    /// Used once.
    reply: Option<oneshot::Sender<Result<(), ApiError>>>,
}

impl Voice {
    /// Passes an event on; whether nobody wants to know. The first one says that the request was accepted.
    pub(super) fn tell(&mut self, event: Event) -> bool {
        let was_waiting = self.reply.take().map(|reply| reply.send(Ok(())));
        match event {
            Event::Accepted => was_waiting.is_some_and(|sent| sent.is_err()),
            event => !(self.sink)(Ok(event)),
        }
    }

    /// Ends it with an error.
    pub(super) fn fail(mut self, error: ApiError) {
        match self.reply.take() {
            Some(reply) => drop(reply.send(Err(error))),
            None => drop((self.sink)(Err(error))),
        }
    }
}

/// A request that was accepted. Dropping it cancels the request.
#[derive(Debug)]
#[must_use = "dropping a ticket cancels the request"]
pub(crate) struct Ticket {
    attempt: u64,
    commands: UnboundedSender<Command>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        // Where nobody listens there is nothing to cancel.
        let _ = self.commands.send(Command::Cancel(self.attempt));
    }
}

/// What is known of an engine without asking it.
#[derive(Debug)]
pub(super) struct Shared(Mutex<Known>);

#[derive(Debug)]
struct Known {
    state: State,
    /// When it was last asked for something.
    used: Instant,
    expires: Timestamp,
    process: Option<u32>,
    restarts: u64,
    /// Of all processes that ended.
    before: Stats,
    /// Of the one that runs, as it last told.
    now: Stats,
    /// Requests that no engine has accepted yet, most of them because it is being loaded.
    unaccepted: usize,
    /// Answers that were complete, and requests that failed.
    ended_stop: u64,
    ended_length: u64,
    failed: u64,
    /// Who waits for figures.
    curious: Vec<oneshot::Sender<Stats>>,
}

impl Default for Shared {
    fn default() -> Self {
        Self(Mutex::new(Known {
            state: State::Idle,
            used: Instant::now(),
            expires: Timestamp::MAX,
            process: None,
            restarts: 0,
            before: Stats::default(),
            now: Stats::default(),
            unaccepted: 0,
            ended_stop: 0,
            ended_length: 0,
            failed: 0,
            curious: Vec::new(),
        }))
    }
}

impl Known {
    /// Numbers over all processes. Answers count when they are committed, which is not the engine's to say.
    fn stats(&self) -> Stats {
        let engines = self.now.behind(&self.before);
        Stats {
            waiting: engines.waiting + self.unaccepted,
            finished_stop: self.ended_stop,
            finished_length: self.ended_length,
            failed: self.failed,
            ..engines
        }
    }
}

/// A request that waits to be accepted.
struct Unaccepted<'a>(&'a Shared);

impl Drop for Unaccepted<'_> {
    fn drop(&mut self) {
        self.0.known().unaccepted -= 1;
    }
}

impl Shared {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn set_state(&self, state: State) {
        self.known().state = state;
    }

    pub(super) fn set_process(&self, process: Option<u32>) {
        self.known().process = process;
    }

    /// Notes that the engine is used.
    pub(super) fn touch(&self, expires: Timestamp) {
        let mut known = self.known();
        known.used = Instant::now();
        known.expires = expires;
    }

    pub(super) fn stats(&self) -> Stats {
        self.known().stats()
    }

    /// One more request waits to be accepted, until what comes back is dropped.
    fn wait(&self) -> Unaccepted<'_> {
        self.known().unaccepted += 1;
        Unaccepted(self)
    }

    pub(super) fn await_stats(&self, reply: oneshot::Sender<Stats>) {
        self.known().curious.push(reply);
    }

    pub(super) fn tell_stats(&self, stats: Stats) {
        let mut known = self.known();
        known.now = stats;
        let all = known.stats();
        known.curious.drain(..).for_each(|reply| answer(reply, all));
    }

    /// Keeps what a process counted that has ended.
    pub(super) fn end_session(&self) {
        let mut known = self.known();
        known.before = known.now.behind(&known.before);
        known.now = Stats::default();
        // Their wait ends with what is known.
        known.curious.clear();
    }

    pub(super) fn count_restart(&self, failed: u64) {
        let mut known = self.known();
        known.restarts += 1;
        known.failed += failed;
    }

    pub(super) fn count_failed(&self) {
        self.known().failed += 1;
    }

    pub(super) fn count_ends(&self, ends: &[Finish]) {
        let mut known = self.known();
        for end in ends {
            match end {
                Finish::MaxTokens | Finish::Line | Finish::ContextFull => known.ended_length += 1,
                Finish::EndOfGeneration(_) | Finish::StopString(_) | Finish::Cancelled => {
                    known.ended_stop += 1;
                }
            }
        }
    }
}

/// A way to a model's supervisor, for any task.
#[derive(Debug, Clone)]
pub(crate) struct Handle {
    commands: UnboundedSender<Command>,
    shared: Arc<Shared>,
}

/// Attempts so far: their numbers are never used twice.
static ATTEMPTS: AtomicU64 = AtomicU64::new(1);

impl Handle {
    pub(super) fn new(commands: UnboundedSender<Command>, shared: Arc<Shared>) -> Self {
        Self { commands, shared }
    }

    /// Gives the model's engine a request; it is loaded first if it isn't. `sink` takes the events and must not block.
    ///
    /// # Errors
    /// Why it wasn't accepted; then `sink` is never called.
    pub(crate) async fn submit(
        &self,
        model: &Arc<OpenModel>,
        work: Work,
        keep: Option<KeepAlive>,
        sink: Sink,
    ) -> Result<Ticket, ApiError> {
        if let Work::Generate(request) = &work
            && request.prompt.len() > model.context
        {
            return Err(ApiError::context_length(request.prompt.len(), model.context));
        }
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        // Who stops waiting cancels.
        let ticket = Ticket { attempt, commands: self.commands.clone() };
        let (reply, accepted) = oneshot::channel();
        let model = model.clone();
        let voice = Voice { sink, reply: Some(reply) };
        let submission = Submission { attempt, model, work, keep, voice };
        let _waiting = self.shared.wait();
        let _ = self.commands.send(Command::Submit(submission));
        accepted.await.unwrap_or_else(|_| Err(stopping()))?;
        Ok(ticket)
    }

    /// Loads the model, if it isn't.
    ///
    /// # Errors
    /// Why it can't be.
    pub(crate) async fn load(&self, model: &Arc<OpenModel>, keep: Option<KeepAlive>) -> Result<(), ApiError> {
        let (reply, loaded) = oneshot::channel();
        let _ = self.commands.send(Command::Load { model: model.clone(), keep, reply });
        loaded.await.unwrap_or_else(|_| Err(stopping()))
    }

    /// Keeps the model for so long when nobody uses it, if it is loaded.
    pub(crate) fn keep(&self, keep: KeepAlive) {
        let _ = self.commands.send(Command::Keep(keep));
    }

    /// Unloads the model if nobody uses it.
    pub(super) async fn unload(&self) {
        let (reply, done) = oneshot::channel();
        let _ = self.commands.send(Command::Unload(reply));
        // That nobody answers says that it is gone.
        let _ = done.await;
    }

    /// Takes no more requests, and gives open ones `drain` to end.
    pub(crate) fn stop(&self, drain: Duration) {
        let _ = self.commands.send(Command::Stop { drain });
    }

    /// Waits until the supervisor is gone.
    pub(crate) async fn stopped(&self) {
        self.commands.closed().await;
    }

    /// Numbers, as of now where the engine has the time to tell them.
    pub(crate) async fn stats(&self) -> Stats {
        let (reply, stats) = oneshot::channel();
        let _ = self.commands.send(Command::Stats(reply));
        match tokio::time::timeout(FIGURES, stats).await {
            Ok(Ok(stats)) => stats,
            _ => self.shared.stats(),
        }
    }

    /// How often the engine had to be started again.
    pub(crate) fn restarts(&self) -> u64 {
        self.shared.known().restarts
    }

    /// What the engine is at.
    pub(crate) fn state(&self) -> State {
        self.shared.known().state
    }

    /// When it goes if nobody uses it.
    pub(crate) fn expires(&self) -> Timestamp {
        self.shared.known().expires
    }

    /// The engine's process.
    pub(crate) fn process(&self) -> Option<u32> {
        self.shared.known().process
    }

    pub(super) fn last_used(&self) -> Instant {
        self.shared.known().used
    }

    /// Whether both lead to the same engine.
    pub(super) fn is(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.shared, &other.shared)
    }
}

/// Answers a question; who asked it may have gone.
pub(super) fn answer<T>(reply: oneshot::Sender<T>, value: T) {
    let _ = reply.send(value);
}

/// What is told while the server stops.
pub(super) fn stopping() -> ApiError {
    let message = "the server is stopping, and the answer is not complete; send the request again";
    ApiError::new(Code::Unavailable, message).retry_after(5)
}
