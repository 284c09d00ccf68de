//! `IQ3_S`: per 4 values an entry of a codebook of 512, per 8 a sign byte; four-bit scales per 32 values.
//!
//! ```text
//! byte   0 1      2 .. 65   66 .. 73   74 .. 105   106 .. 109
//!        d: f16   qs        qh         signs       scales: scale g in nibble g % 2 of byte g / 2
//!
//! values 4j .. 4j + 4: magnitudes codebooks::IQ3_S[qs[j] + 256 · bit j % 8 of qh[j / 8]]
//! values 8i .. 8i + 8: signs[i], bit set = negative
//! w = d · (2 · scale + 1) · (± magnitude)
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d`, `scale_g = 2 · scale + 1` (odd, 1..=31), no minima; codes are signed,
//! magnitudes odd, 1..=15 (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ3_S as GRID;
use crate::layout::F16;
use crate::layout::grid;
use crate::layout::super_block::{self, SuperBlock, Unpacked, per_16};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [u8; 64],
    qh: [u8; 8],
    signs: [u8; 32],
    scales: [u8; 4],
}
const _: () = assert!(size_of::<Block>() == 110);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let high = |j: usize| usize::from(self.qh[j / 8] >> (j % 8) & 1);
        let entry = |j: usize| GRID[usize::from(self.qs[j]) | high(j) << 8];
        Unpacked {
            d: self.d.get(),
            scales: per_16(std::array::from_fn(|g| grid::odd_nibble(&self.scales, g))),
            codes: grid::signed(|i| grid::pair(entry(2 * i), entry(2 * i + 1)), |i| self.signs[i]),
            mins: None,
        }
    }
}

/// About three and a half bits: a codebook of 512 quadruples, with four-bit scales per 32 values.
pub static IQ3_S: Format = Format {
    name: "IQ3_S",
    ggml_type: 21,
    block_len: 256,
    block_bytes: 110,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
