//! `IQ2_S`: f16 scale, 32 low bytes of indices of eight magnitudes, 32 sign bytes, 32 crumbs of the indices' high bits,
//! 16 nibbles of scales.

use super::by_row::{ByRow, RowBlock, half_at, signed};
use super::iq2_xs::odd_nibbles;
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks::IQ2_S;

pub(crate) struct Iq2S;

impl ByRow<82> for Iq2S {
    type Class = Scaled<16, BITS_7, false>;
    const ZERO: i32 = 43;

    #[inline(always)]
    fn decode(block: &[u8; 82]) -> RowBlock {
        let mut codes = [0; 256];
        for i in 0..32 {
            let high = usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
            let eight = signed(IQ2_S[usize::from(block[2 + i]) | high << 8], block[34 + i], 43);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales: odd_nibbles(&block[74..]), codes }
    }
}
