//! `Q8_K`: 256 signed bytes, one single precision scale, and the sums of the groups of 16.
//!
//! ```text
//! byte   0 .. 3    4 .. 259         260 .. 291
//!        d: f32    qs: 256 × i8     bsums: 16 × i16
//!
//! w = d · qs
//! ```
//!
//! The sums follow from `qs`, so reading ignores them.
//!
//! Kernels: `Q8x256`, one group, `d_w = d`, `scale_g = 1`, no minima; codes are `qs`, signed (zero point 0). Quantisers
//! write −127..=127, but a file may hold −128.

use crate::layout::quantize_blocks;
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::search::{inverse, nearest, peak, ratio};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: [u8; 4],
    qs: [i8; 256],
    bsums: [[u8; 2]; 16],
}
const _: () = assert!(size_of::<Block>() == 292);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        Unpacked { d: f32::from_le_bytes(self.d), scales: [1; 16], codes: self.qs, mins: None }
    }
}

fn encode(values: &[f32; 256]) -> Block {
    let scale = ratio(-127.0, peak(values));
    let d = inverse(scale);
    let qs = values.map(|v| nearest(scale * v).clamp(-127, 127) as i8);
    let sum = |g: usize| qs[16 * g..][..16].iter().map(|&q| i16::from(q)).sum::<i16>();
    Block { d: d.to_le_bytes(), qs, bsums: std::array::from_fn(|g| sum(g).to_le_bytes()) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Eight bits with one scale per 256 values.
pub static Q8_K: Format = Format {
    name: "Q8_K",
    ggml_type: 15,
    block_len: 256,
    block_bytes: 292,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0074, dot: 0.003 },
};
