//! `Q5_0`: 32 signed five-bit codes and one scale.
//!
//! ```text
//! byte   0 1      2 .. 5                         6 .. 21
//!        d: f16   qh: bit j = bit 4 of value j   qs
//!
//! qs: value j, bits 0-3, in the low nibble of byte j, value j + 16 in its high nibble
//! w = d · (q − 16)
//! ```
//!
//! Kernels: `Q8x32`, groups of 32, `d_w = d`, no minimum; codes are `q − 16` in −16..=15 (zero point 16).

use crate::layout::bits::{fifth_bits, nibbles, pack_fifth_bits, pack_nibbles};
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
    qh: [u8; 4],
    qs: [u8; 16],
}
const _: () = assert!(size_of::<Block>() == 22);

impl Grouped<32> for Block {
    fn group(&self, _: usize) -> Group<32> {
        let codes = fifth_bits(&self.qh, nibbles(&self.qs)).map(|q| q as i8 - 16);
        Group { d: self.d.get(), m: None, codes }
    }
}

/// The peak becomes −16, the code that has no positive twin.
fn encode(values: &[f32; 32]) -> Block {
    let d = peak(values) / -16.0;
    let inverse = inverse(d);
    let codes = values.map(|v| ((v * inverse + 16.5) as u8).min(31));
    Block { d: F16::new(d), qh: pack_fifth_bits(&codes), qs: pack_nibbles(&codes) }
}

fn quantize(values: &[f32], out: &mut [u8]) {
    quantize_blocks(values, out, encode);
}

/// Five bits with one scale per 32 values.
pub static Q5_0: Format = Format {
    name: "Q5_0",
    ggml_type: 6,
    block_len: 32,
    block_bytes: 22,
    activation: Activation::Q8x32,
    dequantize: grouped::dequantize::<Block, 32>,
    quantize: Some(quantize),
    vec_dot: grouped::vec_dot::<Block, 32>,
    budget: ErrorBudget { rmse: 0.045, dot: 0.003 },
};
