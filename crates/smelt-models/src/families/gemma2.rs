//! `gemma2`: Gemma 2 (arXiv 2408.00118).
//!
//! ```text
//! x += rms_norm(attention(rms_norm(x)))      scores and logits soft-capped; every other layer sees a window only
//! x += rms_norm(feed_forward(rms_norm(x)))
//! ```

use super::{Architecture, alternate_windows, gemma_base};
use crate::{Error, Keys, ModelSpec, NormPlacement};

/// Layers of the 27B model, whose scores are scaled by √(hidden_dim / n_heads) instead of √head_dim; GGUF has no key
/// for it.
const LAYERS_27B: usize = 46;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let softcap = keys.float("attn_logit_softcapping")?.unwrap_or(50.0);
    let window = keys.count("attention.sliding_window")?.filter(|w| *w > 0).unwrap_or(4096);
    let mut spec = gemma_base(keys, context)?;
    spec.final_softcap = Some(keys.float("final_logit_softcapping")?.unwrap_or(30.0)).filter(|c| *c > 0.0);
    let (hidden_dim, n_layers) = (spec.hidden_dim, spec.layers.len());
    let spec = spec.each_layer(|_, layer| {
        layer.norms = NormPlacement::PreAndPost;
        layer.attention.softcap = Some(softcap).filter(|c| *c > 0.0);
        if n_layers == LAYERS_27B {
            layer.attention.scale = 1.0 / ((hidden_dim / layer.attention.n_heads) as f32).sqrt();
        }
    });
    Ok(alternate_windows(spec, window, 2, None))
}

pub(super) static GEMMA2: Architecture = Architecture { name: "gemma2", models: "Gemma 2", spec };
