//! `qwen2moe`: Qwen 1.5 and 2 MoE. Qwen 2 with experts whose weights are not renormalised, and one shared expert behind
//! a sigmoid gate.

use super::{Architecture, base, mixture};
use crate::{Error, FeedForward, Keys, ModelSpec, SharedExpert};
use smelt_backend::{Gating, RopeStyle};

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mut mixture =
        mixture(keys, Gating::Softmax)?.ok_or_else(|| keys.error("expert_count", "is missing"))?;
    let ffn_dim = keys.require_count("expert_shared_feed_forward_length")?;
    mixture.shared = Some(SharedExpert { ffn_dim });
    Ok(base(keys, RopeStyle::Halves, context)?
        .each_layer(|_, layer| layer.feed_forward = FeedForward::Moe(mixture.clone())))
}

pub(super) static QWEN2MOE: Architecture =
    Architecture { name: "qwen2moe", models: "Qwen 1.5 MoE, Qwen 2 MoE", spec };
