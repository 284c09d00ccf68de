//! `qwen3`: Qwen 3 (arXiv 2505.09388). Each head of q and k is normed before rotation; no biases.

use super::{Architecture, base};
use crate::{Error, Keys, ModelSpec, QkNorm};
use smelt_backend::RopeStyle;

pub(super) fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    Ok(base(keys, RopeStyle::Halves, context)?
        .each_attention(|_, attention| attention.qk_norm = QkNorm::PerHead))
}

pub(super) static QWEN3: Architecture = Architecture { name: "qwen3", models: "Qwen 3", spec };
