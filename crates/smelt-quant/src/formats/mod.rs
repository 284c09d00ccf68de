//! The block formats, one file each.

mod f32;
mod q8_0;

use crate::Format;

/// Every format that Smelt reads, in GGUF's order of ids.
pub static FORMATS: &[&Format] = &[&f32::F32, &q8_0::Q8_0];
