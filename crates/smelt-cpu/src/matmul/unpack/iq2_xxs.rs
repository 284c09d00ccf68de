//! `IQ2_XXS`: f16 scale, then for each group of 32 four bytes that index eight magnitudes each, and a word of four
//! 7-bit sign indices and a 4-bit scale.

use super::{Sink, Unpack, even_signs, four_sevens, lane_pairs, lane_scale, odd, signed};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks;

pub(crate) struct Iq2Xxs;

static IQ2_XXS: Codebook<8, 256> = Codebook::new(codebooks::IQ2_XXS);

/// The code that means zero: the largest magnitude.
pub(super) const ZERO: i32 = 43;

impl Unpack<66> for Iq2Xxs {
    type Class = Scaled<32, BITS_7, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 66>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.mul_f(s.f16s(rows, v, 0), s.splat_f(0.125)));
        let mut scales = [s.splat(0); 8];
        for pair in 0..4 {
            let q = s.quads(rows, v, 2 + 16 * pair);
            for half in 0..2 {
                let (g, indices, word) = (2 * pair + half, q[2 * half], q[2 * half + 1]);
                scales[g] = odd(s, s.shr(word, 28));
                lane_scale(s, g, scales[g], out);
                let mut x = [s.splat(0); 8];
                for k in 0..2 {
                    let index = if k == 0 { s.halves::<0, 1>(indices) } else { s.halves::<2, 3>(indices) };
                    let sixteen = s.lookup8(&IQ2_XXS, index);
                    for i in 0..4 {
                        x[4 * k + i] = sixteen[i / 2][i % 2];
                    }
                }
                signed(s, x, even_signs(s, four_sevens(s, word)), ZERO, 8 * g, out);
            }
        }
        lane_pairs(s, &scales, ZERO, out);
    }
}
