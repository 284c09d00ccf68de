//! One model's engine as the server sees it: it is loaded when somebody asks, watched, started again, and let go.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use smelt_api::{ApiError, Code, KeepAlive};
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::time::{Instant, Interval, MissedTickBehavior, interval, sleep, sleep_until};

use super::handle::{Command, Handle, Shared, Submission, Voice, Work, answer, stopping};
use super::memory::{Memory, Need, Reservation};
use super::process::{Launch, Process};
use super::protocol::{Class, Event, Failure, Load, Order, Refusal, Report};
use crate::models::{ModelSource, OpenModel};

/// When an engine goes that is used now.
fn expires(keep: KeepAlive) -> Timestamp {
    let KeepAlive::For(time) = keep else { return Timestamp::MAX };
    let time = SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    Timestamp::now().checked_add(time).unwrap_or(Timestamp::MAX)
}

/// What all engines are run by.
#[derive(Debug)]
pub(crate) struct Terms {
    pub(crate) launch: Launch,
    pub(crate) scheduler: smelt_engine::scheduler::SchedulerSettings,
    /// Without a step for so long while something is asked, an engine is stuck.
    pub(crate) step_time: Duration,
    pub(crate) keep: KeepAlive,
    pub(crate) memory: Arc<Memory>,
}

/// What an engine is at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum State {
    /// There is none: it is loaded when somebody asks.
    #[default]
    Idle,
    Loading,
    Ready,
    /// It was lost, and is started again.
    Restarting,
}

/// Pauses before an engine is started again: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_millis(500), Duration::from_secs(30));
/// An engine that ran for so long was fine, and so was one that has answered.
const GOOD_TIME: Duration = Duration::from_secs(60);
/// Between two looks at an engine that is asked something.
const LOOK: Duration = Duration::from_secs(1);
/// For an engine that was told to end, beyond what its answers have.
const GRACE: Duration = Duration::from_secs(5);

/// Runs one model's engine.
pub(crate) struct Supervisor {
    source: ModelSource,
    terms: Arc<Terms>,
    handle: Handle,
    shared: Arc<Shared>,
    commands: UnboundedReceiver<Command>,
    /// What waits for an engine.
    waiting: Vec<Submission>,
    loads: Vec<oneshot::Sender<Result<(), ApiError>>>,
    /// What the engine was given and has not ended, by attempt.
    open: BTreeMap<u64, Open>,
    /// As the last request wishes.
    keep: KeepAlive,
    /// Kept while there is an engine, so that prompts find it.
    model: Option<Arc<OpenModel>>,
    pause: Duration,
}

impl std::fmt::Debug for Supervisor {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Supervisor").field("model", &self.source.name).finish_non_exhaustive()
    }
}

/// A request that the engine has.
struct Open {
    voice: Voice,
    ends: Vec<smelt_engine::Finish>,
}

/// How an engine's process ended.
enum Ended {
    /// It was let go; who asked for it is told.
    LetGo(Vec<oneshot::Sender<()>>),
    /// The server stops.
    Stopped,
    /// It can't load the model.
    NotLoaded(String),
    /// By itself, by somebody else, or because it was stuck.
    Lost(String),
}

/// An engine's process, from its start to its end.
struct Session {
    process: Process,
    started: Instant,
    loaded: Option<Instant>,
    /// Why it was told to end, and when it is killed if it doesn't.
    ending: Option<(Ended, Instant)>,
    /// Since when nobody has asked for anything.
    idle_since: Instant,
    looks: Interval,
    /// Looks at the engine since it last did something. Looks are counted rather than time, so that a machine that slept
    /// has not been stuck.
    idle_looks: u32,
    steps: u64,
    /// Whether an answer was complete: then it isn't broken.
    has_answered: bool,
}

