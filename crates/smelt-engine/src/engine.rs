//! A loaded model.

use crate::grammar::Compiler;
use crate::rerank::Reranker;
use crate::runner::{Device, Runner};
use crate::sampler::Recommended;
use crate::vocab::vocab_source;
use crate::{DeviceFacts, Error, Facts, Model, Sequence, Settings};
use smelt_backend::{KvFormats, KvSpec, PAGE_TOKENS, StepLimits};
use smelt_checkpoint::Checkpoint;
use smelt_cpu::Peaks;
use smelt_models::Options;
use smelt_tokenizer::chat::{ChatTemplate, TemplateError, family_for};
use smelt_tokenizer::{Strictness, Tokenizer};
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A model ready to run. It belongs to one thread.
pub struct Engine {
    pub(crate) runner: Runner,
    pub(crate) model: Arc<Model>,
}

impl std::fmt::Debug for Engine {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Engine({})", self.model.facts.name)
    }
}

impl Engine {
    /// Loads a model file.
    ///
    /// # Errors
    /// If the file or its tokenizer is damaged or of an unknown kind, or the device can't hold it. A bad chat template is
    /// no reason: see [`Model::template`].
    pub fn load(path: &Path, settings: &Settings) -> Result<Self, Error> {
        let Opened { model, checkpoint, compiled } = open(path, settings)?;
        let runner = Runner::new(Device::new(settings)?, checkpoint, compiled, settings)?;
        Ok(Self { runner, model: Arc::new(model) })
    }

    /// What computes.
    #[must_use]
    pub fn device(&self) -> DeviceFacts {
        self.runner.device.facts()
    }

    /// What of it any thread may read.
    #[must_use]
    pub fn model(&self) -> &Arc<Model> {
        &self.model
    }

    /// What the model is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        self.model.facts()
    }

    /// Its tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        self.model.tokenizer()
    }

    /// Gives the engine a flag that any thread may raise at any time. While it is up no step goes on:
    /// [`Engine::generate`] ends with [`crate::Finish::Cancelled`] at once, in the middle of a long prompt too, and what
    /// measures fails.
    pub fn interrupt_on(&mut self, flag: Arc<AtomicBool>) {
        self.runner.device.backend().interrupt_on(flag);
    }

    /// Gives a sequence's pages back.
    pub fn release(&mut self, mut sequence: Sequence) {
        self.runner.truncate(&mut sequence, 0);
    }

    /// What the backend's threads read from memory, in GB/s; `None` where the backend has no measure.
    ///
    /// # Errors
    /// If there is no memory to measure with.
    pub fn measure_bandwidth(&mut self) -> Result<Option<f64>, Error> {
        Ok(match &self.runner.device {
            Device::Cpu(cpu) => Some(cpu.measure_bandwidth()?),
            Device::Reference(_) => None,
        })
    }

    /// How fast the backend's threads multiply and add when they touch no memory; `None` where the backend has no
    /// measure.
    pub fn measure_peaks(&mut self) -> Option<Peaks> {
        match &self.runner.device {
            Device::Cpu(cpu) => Some(cpu.measure_peaks()),
            Device::Reference(_) => None,
        }
    }
}

impl Model {
    /// Reads what a model file says of itself, and none of its weights: with it prompts are made where another process
    /// computes.
    ///
    /// # Errors
    /// As [`Engine::load`], but for the device.
    pub fn open(path: &Path, settings: &Settings) -> Result<Self, Error> {
        Ok(open(path, settings)?.model)
    }

    /// The same model with another chat template than its file's.
    ///
    /// # Errors
    /// If the template is damaged, or uses what Smelt's templates don't have.
    pub fn with_template(mut self, source: &str) -> Result<Self, TemplateError> {
        self.template = Ok(compile(source, &self.tokenizer)?);
        self.facts.built_in_template = None;
        Ok(self)
    }
}

/// A model file, read and compiled.
struct Opened {
    model: Model,
    checkpoint: Checkpoint,
    compiled: smelt_models::Model,
}

