//! The models that are offered.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, OnceLock, PoisonError, RwLock, Weak};
use std::time::{Duration, SystemTime};

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use smelt_api::{ApiError, Code, Effort, KeepAlive};
use smelt_engine::Model;
use smelt_engine::sampler::{SamplerSettings, breaker_sequences};
use smelt_engine::tokenizer::Special;
use smelt_engine::tokenizer::chat::TemplateError;

use crate::conversation;
use crate::daemon::{Handle, Memory, Need, State, Supervisor, Terms};
use crate::prompt::beside;
use crate::settings::{Error, Settings};

/// A model to serve.
#[derive(Debug, Clone)]
pub struct ModelSource {
    /// The name that clients ask for.
    pub name: String,
    /// Other names by which they may ask for it.
    pub aliases: Vec<String>,
    /// Its file.
    pub file: PathBuf,
    /// The chat template that stands for the file's own.
    pub template: Option<String>,
    /// How it is loaded.
    pub engine: smelt_engine::Settings,
    /// What it does where a request leaves it open.
    pub defaults: Defaults,
    /// The weights' format, as people write it: `Q4_K_M`; empty if it isn't known.
    pub quantization: String,
    /// `sha256:…`, or empty if it isn't known.
    pub digest: String,
    /// Load it when the server starts, and not when somebody asks for it.
    pub warm: bool,
}

/// What a model does where a request leaves it open.
#[derive(Debug, Clone)]
pub struct Defaults {
    /// How tokens are chosen, where the file recommends nothing. Biases are added to a request's.
    pub sampler: SamplerSettings,
    /// Settings of `sampler` that go before what the file recommends, as [`smelt_engine::sampler::Recommended`] names
    /// them.
    pub chosen: Vec<String>,
    /// Texts that DRY follows no repetition across.
    pub dry_breakers: Vec<String>,
    /// Tokens of an answer; `None` for as many as the context holds.
    pub max_tokens: Option<usize>,
    /// How much a model that can think does so; `None` for what its template makes of it.
    pub effort: Option<Effort>,
    /// Tokens of thought, at most.
    pub thinking_budget: Option<usize>,
}

impl Default for Defaults {
    fn default() -> Self {
        Self {
            sampler: SamplerSettings::default(),
            chosen: Vec::new(),
            // Those of llama.cpp's server.
            dry_breakers: ["\n", ":", "\"", "*"].map(str::to_owned).to_vec(),
            max_tokens: None,
            effort: None,
            thinking_budget: None,
        }
    }
}

impl ModelSource {
    /// All names by which clients may ask for it.
    fn names(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.name).chain(&self.aliases)
    }
}

/// A model that is being asked for: all of it but its weights.
#[derive(Debug)]
pub(crate) struct OpenModel {
    pub(crate) source: ModelSource,
    model: Model,
    /// The way to its engine.
    pub(crate) handle: Handle,
    /// Tokens that an answer may have with its prompt: what the model and the cache hold.
    pub(crate) context: usize,
    /// What its engine takes.
    pub(crate) need: Need,
    /// When its file was written.
    pub(crate) modified: Timestamp,
    /// The file that was read.
    pub(crate) stamp: Stamp,
    /// Control tokens that are marks of reasoning, and those that are marks of calls too.
    marks: OnceLock<[Arc<[u32]>; 2]>,
    /// The texts that DRY stopped at last, and the tokens that spell them.
    breakers: Mutex<Option<(Vec<String>, Breakers)>>,
}

/// Which file is at a path: another one has another stamp, and so has one that was written to.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Stamp {
    /// Its file system and its number there, where files have these.
    file: [u64; 2],
    len: u64,
    modified: Option<SystemTime>,
}

impl Stamp {
    /// # Errors
    /// If there is no such file.
    pub(crate) fn of(path: &Path) -> std::io::Result<Self> {
        let meta = std::fs::metadata(path)?;
        #[cfg(unix)]
        let file = {
            use std::os::unix::fs::MetadataExt;
            [meta.dev(), meta.ino()]
        };
        #[cfg(not(unix))]
        let file = [0; 2];
        Ok(Self { file, len: meta.len(), modified: meta.modified().ok() })
    }
}

/// Sequences of tokens.
type Breakers = Arc<[Vec<u32>]>;

impl OpenModel {
    /// The name that clients ask for.
    pub(crate) fn name(&self) -> &str {
        &self.source.name
    }

    /// The control tokens that reading an answer needs to see.
    pub(crate) fn marks(&self, has_tools: bool) -> Arc<[u32]> {
        self.marks.get_or_init(|| conversation::marks(self.model()))[usize::from(has_tools)].clone()
    }

