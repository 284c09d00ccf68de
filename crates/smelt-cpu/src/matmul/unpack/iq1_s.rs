//! `IQ1_S`: f16 scale, 32 low bytes of indices of eight trits, then for each group of 32 a word of four 3-bit high parts,
//! a 3-bit scale and the direction of the shift.

use super::by_row::{ByRow, RowBlock, half_at, shifted, u16_at};
use crate::matmul::class::{BITS_5, Scaled};
use smelt_quant::codebooks::IQ1;

pub(crate) struct Iq1S;

impl ByRow<50> for Iq1S {
    type Class = Scaled<32, BITS_5, false>;
    const ZERO: i32 = 9;

    #[inline(always)]
    fn decode(block: &[u8; 50]) -> RowBlock {
        let (mut scales, mut codes) = ([0; 16], [0; 256]);
        for i in 0..32 {
            let word = u16_at(block, 34 + 2 * (i / 4));
            scales[i / 4] = (word >> 12 & 7) as i8 * 2 + 1;
            let high = usize::from(word >> (3 * (i % 4)) & 7);
            let eight = shifted(IQ1[usize::from(block[2 + i]) | high << 8], word >> 15 == 1);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales, codes }
    }
}
