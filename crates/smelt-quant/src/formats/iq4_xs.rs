//! `IQ4_XS`: 256 nibbles that index sixteen uneven levels, in eight groups with a signed six-bit scale each.
//!
//! ```text
//! byte   0 1      2 3        4 .. 7     8 .. 135
//!        d: f16   scales_h   scales_l   qs
//!
//! scales: scale g, bits 0-3, in nibble g % 2 of scales_l[g / 2]; bits 4 and 5 in bits 2g and 2g + 1 of scales_h
//! qs:     value 32g + j in the low nibble of byte 16g + j, value 32g + 16 + j in its high nibble
//! w = d · (scale − 32) · codebooks::IQ4[nibble]
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d`, `scale_g = scale − 32` in −32..=31, no minima; codes are the levels,
//! signed, −127..=113 (zero point 0).

use crate::codebooks::IQ4;
use crate::layout::bits::{nibbles, pack_nibbles};
use crate::layout::super_block::{self, SuperBlock, Unpacked, per_16};
use crate::layout::{F16, quantize_blocks};
use crate::search::{IQ4_LEVELS, inverse, nearest, peak};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    scales_h: [u8; 2],
    scales_l: [u8; 4],
    qs: [[u8; 16]; 8],
}
const _: () = assert!(size_of::<Block>() == 136);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let high = u16::from_le_bytes(self.scales_h);
        let low = |g: usize| self.scales_l[g / 2] >> (g % 2 * 4) & 15;
        let nibbles = self.qs.each_ref().map(nibbles::<16, 32>);
        Unpacked {
            d: self.d.get(),
            scales: per_16(std::array::from_fn(|g| {
                i32::from(u16::from(low(g)) | (high >> (2 * g) & 3) << 4) - 32
            })),
            codes: std::array::from_fn(|i| IQ4[usize::from(nibbles[i / 32][i % 32])]),
            mins: None,
        }
    }
}

fn encode(values: &[f32; 256]) -> Block {
    let groups: [&[f32; 32]; 8] = std::array::from_fn(|g| &values.as_chunks().0[g]);
    let scales = groups.map(|x| IQ4_LEVELS.scale(x));
    let d = peak(&scales) / -32.0;
    let whole = scales.map(|s| nearest(inverse(d) * s).clamp(-32, 31));
    let d = F16::new(d);
    let qs = std::array::from_fn(|g| {
        let scale = d.get() * whole[g] as f32;
        pack_nibbles(&IQ4_LEVELS.codes(groups[g], scale))
    });
    let biased = whole.map(|s| (s + 32) as u8);
    let high = biased.iter().rev().fold(0u16, |bits, s| bits << 2 | u16::from(s >> 4));
    let scales_l = std::array::from_fn(|i| biased[2 * i] & 15 | biased[2 * i + 1] << 4);
    Block { d, scales_h: high.to_le_bytes(), scales_l, qs }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four bits on uneven levels with six-bit scales per 32 values.
pub static IQ4_XS: Format = Format {
    name: "IQ4_XS",
    ggml_type: 23,
    block_len: 256,
    block_bytes: 136,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.08, dot: 0.003 },
};
