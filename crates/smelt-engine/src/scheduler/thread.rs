//! The engine's thread, and the handles that others have to it.

use super::core::Core;
use super::job::{Submission, Voice, Work};
use super::request::{EventSink, Failure, MAX_CHOICES, MAX_LOGPROBS, PRIORITIES, Request, SubmitError};
use super::stats::Stats;
use super::stepper::Stepper;
use super::{Limits, SchedulerSettings, panic_message, setting};
use crate::emitter::{Emission, Emitter};
use crate::{Engine, Error, Model};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::mpsc::{self, Receiver, Sender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

/// An engine on its own thread, which answers many requests at once.
#[derive(Debug)]
pub struct Scheduler {
    handle: Handle,
    thread: Option<JoinHandle<()>>,
    /// Ends a step in its middle.
    interrupt: Arc<AtomicBool>,
    /// Closed when the thread is done.
    ended: Receiver<()>,
}

/// A way to the engine's thread, for any thread.
#[derive(Debug, Clone)]
pub struct Handle {
    shared: Arc<Shared>,
    commands: Sender<Command>,
}

/// A request that was accepted. Dropping it cancels the request: it holds nothing any more when the step that is being
/// computed is done, and no event comes.
#[derive(Debug)]
#[must_use = "dropping a ticket cancels the request"]
pub struct Ticket {
    cancelled: Arc<AtomicBool>,
}

impl Drop for Ticket {
    fn drop(&mut self) {
        self.cancelled.store(true, Ordering::Relaxed);
    }
}

#[derive(Debug)]
struct Shared {
    model: Arc<Model>,
    limits: Limits,
    queued: Arc<AtomicUsize>,
    stats: Mutex<Stats>,
    state: Mutex<State>,
}

#[derive(Debug, Clone)]
enum State {
    Running,
    Stopping,
    /// The thread ended by a panic, with this message.
    Broken(String),
}

enum Command {
    Submit(Box<Submission>),
    /// Take no more, and end when all is answered or the time has come.
    Stop(Instant),
}

impl Scheduler {
    /// Starts the engine's thread.
    ///
    /// # Errors
    /// If a setting is out of range, or there can be no thread.
    pub fn start(mut engine: Engine, settings: &SchedulerSettings) -> Result<Self, Error> {
        let limits = Limits::new(settings, engine.model())?;
        let interrupt = Arc::new(AtomicBool::new(false));
        engine.interrupt_on(interrupt.clone());
        Self::spawn(engine.model, Box::new(engine.runner), limits, interrupt)
    }

    pub(super) fn spawn(
        model: Arc<Model>,
        stepper: Box<dyn Stepper>,
        limits: Limits,
        interrupt: Arc<AtomicBool>,
    ) -> Result<Self, Error> {
        let shared = Arc::new(Shared {
            model: model.clone(),
            limits,
            queued: Arc::new(AtomicUsize::new(0)),
            stats: Mutex::default(),
            state: Mutex::new(State::Running),
        });
        let (commands, received) = mpsc::channel();
        let (ending, ended) = mpsc::channel();
        let handle = Handle { shared: shared.clone(), commands };
        let run = move || {
            let queued = shared.queued.clone();
            let core = Core::new(model, stepper, limits, queued, Box::new(Instant::now));
            run(core, &received, &shared);
            drop(ending);
        };
        let thread = thread::Builder::new().name("smelt-engine".into()).spawn(run).map_err(Error::Thread)?;
        Ok(Self { handle, thread: Some(thread), interrupt, ended })
    }

    /// A handle to it.
    #[must_use]
    pub fn handle(&self) -> Handle {
        self.handle.clone()
    }

    /// Takes no more requests, gives those that are accepted `drain` to end, then fails the others with
    /// [`Failure::Stopped`], in the middle of a step too. Returns when the engine is gone. Dropping the scheduler is
    /// the same without time to drain.
    pub fn shutdown(mut self, drain: Duration) {
        self.stop(drain);
    }

    fn stop(&mut self, drain: Duration) {
        let Some(thread) = self.thread.take() else { return };
        self.handle.shared.set_state(State::Stopping);
        let deadline = Instant::now() + drain;
        // If nobody receives, the thread is gone already.
        if self.handle.commands.send(Command::Stop(deadline)).is_ok() {
            // Nothing is ever sent: this waits until the thread ends, or the time has come.
            let _ = self.ended.recv_timeout(drain);
            self.interrupt.store(true, Ordering::Relaxed);
        }
        // What a panic had to say is in the state.
        let _ = thread.join();
    }
}

impl Drop for Scheduler {
    fn drop(&mut self) {
        self.stop(Duration::ZERO);
    }
}

impl Handle {
    /// Gives a request to the engine. Settings are checked here, on the caller's thread.
    ///
    /// `sink` takes the events on the engine's thread and must not block.
    ///
    /// # Errors
    /// Why it wasn't accepted; then `sink` is never called.
    pub fn submit(&self, request: Request, sink: EventSink) -> Result<Ticket, SubmitError> {
        let priority = request.priority;
        self.accept(sink, priority, |model, limits| writing(request, model, limits))
    }

    /// Gives the engine's thread what `work` makes of the model and the limits.
    pub(super) fn accept(
        &self,
        sink: EventSink,
        priority: i32,
        work: impl FnOnce(&Arc<Model>, &Limits) -> Result<Work, SubmitError>,
    ) -> Result<Ticket, SubmitError> {
        let arrival = Instant::now();
        let shared = &*self.shared;
        match shared.state() {
            State::Running => {}
            State::Stopping => return Err(SubmitError::Stopping),
            State::Broken(why) => return Err(SubmitError::Stopped(why)),
        }
        let work = work(&shared.model, &shared.limits)?;
        let (submission, ticket) = submission(sink, priority, arrival, work);
        let claim = |queued: usize| (queued < shared.limits.queue).then_some(queued + 1);
        // Where a request is refused its ticket goes first: the error is told by the result, not by an event.
        if let Err(waiting) = shared.queued.fetch_update(Ordering::Relaxed, Ordering::Relaxed, claim) {
            drop(ticket);
            return Err(SubmitError::QueueFull { waiting, retry_after: self.retry_after(waiting) });
        }
        if let Err(refused) = self.commands.send(Command::Submit(Box::new(submission))) {
            drop(ticket);
            drop(refused);
            return Err(match shared.state() {
                State::Broken(why) => SubmitError::Stopped(why),
                State::Running | State::Stopping => SubmitError::Stopping,
            });
        }
        Ok(ticket)
    }

    /// When a queue of so many will have moved on, by what requests took so far.
    fn retry_after(&self, waiting: usize) -> Duration {
        let rounds = waiting.div_ceil(self.shared.limits.sequences) as f64;
        let seconds = self.stats().end_to_end.mean().unwrap_or(1.0) * rounds;
        Duration::from_secs_f64(seconds.clamp(1.0, 60.0).ceil())
    }

    /// What of the model any thread may read: facts, tokenizer, chat template.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.shared.model
    }

    /// Tokens that an answer may have with its prompt: what the model and the cache hold.
    #[must_use]
    pub fn context(&self) -> usize {
        self.shared.limits.context
    }

    /// Numbers, as of the last step; waiting requests as of now.
    #[must_use]
    pub fn stats(&self) -> Stats {
        let mut stats = *self.shared.stats.lock().unwrap_or_else(PoisonError::into_inner);
        stats.waiting = stats.waiting.max(self.shared.queued.load(Ordering::Relaxed));
        stats
    }

    /// Whether requests are accepted.
    #[must_use]
    pub fn is_running(&self) -> bool {
        matches!(self.shared.state(), State::Running)
    }
}

