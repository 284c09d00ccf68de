//! The engine's process: one model, told what to do on standard input.

use std::collections::HashMap;
use std::io::{self, BufRead, BufReader, BufWriter, Read, Write};
use std::ops::ControlFlow;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender, SyncSender, TryRecvError};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread;
use std::time::Duration;

use smelt_engine::scheduler::{self, EventSink, Handle, Scheduler, Stats, SubmitError, Ticket};
use smelt_engine::{Engine, GrammarError};

use super::protocol::{
    Class, Event, Failure, Load, MOST_LINE, Order, Refusal, Report, Request, TOLD_AT_ONCE, Token, from_line,
    to_line,
};
use crate::models::Stamp;

/// Why an engine's process ended with an error.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub struct DaemonError(String);

/// Runs a model as orders on standard input say, and reports on standard output, until told to stop or until there is
/// nobody any more who could. `smelt serve` starts this; it is of no use to a person.
///
/// # Errors
/// If an order makes no sense, or the engine broke.
pub fn run_daemon() -> Result<(), DaemonError> {
    outlive_signals();
    die_with_the_server();
    let (tell, told) = mpsc::channel();
    let (control, controls) = mpsc::channel();
    spawn("smelt-report", move || write(&told, io::stdout()))?;
    let child =
        Arc::new(Child { tell: tell.clone(), control, open: Mutex::default(), handle: OnceLock::new() });
    let reading = child.clone();
    spawn("smelt-orders", move || read(&reading, io::stdin()))?;
    let result = serve(&child, &controls);
    // What was told is written before the end.
    let (written, done) = mpsc::sync_channel(1);
    if tell.send(Line::Last(written)).is_ok() {
        let _ = done.recv();
    }
    result
}

fn spawn(name: &str, work: impl FnOnce() + Send + 'static) -> Result<(), DaemonError> {
    let thread = thread::Builder::new().name(name.into()).spawn(work);
    thread.map(drop).map_err(|error| DaemonError(format!("cannot start a thread: {error}")))
}

/// The end comes from the server: signals that are meant for both would cut answers that it lets end. And where memory runs
/// out, this process is the one that can be started again.
fn outlive_signals() {
    // They can't be written everywhere. The name would else be that of the link that led to the program.
    let _ = std::fs::write("/proc/self/oom_score_adj", "500");
    let _ = std::fs::write("/proc/self/comm", "smelt");
    #[cfg(unix)]
    if let Ok(runtime) = tokio::runtime::Builder::new_current_thread().enable_io().build() {
        use tokio::signal::unix::{SignalKind, signal};
        let _within = runtime.enter();
        for kind in [SignalKind::terminate(), SignalKind::interrupt(), SignalKind::hangup()] {
            // From the first listener on, a signal does nothing else.
            let _ = signal(kind);
        }
    }
}

