//! What can go wrong in the engine.

use crate::grammar::GrammarError;
use crate::sampler::SampleError;
use crate::stop::StopError;
use std::path::PathBuf;

/// An error of loading or of generating.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The model file.
    #[error(transparent)]
    Checkpoint(#[from] smelt_checkpoint::Error),
    /// The model's graph.
    #[error(transparent)]
    Model(#[from] smelt_models::Error),
    /// The device.
    #[error(transparent)]
    Backend(#[from] smelt_backend::Error),
    /// The CPU backend could not start.
    #[error(transparent)]
    Cpu(#[from] smelt_cpu::CpuError),
    /// The vocabulary.
    #[error("{file}: {source}")]
    Tokenizer { file: PathBuf, source: smelt_tokenizer::Error },
    /// The chat template.
    #[error("{file}: {source}")]
    Template { file: PathBuf, source: smelt_tokenizer::chat::TemplateError },
    /// The vocabulary has more tokens than the model has logits.
    #[error("{file}: the tokenizer has {tokens} tokens, the model's embedding {rows}")]
    VocabularySize { file: PathBuf, tokens: usize, rows: usize },
    /// A sampling setting.
    #[error(transparent)]
    Sampler(#[from] SampleError),
    /// A stop string.
    #[error(transparent)]
    Stop(#[from] StopError),
    /// What an answer is to look like.
    #[error(transparent)]
    Grammar(#[from] GrammarError),
    /// The constraint on an answer gave up.
    #[error("the constraint on the answer can't go on: {0}")]
    Constraint(String),
    /// The model computed nonsense.
    #[error(
        "{model}: the logits of step {step} are not numbers: {source}; the file is damaged, or its numbers overflow \
         this engine's arithmetic"
    )]
    Logits { model: String, step: usize, source: SampleError },
    /// The model computed nonsense where its states are wanted.
    #[error(
        "{model}: the states of a text are not numbers; the file is damaged, or its numbers overflow this engine's \
         arithmetic"
    )]
    States { model: String },
    /// The model is not made for what is asked of it.
    #[error("{model} can't {what}: {why}")]
    Unable { model: String, what: &'static str, why: &'static str },
    /// The prompt doesn't fit.
    #[error(
        "the prompt has {prompt} tokens, and {reserve} are kept for the answer, but the context holds {context}; \
         shorten the prompt or raise --ctx"
    )]
    ContextExceeded { prompt: usize, reserve: usize, context: usize },
    /// There is no memory for what an answer needs.
    #[error(
        "memory for more than {tokens} tokens of keys and values can't be had; use a smaller context or cache"
    )]
    CacheFull { tokens: usize },
    /// A setting outside its range.
    #[error("{name} is {value}, but must be {range}")]
    Setting { name: &'static str, value: String, range: String },
    /// The engine's thread could not be started.
    #[error("the engine's thread can't be started: {0}")]
    Thread(std::io::Error),
    /// Nothing to compute.
    #[error("the prompt is empty: give at least one token")]
    EmptyPrompt,
    /// A token id outside the vocabulary.
    #[error("token {token} is outside the vocabulary of {vocab_size}")]
    TokenRange { token: u32, vocab_size: usize },
    /// A text too short to evaluate.
    #[error(
        "the text has {tokens} tokens; {needed} are needed for two chunks of context {context}: take a longer \
         text or a smaller --ctx"
    )]
    TextTooShort { tokens: usize, needed: usize, context: usize },
}