impl Supervisor {
    /// A supervisor, and the way to it.
    pub(crate) fn new(source: ModelSource, terms: Arc<Terms>) -> (Self, Handle) {
        let (sender, commands): (UnboundedSender<Command>, _) = tokio::sync::mpsc::unbounded_channel();
        let shared = Arc::<Shared>::default();
        let handle = Handle::new(sender, shared.clone());
        let supervisor = Self {
            source,
            keep: terms.keep,
            terms,
            handle: handle.clone(),
            shared,
            commands,
            waiting: Vec::new(),
            loads: Vec::new(),
            open: BTreeMap::new(),
            model: None,
            pause: PAUSES.0,
        };
        (supervisor, handle)
    }

    /// Runs until it is told to stop.
    pub(crate) async fn run(mut self) {
        loop {
            self.shared.set_state(State::Idle);
            if self.waiting.is_empty() && self.loads.is_empty() {
                self.model = None;
            }
            if !self.rest().await {
                break;
            }
            let need = self.model.as_ref().map_or(Need::default(), |model| model.need);
            let ended = match self.terms.memory.clone().reserve(&self.handle, need).await {
                Ok(reservation) => self.live(reservation).await,
                Err(error) => {
                    self.refuse(&error);
                    continue;
                }
            };
            if matches!(ended, Ended::Stopped) {
                break;
            }
            // Its memory is free by now.
            if let Ended::LetGo(replies) = ended {
                replies.into_iter().for_each(|reply| answer(reply, ()));
            }
        }
        self.refuse(&stopping());
        // Who asks from now on learns it by the closed channel.
        self.shared.set_state(State::Idle);
    }

    /// Waits until there is a reason for an engine; false if the server stops.
    async fn rest(&mut self) -> bool {
        while self.waiting.is_empty() && self.loads.is_empty() {
            match self.commands.recv().await {
                Some(Command::Stop { .. }) | None => return false,
                Some(command) => self.note(command),
            }
        }
        true
    }

    /// Takes a command while there is no engine.
    fn note(&mut self, command: Command) {
        match command {
            Command::Submit(submission) => {
                self.take(&submission.model, submission.keep);
                self.queue(submission);
            }
            Command::Load { model, keep, reply } => {
                self.take(&model, keep);
                self.loads.push(reply);
            }
            Command::Cancel(attempt) => self.waiting.retain(|waiting| waiting.attempt != attempt),
            Command::Unload(reply) => answer(reply, ()),
            Command::Stats(reply) => answer(reply, self.shared.stats()),
            // What isn't there is neither kept nor stopped.
            Command::Keep(_) | Command::Stop { .. } => {}
        }
    }

    /// Lets a request wait for the engine, as many as may wait in it.
    fn queue(&mut self, submission: Submission) {
        if self.waiting.len() < self.terms.scheduler.max_queue {
            return self.waiting.push(submission);
        }
        let message = format!("{} requests are waiting for the model already; try again", self.waiting.len());
        submission.voice.fail(ApiError::new(Code::Overloaded, message).retry_after(5));
    }

    fn take(&mut self, model: &Arc<OpenModel>, keep: Option<KeepAlive>) {
        self.keep = keep.unwrap_or(self.terms.keep);
        self.model = Some(model.clone());
        self.shared.touch(expires(self.keep));
    }

    /// Runs one process after the other, until the engine is let go.
    async fn live(&mut self, _memory: Reservation) -> Ended {
        loop {
            let why = match self.session().await {
                Ended::Lost(why) => why,
                Ended::NotLoaded(why) => {
                    tracing::error!(model = self.source.name, why, "the model can't be loaded");
                    self.refuse(&ApiError::new(Code::Internal, format!("the model can't be loaded: {why}")));
                    return Ended::NotLoaded(why);
                }
                ended => return ended,
            };
            let pause = self.pause;
            self.pause = (pause * 2).min(PAUSES.1);
            self.lose(&why, pause);
            self.shared.set_state(State::Restarting);
            let next = sleep(pause);
            tokio::pin!(next);
            loop {
                tokio::select! {
                    () = &mut next => break,
                    command = self.commands.recv() => match command {
                        Some(Command::Stop { .. }) | None => return Ended::Stopped,
                        Some(Command::Unload(reply)) if self.waiting.is_empty() && self.loads.is_empty() => {
                            return Ended::LetGo(vec![reply]);
                        }
                        Some(Command::Unload(reply)) => answer(reply, ()),
                        Some(command) => self.note(command),
                    },
                }
            }
        }
    }

