//! `phi3`: Phi-3, 3.5 and 4 (arXiv 2404.14219). Llama with q, k, v in one tensor and gate, up in another; long contexts
//! by two tables of factors ("longrope", arXiv 2402.13753).

use super::{Architecture, base};
use crate::{Error, FeedForward, Fusion, Keys, ModelSpec};
use smelt_backend::RopeStyle;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let window = keys.count("attention.sliding_window")?.filter(|w| *w > 0);
    Ok(base(keys, RopeStyle::Halves, context)?.each_layer(|_, layer| {
        layer.attention.qkv = Fusion::Fused;
        layer.attention.window = window;
        if let FeedForward::Gated { gate_up, .. } = &mut layer.feed_forward {
            *gate_up = Fusion::Fused;
        }
    }))
}

pub(super) static PHI3: Architecture = Architecture { name: "phi3", models: "Phi-3, Phi-3.5, Phi-4", spec };
