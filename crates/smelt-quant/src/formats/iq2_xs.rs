//! `IQ2_XS`: per 8 values an entry of a codebook of 512 and a sign index; four-bit scales per 16 values.
//!
//! ```text
//! byte   0 1      2 .. 65        66 .. 73
//!        d: f16   qs: 32 × u16   scales: scale g in nibble g % 2 of byte g / 2
//!
//! qs[i] gives values 8i .. 8i + 8: magnitudes codebooks::IQ2_XS[qs & 511], signs codebooks::even_signs(qs >> 9), bit
//! set = negative
//! w = d / 8 · (2 · scale + 1) · (± magnitude)
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d / 8`, `scale_g = 2 · scale + 1` (odd, 1..=31), no minima; codes are
//! ±8, ±25, ±43, signed (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::{IQ2_XS as GRID, even_signs};
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
    qs: [[u8; 2]; 32],
    scales: [u8; 8],
}
const _: () = assert!(size_of::<Block>() == 74);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let qs = self.qs.map(u16::from_le_bytes);
        Unpacked {
            d: self.d.get() * 0.125,
            scales: std::array::from_fn(|g| grid::odd_nibble(&self.scales, g)),
            codes: grid::signed(|i| GRID[usize::from(qs[i] & 511)], |i| even_signs((qs[i] >> 9) as u8)),
            mins: None,
        }
    }
}

/// About two bits: a codebook of 512, with four-bit scales per 16 values.
pub static IQ2_XS: Format = Format {
    name: "IQ2_XS",
    ggml_type: 17,
    block_len: 256,
    block_bytes: 74,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
