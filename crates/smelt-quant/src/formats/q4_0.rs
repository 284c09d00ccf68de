//! `Q4_0`: 32 signed nibbles and one scale.
//!
//! ```text
//! byte   0 1      2 .. 17
//!        d: f16   qs: value j in the low nibble of byte j, value j + 16 in its high nibble
//!
//! w = d · (nibble − 8)
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = d`, no minimum; codes are `nibble − 8` in −8..=7 (zero point 8).

use crate::layout::bits::{nibbles, pack_nibbles};
use crate::layout::grouped::{self, Group, Grouped};
use crate::layout::{F16, quantize_blocks};
use crate::search::{inverse, peak};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 18);

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        let codes = nibbles(&self.qs).map(|q| q as i8 - 8);
        Group { d: self.d.get(), m: None, codes }
    }
}

/// The peak becomes −8, the code that has no positive twin.
fn encode(values: &[f32; 32]) -> Block {
    let d = peak(values) / -8.0;
    let inverse = inverse(d);
    let codes = values.map(|v| ((v * inverse + 8.5) as u8).min(15));
    Block { d: F16::new(d), qs: pack_nibbles(&codes) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Four bits with one scale per 32 values.
pub static Q4_0: Format = Format {
    name: "Q4_0",
    ggml_type: 2,
    block_len: 32,
    block_bytes: 18,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.09, dot: 0.003 },
};
