//! `Q4_K`: 256 nibbles in eight groups, each with a six-bit scale and minimum.
//!
//! ```text
//! byte   0 1      2 3         4 .. 15                       16 .. 143
//!        d: f16   dmin: f16   scales and mins (k_scales)    qs
//!
//! scales: see layout::bits::k_scales
//! qs:     value 64h + l in the low nibble of byte 32h + l, value 64h + 32 + l in its high nibble
//! w = d · scale · q − dmin · min
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d`, `scale_g` and `min_g` 0..=63; codes are unsigned, 0..=15 (zero point 0).

use crate::layout::bits::{k_scales, nibbles_256, pack_k_scales, pack_nibbles_256};
use crate::layout::super_block::{self, Mins, SuperBlock, Unpacked, per_16};
use crate::layout::{F16, quantize_blocks};
use crate::search::Affine;
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    dmin: F16,
    scales: [u8; 12],
    qs: [u8; 128],
}
const _: () = assert!(size_of::<Block>() == 144);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let (scales, mins) = k_scales(&self.scales);
        Unpacked {
            d: self.d.get(),
            scales: per_16(scales),
            codes: nibbles_256(&self.qs).map(|q| q as i8),
            mins: Some(Mins { dmin: self.dmin.get(), mins: per_16(mins) }),
        }
    }
}

const SEARCH: Affine =
    Affine { group: 32, max_code: 15, max_scale: 63, first_tenth: -10, steps: 20, absolute: false };

fn encode(values: &[f32; 256]) -> Block {
    let q = SEARCH.quantize(values);
    let scales = pack_k_scales(&q.scales, &q.mins);
    Block { d: q.d, dmin: q.dmin, scales, qs: pack_nibbles_256(&q.codes) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four bits with six-bit scales and minima per 32 values.
pub static Q4_K: Format = Format {
    name: "Q4_K",
    ggml_type: 12,
    block_len: 256,
    block_bytes: 144,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.077, dot: 0.003 },
};
