//! `nomic-bert`: Nomic Embed 1 and 1.5 (arXiv 2402.01613). BERT with rotation where that has learned positions, a gated
//! feed-forward, and no biases on matrices.
//!
//! ```text
//! x = layer_norm(token + segment)
//! x = layer_norm(x + attention(x))              every token sees all of its text
//! x = layer_norm(x + down(silu(gate(x)) · up(x)))
//! ```

use super::{Architecture, encoder};
use crate::{Error, Fusion, Keys, ModelSpec, rope};
use smelt_backend::RopeStyle;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    let rope = |head_dim| rope::from_keys(keys, RopeStyle::Halves, head_dim, context).map(Some);
    let is_fused = keys.checkpoint().tensor("blk.0.attn_qkv.weight").is_some();
    let qkv = if is_fused { Fusion::Fused } else { Fusion::Separate };
    Ok(encoder(keys, rope)?.each_attention(|_, attention| attention.qkv = qkv))
}

pub(super) static NOMIC_BERT: Architecture =
    Architecture { name: "nomic-bert", models: "Nomic Embed 1 and 1.5", spec };