fn open(path: &Path, settings: &Settings) -> Result<Opened, Error> {
    check(settings)?;
    let checkpoint = Checkpoint::open(path)?;
    let limits = StepLimits { rows: settings.batch, logit_rows: settings.logit_rows };
    let options = Options { limits, kv_formats: settings.kv_formats, context: settings.context };
    let mut compiled = smelt_models::load(&checkpoint, &options)?;
    let trained_context = compiled.spec.context_length;
    let wanted = settings.context.unwrap_or(trained_context);
    // Behind the positions that were learned there are none.
    let context = wanted.min(compiled.spec.embedding.positions.unwrap_or(wanted));
    let causal = compiled.spec.is_causal();
    if !causal {
        // A text whose tokens all see each other is one step, however long. Memory is touched as it is used.
        compiled.program.limits.rows = settings.batch.max(context);
    }
    let tokenizer = tokenizer_of(&checkpoint, settings.force)?;
    let (tokens, rows) = (tokenizer.vocab_size(), compiled.spec.vocab_size);
    if tokens > rows {
        return Err(Error::VocabularySize { file: path.into(), tokens, rows });
    }
    let (template, built_in_template) = compile_template(&checkpoint, &tokenizer)?;
    let product = |shape: &[usize]| shape.iter().product::<usize>() as u64;
    let facts = Facts {
        name: name(&checkpoint)?,
        architecture: compiled.architecture.name,
        parameters: checkpoint.tensors().map(|t| product(&t.shape)).sum(),
        weight_bytes: checkpoint.tensor_bytes(),
        weight_bytes_per_token: compiled.program.weight_bytes_per_token(),
        kv_bytes_per_token: compiled.program.caches.iter().map(KvSpec::bytes_per_token).sum(),
        n_layers: compiled.spec.layers.len(),
        hidden_dim: compiled.spec.hidden_dim,
        causal,
        segments: compiled.spec.embedding.segments.unwrap_or(1),
        head: compiled.spec.head,
        pooling: compiled.spec.pooling,
        context,
        trained_context,
        vocab_size: compiled.spec.vocab_size,
        built_in_template,
    };
    let recommended = Recommended::read(checkpoint.metadata());
    let grammars = Compiler::default();
    let reranker =
        Reranker::of(&checkpoint, &tokenizer, (facts.architecture, facts.head, facts.generates()))?;
    let file = path.into();
    let model = Model { facts, tokenizer, template, recommended, grammars, reranker, file };
    Ok(Opened { model, checkpoint, compiled })
}

/// Builds the tokenizer that a checkpoint describes.
///
/// # Errors
/// If the metadata is missing or damaged, or its rules are unknown and `force` is off.
pub fn tokenizer_of(checkpoint: &Checkpoint, force: bool) -> Result<Tokenizer, Error> {
    let source = vocab_source(checkpoint.metadata())?;
    let strictness = if force { Strictness::Force } else { Strictness::Strict };
    Tokenizer::new(source, strictness)
        .map_err(|source| Error::Tokenizer { file: checkpoint.path().into(), source })
}

/// The chat template that a checkpoint brings along, or its family's own.
///
/// # Errors
/// If it is damaged, or uses what Smelt's templates don't have.
pub fn template_of(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<ChatTemplate, Error> {
    let (template, _) = compile_template(checkpoint, tokenizer)?;
    template.map_err(|source| Error::Template { file: checkpoint.path().into(), source })
}

/// What the keys and values of a checkpoint's model take when it runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CacheSize {
    /// Bytes of one token in all layers.
    pub bytes_per_token: usize,
    /// Tokens that a sequence may have.
    pub context: usize,
}

impl CacheSize {
    /// Bytes of a sequence as long as the context: the cache grows to it by pages.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let tokens = self.context.next_multiple_of(PAGE_TOKENS) as u64;
        tokens.saturating_mul(self.bytes_per_token as u64)
    }

    /// Of the checkpoint's model with a cache of these formats and the context that it was trained on.
    ///
    /// # Errors
    /// If no family claims the checkpoint, or it isn't whole.
    pub fn of(checkpoint: &Checkpoint, formats: KvFormats) -> Result<Self, Error> {
        let options = Options { kv_formats: formats, ..Options::default() };
        let model = smelt_models::load(checkpoint, &options)?;
        let bytes_per_token = model.program.caches.iter().map(KvSpec::bytes_per_token).sum();
        Ok(Self { bytes_per_token, context: model.spec.context_length })
    }
}

/// The template, and the name of the family's own where the file has none.
type Template = (Result<ChatTemplate, TemplateError>, Option<&'static str>);

fn compile_template(checkpoint: &Checkpoint, tokenizer: &Tokenizer) -> Result<Template, Error> {
    let architecture = checkpoint.metadata().require_str("general.architecture")?;
    let family = family_for(architecture, |token| tokenizer.id_of(token).is_some());
    let (source, built_in) = match checkpoint.metadata().str("tokenizer.chat_template")? {
        Some(own) => (own, None),
        None => (family.template, Some(family.name)),
    };
    Ok((compile(source, tokenizer), built_in))
}

fn compile(source: &str, tokenizer: &Tokenizer) -> Result<ChatTemplate, TemplateError> {
    let text = |id: Option<u32>| id.and_then(|id| tokenizer.piece(id)).unwrap_or_default();
    ChatTemplate::new(source, text(tokenizer.bos()), text(tokenizer.eos()))
}

fn name(checkpoint: &Checkpoint) -> Result<String, Error> {
    let stem = checkpoint.path().file_stem().map(|s| s.to_string_lossy().into_owned());
    Ok(checkpoint.metadata().str("general.name")?.map(str::to_owned).or(stem).unwrap_or_default())
}

fn check(settings: &Settings) -> Result<(), Error> {
    let ranges = [
        ("context", settings.context.unwrap_or(1), 1, 1 << 24),
        ("batch", settings.batch, 1, 4096),
        ("logit_rows", settings.logit_rows, 1, 4096),
        ("threads", settings.threads.unwrap_or(1), 1, 512),
    ];
    match ranges.iter().find(|(_, value, low, high)| !(low..=high).contains(&value)) {
        None => Ok(()),
        Some((name, value, low, high)) => {
            Err(Error::Setting { name, value: value.to_string(), range: format!("between {low} and {high}") })
        }
    }
}