    /// Tells all that the engine is lost, each once.
    fn lose(&mut self, why: &str, pause: Duration) {
        tracing::error!(model = self.source.name, why, open = self.open.len(), "the engine failed");
        let seconds = u32::try_from(pause.as_secs()).unwrap_or(u32::MAX).saturating_add(1);
        let message = format!(
            "the engine of {:?} failed: {why}; the answer is not complete, send the request again",
            self.source.name
        );
        let error = ApiError::new(Code::EngineFailed, message).retry_after(seconds);
        self.shared.count_restart(self.open.len() as u64);
        while let Some((_, open)) = self.open.pop_first() {
            open.voice.fail(error.clone());
        }
        self.refuse(&error);
    }

    /// Refuses what waits.
    fn refuse(&mut self, error: &ApiError) {
        self.waiting.drain(..).for_each(|submission| submission.voice.fail(error.clone()));
        self.loads.drain(..).for_each(|reply| answer(reply, Err(error.clone())));
    }

    /// Runs a process to its end.
    async fn session(&mut self) -> Ended {
        let Some(model) = &self.model else { return Ended::LetGo(Vec::new()) };
        let load = Load::new(model, self.terms.scheduler);
        self.shared.set_state(State::Loading);
        let process = match Process::start(&self.terms.launch) {
            Ok(process) => process,
            Err(error) => return Ended::Lost(format!("its process can't be started: {error}")),
        };
        self.shared.set_process(process.id());
        process.order(&Order::Load(Box::new(load)));
        let mut session = Session::new(process, self.terms.step_time);
        let ended = match (self.attend(&mut session).await, session.ending.take()) {
            // However it went once it was told to.
            (_, Some((ending, _))) => ending,
            (ended, None) => ended,
        };
        self.shared.set_process(None);
        self.shared.end_session();
        let was_fine = session.loaded.is_some_and(|since| since.elapsed() >= GOOD_TIME);
        if was_fine || session.has_answered {
            self.pause = PAUSES.0;
        }
        match &ended {
            Ended::Lost(_) => {}
            // What is still open was not answered in the time that it had.
            _ => {
                while let Some((_, open)) = self.open.pop_first() {
                    open.voice.fail(stopping());
                }
            }
        }
        ended
    }

    /// Passes orders and reports on.
    async fn attend(&mut self, session: &mut Session) -> Ended {
        loop {
            let is_busy = session.loaded.is_none() || !self.open.is_empty();
            let alarm = match (&session.ending, self.keep) {
                (Some((_, kill_at)), _) => Some(*kill_at),
                (None, KeepAlive::For(time)) if !is_busy => session.idle_since.checked_add(time),
                _ => None,
            };
            tokio::select! {
                report = session.process.reports.recv() => match report {
                    Some(Ok(Report::NotLoaded { why })) => {
                        session.process.end().await;
                        return Ended::NotLoaded(why);
                    }
                    Some(Ok(report)) => self.hear(report, session),
                    Some(Err(why)) => {
                        session.process.kill().await;
                        return Ended::Lost(why);
                    }
                    None => {
                        return Ended::Lost(session.process.end().await);
                    }
                },
                command = self.commands.recv() => {
                    self.obey(command.unwrap_or(Command::Stop { drain: Duration::ZERO }), session);
                }
                _ = session.looks.tick(), if is_busy => if let Some(why) = self.look(session) {
                    session.process.kill().await;
                    return Ended::Lost(why);
                },
                () = at(alarm) => {
                    if session.ending.is_some() {
                        session.process.kill().await;
                        return Ended::Lost("it didn't end".into());
                    }
                    tracing::info!(model = self.source.name, "the model is unloaded: nobody uses it");
                    session.end(Ended::LetGo(Vec::new()), Duration::ZERO);
                }
            }
        }
    }

