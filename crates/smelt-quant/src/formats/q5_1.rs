//! `Q5_1`: 32 five-bit codes, one scale and one minimum.
//!
//! ```text
//! byte   0 1      2 3      4 .. 7                         8 .. 23
//!        d: f16   m: f16   qh: bit j = bit 4 of value j   qs
//!
//! qs: value j, bits 0-3, in the low nibble of byte j, value j + 16 in its high nibble
//! w = d · q + m
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = d`, `m_w = m`; codes are unsigned, 0..=31 (zero point 0).

use crate::layout::bits::{fifth_bits, nibbles, pack_fifth_bits, pack_nibbles};
use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::{F16, quantize_blocks};
use crate::search::inverse;
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    m: F16,
    qh: [u8; 4],
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 24);

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        let codes = fifth_bits(&self.qh, nibbles(&self.qs)).map(|q| q as i8);
        Group { d: self.d.get(), m: Some(self.m.get()), codes }
    }
}

fn encode(values: &[f32; 32]) -> Block {
    let min = values.iter().fold(f32::INFINITY, |m, &v| m.min(v));
    let max = values.iter().fold(f32::NEG_INFINITY, |m, &v| m.max(v));
    let d = (max - min) / 31.0;
    let inverse = inverse(d);
    let codes = values.map(|v| (((v - min) * inverse + 0.5) as u8).min(31));
    Block { d: F16::new(d), m: F16::new(min), qh: pack_fifth_bits(&codes), qs: pack_nibbles(&codes) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Five bits with one scale and one minimum per 32 values.
pub static Q5_1: Format = Format {
    name: "Q5_1",
    ggml_type: 7,
    block_len: 32,
    block_bytes: 24,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.041, dot: 0.003 },
};
