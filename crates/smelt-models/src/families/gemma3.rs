//! `gemma3`: Gemma 3 (arXiv 2503.19786). Gemma 2 without attention caps, with normed q and k; five of six layers see a
//! window and rotate with a base of their own.

use super::{Architecture, alternate_windows, gemma_base};
use crate::{Error, Keys, ModelSpec, NormPlacement, QkNorm, RopeSpec, rope};
use smelt_backend::RopeStyle;

/// Layers of the 27B model, whose scores are scaled by √(hidden_dim / n_heads) instead of √head_dim; GGUF has no key
/// for it.
const LAYERS_27B: usize = 62;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mut spec = gemma_base(keys, context)?;
    spec.final_softcap = keys.float("final_logit_softcapping")?.filter(|c| *c > 0.0);
    let (hidden_dim, n_layers) = (spec.hidden_dim, spec.layers.len());
    let spec = spec.each_layer(|_, layer| {
        layer.norms = NormPlacement::PreAndPost;
        layer.attention.qk_norm = QkNorm::PerHead;
        if n_layers == LAYERS_27B {
            layer.attention.scale = 1.0 / ((hidden_dim / layer.attention.n_heads) as f32).sqrt();
        }
    });
    let Some(window) = keys.count("attention.sliding_window")?.filter(|w| *w > 0) else { return Ok(spec) };
    let period = keys.count("attention.sliding_window_pattern")?.filter(|p| *p > 0).unwrap_or(6);
    // Local layers are never stretched: they don't look further than their window.
    let theta = rope::positive(keys, "rope.freq_base_swa", 10000.0)?;
    let head_dim = spec.layers[0].attention.head_dim;
    let inv_freq = rope::inverse_frequencies(
        theta,
        keys.count("rope.dimension_count")?.unwrap_or(head_dim).min(head_dim),
    );
    let local = RopeSpec { style: RopeStyle::Halves, inv_freq, magnitude: 1.0 };
    Ok(alternate_windows(spec, window, period, Some(&local)))
}

pub(super) static GEMMA3: Architecture = Architecture { name: "gemma3", models: "Gemma 3 (text)", spec };