    /// The tokens that spell what DRY stops at: `texts`, or the usual ones.
    ///
    /// # Errors
    /// If a text is too long.
    pub(crate) fn dry_breakers(&self, texts: Option<&[String]>) -> Result<Breakers, ApiError> {
        let texts = texts.unwrap_or(&self.source.defaults.dry_breakers).to_vec();
        let mut last = self.breakers.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((_, sequences)) = last.as_ref().filter(|(known, _)| *known == texts) {
            return Ok(sequences.clone());
        }
        let tokenizer = self.model.tokenizer();
        let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
        let pieces = ids.filter_map(|id| Some((id, tokenizer.token_bytes(id, true)?)));
        let tokenize = |text: &str| tokenizer.encode(text, Special::Text, false);
        let sequences = breaker_sequences(&texts, pieces, tokenize);
        let sequences: Breakers = sequences.map_err(|e| ApiError::value("dry_sequence_breakers", e))?.into();
        *last = Some((texts, sequences.clone()));
        Ok(sequences)
    }

    /// What of it any thread may read.
    pub(crate) fn model(&self) -> &Model {
        &self.model
    }
}

/// A model that is offered.
#[derive(Debug)]
pub(crate) struct Offer {
    pub(crate) source: ModelSource,
    pub(crate) handle: Handle,
    /// Runs its engine, until it does.
    supervisor: Mutex<Option<Supervisor>>,
    /// What prompts need, while it is in use.
    open: tokio::sync::Mutex<Weak<OpenModel>>,
}

/// All models, in the order in which they were named, and then in that in which they were pulled.
#[derive(Debug)]
pub(crate) struct Models {
    offers: RwLock<Vec<Arc<Offer>>>,
    terms: Arc<Terms>,
    /// When the server began to offer them.
    pub(crate) since: Timestamp,
}

/// What Ollama's clients put behind a name that has no tag.
const LATEST: &str = ":latest";

impl Models {
    pub(crate) fn new(sources: Vec<ModelSource>, settings: &Settings) -> Result<Self, Error> {
        if sources.is_empty() && settings.puller.is_none() {
            return Err(Error::NoModel);
        }
        let names: Vec<&String> = sources.iter().flat_map(ModelSource::names).collect();
        if let Some(i) = (1..names.len()).find(|i| names[..*i].contains(&names[*i])) {
            return Err(Error::SameName(names[i].clone()));
        }
        let terms = Arc::new(Terms {
            launch: settings.launch.clone(),
            scheduler: settings.scheduler,
            step_time: settings.limits.step_time,
            keep: settings.idle_time.map_or(KeepAlive::Always, KeepAlive::For),
            memory: Memory::new(settings.memory),
        });
        let offers = sources.into_iter().map(|source| Arc::new(Offer::new(source, &terms))).collect();
        Ok(Self { offers: RwLock::new(offers), terms, since: Timestamp::now() })
    }

    /// Offers one more model, unless it is offered already.
    pub(crate) fn add(&self, mut source: ModelSource) {
        let mut offers = self.offers.write().unwrap_or_else(PoisonError::into_inner);
        let of_name = |name: &str| offers.iter().find(|offer| offer.source.name == name);
        match of_name(&source.name) {
            Some(other) if other.source.file == source.file => return,
            // Files of one name may come from several places.
            Some(_) => match source.aliases.iter().find(|alias| of_name(alias).is_none()).cloned() {
                Some(alias) => source.name = alias,
                None => return,
            },
            None => {}
        }
        source.aliases.retain(|alias| *alias != source.name);
        let offer = Offer::new(source, &self.terms);
        offer.start();
        offers.push(Arc::new(offer));
    }

    /// Runs the engines' supervisors, and loads the models that are to be warm, one after another.
    ///
    /// # Errors
    /// If one of these can't be loaded.
    pub(crate) async fn run(&self) -> Result<(), Error> {
        let offers = self.offers();
        offers.iter().for_each(|offer| offer.start());
        for offer in offers.iter().filter(|offer| offer.source.warm) {
            let failed =
                |error: ApiError| Error::Model { file: offer.source.file.clone(), why: error.message };
            let model = self.open(offer).await.map_err(failed)?;
            loop {
                match offer.handle.load(&model, None).await {
                    // It is started again.
                    Err(error) if error.code == Code::EngineFailed => {}
                    result => break result.map_err(failed)?,
                }
            }
        }
        Ok(())
    }

