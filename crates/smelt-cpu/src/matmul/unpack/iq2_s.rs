//! `IQ2_S`: f16 scale, 32 low bytes of indices of eight magnitudes, 32 sign bytes, 32 crumbs of the indices' high bits,
//! 16 nibbles of scales.

use super::iq2_xxs::ZERO;
use super::{Sink, Unpack, bits_above, byte, lane_scales, odd_nibbles, pair, signed};
use crate::isa::{Codebook, Rows, Simd};
use crate::matmul::class::{BITS_7, Scaled};
use smelt_quant::codebooks;

pub(crate) struct Iq2S;

static IQ2_S: Codebook<8, 1024> = Codebook::new(codebooks::IQ2_S);

impl Unpack<82> for Iq2S {
    type Class = Scaled<16, BITS_7, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 82>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.mul_f(s.f16s(rows, v, 0), s.splat_f(0.125)));
        let last = s.quads(rows, v, 66);
        lane_scales(s, &odd_nibbles(s, [last[2], last[3]]), ZERO, out);
        let three = s.splat(0x0300_0300);
        for part in 0..2 {
            let low = s.quads(rows, v, 2 + 16 * part);
            let signs = s.quads(rows, v, 34 + 16 * part);
            for i in 0..4 {
                let high = byte(s, last[part], i as u32);
                let high = pair(s, high, high);
                let mut x = [s.splat(0); 8];
                for k in 0..2 {
                    let low = if k == 0 { s.halves::<0, 1>(low[i]) } else { s.halves::<2, 3>(low[i]) };
                    let above = s.and(bits_above(s, high, 4 * k as u32, 4 * k as u32 + 2), three);
                    let sixteen = s.lookup8(&IQ2_S, s.or(low, above));
                    for i in 0..4 {
                        x[4 * k + i] = sixteen[i / 2][i % 2];
                    }
                }
                signed(s, x, signs[i], ZERO, 8 * (4 * part + i), out);
            }
        }
    }
}
