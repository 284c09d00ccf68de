//! `Q8_0`: 32 signed bytes and one scale.
//!
//! ```text
//! byte   0 1      2 .. 33
//!        d: f16   qs: 32 × i8
//!
//! w = d · qs
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = d`, no minimum; codes are `qs`, signed (zero point 0). Quantisers write
//! −127..=127, but a file may hold −128.

use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::{F16, quantize_blocks};
use crate::search::{amax, inverse};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [i8; 32],
}
const _: () = assert!(size_of::<Block>() == 34);

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        Group { d: self.d.get(), m: None, codes: self.qs }
    }
}

fn encode(values: &[f32; 32]) -> Block {
    let d = amax(values) / 127.0;
    let inverse = inverse(d);
    Block { d: F16::new(d), qs: values.map(|v| (v * inverse).round().clamp(-127.0, 127.0) as i8) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Eight bits with one scale per 32 values.
pub static Q8_0: Format = Format {
    name: "Q8_0",
    ggml_type: 8,
    block_len: 32,
    block_bytes: 34,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.0058, dot: 0.003 },
};
