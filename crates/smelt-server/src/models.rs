//! The models that are served.

use std::path::PathBuf;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::Duration;

use jiff::Timestamp;
use smelt_api::{ApiError, Code};
use smelt_engine::sampler::SamplerSettings;
use smelt_engine::scheduler::{Handle, Scheduler, SchedulerSettings};
use smelt_engine::{Engine, Model};

use crate::conversation;
use crate::settings::Error;

/// A model to serve.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// The name that clients ask for.
    pub name: String,
    /// Its file.
    pub file: PathBuf,
    /// How it is loaded.
    pub engine: smelt_engine::Settings,
    /// How tokens are chosen where neither a request nor the file says anything.
    pub sampler: SamplerSettings,
    /// Settings of `sampler` that go before what the file recommends, as [`smelt_engine::sampler::Recommended`] names
    /// them.
    pub chosen: Vec<String>,
    /// The weights' format, as people write it: `Q4_K_M`; empty if it isn't known.
    pub quantization: String,
    /// `sha256:…`, or empty if it isn't known.
    pub digest: String,
}

/// A model that is loaded.
#[derive(Debug)]
pub(crate) struct Loaded {
    pub(crate) source: ModelSource,
    pub(crate) handle: Handle,
    /// When it was loaded.
    pub(crate) since: Timestamp,
    /// When its file was written.
    pub(crate) modified: Timestamp,
    /// Control tokens that are marks of reasoning, and those that are marks of calls too.
    marks: OnceLock<[Arc<[u32]>; 2]>,
}

impl Loaded {
    /// The name that clients ask for.
    pub(crate) fn name(&self) -> &str {
        &self.source.name
    }

    /// The control tokens that reading an answer needs to see.
    pub(crate) fn marks(&self, has_tools: bool) -> Arc<[u32]> {
        self.marks.get_or_init(|| conversation::marks(self.model()))[usize::from(has_tools)].clone()
    }

    /// What of it any thread may read.
    pub(crate) fn model(&self) -> &Model {
        self.handle.model()
    }
}

#[derive(Debug)]
struct Slot {
    source: ModelSource,
    loaded: OnceLock<Arc<Loaded>>,
    /// The engine's thread; taken to stop it.
    scheduler: Mutex<Option<Scheduler>>,
}

/// All models, in the order in which they were named.
#[derive(Debug)]
pub(crate) struct Models(Vec<Slot>);

/// What Ollama's clients put behind a name that has no tag.
const LATEST: &str = ":latest";

impl Models {
    pub(crate) fn new(sources: Vec<ModelSource>) -> Result<Self, Error> {
        if sources.is_empty() {
            return Err(Error::NoModel);
        }
        for (i, source) in sources.iter().enumerate() {
            if sources[..i].iter().any(|other| other.name == source.name) {
                return Err(Error::SameName(source.name.clone()));
            }
        }
        let slot = |source| Slot { source, loaded: OnceLock::new(), scheduler: Mutex::new(None) };
        Ok(Self(sources.into_iter().map(slot).collect()))
    }

    /// Loads all models, one after another.
    pub(crate) fn load(&self, settings: &SchedulerSettings) -> Result<(), Error> {
        self.0.iter().try_for_each(|slot| slot.load(settings))
    }

    /// The models that are loaded.
    pub(crate) fn loaded(&self) -> impl Iterator<Item = &Arc<Loaded>> {
        self.0.iter().filter_map(|slot| slot.loaded.get())
    }

    /// Whether every model is there and its engine runs.
    pub(crate) fn are_ready(&self) -> bool {
        self.0.iter().all(|slot| slot.loaded.get().is_some_and(|loaded| loaded.handle.is_running()))
    }

    /// The model of that name; without a name, the only one.
    ///
    /// # Errors
    /// If there is none, or it isn't loaded yet.
    pub(crate) fn find(&self, name: Option<&str>) -> Result<Arc<Loaded>, ApiError> {
        let slot = match (name, self.0.as_slice()) {
            (Some(name), slots) => {
                slots.iter().find(|slot| is_name(name, &slot.source.name)).ok_or_else(|| {
                    let message = format!("there is no model {name:?}; there is {}", self.names());
                    ApiError { param: Some("model".into()), ..ApiError::new(Code::ModelNotFound, message) }
                })?
            }
            (None, [only]) => only,
            (None, _) => {
                let message = format!("`model` is missing, and there are several: {}", self.names());
                return Err(ApiError {
                    param: Some("model".into()),
                    ..ApiError::new(Code::MissingParameter, message)
                });
            }
        };
        slot.loaded.get().cloned().ok_or_else(|| {
            let message = format!("the model {:?} is being loaded; try again", slot.source.name);
            ApiError::new(Code::Unavailable, message).retry_after(1)
        })
    }

    fn names(&self) -> String {
        self.0.iter().map(|slot| slot.source.name.as_str()).collect::<Vec<_>>().join(", ")
    }

    /// Takes no more requests, and gives open ones `drain` to end. Returns when the engines are gone.
    pub(crate) fn shutdown(&self, drain: Duration) {
        let take = |slot: &Slot| slot.scheduler.lock().unwrap_or_else(PoisonError::into_inner).take();
        std::thread::scope(|threads| {
            for scheduler in self.0.iter().filter_map(take) {
                threads.spawn(move || scheduler.shutdown(drain));
            }
        });
    }
}

/// Whether a client's `name` means the model `of`.
fn is_name(name: &str, of: &str) -> bool {
    name == of || name.strip_suffix(LATEST) == Some(of) || of.strip_suffix(LATEST) == Some(name)
}

impl Slot {
    fn load(&self, settings: &SchedulerSettings) -> Result<(), Error> {
        let file = &self.source.file;
        let failed = |source| Error::Model { file: file.clone(), source: Box::new(source) };
        let start = std::time::Instant::now();
        let engine = Engine::load(file, &self.source.engine).map_err(failed)?;
        let scheduler = Scheduler::start(engine, settings).map_err(failed)?;
        let written = std::fs::metadata(file).and_then(|meta| meta.modified());
        let since = Timestamp::now();
        let loaded = Loaded {
            source: self.source.clone(),
            handle: scheduler.handle(),
            since,
            marks: OnceLock::new(),
            modified: written.ok().and_then(|time| Timestamp::try_from(time).ok()).unwrap_or(since),
        };
        let facts = loaded.model().facts();
        tracing::info!(
            model = self.source.name,
            architecture = facts.architecture,
            context = loaded.handle.context(),
            backend = facts.backend,
            seconds = start.elapsed().as_secs_f64(),
            "model loaded"
        );
        *self.scheduler.lock().unwrap_or_else(PoisonError::into_inner) = Some(scheduler);
        // Models are loaded once.
        let _ = self.loaded.set(Arc::new(loaded));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::is_name;

    #[test]
    fn names_may_have_ollamas_tag() {
        assert!(is_name("m", "m") && is_name("m:latest", "m") && is_name("m", "m:latest"));
        assert!(!is_name("m:1b", "m") && !is_name("n", "m"));
    }
}
