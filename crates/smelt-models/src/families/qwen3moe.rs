//! `qwen3moe`: Qwen 3 MoE. Qwen 3 with experts whose weights sum to 1, and no shared one.

use super::{Architecture, mixture, qwen3};
use crate::{Error, FeedForward, Keys, ModelSpec};
use smelt_backend::Gating;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mixture =
        mixture(keys, Gating::SoftmaxNormalized)?.ok_or_else(|| keys.error("expert_count", "is missing"))?;
    Ok(qwen3::spec(keys, context)?
        .each_layer(|_, layer| layer.feed_forward = FeedForward::Moe(mixture.clone())))
}

pub(super) static QWEN3MOE: Architecture = Architecture { name: "qwen3moe", models: "Qwen 3 MoE", spec };
