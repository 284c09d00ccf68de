//! `TQ2_0`: 256 trits, four to a byte, and one scale (ternary models).
//!
//! ```text
//! byte   0 .. 63   64 65
//!        qs        d: f16
//!
//! qs: value 128h + 32s + l in bits 2s and 2s + 1 of byte 32h + l
//! w = d · (q − 1)
//! ```
//!
//! Kernels: `Q8x256`, one group, `d_w = d`, `scale_g = 1`, no minima; codes are `q − 1` (zero point 1). Quantisers
//! write −1..=1, but a file may hold 2.

use crate::layout::bits::{crumbs_256, pack_crumbs_256};
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::layout::{F16, quantize_blocks};
use crate::search::{amax, inverse};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    qs: [u8; 64],
    d: F16,
}
const _: () = assert!(size_of::<Block>() == 66);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let codes = crumbs_256(&self.qs).map(|q| q as i8 - 1);
        Unpacked { d: self.d.get(), scales: [1; 16], codes, mins: None }
    }
}

/// The scale is the largest magnitude: exact for weights that are ternary already.
fn encode(values: &[f32; 256]) -> Block {
    let d = amax(values);
    let inverse = inverse(d);
    let codes = values.map(|v| ((v * inverse).round().clamp(-1.0, 1.0) + 1.0) as u8);
    Block { qs: pack_crumbs_256(&codes), d: F16::new(d) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Trits packed four to a byte with one scale per 256 values.
pub static TQ2_0: Format = Format {
    name: "TQ2_0",
    ggml_type: 35,
    block_len: 256,
    block_bytes: 66,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: Some(quantize),
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.87, dot: 0.003 },
};
