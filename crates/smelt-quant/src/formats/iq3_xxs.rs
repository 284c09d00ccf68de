//! `IQ3_XXS`: per 32 values eight entries of a codebook of 256, four sign indices and a four-bit scale.
//!
//! ```text
//! byte   0 1      2 .. 65   66 + 4g .. 69 + 4g        g = 0..8
//!        d: f16   qs        signs and scale: u32
//!
//! values 4j .. 4j + 4: magnitudes codebooks::IQ3_XXS[qs[j]]
//! values 32g + 8k .. 32g + 8k + 8: signs codebooks::even_signs(word g >> 7k & 127), bit set = negative
//! values 32g .. 32g + 32: scale word g >> 28
//! w = d / 4 · (2 · scale + 1) · (± magnitude)
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d / 4`, `scale_g = 2 · scale + 1` (odd, 1..=31), no minima; codes are
//! signed, magnitudes 4, 12, 20, 28, 36, 44, 52, 62 (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ3_XXS as GRID;
use crate::layout::F16;
use crate::layout::grid::{self, SignsAndScale};
use crate::layout::super_block::{self, SuperBlock, Unpacked, per_16};
use crate::{Activation, ErrorBudget, Format};
use zerocopy::{FromBytes, Immutable, KnownLayout, Unaligned};

/// The block as it lies in the file.
#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Block {
    d: F16,
    qs: [u8; 64],
    words: [[u8; 4]; 8],
}
const _: () = assert!(size_of::<Block>() == 98);

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let words = self.words.map(SignsAndScale::new);
        let entry = |j: usize| GRID[usize::from(self.qs[j])];
        Unpacked {
            d: self.d.get() * 0.25,
            scales: per_16(words.map(SignsAndScale::odd_scale)),
            codes: grid::signed(
                |i| grid::pair(entry(2 * i), entry(2 * i + 1)),
                |i| words[i / 4].signs(i % 4),
            ),
            mins: None,
        }
    }
}

/// About three bits: a codebook of 256 quadruples, with four-bit scales per 32 values.
pub static IQ3_XXS: Format = Format {
    name: "IQ3_XXS",
    ggml_type: 18,
    block_len: 256,
    block_bytes: 98,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
