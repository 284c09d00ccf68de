//! `IQ1_M`: per 8 values an entry of a codebook of 2048 rows of trits and a shift; per 16 a three-bit scale.
//!
//! ```text
//! byte   0 .. 31   32 .. 47   48 .. 55
//!        qs        qh         scales: 4 × u16
//!
//! d: f16, whose bits 4k .. 4k + 3 are bits 12-15 of scales[k]
//! values 8i .. 8i + 8: with h = nibble i % 2 of qh[i / 2], trits codebooks::IQ1[qs[i] + 256 · (h & 7)]; shift −1/8
//! if bit 3 of h is set, else +1/8
//! values 16g .. 16g + 16: scale scales[g / 4] >> 3 · (g % 4) & 7
//! w = d · (2 · scale + 1) · (trit + shift)
//! ```
//!
//! Kernels: `Q8x256`, groups of 16, `d_w = d / 8`, `scale_g = 2 · scale + 1` (odd, 1..=15), no minima; codes are
//! `8 · trit ± 1`: −9, −7, −1, 1, 7, 9, signed (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ1 as GRID;
use crate::layout::F16;
use crate::layout::grid;
use crate::layout::super_block::{self, SuperBlock, Unpacked};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    qs: [u8; 32],
    qh: [u8; 16],
    scales: [[u8; 2]; 4],
}
const _: () = assert!(size_of::<Block>() == 56);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let scales = self.scales.map(u16::from_le_bytes);
        let d = F16::from_bits(scales.iter().rev().fold(0, |bits, s| bits << 4 | s >> 12));
        let nibble = |i: usize| self.qh[i / 2] >> (4 * (i % 2)) & 15;
        Unpacked {
            d: d.get() * 0.125,
            scales: std::array::from_fn(|g| grid::odd((scales[g / 4] >> (3 * (g % 4)) & 7) as u8)),
            codes: grid::shifted(
                |i| GRID[usize::from(self.qs[i]) | usize::from(nibble(i) & 7) << 8],
                |i| nibble(i) & 8 != 0,
            ),
            mins: None,
        }
    }
}

/// Under two bits: a codebook of 2048 rows of trits, with three-bit scales per 16 values.
pub static IQ1_M: Format = Format {
    name: "IQ1_M",
    ggml_type: 29,
    block_len: 256,
    block_bytes: 56,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
