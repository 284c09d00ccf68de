//! `IQ2_XXS`: f16 scale, then for each group of 32 four bytes that index eight magnitudes each, and a word of four
//! 7-bit sign indices and a 4-bit scale.

use super::by_row::{ByRow, RowBlock, half_at, signed, u32_at};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks::{IQ2_XXS, even_signs};

pub(crate) struct Iq2Xxs;

impl ByRow<66> for Iq2Xxs {
    type Class = Scaled<32, BITS_7, false>;
    const ZERO: i32 = 43;

    #[inline(always)]
    fn decode(block: &[u8; 66]) -> RowBlock {
        let (mut scales, mut codes) = ([0; 16], [0; 256]);
        for i in 0..32 {
            let (g, k) = (i / 4, i % 4);
            let word = u32_at(block, 6 + 8 * g);
            scales[g] = (word >> 28) as i8 * 2 + 1;
            let signs = even_signs((word >> (7 * k) & 127) as u8);
            let eight = signed(IQ2_XXS[usize::from(block[2 + 8 * g + k])], signs, 43);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales, codes }
    }
}
