//! `IQ2_XXS`: per 32 values four entries of a codebook of 256, four sign indices and a four-bit scale.
//!
//! ```text
//! byte   0 1      2 + 8g .. 5 + 8g         6 + 8g .. 9 + 8g        g = 0..8
//!        d: f16   4 indices: u8            signs and scale: u32
//!
//! index k gives values 32g + 8k .. 32g + 8k + 8: magnitudes codebooks::IQ2_XXS[index], signs
//! codebooks::even_signs(word >> 7k & 127), bit set = negative; the scale is word >> 28
//! w = d / 8 · (2 · scale + 1) · (± magnitude)
//! ```
//!
//! Kernels: `Q8x256`, groups of 32, `d_w = d / 8`, `scale_g = 2 · scale + 1` (odd, 1..=31), no minima; codes are
//! ±8, ±25, ±43, signed (zero point 0).
//!
//! Read only: Smelt has no quantiser for it.

use crate::codebooks::IQ2_XXS as GRID;
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
    groups: [Group; 8],
}
const _: () = assert!(size_of::<Block>() == 66);

#[derive(FromBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Group {
    indices: [u8; 4],
    word: [u8; 4],
}

impl SuperBlock for Block {
    fn unpack(&self) -> Unpacked {
        let words = self.groups.each_ref().map(|g| SignsAndScale::new(g.word));
        let entry = |i: usize| GRID[usize::from(self.groups[i / 4].indices[i % 4])];
        Unpacked {
            d: self.d.get() * 0.125,
            scales: per_16(words.map(SignsAndScale::odd_scale)),
            codes: grid::signed(entry, |i| words[i / 4].signs(i % 4)),
            mins: None,
        }
    }
}

/// About two bits: a codebook of 256, with four-bit scales per 32 values.
pub static IQ2_XXS: Format = Format {
    name: "IQ2_XXS",
    ggml_type: 16,
    block_len: 256,
    block_bytes: 66,
    activation: Activation::Q8x256,
    dequantize: super_block::dequantize::<Block>,
    quantize: None,
    vec_dot: super_block::vec_dot::<Block>,
    budget: ErrorBudget { rmse: 0.0, dot: 0.003 },
};