/// Has the system kill this process with the server. The end of standard input ends it too, but not one that is stopped, or
/// that gets no time.
///
/// The signal comes when the thread ends that started the process. That is a worker of the server's runtime, on which all
/// supervisors run, and these last as long as the server.
#[cfg(target_os = "linux")]
fn die_with_the_server() {
    use rustix::process::{Signal, getppid, set_parent_process_death_signal};
    let server = getppid();
    // Where the system refuses, there is still the end of standard input.
    let _ = set_parent_process_death_signal(Some(Signal::KILL));
    // It was gone before the system knew that we care; whoever is the parent now has given no order.
    if getppid() != server {
        end();
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_the_server() {}

/// What the process has to do beside answering.
enum Control {
    Load(Box<Load>),
    Shutdown(Duration),
    /// It can't go on.
    Broken(String),
}

enum Line {
    Report(Report),
    /// Nothing comes behind it.
    Last(SyncSender<()>),
}

/// What of an attempt there is.
enum Attempt {
    /// Its grammar is being compiled.
    Preparing,
    Running {
        /// Dropped, it cancels.
        _ticket: Ticket,
    },
    /// Its answer is complete, and not committed yet.
    Complete,
}

struct Child {
    tell: Sender<Line>,
    control: Sender<Control>,
    open: Mutex<HashMap<u64, Attempt>>,
    handle: OnceLock<Handle>,
}

/// Loads the model and waits for the end.
fn serve(child: &Arc<Child>, controls: &Receiver<Control>) -> Result<(), DaemonError> {
    let scheduler = match controls.recv() {
        Ok(Control::Load(load)) => match start(&load) {
            Ok((scheduler, device)) => {
                let _ = child.handle.set(scheduler.handle());
                child.report(Report::Loaded { device });
                scheduler
            }
            Err(why) => {
                child.report(Report::NotLoaded { why });
                return Ok(());
            }
        },
        Ok(Control::Broken(why)) => return Err(DaemonError(why)),
        Ok(Control::Shutdown(_)) | Err(_) => return Ok(()),
    };
    match controls.recv() {
        Ok(Control::Shutdown(drain)) => {
            scheduler.shutdown(drain);
            // What was counted last counts too.
            child.obey(Order::Ping);
            Ok(())
        }
        Ok(Control::Load(_)) => Err(DaemonError("a model is loaded already".into())),
        Ok(Control::Broken(why)) => Err(DaemonError(why)),
        Err(_) => Ok(()),
    }
}

/// The engine, and what computes.
fn start(load: &Load) -> Result<(Scheduler, String), String> {
    let version = crate::info::VERSION;
    if load.version != version {
        return Err(format!("the server is version {}, its engine {version}; restart it", load.version));
    }
    let settings = load.engine.settings().ok_or("a setting has an unknown name")?;
    let file = Path::new(&load.file);
    let engine = Engine::load(file, &settings).map_err(|error| error.to_string())?;
    if Stamp::of(file).ok().as_ref() != Some(&load.stamp) {
        return Err("its file was replaced while requests for it were read; send them again".to_owned());
    }
    let device = engine.device().description;
    let scheduler = Scheduler::start(engine, &load.scheduler).map_err(|error| error.to_string())?;
    Ok((scheduler, device))
}

impl Child {
    fn report(&self, report: Report) {
        // The writer ends with the process.
        let _ = self.tell.send(Line::Report(report));
    }

    fn event(&self, attempt: u64, event: Event) {
        self.report(Report::Answer { attempt, event });
    }

    fn break_down(&self, why: String) {
        let _ = self.control.send(Control::Broken(why));
    }

    fn open(&self) -> MutexGuard<'_, HashMap<u64, Attempt>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn obey(self: &Arc<Self>, order: Order) {
        match order {
            Order::Load(load) => drop(self.control.send(Control::Load(load))),
            Order::Shutdown { drain } => drop(self.control.send(Control::Shutdown(drain))),
            Order::Cancel { attempt } => drop(self.open().remove(&attempt)),
            Order::Commit { attempt } => {
                if self.open().remove(&attempt).is_some() {
                    self.event(attempt, Event::Done);
                }
            }
            Order::Ping => {
                let stats = self.handle.get().map_or_else(Stats::default, Handle::stats);
                self.report(Report::Pong { stats: Box::new(stats) });
            }
            Order::Pool { attempt, request } => {
                self.open().insert(attempt, Attempt::Preparing);
                self.begin(attempt, |handle, sink| handle.pool(*request, sink));
            }
            Order::Generate { attempt, request } => {
                self.open().insert(attempt, Attempt::Preparing);
                if request.constraint.is_none() {
                    return self.submit(attempt, *request);
                }
                // A grammar takes its time, and nobody else's.
                let child = self.clone();
                let submit = move || child.submit(attempt, *request);
                if let Err(error) = spawn("smelt-submit", submit) {
                    self.refuse(attempt, Refusal::Invalid(error.to_string()));
                }
            }
        }
    }

    fn submit(self: &Arc<Self>, attempt: u64, mut request: Request) {
        let Some(handle) = self.handle.get() else {
            return self.break_down("a request came before the model".into());
        };
        let constraint = request.constraint.take();
        let compile = || constraint.as_ref().and_then(|c| c.compile(handle.model()).transpose()).transpose();
        let compiled = match compile() {
            Ok(compiled) => compiled,
            Err(error) => {
                let param = constraint.map(|constraint| constraint.param).unwrap_or_default();
                let unsupported = matches!(error, GrammarError::Vocabulary(_));
                let message = error.to_string();
                return self.refuse(attempt, Refusal::Constraint { param, message, unsupported });
            }
        };
        if self.open().contains_key(&attempt) {
            self.begin(attempt, |handle, sink| handle.submit(request.held_to(compiled), sink));
        }
    }

    /// Gives the engine an attempt that waits for it.
    fn begin(
        self: &Arc<Self>,
        attempt: u64,
        submit: impl FnOnce(&Handle, EventSink) -> Result<Ticket, SubmitError>,
    ) {
        let Some(handle) = self.handle.get() else {
            return self.break_down("a request came before the model".into());
        };
        let child = self.clone();
        let sink = move |event| {
            child.tell_event(attempt, event);
            ControlFlow::Continue(())
        };
        match submit(handle, Box::new(sink)) {
            Ok(ticket) => {
                self.event(attempt, Event::Accepted);
                // It may have been cancelled meanwhile, or be complete: then the ticket goes.
                if let Some(state @ Attempt::Preparing) = self.open().get_mut(&attempt) {
                    *state = Attempt::Running { _ticket: ticket };
                }
            }
            Err(error) => {
                self.refuse(attempt, refusal(&error));
                if let SubmitError::Stopped(why) = error {
                    self.break_down(why);
                }
            }
        }
    }

    fn refuse(&self, attempt: u64, refusal: Refusal) {
        self.open().remove(&attempt);
        self.event(attempt, Event::Refused(refusal));
    }

    /// Passes an event on, from the engine's thread.
    fn tell_event(&self, attempt: u64, event: scheduler::Event) {
        let tokens = |tokens: &[smelt_engine::TokenInfo]| tokens.iter().map(Token::new).collect();
        let event = match event {
            scheduler::Event::Started { cached_tokens, prompt_tokens } => {
                Event::Started { cached_tokens, prompt_tokens }
            }
            scheduler::Event::Progress { computed_tokens } => Event::Progress { computed_tokens },
            scheduler::Event::PromptLogprobs(all) => {
                let some = all.chunks(TOLD_AT_ONCE).map(|some| Event::PromptLogprobs(tokens(some)));
                return some.for_each(|event| self.event(attempt, event));
            }
            scheduler::Event::Delta { index, text, tokens: all } => {
                Event::Delta { index, text, tokens: tokens(&all) }
            }
            scheduler::Event::Finished { index, finish, usage } => Event::Finished { index, finish, usage },
            scheduler::Event::Pooled { index, values } => {
                Event::Pooled { index, values: values.into_iter().map(f32::to_bits).collect() }
            }
            scheduler::Event::Done => {
                if let Some(state) = self.open().get_mut(&attempt) {
                    *state = Attempt::Complete;
                }
                Event::CommitReady
            }
            scheduler::Event::Failed(failure) => {
                self.open().remove(&attempt);
                self.event(attempt, Event::Failed(described(&failure)));
                if is_final(&failure) {
                    self.break_down(failure.to_string());
                }
                return;
            }
        };
        self.event(attempt, event);
    }
}

/// Whether the engine is of no use any more: it has a defect, or its file was changed under it. Another one can read the
/// file anew.
fn is_final(failure: &scheduler::Failure) -> bool {
    match failure {
        scheduler::Failure::Engine(error) => matches!(**error, smelt_engine::Error::Checkpoint(_)),
        scheduler::Failure::Panic(_) => true,
        scheduler::Failure::Stopped => false,
    }
}

fn described(failure: &scheduler::Failure) -> Failure {
    let class = match failure {
        scheduler::Failure::Engine(error) => match **error {
            smelt_engine::Error::Sampler(_) | smelt_engine::Error::Constraint(_) => Class::Request,
            smelt_engine::Error::CacheFull { .. } => Class::Memory,
            _ => Class::Internal,
        },
        scheduler::Failure::Panic(_) => Class::Internal,
        scheduler::Failure::Stopped => Class::Stopped,
    };
    Failure { class, message: failure.to_string() }
}

fn refusal(error: &SubmitError) -> Refusal {
    let message = error.to_string();
    match error {
        SubmitError::QueueFull { retry_after, .. } => {
            Refusal::QueueFull { message, retry_after: retry_after.as_secs() }
        }
        SubmitError::TooLong { prompt_tokens, context } => {
            Refusal::TooLong { prompt_tokens: *prompt_tokens, context: *context }
        }
        SubmitError::Stopping => Refusal::Stopping(message),
        SubmitError::Stopped(_) => Refusal::Broken(message),
        SubmitError::Invalid(_) => Refusal::Invalid(message),
    }
}

/// Obeys until nobody gives orders any more. Then the server is gone, and so is everybody who waits for an answer.
fn read(child: &Arc<Child>, input: impl Read) {
    let mut input = BufReader::new(input);
    let mut line = Vec::new();
    loop {
        line.clear();
        match input.by_ref().take(MOST_LINE).read_until(b'\n', &mut line) {
            Ok(0) | Err(_) => end(),
            Ok(_) if line.last() != Some(&b'\n') => {
                return child.break_down(format!("an order is cut off after {} bytes", line.len()));
            }
            Ok(_) => match from_line(&line) {
                Ok(order) => child.obey(order),
                Err(error) => return child.break_down(format!("an order makes no sense: {error}")),
            },
        }
    }
}

/// Writes what is told, as soon as there is nothing more to say.
fn write(told: &Receiver<Line>, output: impl Write) {
    let mut output = BufWriter::new(output);
    let mut next = told.recv().ok();
    while let Some(line) = next {
        let written = match line {
            Line::Report(report) => to_line(&report).and_then(|line| output.write_all(&line)),
            Line::Last(done) => {
                let _ = output.flush();
                let _ = done.send(());
                return;
            }
        };
        next = match told.try_recv() {
            Ok(line) => Some(line),
            Err(TryRecvError::Disconnected) => None,
            Err(TryRecvError::Empty) => match output.flush() {
                Ok(()) => told.recv().ok(),
                Err(_) => end(),
            },
        };
        if written.is_err() {
            end();
        }
    }
}

#[expect(clippy::exit, reason = "in the middle of a step there is nobody left to answer")]
fn end() -> ! {
    std::process::exit(0)
}
