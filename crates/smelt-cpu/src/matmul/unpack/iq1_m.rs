//! `IQ1_M`: 32 low bytes of indices of eight trits, 32 nibbles of a 3-bit high part and the direction of the shift, four
//! words of four 3-bit scales and a quarter of the f16 scale.

use super::by_row::{ByRow, RowBlock, shifted, u16_at};
use crate::matmul::class::{BITS_5, Scaled};
use half::f16;
use smelt_quant::codebooks::IQ1;

pub(crate) struct Iq1M;

impl ByRow<56> for Iq1M {
    type Class = Scaled<16, BITS_5, false>;
    const ZERO: i32 = 9;

    #[inline(always)]
    fn decode(block: &[u8; 56]) -> RowBlock {
        let (mut scales, mut codes, mut d) = ([0; 16], [0; 256], 0);
        for k in 0..4 {
            let word = u16_at(block, 48 + 2 * k);
            d |= word >> 12 << (4 * k);
            for j in 0..4 {
                scales[4 * k + j] = (word >> (3 * j) & 7) as i8 * 2 + 1;
            }
        }
        for i in 0..32 {
            let nibble = block[32 + i / 2] >> (4 * (i % 2)) & 15;
            let eight = shifted(IQ1[usize::from(block[i]) | usize::from(nibble & 7) << 8], nibble & 8 != 0);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: f16::from_bits(d).to_f32() * 0.125, scales, codes }
    }
}
