//! `Q2_K`: 256 crumbs in sixteen groups, each with a four-bit scale and minimum.
//!
//! ```text
//! byte   0 .. 15                                    16 .. 79   80 81    82 83
//!        scales: low nibble scale, high nibble min  qs         d: f16   dmin: f16
//!
//! qs: value 128h + 32s + l in bits 2s and 2s + 1 of byte 32h + l
//! w = d · scale · q − dmin · min
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d`, `scale_g` and `min_g` 0..=15; codes are unsigned, 0..=3 (zero point 0).

use crate::layout::bits::{crumbs_256, pack_crumbs_256};
use crate::layout::super_block::{self, Mins, SuperBlock, Unpacked};
use crate::layout::{F16, quantize_blocks};
use crate::search::Affine;
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    scales: [u8; 16],
    qs: [u8; 64],
    d: F16,
    dmin: F16,
}
const _: () = assert!(size_of::<Block>() == 84);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        Unpacked {
            d: self.d.get(),
            scales: self.scales.map(|s| i32::from(s & 15)),
            codes: crumbs_256(&self.qs).map(|q| q as i8),
            mins: Some(Mins { dmin: self.dmin.get(), mins: self.scales.map(|s| i32::from(s >> 4)) }),
        }
    }
}

const SEARCH: Affine =
    Affine { group: 16, max_code: 3, max_scale: 15, first_tenth: -5, steps: 15, absolute: true };

fn encode(values: &[f32; 256]) -> Block {
    let q = SEARCH.quantize(values);
    let scales = std::array::from_fn(|g| q.scales[g] | q.mins[g] << 4);
    Block { scales, qs: pack_crumbs_256(&q.codes), d: q.d, dmin: q.dmin }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Two bits with four-bit scales and minima per 16 values.
pub static Q2_K: Format = Format {
    name: "Q2_K",
    ggml_type: 10,
    block_len: 256,
    block_bytes: 84,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.32, dot: 0.003 },
};
