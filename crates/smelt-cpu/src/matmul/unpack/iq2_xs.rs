//! `IQ2_XS`: f16 scale, 32 words of a 9-bit index of eight magnitudes and a 7-bit sign index, 16 nibbles of scales.

use super::by_row::{ByRow, RowBlock, half_at, signed, u16_at};
use crate::matmul::class::Scaled;
use smelt_quant::codebooks::{IQ2_XS, even_signs};

pub(crate) struct Iq2Xs;

impl ByRow<74> for Iq2Xs {
    type Class = Scaled<16, 86, 43, false>;

    #[inline(always)]
    fn decode(block: &[u8; 74]) -> RowBlock {
        let mut codes = [0; 256];
        for (i, out) in codes.as_chunks_mut::<8>().0.iter_mut().enumerate() {
            let word = u16_at(block, 2 + 2 * i);
            *out = signed(IQ2_XS[usize::from(word & 511)], even_signs((word >> 9) as u8), 43);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales: odd_nibbles(&block[66..]), codes }
    }
}

/// Nibbles `n`, low one first, as scales `2·n + 1`.
#[inline(always)]
pub(super) fn odd_nibbles(bytes: &[u8]) -> [i8; 16] {
    let mut out = [0; 16];
    for (pair, b) in out.as_chunks_mut::<2>().0.iter_mut().zip(bytes) {
        *pair = [(b & 15) as i8 * 2 + 1, (b >> 4) as i8 * 2 + 1];
    }
    out
}
