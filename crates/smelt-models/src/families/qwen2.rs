//! `qwen2`: Qwen 2 and 2.5 (arXiv 2407.10671). Llama with biases on q, k and v (bound wherever a file has them) and
//! rotation of halves.

use super::{Architecture, base};
use crate::{Error, Keys, ModelSpec};
use smelt_backend::RopeStyle;

fn spec(keys: &Keys<'_>, context: usize) -> Result<ModelSpec, Error> {
    base(keys, RopeStyle::Halves, context)
}

pub(super) static QWEN2: Architecture = Architecture { name: "qwen2", models: "Qwen 2, Qwen 2.5", spec };