impl Shared {
    fn guard(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn state(&self) -> State {
        self.guard().clone()
    }

    /// Sets the state; what is broken stays so.
    fn set_state(&self, state: State) {
        let mut guard = self.guard();
        if !matches!(*guard, State::Broken(_)) {
            *guard = state;
        }
    }

    fn tell_stats(&self, stats: &Stats) {
        *self.stats.lock().unwrap_or_else(PoisonError::into_inner) = *stats;
    }
}

/// Work on its way to the engine's thread, and its ticket.
pub(super) fn submission(
    sink: EventSink,
    priority: i32,
    arrival: Instant,
    work: Work,
) -> (Submission, Ticket) {
    let cancelled = Arc::new(AtomicBool::new(false));
    let voice = Voice::new(sink, cancelled.clone());
    (Submission { voice, priority, arrival, work }, Ticket { cancelled })
}

/// A request for text, checked and ready for the engine's thread.
///
/// # Errors
/// Why it can't be done.
pub(super) fn writing(request: Request, model: &Arc<Model>, limits: &Limits) -> Result<Work, SubmitError> {
    model.facts.check_generates()?;
    check(&request, model, limits)?;
    let emitters = emitters(&request, model, limits)?;
    let Request { prompt, logprobs, prompt_logprobs, fresh, progress, .. } = request;
    let prompt_logprobs = prompt_logprobs.then_some(logprobs.unwrap_or(0));
    Ok(Work::Write { prompt, emitters, prompt_logprobs, fresh, progress })
}

/// Checks what doesn't take a sampler to check.
fn check(request: &Request, model: &Model, limits: &Limits) -> Result<(), SubmitError> {
    let (prompt, context) = (&request.prompt, limits.context);
    if prompt.is_empty() {
        return Err(Error::EmptyPrompt.into());
    }
    if prompt.len() > context {
        return Err(SubmitError::TooLong { prompt_tokens: prompt.len(), context });
    }
    let vocab_size = model.facts.vocab_size;
    if let Some(token) = prompt.iter().find(|token| **token as usize >= vocab_size) {
        return Err(Error::TokenRange { token: *token, vocab_size }.into());
    }
    if !(1..=MAX_CHOICES).contains(&request.n) {
        return Err(setting("n", request.n, format!("between 1 and {MAX_CHOICES}")).into());
    }
    if !PRIORITIES.contains(&request.priority) {
        let (low, high) = PRIORITIES.into_inner();
        return Err(setting("priority", request.priority, format!("between {low} and {high}")).into());
    }
    match request.logprobs {
        Some(n) if n > MAX_LOGPROBS => Err(setting("logprobs", n, format!("{MAX_LOGPROBS} at most")).into()),
        _ => Ok(()),
    }
}

fn emitters(request: &Request, model: &Arc<Model>, limits: &Limits) -> Result<Vec<Emitter>, Error> {
    let emitter = |i: usize| {
        let mut sampler = request.sampler.clone();
        sampler.seed = sampler.seed.map(|seed| seed.wrapping_add(i as u64));
        let emission = Emission {
            sampler,
            stop: request.stop.clone(),
            lines: request.lines,
            max_tokens: request.max_tokens,
            context: limits.context,
            ignore_eos: request.ignore_eos,
            show_special: request.show_special,
            shown: request.shown.clone(),
            logprobs: request.logprobs,
            post_sampling: request.post_sampling,
            constraint: request.constraint.as_ref().map(|constraint| constraint.fork()),
        };
        Emitter::new(model, emission, &request.prompt)
    };
    (0..request.n).map(emitter).collect()
}

/// The engine's thread.
fn run(mut core: Core, commands: &Receiver<Command>, shared: &Shared) {
    let result = catch_unwind(AssertUnwindSafe(|| serve(&mut core, commands, shared)));
    if let Err(panic) = result {
        // What the device is in the middle of is unknown: no request may go on with it.
        let message = panic_message(&*panic);
        shared.set_state(State::Broken(message.clone()));
        core.fail_all(&Failure::Panic(message));
    } else {
        shared.set_state(State::Stopping);
        core.fail_all(&Failure::Stopped);
    }
    shared.tell_stats(&core.stats);
}

fn serve(core: &mut Core, commands: &Receiver<Command>, shared: &Shared) {
    let mut deadline = None;
    loop {
        if core.is_idle() {
            if deadline.is_some() {
                return;
            }
            match commands.recv() {
                Ok(command) => take(command, core, &mut deadline),
                Err(_) => return,
            }
        }
        loop {
            match commands.try_recv() {
                Ok(command) => take(command, core, &mut deadline),
                Err(TryRecvError::Empty) => break,
                Err(TryRecvError::Disconnected) => return,
            }
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return;
            }
        }
        core.step();
        shared.tell_stats(&core.stats);
        if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
            return;
        }
    }
}

fn take(command: Command, core: &mut Core, deadline: &mut Option<Instant>) {
    match command {
        Command::Submit(submission) => core.submit(*submission),
        Command::Stop(at) => *deadline = Some(at),
    }
}
