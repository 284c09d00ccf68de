//! `IQ3_S`: f16 scale, 64 low bytes of indices of four magnitudes, their 64 high bits, 32 sign bytes, 8 nibbles of
//! scales.

use super::by_row::{ByRow, RowBlock, eight, half_at, signed};
use super::iq2_xs::odd_nibbles;
use crate::matmul::class::{BITS_5, Scaled};
use smelt_quant::codebooks::IQ3_S;

pub(crate) struct Iq3S;

impl ByRow<110> for Iq3S {
    type Class = Scaled<32, BITS_5, false>;
    const ZERO: i32 = 15;

    #[inline(always)]
    fn decode(block: &[u8; 110]) -> RowBlock {
        let mut codes = [0; 256];
        for i in 0..32 {
            let entry = |j: usize| {
                let high = usize::from(block[66 + j / 8] >> (j % 8) & 1);
                IQ3_S[usize::from(block[2 + j]) | high << 8]
            };
            let eight = signed(eight(entry(2 * i), entry(2 * i + 1)), block[74 + i], 15);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0), scales: odd_nibbles(&block[106..]), codes }
    }
}