    /// All models.
    pub(crate) fn offers(&self) -> Vec<Arc<Offer>> {
        self.offers.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The offer of that name.
    ///
    /// # Errors
    /// If there is none.
    pub(crate) fn offer(&self, name: &str) -> Result<Arc<Offer>, ApiError> {
        let offers = self.offers();
        let is_alias = |offer: &&Arc<Offer>| offer.source.aliases.iter().any(|alias| is_name(name, alias));
        let named = offers.iter().find(|offer| is_name(name, &offer.source.name));
        named.or_else(|| offers.iter().find(is_alias)).cloned().ok_or_else(|| {
            let message = match offers.is_empty() {
                true => format!("there is no model {name:?}; there is none yet"),
                false => format!("there is no model {name:?}; there is {}", names(&offers)),
            };
            ApiError { param: Some("model".into()), ..ApiError::new(Code::ModelNotFound, message) }
        })
    }

    /// Whether an engine was lost and is not there again.
    pub(crate) fn are_restarting(&self) -> bool {
        self.offers().iter().any(|offer| offer.handle.state() == State::Restarting)
    }

    /// The model of that name; without a name, the only one. It is not loaded by that.
    ///
    /// # Errors
    /// If there is none, or its file makes no sense.
    pub(crate) async fn find(&self, name: Option<&str>) -> Result<Arc<OpenModel>, ApiError> {
        let offer = match (name, self.offers().as_slice()) {
            (Some(name), _) => self.offer(name)?,
            (None, [only]) => only.clone(),
            (None, []) => {
                return Err(ApiError::new(Code::ModelNotFound, "there is no model yet; pull one"));
            }
            (None, several) => {
                let message = format!("`model` is missing, and there are several: {}", names(several));
                return Err(ApiError {
                    param: Some("model".into()),
                    ..ApiError::new(Code::MissingParameter, message)
                });
            }
        };
        self.open(&offer).await
    }

    /// What prompts for a model need; who asks at the same time shares it.
    ///
    /// # Errors
    /// If its file makes no sense.
    pub(crate) async fn open(&self, offer: &Offer) -> Result<Arc<OpenModel>, ApiError> {
        let mut known = offer.open.lock().await;
        if let Some(open) = known.upgrade() {
            // Prompts are made for the file that the engine has, whatever is in its place by now.
            let has_engine = offer.handle.state() != State::Idle;
            if has_engine || Stamp::of(&offer.source.file).is_ok_and(|stamp| stamp == open.stamp) {
                return Ok(open);
            }
        }
        let (source, handle, terms) = (offer.source.clone(), offer.handle.clone(), self.terms.clone());
        let opened = Arc::new(beside(move || open(source, handle, &terms)).await?);
        *known = Arc::downgrade(&opened);
        Ok(opened)
    }

    /// Takes no more requests, and gives open ones `drain` to end. Returns when the engines are gone.
    pub(crate) async fn shutdown(&self, drain: Duration) {
        let offers = self.offers();
        offers.iter().for_each(|offer| offer.handle.stop(drain));
        for offer in &offers {
            offer.handle.stopped().await;
        }
    }
}

impl Offer {
    fn new(source: ModelSource, terms: &Arc<Terms>) -> Self {
        let (supervisor, handle) = Supervisor::new(source.clone(), terms.clone());
        Self { source, handle, supervisor: Mutex::new(Some(supervisor)), open: Default::default() }
    }

    /// Runs the engine's supervisor, unless it runs.
    fn start(&self) {
        let supervisor = self.supervisor.lock().unwrap_or_else(PoisonError::into_inner).take();
        supervisor.map(|supervisor| tokio::spawn(supervisor.run()));
    }
}

fn names(offers: &[Arc<Offer>]) -> String {
    offers.iter().map(|offer| offer.source.name.as_str()).collect::<Vec<_>>().join(", ")
}

/// Whether a client's `name` means the model `of`.
fn is_name(name: &str, of: &str) -> bool {
    name == of || name.strip_suffix(LATEST) == Some(of) || of.strip_suffix(LATEST) == Some(name)
}

fn open(source: ModelSource, handle: Handle, terms: &Terms) -> Result<OpenModel, ApiError> {
    let cannot = |why: String| {
        ApiError::new(Code::Internal, format!("the model {:?} can't be loaded: {why}", source.name))
    };
    let failed = |error: smelt_engine::Error| cannot(error.to_string());
    // Before it is read: what is put in its place meanwhile is another file.
    let stamp = Stamp::of(&source.file);
    let mut model = Model::open(&source.file, &source.engine).map_err(failed)?;
    if let Some(template) = &source.template {
        let failed = |error: TemplateError| {
            let message = format!("the chat template given for the model {:?}: {error}", source.name);
            ApiError::new(Code::Internal, message)
        };
        model = model.with_template(template).map_err(failed)?;
    }
    let stamp = stamp.map_err(|error| cannot(format!("{}: {error}", source.file.display())))?;
    let context = terms.scheduler.context(&model).map_err(failed)?;
    let facts = model.facts();
    if source.engine.context.is_some_and(|wanted| wanted > facts.context) {
        tracing::warn!(
            model = source.name,
            context = facts.context,
            "the model has learned no more positions"
        );
    }
    let cache = (context as u64).saturating_mul(facts.kv_bytes_per_token as u64);
    let need = Need { least: facts.weight_bytes, usual: facts.weight_bytes.saturating_add(cache) };
    let modified =
        stamp.modified.and_then(|time| Timestamp::try_from(time).ok()).unwrap_or_else(Timestamp::now);
    Ok(OpenModel {
        source,
        model,
        handle,
        context,
        need,
        modified,
        stamp,
        marks: OnceLock::new(),
        breakers: Mutex::default(),
    })
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
