//! `gemma`: Gemma 1 (arXiv 2403.08295). Scaled embeddings, GELU gate, heads wider than hidden_dim / n_heads.

use super::{Architecture, gemma_base};

pub(super) static GEMMA: Architecture = Architecture { name: "gemma", models: "Gemma 1", spec: gemma_base };
