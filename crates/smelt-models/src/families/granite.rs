//! `granite`: Granite 3.x dense. Llama with four scales: of embeddings, scores, residuals and logits.

use super::{Architecture, base};
use crate::{Error, Keys, ModelSpec, rope};
use smelt_backend::RopeStyle;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let scale = keys.float("attention.scale")?.filter(|s| *s != 0.0);
    let residual_scale = keys.float("residual_scale")?.filter(|s| *s != 0.0).unwrap_or(1.0);
    let mut spec = base(keys, RopeStyle::Interleaved, context)?;
    spec.embedding.scale = keys.float("embedding_scale")?.filter(|s| *s != 0.0).unwrap_or(1.0);
    spec.logit_scale = 1.0 / rope::positive(keys, "logit_scale", 1.0)?;
    Ok(spec.each_layer(|_, layer| {
        layer.residual_scale = residual_scale;
        layer.attention.scale = scale.unwrap_or(layer.attention.scale);
    }))
}

pub(super) static GRANITE: Architecture =
    Architecture { name: "granite", models: "Granite 3.x (dense)", spec };
