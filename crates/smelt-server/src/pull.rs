//! Ollama's `/api/pull`.
//!
//! Whoever can reach a server could fill its disk with a pull, or have it fetch what they like: the operator has to allow it.
//! A model that is offered already needs no fetching, which is what programs hope for that pull before they ask.
//!
//! All who pull one model share its download, and watch it. It goes on while one of them does; what has arrived when the last
//! one goes away stays, and the next pull goes on from there.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use axum::response::Response;
use smelt_api::ollama::{PullRequest, Pulled};
use smelt_api::{ApiError, Code};
use smelt_store::{Event, Progress};
use tokio::sync::watch;

use crate::app::{App, Call, json};
use crate::models::ModelSource;
use crate::stream::{Framing, Gone, Pieces, respond};

/// Fetches models that clients ask for.
pub trait Puller: std::fmt::Debug + Send + Sync {
    /// Fetches a model, or finds that it is here. It blocks.
    ///
    /// # Errors
    /// Why there is no model.
    fn pull(&self, name: &str, progress: &mut dyn Progress) -> Result<ModelSource, PullError>;
}

/// Why a model wasn't fetched.
#[derive(Debug, thiserror::Error)]
pub enum PullError {
    /// There is none of that name, or none that a client may ask for.
    #[error("{0}")]
    Unknown(String),
    /// It didn't come, or is not what it should be.
    #[error("{0}")]
    Failed(String),
    /// [`Progress`] asked to stop.
    #[error("stopped")]
    Stopped,
}

/// Between two tellings of how far a transfer is.
const TELL_EVERY: Duration = Duration::from_millis(100);
/// Digits of a hash that Ollama shows.
const SHORT_HASH: usize = 12;

/// Pulls that go on, by what is pulled.
#[derive(Debug, Default)]
pub(crate) struct Pulls(Mutex<HashMap<String, watch::Sender<State>>>);

/// How far a pull is.
#[derive(Debug, Clone, Default)]
struct State {
    /// What it has done, and what it is at.
    steps: Vec<Pulled>,
    end: Option<Result<(), ApiError>>,
}

/// What Ollama tells of something that is done or begun.
fn step(status: impl Into<String>) -> Pulled {
    Pulled { status: status.into(), ..Pulled::default() }
}

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let wanted = PullRequest::read(&call.body)?;
    call.tolerate(&wanted.unknown);
    if wanted.model.len() > LONGEST {
        return Err(ApiError::value("model", format!("names have at most {LONGEST} bytes")));
    }
    let mut steps = match call.app.models.offer(&wanted.model) {
        Ok(_) => {
            let steps = ["pulling manifest", "success"].map(step).to_vec();
            watch::channel(State { steps, end: Some(Ok(())) }).1
        }
        Err(_) => Pulls::join(&call.app, &wanted.model)?,
    };
    // What is refused is so at once, and has its status.
    let begun = |state: &State| state.end.is_some() || !state.steps.is_empty();
    let state = steps.wait_for(begun).await.map(|state| state.clone()).unwrap_or_default();
    if let Some(Err(error)) = state.end {
        return Err(error);
    }
    if wanted.stream {
        return Ok(respond(Framing::Lines, |pieces| tell(call, pieces, steps)));
    }
    let ended = steps.wait_for(|state| state.end.is_some()).await.map(|state| state.clone());
    ended.ok().and_then(|state| state.end).unwrap_or_else(|| Err(broken()))?;
    Ok(json(&step("success")))
}

/// Tells of each step, and of the last one whenever it got further.
async fn tell(call: Call, pieces: Pieces, mut steps: watch::Receiver<State>) -> Result<(), Gone> {
    let (mut told, mut last) = (0, None);
    loop {
        let state = steps.borrow_and_update().clone();
        for (index, step) in state.steps.iter().enumerate().skip(told.max(1) - 1) {
            if index >= told || last.as_ref() != Some(step) {
                pieces.json(step).await?;
            }
            (told, last) = (index + 1, Some(step.clone()));
        }
        match state.end {
            Some(Ok(())) => return Ok(()),
            Some(Err(error)) => return pieces.json(&call.error_body(&error)).await,
            None if steps.changed().await.is_err() => return pieces.json(&call.error_body(&broken())).await,
            None => {}
        }
    }
}

/// Bytes of a name that is looked at, and logged.
const LONGEST: usize = 1024;

