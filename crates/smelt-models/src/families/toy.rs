//! `toy`: the smallest family that differs from Llama, for reading and for tests; no published model is of it.
//!
//! A family is this: a diagram, a function from metadata to a spec, and a `static` that `families/mod.rs` lists.
//!
//! ```text
//! x += attention(rms_norm(x))     rotation of halves; odd layers see the last 4 tokens only
//! x += feed_forward(rms_norm(x))  GELU gate
//! logits = 2 · output(rms_norm(x))
//! ```

use super::{Architecture, base};
use crate::{Error, FeedForward, Keys, ModelSpec};
use smelt_backend::{Activation, RopeStyle};

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mut spec = base(keys, RopeStyle::Halves, context)?;
    spec.logit_scale = 2.0;
    Ok(spec.each_layer(|index, layer| {
        layer.attention.window = (index % 2 == 1).then_some(4);
        if let FeedForward::Gated { activation, .. } = &mut layer.feed_forward {
            *activation = Activation::GeluTanh;
        }
    }))
}

pub(super) static TOY: Architecture = Architecture { name: "toy", models: "none: an example", spec };
