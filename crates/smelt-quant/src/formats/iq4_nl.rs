//! `IQ4_NL`: 32 nibbles that index sixteen uneven levels, and one scale.
//!
//! ```text
//! byte   0 1      2 .. 17
//!        d: f16   qs: value j in the low nibble of byte j, value j + 16 in its high nibble
//!
//! w = d · codebooks::IQ4[nibble]
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = d`, no minimum; codes are the levels, signed, −127..=113 (zero point 0).

use crate::codebooks::IQ4;
use crate::layout::bits::{nibbles, pack_nibbles};
use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::{F16, quantize_blocks};
use crate::search::IQ4_LEVELS;
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        let codes = nibbles(&self.qs).map(|q: u8| IQ4[usize::from(q)]);
        Group { d: self.d.get(), m: None, codes }
    }
}

fn encode(values: &[f32; 32]) -> Block {
    let d = IQ4_LEVELS.scale(values);
    Block { d: F16::new(d), qs: pack_nibbles(&IQ4_LEVELS.codes(values, d)) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four bits on uneven levels with one scale per 32 values.
pub static IQ4_NL: Format = Format {
    name: "IQ4_NL",
    ggml_type: 20,
    block_len: 32,
    block_bytes: 18,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.082, dot: 0.003 },
};