/// A pull that ended without a word.
fn broken() -> ApiError {
    ApiError::new(Code::Internal, "the pull broke off")
}

impl Pulls {
    fn running(&self) -> MutexGuard<'_, HashMap<String, watch::Sender<State>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Begins to pull a model, or watches whoever does.
    ///
    /// # Errors
    /// If nobody may.
    fn join(app: &Arc<App>, name: &str) -> Result<watch::Receiver<State>, ApiError> {
        let Some(puller) = app.settings.puller.clone() else {
            let message = format!(
                "the model {name:?} isn't here, and this server fetches none; start it with --allow-pull, or pull the \
                 model with `smelt pull` and name it to `smelt serve`"
            );
            return Err(ApiError::new(Code::Forbidden, message));
        };
        let mut running = app.pulls.running();
        if let Some(pull) = running.get(name) {
            return Ok(pull.subscribe());
        }
        let (state, steps) = watch::channel(State::default());
        running.insert(name.to_owned(), state.clone());
        let mut pull = Pull { app: app.clone(), name: name.to_owned(), state, is_left: false, told: None };
        tokio::task::spawn_blocking(move || {
            let result = puller.pull(&pull.name.clone(), &mut pull);
            pull.end(result);
        });
        Ok(steps)
    }
}

/// A pull, as its thread sees it.
struct Pull {
    app: Arc<App>,
    name: String,
    state: watch::Sender<State>,
    /// Whether nobody watches any more, so that another pull of this model begins anew.
    is_left: bool,
    /// When it was last told how far the transfer is.
    told: Option<Instant>,
}

impl Pull {
    fn push(&self, step: Pulled) {
        self.state.send_modify(|state| state.steps.push(step));
    }

    /// Notes how many bytes of the file are here.
    fn advance(&mut self, completed: u64) {
        if self.told.is_none_or(|told| told.elapsed() >= TELL_EVERY) {
            self.told = Some(Instant::now());
            self.state.send_modify(|state| {
                if let Some(step) = state.steps.last_mut() {
                    step.completed = Some(completed);
                }
            });
        }
    }

    /// Whether nobody watches. From then on nobody can begin to.
    fn is_left(&mut self) -> bool {
        let mut running = self.app.pulls.running();
        if !self.is_left && self.state.receiver_count() == 0 {
            self.is_left = true;
            running.remove(&self.name);
        }
        self.is_left
    }

    fn end(&mut self, result: Result<ModelSource, PullError>) {
        let end = result.map_err(|error| {
            tracing::warn!(model = self.name, %error, "a model was not pulled");
            match error {
                PullError::Unknown(message) => ApiError::new(Code::ModelNotFound, message),
                PullError::Failed(message) => ApiError::new(Code::PullFailed, message),
                PullError::Stopped => {
                    let message = "the server is stopping; what has arrived is kept for the next pull";
                    ApiError::new(Code::Unavailable, message)
                }
            }
        });
        let end = end.map(|source| {
            tracing::info!(model = source.name, "a model was pulled");
            self.app.models.add(source);
            // What is here already is found without a word.
            if self.state.borrow().steps.is_empty() {
                self.push(step("pulling manifest"));
            }
            self.push(step("writing manifest"));
            self.push(step("success"));
        });
        self.state.send_modify(|state| state.end = Some(end));
    }
}

impl Drop for Pull {
    fn drop(&mut self) {
        if !self.is_left {
            self.app.pulls.running().remove(&self.name);
        }
    }
}

impl Progress for Pull {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match event {
            Event::Source { .. } | Event::WaitingForOther { .. } => self.push(step("pulling manifest")),
            Event::Started { file, sha256, total, resumed } => {
                let name = sha256.and_then(|hash| hash.get(..SHORT_HASH)).unwrap_or(file);
                self.told = None;
                self.push(Pulled {
                    status: format!("pulling {name}"),
                    digest: sha256.map(|hash| format!("sha256:{hash}")),
                    total,
                    completed: Some(resumed),
                });
            }
            Event::Advanced { bytes } => self.advance(bytes),
            Event::Finished => {
                self.state.send_modify(|state| {
                    if let Some(step) = state.steps.last_mut() {
                        step.completed = step.total.or(step.completed);
                    }
                });
                self.push(step("verifying sha256 digest"));
            }
            _ => {}
        }
        let is_unwanted = self.is_left() || self.app.draining.load(Ordering::Relaxed);
        if is_unwanted { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}
