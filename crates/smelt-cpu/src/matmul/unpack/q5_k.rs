//! `Q5_K`: f16 scale and minimum, 8 + 8 packed 6-bit scales and minima, 32 bytes of fifth bits, 128 of nibbles.
//!
//! Bytes 32·c.. of the nibbles hold group 2·c in their low halves and group 2·c + 1 in the high ones; bit `g` of byte
//! `l` is the fifth of value `l` of group `g`.

use super::q4_k::scales_and_minima;
use super::{Sink, Unpack, move_bit};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Scaled};

pub(crate) struct Q5K;

impl Unpack<176> for Q5K {
    type Class = Scaled<32, BITS_5, true>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 176>, v: usize, out: &mut impl Sink<S>) {
        scales_and_minima(s, s.quads(rows, v, 0), out);
        let (nibble, fifth) = (s.splat(0x0F0F_0F0F), s.splat(0x1010_1010));
        for i in 0..2 {
            let high = s.quads(rows, v, 16 + 16 * i);
            for c in 0..4 {
                let low = s.quads(rows, v, 48 + 32 * c + 16 * i);
                let (mut first, mut second) = (low, low);
                for j in 0..4 {
                    let even = s.and(move_bit(s, high[j], 2 * c as u32, 4), fifth);
                    let odd = s.and(move_bit(s, high[j], 2 * c as u32 + 1, 4), fifth);
                    first[j] = s.or(s.and(low[j], nibble), even);
                    second[j] = s.or(s.and(s.shr(low[j], 4), nibble), odd);
                }
                out.codes(s, 16 * c + 4 * i, first);
                out.codes(s, 16 * c + 4 * i + 8, second);
            }
        }
    }
}
