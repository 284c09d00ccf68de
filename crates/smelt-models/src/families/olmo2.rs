//! `olmo2`: OLMo 2 (arXiv 2501.00656). Norms stand after attention and feed-forward; q and k are normed over all heads.

use super::{Architecture, base};
use crate::{Error, Keys, ModelSpec, NormPlacement, QkNorm};
use smelt_backend::RopeStyle;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    if keys.count("attention.sliding_window")?.is_some_and(|w| w > 0) {
        return Err(keys.error("attention.sliding_window", "is set: OLMo 3 is not supported yet"));
    }
    Ok(base(keys, RopeStyle::Halves, context)?.each_layer(|_, layer| {
        layer.norms = NormPlacement::Post;
        layer.attention.qk_norm = QkNorm::AllHeads;
    }))
}

pub(super) static OLMO2: Architecture = Architecture { name: "olmo2", models: "OLMo 2", spec };
