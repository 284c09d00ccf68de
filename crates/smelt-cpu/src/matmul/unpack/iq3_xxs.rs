//! `IQ3_XXS`: f16 scale, 64 bytes that index four magnitudes each, then for each group of 32 a word of four 7-bit sign
//! indices and a 4-bit scale.

use super::{Sink, Unpack, even_signs, four_sevens, lane_pairs, lane_scale, odd, signed};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks;

pub(crate) struct Iq3Xxs;

static IQ3_XXS: Codebook<4, 256> = Codebook::new(codebooks::IQ3_XXS);

/// The code that means zero: the largest magnitude.
const ZERO: i32 = 62;

impl Unpack<98> for Iq3Xxs {
    type Class = Scaled<32, BITS_7, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 98>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.mul_f(s.f16s(rows, v, 0), s.splat_f(0.25)));
        let (first, second) = (s.quads(rows, v, 66), s.quads(rows, v, 82));
        let mut scales = [s.splat(0); 8];
        for pair in 0..4 {
            let q = s.quads(rows, v, 2 + 16 * pair);
            for half in 0..2 {
                let g = 2 * pair + half;
                let word = if g < 4 { first[g] } else { second[g - 4] };
                scales[g] = odd(s, s.shr(word, 28));
                lane_scale(s, g, scales[g], out);
                let mut x = [s.splat(0); 8];
                for j in 0..2 {
                    let indices = q[2 * half + j];
                    let first = s.lookup4(&IQ3_XXS, s.halves::<0, 1>(indices));
                    let last = s.lookup4(&IQ3_XXS, s.halves::<2, 3>(indices));
                    (x[4 * j], x[4 * j + 1], x[4 * j + 2], x[4 * j + 3]) =
                        (first[0], first[1], last[0], last[1]);
                }
                signed(s, x, even_signs(s, four_sevens(s, word)), ZERO, 8 * g, out);
            }
        }
        lane_pairs(s, &scales, ZERO, out);
    }
}
