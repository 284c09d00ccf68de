//! `IQ1_S`: f16 scale, 32 low bytes of indices of eight trits, then for each group of 32 a word of four 3-bit high parts,
//! a 3-bit scale and the direction of the shift.
//!
//! A value is a trit shifted up or down by an eighth; its code is the value in eighths, offset by [`ZERO`].

use super::{Sink, Unpack, bits_above, lane_pairs, lane_scale, odd, pair};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_5, Scaled};
use smelt_quant::codebooks::IQ1;

pub(crate) struct Iq1S;

/// The code that means zero.
pub(super) const ZERO: i32 = 9;

/// Trits shifted down: `8 · trit − 1 + ZERO`.
pub(super) static TRITS: Codebook<8, 2048> = {
    let mut out = IQ1;
    let mut i = 0;
    while i < 2048 * 8 {
        out[i / 8][i % 8] = 8 * out[i / 8][i % 8] - 1 + ZERO as i8;
        i += 1;
    }
    Codebook::new(out)
};

impl Unpack<50> for Iq1S {
    type Class = Scaled<32, BITS_5, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 50>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.mul_f(s.f16s(rows, v, 0), s.splat_f(0.125)));
        let words = s.quads(rows, v, 34);
        let (seven, sevens) = (s.splat(7), s.splat(0x0700_0700));
        let mut scales = [s.splat(0); 8];
        for half in 0..2 {
            let low = s.quads(rows, v, 2 + 16 * half);
            for i in 0..4 {
                let g = 4 * half + i;
                let word = s.shr(words[g / 2], 16 * (g as u32 % 2));
                scales[g] = odd(s, s.and(s.shr(word, 12), seven));
                lane_scale(s, g, scales[g], out);
                // The word's top bit clear: up, which adds two to every byte.
                let down = s.sar(s.shl(word, 16), 31);
                let up = s.and(s.xor(down, s.splat(-1)), s.splat(0x0202_0202));
                let twice = pair(s, word, word);
                for k in 0..2 {
                    // Bits 0 to 5 of the word are above the indices of bytes 0 and 1, bits 6 to 11 above the others.
                    let (low, above) = match k {
                        0 => (s.halves::<0, 1>(low[i]), bits_above(s, twice, 0, 3)),
                        _ => (s.halves::<2, 3>(low[i]), bits_above(s, s.shr(twice, 1), 5, 8)),
                    };
                    let codes = s.lookup8(&TRITS, s.or(low, s.and(above, sevens)));
                    let (a, b) = (codes[0], codes[1]);
                    let codes = [s.add(a[0], up), s.add(a[1], up), s.add(b[0], up), s.add(b[1], up)];
                    out.codes(s, 8 * g + 4 * k, codes);
                }
            }
        }
        lane_pairs(s, &scales, ZERO, out);
    }
}
