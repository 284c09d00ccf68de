//! `smollm3`: Llama whose every fourth layer has no rotation ("NoPE", arXiv 2501.18795).

use super::{Architecture, base};
use crate::{Error, Keys, ModelSpec};
use smelt_backend::RopeStyle;

/// GGUF has no key for it: every published SmolLM 3 uses 4.
const NO_ROPE_INTERVAL: usize = 4;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    Ok(base(keys, RopeStyle::Interleaved, context)?.each_attention(|index, attention| {
        if (index + 1).is_multiple_of(NO_ROPE_INTERVAL) {
            attention.rope = None;
        }
    }))
}

pub(super) static SMOLLM3: Architecture = Architecture { name: "smollm3", models: "SmolLM 3", spec };
