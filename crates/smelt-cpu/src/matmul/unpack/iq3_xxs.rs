//! `IQ3_XXS`: f16 scale, 64 bytes that index four magnitudes each, then for each group of 32 a word of four 7-bit sign
//! indices and a 4-bit scale.

use super::by_row::{ByRow, RowBlock, eight, half_at, signed, u32_at};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks::{IQ3_XXS, even_signs};

pub(crate) struct Iq3Xxs;

impl ByRow<98> for Iq3Xxs {
    type Class = Scaled<32, BITS_7, false>;
    const ZERO: i32 = 62;

    #[inline(always)]
    fn decode(block: &[u8; 98]) -> RowBlock {
        let (mut scales, mut codes) = ([0; 16], [0; 256]);
        for i in 0..32 {
            let (g, k) = (i / 4, i % 4);
            let word = u32_at(block, 66 + 4 * g);
            scales[g] = (word >> 28) as i8 * 2 + 1;
            let entry = |j: usize| IQ3_XXS[usize::from(block[2 + 2 * i + j])];
            let eight = signed(eight(entry(0), entry(1)), even_signs((word >> (7 * k) & 127) as u8), 62);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0) * 0.25, scales, codes }
    }
}