    /// Asks the engine how far it is; why it is stuck, if it is.
    fn look(&self, session: &mut Session) -> Option<String> {
        session.idle_looks += 1;
        let silence = session.looks.period() * session.idle_looks;
        if silence > self.terms.step_time {
            return Some(format!("it has done nothing for {} s and was killed", silence.as_secs()));
        }
        session.process.order(&Order::Ping);
        None
    }

    fn obey(&mut self, command: Command, session: &mut Session) {
        match command {
            Command::Submit(submission) => {
                self.take(&submission.model, submission.keep);
                match (&session.ending, session.loaded) {
                    (Some((Ended::Stopped, _)), _) => submission.voice.fail(stopping()),
                    (None, Some(_)) => self.give(submission, session),
                    _ => self.queue(submission),
                }
            }
            Command::Cancel(attempt) => {
                self.waiting.retain(|waiting| waiting.attempt != attempt);
                if self.open.remove(&attempt).is_some() {
                    session.process.order(&Order::Cancel { attempt });
                    session.rest(self.open.is_empty());
                }
            }
            Command::Load { model, keep, reply } => {
                self.take(&model, keep);
                session.rest(self.open.is_empty());
                match (&session.ending, session.loaded) {
                    (None, Some(_)) => answer(reply, Ok(())),
                    _ => self.loads.push(reply),
                }
            }
            Command::Keep(keep) => {
                self.keep = keep;
                self.shared.touch(expires(keep));
            }
            Command::Unload(reply) => match &mut session.ending {
                Some((Ended::LetGo(replies), _)) => replies.push(reply),
                None if self.open.is_empty() && self.waiting.is_empty() && self.loads.is_empty() => {
                    tracing::info!(model = self.source.name, "the model is unloaded to make room");
                    session.end(Ended::LetGo(vec![reply]), Duration::ZERO);
                }
                _ => answer(reply, ()),
            },
            Command::Stats(reply) => match session.loaded {
                Some(_) => {
                    self.shared.await_stats(reply);
                    session.process.order(&Order::Ping);
                }
                None => answer(reply, self.shared.stats()),
            },
            Command::Stop { drain } => {
                self.refuse(&stopping());
                // A model that is being loaded is of no use any more.
                let drain = if session.loaded.is_some() { drain } else { Duration::ZERO };
                session.end(Ended::Stopped, drain);
                if session.loaded.is_none() {
                    session.process.start_kill();
                }
            }
        }
    }

    /// Gives the engine a request.
    fn give(&mut self, submission: Submission, session: &mut Session) {
        let Submission { attempt, work, voice, .. } = submission;
        session.process.order(&match work {
            Work::Generate(request) => Order::Generate { attempt, request },
            Work::Pool(request) => Order::Pool { attempt, request },
        });
        if self.open.is_empty() {
            session.idle_looks = 0;
        }
        self.open.insert(attempt, Open { voice, ends: Vec::new() });
    }

    fn hear(&mut self, report: Report, session: &mut Session) {
        match report {
            Report::Loaded { device } => {
                let now = Instant::now();
                session.idle_looks = 0;
                session.idle_since = now;
                session.loaded = Some(now);
                self.shared.set_state(State::Ready);
                self.shared.touch(expires(self.keep));
                tracing::info!(
                    model = self.source.name,
                    device,
                    seconds = session.started.elapsed().as_secs_f64(),
                    "model loaded"
                );
                self.loads.drain(..).for_each(|reply| answer(reply, Ok(())));
                for submission in std::mem::take(&mut self.waiting) {
                    self.give(submission, session);
                }
            }
            Report::Pong { stats } => {
                // While it loads there are no steps, and an answer is a sign of life.
                if stats.steps != session.steps || session.loaded.is_none() {
                    session.idle_looks = 0;
                }
                session.steps = stats.steps;
                self.shared.tell_stats(*stats);
            }
            Report::Answer { attempt, event } => {
                session.idle_looks = 0;
                if let Some(order) = self.pass(attempt, event) {
                    session.has_answered |= matches!(order, Order::Commit { .. });
                    session.process.order(&order);
                }
                if !self.open.contains_key(&attempt) {
                    session.rest(self.open.is_empty());
                    self.shared.touch(expires(self.keep));
                }
            }
            Report::NotLoaded { .. } => {}
        }
    }

