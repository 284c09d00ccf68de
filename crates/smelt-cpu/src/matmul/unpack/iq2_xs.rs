//! `IQ2_XS`: f16 scale, 32 words of a 9-bit index of eight magnitudes and a 7-bit sign index, 16 nibbles of scales.

use super::by_row::{ByRow, RowBlock, half_at, signed, u16_at};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks::{IQ2_XS, even_signs};

pub(crate) struct Iq2Xs;

impl ByRow<74> for Iq2Xs {
    type Class = Scaled<16, BITS_7, false>;
    const ZERO: i32 = 43;

    #[inline(always)]
    fn decode(block: &[u8; 74]) -> RowBlock {
        let mut codes = [0; 256];
        for i in 0..32 {
            let word = u16_at(block, 2 + 2 * i);
            let eight = signed(IQ2_XS[usize::from(word & 511)], even_signs((word >> 9) as u8), 43);
            codes[8 * i..][..8].copy_from_slice(&eight);
        }
        RowBlock { d: half_at(block, 0) * 0.125, scales: odd_nibbles(&block[66..]), codes }
    }
}

/// Nibbles `n`, low one first, as scales `2·n + 1`.
#[inline(always)]
pub(super) fn odd_nibbles(bytes: &[u8]) -> [i8; 16] {
    let mut out = [0; 16];
    for i in 0..bytes.len() {
        out[2 * i] = (bytes[i] & 15) as i8 * 2 + 1;
        out[2 * i + 1] = (bytes[i] >> 4) as i8 * 2 + 1;
    }
    out
}
