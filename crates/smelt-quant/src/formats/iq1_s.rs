//! `IQ1_S`: per 8 values an entry of a codebook of 2048 rows of trits; per 32 a three-bit scale and a shift.
//!
//! ```text
//! byte   0 1      2 .. 33   34 .. 49
//!        d: f16   qs        qh: 8 × u16
//!
//! values 8i .. 8i + 8: trits codebooks::IQ1[qs[i] + 256 · (qh[i / 4] >> 3 · (i % 4) & 7)]
//! values 32g .. 32g + 32: scale qh[g] >> 12 & 7; shift −1/8 if bit 15 of qh[g] is set, else +1/8
//! w = d · (2 · scale + 1) · (trit + shift)
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d / 8`, `scale_g = 2 · scale + 1` (odd, 1..=15), no minima; codes are
//! `8 · trit ± 1`: −9, −7, −1, 1, 7, 9, signed (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ1 as GRID;
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
    qs: [u8; 32],
    qh: [[u8; 2]; 8],
}
const _: () = assert!(size_of::<Block>() == 50);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let qh = self.qh.map(u16::from_le_bytes);
        let high = |i: usize| usize::from(qh[i / 4] >> (3 * (i % 4)) & 7);
        Unpacked {
            d: self.d.get() * 0.125,
            scales: per_16(qh.map(|q| grid::odd((q >> 12 & 7) as u8))),
            codes: grid::shifted(|i| GRID[usize::from(self.qs[i]) | high(i) << 8], |i| qh[i / 4] >> 15 == 1),
            mins: None,
        }
    }
}

/// About one and a half bits: a codebook of 2048 rows of trits, with three-bit scales per 32 values.
pub static IQ1_S: Format = Format {
    name: "IQ1_S",
    ggml_type: 19,
    block_len: 256,
    block_bytes: 50,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
