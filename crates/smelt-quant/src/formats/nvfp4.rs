//! `NVFP4`: 64 E2M1 floats in four groups of 16, each with an unsigned E4M3 scale.
//!
//! ```text
//! byte   0 .. 3                  4 .. 35
//!        d: 4 × UE4M3            qs
//!
//! qs: value 16g + j in the low nibble of byte 8g + j, value 16g + 8 + j in its high nibble
//! w = ue4m3(d[g]) / 2 · codebooks::E2M1_DOUBLED[nibble]
//! ```
//!
//! `ue4m3`: four exponent bits (bias 7) and three of mantissa, subnormals for exponent 0; the top bit is ignored, and
//! 0x7f is 0 (but 0xff is 480). The tensor's own scale, where a file has one, is not part of the block.
//!
//! Kernels: `Q8x32`, groups of **16**: in order `acc = fma(d_w · d_a, dot16 as f32, acc)` with `d_w = ue4m3(d[g]) / 2`
//! and `d_a` the scale of the 32 activations that hold the group; no minimum; codes are the doubled values, signed,
//! −12..=12 (zero point 0).

use crate::codebooks::E2M1_DOUBLED;
use crate::layout::bits::{nibbles, pack_nibbles};
use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::quantize_blocks;
use crate::search::{amax, nearest, nearest_e2m1};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: [u8; 4],
    qs: [[u8; 8]; 4],
}
const _: () = assert!(size_of::<Block>() == 36);

/// Half of the UE4M3 float, exact.
fn half_scale(bits: u8) -> f32 {
    if bits == 0x7f {
        return 0.0;
    }
    let (exponent, mantissa) = (u32::from(bits >> 3 & 15), bits & 7);
    match exponent {
        0 => f32::from(mantissa) / 1024.0,
        // 2^(exponent − 11): bias 7, three mantissa bits, and the half.
        _ => f32::from(8 + mantissa) * f32::from_bits((exponent + 116) << 23),
    }
}

/// The UE4M3 float nearest to `scale`, at most 448; ties to even.
fn nearest_scale(scale: f32) -> u8 {
    const SMALLEST_NORMAL: f32 = 1.0 / 64.0;
    if scale < SMALLEST_NORMAL {
        return nearest(scale * 512.0) as u8;
    }
    // Rounds the mantissa to its upper three bits, then moves the exponent's bias from 127 to 7.
    let bits = scale.min(448.0).to_bits();
    let rounded = (bits + 0x7_ffff + (bits >> 20 & 1)) >> 20;
    (rounded - (120 << 3)) as u8
}

impl Grouped<16> for Block {
    const GROUPS: usize = 4;

    fn group(&self, index: usize) -> Group<16> {
        let codes = nibbles(&self.qs[index]).map(|q: u8| E2M1_DOUBLED[usize::from(q)]);
        Group { d: half_scale(self.d[index]), m: None, codes }
    }
}

/// The largest magnitude of a group becomes 6, the largest E2M1 value.
fn encode(values: &[f32; 64]) -> Block {
    let groups: [&[f32; 16]; 4] = std::array::from_fn(|g| &values.as_chunks().0[g]);
    let d = groups.map(|x| nearest_scale(amax(x) / 6.0));
    let qs = std::array::from_fn(|g| {
        let scale = half_scale(d[g]);
        pack_nibbles(&groups[g].map(|v| nearest_e2m1(v, scale)))
    });
    Block { d, qs }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four-bit floats with one eight-bit float scale per 16 values.
pub static NVFP4: Format = Format {
    name: "NVFP4",
    ggml_type: 40,
    block_len: 64,
    block_bytes: 36,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 16>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 16>,
    budget: ErrorBudget { rmse: 0.1, dot: 0.003 },
};
