//! `IQ2_S`: per 8 values an entry of a codebook of 1024 and a sign byte; four-bit scales per 16 values.
//!
//! ```text
//! byte   0 1      2 .. 33   34 .. 65   66 .. 73   74 .. 81
//!        d: f16   qs        signs      qh         scales: scale g in nibble g % 2 of byte g / 2
//!
//! values 8i .. 8i + 8: magnitudes codebooks::IQ2_S[qs[i] + 256 · crumb i % 4 of qh[i / 4]], signs[i], bit set =
//! negative
//! w = d / 8 · (2 · scale + 1) · (± magnitude)
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d / 8`, `scale_g = 2 · scale + 1` (odd, 1..=31), no minima; codes are
//! ±8, ±25, ±43, signed (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ2_S as GRID;
use crate::layout::F16;
use crate::layout::grid;
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [u8; 32],
    signs: [u8; 32],
    qh: [u8; 8],
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 82);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let high = |i: usize| usize::from(self.qh[i / 4] >> (2 * (i % 4)) & 3);
        let entry = |i: usize| GRID[usize::from(self.qs[i]) | high(i) << 8];
        Unpacked {
            d: self.d.get() * 0.125,
            scales: std::array::from_fn(|g| grid::odd_nibble(&self.scales, g)),
            codes: grid::signed(entry, |i| self.signs[i]),
            mins: None,
        }
    }
}

/// About two and a half bits: a codebook of 1024, with four-bit scales per 16 values.
pub static IQ2_S: Format = Format {
    name: "IQ2_S",
    ggml_type: 22,
    block_len: 256,
    block_bytes: 82,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
