//! `llama`: Llama 1 to 3.x, Mistral, Mixtral, SmolLM 2 and the many that copy them.
//!
//! ```text
//! x += attention(rms_norm(x))     grouped queries, rotation of neighbouring pairs, rope_freqs in Llama 3.1 and later
//! x += feed_forward(rms_norm(x))  SiLU gate; in Mixtral 2 of 8 experts, their weights summing to 1
//! ```
//!
//! Papers: arXiv 2302.13971 (Llama), 2310.06825 (Mistral), 2401.04088 (Mixtral), 2407.21783 (Llama 3).

use super::{Architecture, base, mixture};
use crate::{Error, FeedForward, Keys, ModelSpec};
use smelt_backend::{Gating, RopeStyle};

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let window = keys.count("attention.sliding_window")?.filter(|w| *w > 0);
    let mixture = mixture(keys, Gating::SoftmaxNormalized)?;
    Ok(base(keys, RopeStyle::Interleaved, context)?.each_layer(|_, layer| {
        layer.attention.window = window;
        if let Some(mixture) = &mixture {
            layer.feed_forward = FeedForward::Moe(mixture.clone());
        }
    }))
}

pub(super) static LLAMA: Architecture =
    Architecture { name: "llama", models: "Llama 1-3.x, Mistral, Mixtral, SmolLM 2", spec };
