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

use super::{Architecture, encoder, rows};
use crate::{Error, FeedForward, Keys, ModelSpec};
use smelt_backend::Activation;

fn spec(keys: &Keys<'_>, _context: usize) -> Result<ModelSpec, Error> {
    let mut spec = encoder(keys, |_| Ok(None))?;
    spec.embedding.positions = Some(rows(keys, "position_embd.weight").unwrap_or(0));
    Ok(spec.each_layer(|_, layer| {
        if let FeedForward::Gated { ffn_dim, .. } = layer.feed_forward {
            layer.feed_forward = FeedForward::Plain { ffn_dim, activation: Activation::Gelu };
        }
    }))
}

pub(super) static BERT: Architecture =
    Architecture { name: "bert", models: "BERT, MiniLM, BGE, E5, XLM-RoBERTa", spec };
