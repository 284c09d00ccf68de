//! `bert`: BERT (arXiv 1810.04805) and what has its graph: MiniLM, BGE, E5, GTE, and XLM-RoBERTa, whose positions
//! converters move to begin at 0.
//!
//! ```text
//! x = layer_norm(token + segment + position)
//! x = layer_norm(x + attention(x))        no rotation; every token sees all of its text
//! x = layer_norm(x + down(gelu(up(x))))
//! ```
//!
//! There is no norm behind the last layer and no vocabulary to choose from: states are what it is for, or the labels of a
//! cross-encoder, which scores the first token.

use super::{Architecture, head, pooling, transformer};
use crate::{EmbeddingSpec, Error, FeedForward, Head, Keys, ModelSpec, Norm, NormPlacement};
use smelt_backend::{Activation, Mask};

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let mut spec = transformer(keys, Norm::Layer, |_| Ok(None))?;
    let positions = rows(keys, "position_embd.weight").unwrap_or(0);
    if context > positions {
        let what =
            format!("is {context}, but the model has learned {positions} positions; use a smaller --ctx");
        return Err(keys.error("context_length", what));
    }
    let segments = rows(keys, "token_types.weight");
    spec.embedding = EmbeddingSpec { scale: 1.0, positions: Some(positions), segments, norm: true };
    spec.output_norm = false;
    spec.head = head(keys)?.unwrap_or(Head::None);
    // What the key says of other families is the usual here.
    let mask = if keys.flag("attention.causal")? == Some(true) { Mask::Causal } else { Mask::Full };
    spec.pooling = pooling(keys, mask)?;
    Ok(spec.each_layer(|_, layer| {
        layer.norms = NormPlacement::AfterResidual;
        layer.attention.mask = mask;
        if let FeedForward::Gated { ffn_dim, .. } = layer.feed_forward {
            layer.feed_forward = FeedForward::Plain { ffn_dim, activation: Activation::Gelu };
        }
    }))
}

/// Rows of a table, if the file has it.
fn rows(keys: &Keys<'_>, name: &str) -> Option<usize> {
    Some(keys.checkpoint().tensor(name)?.info.shape.get(1).copied().unwrap_or(1))
}

pub(super) static BERT: Architecture =
    Architecture { name: "bert", models: "BERT, MiniLM, BGE, E5, XLM-RoBERTa", spec };
