//! What of a loaded model any thread may read.

use crate::Error;
use crate::grammar::Compiler;
use crate::rerank::Reranker;
use crate::sampler::Recommended;
use smelt_models::{Head, Pooling};
use smelt_tokenizer::Tokenizer;
use smelt_tokenizer::chat::{ChatTemplate, TemplateError};
use std::path::{Path, PathBuf};

/// What a loaded model is, for people and for `--json`.
#[derive(Debug, Clone, PartialEq)]
pub struct Facts {
    /// The file's stem, or `general.name`.
    pub name: String,
    /// `general.architecture`.
    pub architecture: &'static str,
    /// Values in all tensors.
    pub parameters: u64,
    /// Bytes of all tensors.
    pub weight_bytes: u64,
    /// Bytes of weights that one decoded token reads.
    pub weight_bytes_per_token: u64,
    /// Bytes of cache that one token takes.
    pub kv_bytes_per_token: usize,
    /// Layers.
    pub n_layers: usize,
    /// Values of a token's state, and so of an embedding.
    pub hidden_dim: usize,
    /// Whether a token's state depends on those before it only. Where it doesn't, a text is computed in one piece and
    /// none is generated.
    pub causal: bool,
    /// Segments that a text's tokens may be of; 1 where the model doesn't tell parts apart.
    pub segments: usize,
    /// What the model makes of states.
    pub head: Head,
    /// How the states of a text become its embedding.
    pub pooling: Pooling,
    /// Tokens that a sequence may have here.
    pub context: usize,
    /// Tokens that the model was trained to see.
    pub trained_context: usize,
    /// Logits per row: the tokens of the vocabulary, and what the file's embedding has beyond them.
    pub vocab_size: usize,
    /// Whether the chat template is Smelt's own for the family, because the file has none.
    pub built_in_template: Option<&'static str>,
}

/// What computes a model, for people and for `--json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeviceFacts {
    /// The backend's name.
    pub name: &'static str,
    /// Threads that compute.
    pub threads: usize,
    /// The backend, its instruction set, its threads and why so many.
    pub description: String,
}

impl Facts {
    /// Whether the model writes text.
    #[must_use]
    pub fn generates(&self) -> bool {
        self.causal && self.head == Head::Vocabulary
    }

    /// Fails if the model writes no text.
    pub(crate) fn check_generates(&self) -> Result<(), Error> {
        let why = match self.head {
            Head::Vocabulary if self.causal => return Ok(()),
            Head::Labels(_) => "it scores texts; ask it to rerank",
            Head::None | Head::Vocabulary => "it is made for embeddings; ask it for these",
        };
        Err(Error::Unable { model: self.name.clone(), what: "generate text", why })
    }
}

/// What of a loaded model any thread may read while the engine computes: facts, tokenizer, chat template. With it a server
/// renders and tokenizes prompts beside the engine's thread.
#[derive(Debug)]
pub struct Model {
    pub(crate) facts: Facts,
    pub(crate) tokenizer: Tokenizer,
    /// What is wrong with it matters to a chat only.
    pub(crate) template: Result<ChatTemplate, TemplateError>,
    pub(crate) recommended: Recommended,
    pub(crate) grammars: Compiler,
    /// How it reranks, if it does.
    pub(crate) reranker: Option<Reranker>,
    pub(crate) file: PathBuf,
}

impl Model {
    /// What the model is.
    #[must_use]
    pub fn facts(&self) -> &Facts {
        &self.facts
    }

    /// Its tokenizer.
    #[must_use]
    pub fn tokenizer(&self) -> &Tokenizer {
        &self.tokenizer
    }

    /// Its chat template.
    ///
    /// # Errors
    /// If it is damaged, or uses what Smelt's templates don't have.
    pub fn template(&self) -> Result<&ChatTemplate, Error> {
        self.template.as_ref().map_err(|e| self.template_error(e.clone()))
    }

    pub(crate) fn template_error(&self, source: TemplateError) -> Error {
        Error::Template { file: self.file.clone(), source }
    }

    /// What the file recommends about sampling.
    #[must_use]
    pub fn recommended(&self) -> &Recommended {
        &self.recommended
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &Path {
        &self.file
    }
}
