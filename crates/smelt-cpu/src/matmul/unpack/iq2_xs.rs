//! `IQ2_XS`: f16 scale, 32 words of a 9-bit index of eight magnitudes and a 7-bit sign index, 16 nibbles of scales.

use super::iq2_xxs::ZERO;
use super::{Sink, Unpack, even_signs, lane_scales, odd_nibbles, signed};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks;

pub(crate) struct Iq2Xs;

static IQ2_XS: Codebook<8, 512> = Codebook::new(codebooks::IQ2_XS);

impl Unpack<74> for Iq2Xs {
    type Class = Scaled<16, BITS_7, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 74>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.mul_f(s.f16s(rows, v, 0), s.splat_f(0.125)));
        lane_scales(s, &odd_nibbles(s, s.dword_pairs(rows, v, 66)), ZERO, out);
        for pair in 0..4 {
            let q = s.quads(rows, v, 2 + 16 * pair);
            for half in 0..2 {
                let words = [q[2 * half], q[2 * half + 1]];
                let mut x = [s.splat(0); 8];
                for k in 0..2 {
                    let sixteen = s.lookup8(&IQ2_XS, words[k]);
                    for i in 0..4 {
                        x[4 * k + i] = sixteen[i / 2][i % 2];
                    }
                }
                let sevens = [
                    s.and(s.shr(words[0], 9), s.splat(0x7F)),
                    s.and(s.shr(words[0], 17), s.splat(0x7F00)),
                    s.and(s.shl(words[1], 7), s.splat(0x7F_0000)),
                    s.and(s.shr(words[1], 1), s.splat(0x7F00_0000)),
                ];
                let sevens = s.or(s.or(sevens[0], sevens[1]), s.or(sevens[2], sevens[3]));
                signed(s, x, even_signs(s, sevens), ZERO, 8 * (2 * pair + half), out);
            }
        }
    }
}
