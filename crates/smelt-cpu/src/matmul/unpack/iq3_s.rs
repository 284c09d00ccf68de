//! `IQ3_S`: f16 scale, 64 low bytes of indices of four magnitudes, their 64 high bits, 32 sign bytes, 8 nibbles of
//! scales.

use super::{Sink, Unpack, bits_above, byte, lane_scales, odd, pair, signed};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_5, Scaled};
use smelt_quant::codebooks;

pub(crate) struct Iq3S;

static IQ3_S: Codebook<4, 512> = Codebook::new(codebooks::IQ3_S);

/// The code that means zero: the largest magnitude.
const ZERO: i32 = 15;

impl Unpack<110> for Iq3S {
    type Class = Scaled<32, BITS_5, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 110>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 0));
        let nibbles = s.dwords(rows, v, 106);
        let mut scales = [s.splat(0); 8];
        for g in 0..8 {
            scales[g] = odd(s, s.and(s.shr(nibbles, 4 * g as u32), s.splat(15)));
        }
        lane_scales(s, &scales, ZERO, out);
        let high = s.dword_pairs(rows, v, 66);
        let ninth = s.splat(0x0100_0100);
        for part in 0..2 {
            let signs = s.quads(rows, v, 74 + 16 * part);
            for quarter in 0..2 {
                let low = s.quads(rows, v, 2 + 32 * part + 16 * quarter);
                for half in 0..2 {
                    let i = 2 * quarter + half;
                    let high = byte(s, high[part], i as u32);
                    let high = pair(s, high, high);
                    let mut x = [s.splat(0); 8];
                    for j in 0..4 {
                        let low = low[2 * half + j / 2];
                        let low = if j % 2 == 0 { s.halves::<0, 1>(low) } else { s.halves::<2, 3>(low) };
                        let above = s.and(bits_above(s, high, 2 * j as u32, 2 * j as u32 + 1), ninth);
                        let eight = s.lookup4(&IQ3_S, s.or(low, above));
                        (x[2 * j], x[2 * j + 1]) = (eight[0], eight[1]);
                    }
                    signed(s, x, signs[i], ZERO, 8 * (4 * part + i), out);
                }
            }
        }
    }
}
