//! `Q3_K`: 256 signed three-bit codes in sixteen groups, each with a signed six-bit scale.
//!
//! ```text
//! byte   0 .. 31   32 .. 95   96 .. 107   108 109
//!        hmask     qs         scales      d: f16
//!
//! qs:     value 128h + 32s + l, bits 0 and 1, in bits 2s and 2s + 1 of byte 32h + l
//! hmask:  value 32k + l, bit 2, in bit k of byte l
//! scales: scale g, bits 0-3, in nibble g / 8 of byte g % 8; bits 4 and 5 in crumb g / 4 of byte 8 + g % 4
//! w = d · (scale − 32) · (q − 4)
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d`, `scale_g = scale − 32` in −32..=31, no minima; codes are `q − 4` in
//! −4..=3 (zero point 4).

use crate::layout::bits::{
    bit_planes_256, crumbs_256, nibbles, pack_bit_planes_256, pack_crumbs_256, pack_nibbles,
};
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::layout::{F16, quantize_blocks};
use crate::search::{descend, inverse, nearest, peak};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    hmask: [u8; 32],
    qs: [u8; 64],
    scales_low: [u8; 8],
    scales_high: [u8; 4],
    d: F16,
}
const _: () = assert!(size_of::<Block>() == 110);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let low: [u8; 16] = nibbles(&self.scales_low);
        let high = |g: usize| self.scales_high[g % 4] >> (g / 4 * 2) & 3;
        let (crumbs, bits) = (crumbs_256(&self.qs), bit_planes_256(&self.hmask));
        Unpacked {
            d: self.d.get(),
            scales: std::array::from_fn(|g| i32::from(low[g] | high(g) << 4) - 32),
            codes: std::array::from_fn(|i| (crumbs[i] | bits[i] << 2) as i8 - 4),
            mins: None,
        }
    }
}

fn encode(values: &[f32; 256]) -> Block {
    let (mut scales, mut codes) = ([0f32; 16], [0i8; 256]);
    let groups = || values.as_chunks::<16>().0.iter();
    for ((x, scale), codes) in groups().zip(&mut scales).zip(codes.as_chunks_mut::<16>().0) {
        (*scale, *codes) = descend(x, 4);
    }
    let d = peak(&scales) / -32.0;
    let inverse = inverse(d);
    let whole = scales.map(|s| nearest(inverse * s).clamp(-32, 31));
    let d = F16::new(d);
    for ((x, &scale), codes) in groups().zip(&whole).zip(codes.as_chunks_mut::<16>().0) {
        let scale = d.get() * scale as f32;
        if scale != 0.0 {
            *codes = x.map(|x| nearest(x / scale).clamp(-4, 3) as i8);
        }
    }
    let biased = whole.map(|s| (s + 32) as u8);
    let scales_high = |l: usize| (0..4).fold(0, |byte, k| byte | (biased[4 * k + l] >> 4) << (2 * k));
    let codes = codes.map(|q| (q + 4) as u8);
    Block {
        hmask: pack_bit_planes_256(&codes.map(|q| q >> 2)),
        qs: pack_crumbs_256(&codes),
        scales_low: pack_nibbles(&biased),
        scales_high: std::array::from_fn(scales_high),
        d,
    }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Three bits with six-bit scales per 16 values.
pub static Q3_K: Format = Format {
    name: "Q3_K",
    ggml_type: 11,
    block_len: 256,
    block_bytes: 110,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.16, dot: 0.003 },
};