    /// Passes an event on to whoever waits for it; what the engine is to be told then. An attempt that is over, or was
    /// cancelled, is known no more.
    fn pass(&mut self, attempt: u64, event: Event) -> Option<Order> {
        let open = self.open.get_mut(&attempt)?;
        let is_gone = match event {
            Event::Refused(refusal) => {
                let open = self.open.remove(&attempt)?;
                open.voice.fail(refused(refusal));
                return None;
            }
            Event::Failed(failure) => {
                let open = self.open.remove(&attempt)?;
                self.shared.count_failed();
                open.voice.fail(failed(failure));
                return None;
            }
            Event::CommitReady => {
                let mut open = self.open.remove(&attempt)?;
                // From here on the answer is complete, whatever becomes of the engine.
                self.shared.count_ends(&open.ends);
                open.voice.tell(Event::Done);
                return Some(Order::Commit { attempt });
            }
            Event::Finished { finish, .. } => {
                open.ends.push(finish);
                open.voice.tell(event)
            }
            event => open.voice.tell(event),
        };
        is_gone.then(|| {
            self.open.remove(&attempt);
            Order::Cancel { attempt }
        })
    }
}

impl Session {
    fn new(process: Process, step_time: Duration) -> Self {
        let mut looks = interval(LOOK.min(step_time / 4).max(Duration::from_millis(10)));
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let now = Instant::now();
        Self {
            process,
            started: now,
            loaded: None,
            ending: None,
            idle_since: now,
            looks,
            idle_looks: 0,
            steps: 0,
            has_answered: false,
        }
    }

    /// Tells the process to end when all is answered or the time has come.
    fn end(&mut self, ended: Ended, drain: Duration) {
        if let Some((Ended::LetGo(replies), _)) = self.ending.take() {
            replies.into_iter().for_each(|reply| answer(reply, ()));
        }
        self.process.order(&Order::Shutdown { drain });
        self.ending = Some((ended, Instant::now() + drain + GRACE));
    }

    /// Notes that nobody asks for anything from now on.
    fn rest(&mut self, is_idle: bool) {
        if is_idle {
            self.idle_since = Instant::now();
        }
    }
}

/// Waits until then; for ever without an instant.
async fn at(alarm: Option<Instant>) {
    match alarm {
        Some(instant) => sleep_until(instant).await,
        None => std::future::pending().await,
    }
}

fn refused(refusal: Refusal) -> ApiError {
    match refusal {
        Refusal::QueueFull { message, retry_after } => {
            let seconds = u32::try_from(retry_after).unwrap_or(u32::MAX);
            ApiError::new(Code::Overloaded, message).retry_after(seconds.max(1))
        }
        Refusal::TooLong { prompt_tokens, context } => ApiError::context_length(prompt_tokens, context),
        Refusal::Constraint { param, message, unsupported: true } => ApiError::unsupported(param, message),
        Refusal::Constraint { param, message, unsupported: false } => {
            ApiError { param: Some(param), ..ApiError::new(Code::InvalidValue, message) }
        }
        Refusal::Invalid(message) => ApiError::new(Code::InvalidValue, message),
        Refusal::Stopping(message) => ApiError::new(Code::Unavailable, message).retry_after(5),
        Refusal::Broken(message) => ApiError::new(Code::EngineFailed, message).retry_after(1),
    }
}

fn failed(failure: Failure) -> ApiError {
    match failure.class {
        Class::Stopped => stopping(),
        Class::Request => ApiError::new(Code::InvalidValue, failure.message),
        Class::Memory => ApiError::new(Code::InsufficientMemory, failure.message),
        Class::Internal => {
            tracing::error!(why = failure.message, "an answer failed");
            ApiError::new(Code::Internal, failure.message)
        }
    }
}
