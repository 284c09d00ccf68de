//! `IQ2_S`: f16 scale, 32 low bytes of indices of eight magnitudes, 32 sign bytes, 32 crumbs of the indices' high bits,
//! 16 nibbles of scales.

use super::by_row::{ByRow, RowBlock, half_at, signed};
use super::iq2_xs::odd_nibbles;
use crate::matmul::class::Scaled;
use smelt_quant::codebooks::IQ2_S;

pub(crate) struct Iq2S;

impl ByRow<82> for Iq2S {
    type Class = Scaled<16, 86, 43, false>;

    #[inline(always)]
    fn decode(block: &[u8; 82]) -> RowBlock {
        let mut codes = [0; 256];
        for (i, out) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let high = usize::from(block[66 + i / 4] >> (2 * (i % 4)) & 3);
            *out = signed(IQ2_S[usize::from(block[2 + i]) | high << 8], block[34 + i], 43);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales: odd_nibbles(&block[74..]), codes }
    }
}
