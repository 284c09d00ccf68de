//! `MXFP4`: 32 E2M1 floats and one power of two (OCP Microscaling Formats v1.0).
//!
//! ```text
//! byte   0         1 .. 16
//!        e: E8M0   qs: value j in the low nibble of byte j, value j + 16 in its high nibble
//!
//! w = 2^(e − 128) · codebooks::E2M1_DOUBLED[nibble]
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = 2^(e − 128)` (subnormal for e < 2; e = 255 is no NaN but 2^127), no minimum;
//! codes are the doubled values, signed, −12..=12 (zero point 0).

use crate::codebooks::E2M1_DOUBLED;
use crate::layout::bits::{nibbles, pack_nibbles};
use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::quantize_blocks;
use crate::search::{amax, nearest_e2m1};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    e: u8,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 17);

/// `2^(e − 128)`, exact.
fn half_power(e: u8) -> f32 {
    f32::from_bits(match e {
        0 => 1 << 21,
        1 => 1 << 22,
        _ => u32::from(e - 1) << 23,
    })
}

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        let codes = nibbles(&self.qs).map(|q: u8| E2M1_DOUBLED[usize::from(q)]);
        Group { d: half_power(self.e), m: None, codes }
    }
}

/// The largest magnitude lands in [4, 8), where E2M1 has 4 and 6.
fn encode(values: &[f32; 32]) -> Block {
    let exponent = (amax(values).to_bits() >> 23) as u8;
    let e = exponent.saturating_sub(2);
    let codes = values.map(|v| nearest_e2m1(v, half_power(e)));
    Block { e, qs: pack_nibbles(&codes) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four-bit floats with one power of two per 32 values.
pub static MXFP4: Format = Format {
    name: "MXFP4",
    ggml_type: 39,
    block_len: 32,
    block_bytes: 17,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.125, dot: 0.003 },
};
