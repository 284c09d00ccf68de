//! `IQ1_M`: 32 low bytes of indices of eight trits, 32 nibbles of a 3-bit high part and the direction of the shift, four
//! words of four 3-bit scales and a quarter of the f16 scale.

use super::iq1_s::{TRITS, ZERO};
use super::{Sink, Unpack, bits_above, byte, lane_scales, odd, pair};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Scaled};

pub(crate) struct Iq1M;

impl Unpack<56> for Iq1M {
    type Class = Scaled<16, BITS_5, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 56>, v: usize, out: &mut impl Sink<S>) {
        let words = s.dword_pairs(rows, v, 48);
        scale(s, words, out);
        let mut scales = [s.splat(0); 16];
        for g in 0..16 {
            let (word, j) = (g as u32 / 4, g as u32 % 4);
            scales[g] = odd(s, s.and(s.shr(words[g / 8], 16 * (word % 2) + 3 * j), s.splat(7)));
        }
        lane_scales(s, &scales, ZERO, out);
        let nibbles = s.quads(rows, v, 32);
        let (sevens, twos) = (s.splat(0x0700_0700), s.splat(0x0202_0202));
        let (eights, tops) = (s.splat(0x0808_0808), s.splat(0x8080_8080_u32 as i32));
        for half in 0..2 {
            let low = s.quads(rows, v, 16 * half);
            for two in 0..8 {
                let byte = byte(s, nibbles[2 * half + two / 4], two as u32 % 4);
                let above = s.and(bits_above(s, pair(s, byte, byte), 0, 4), sevens);
                let low = low[two / 2];
                let low = if two % 2 == 0 { s.halves::<0, 1>(low) } else { s.halves::<2, 3>(low) };
                let [a, b] = s.lookup8(&TRITS, s.or(low, above));
                // Each nibble's bit 3 clear: up, which adds two to every byte; the table's values are those.
                let flags = s.spread_byte::<0>(byte);
                let mut codes = [a[0], a[1], b[0], b[1]];
                for i in 0..4 {
                    codes[i] =
                        s.sub_where(s.add(codes[i], twos), twos, flags, if i < 2 { eights } else { tops });
                }
                out.codes(s, 32 * half + 4 * two, codes);
            }
        }
    }
}

/// The float scale, whose four quarters are the high bits of the words.
#[inline(always)]
fn scale<S: Simd>(s: S, words: [S::I; 2], out: &mut impl Sink<S>) {
    let part = [
        s.and(s.shr(words[0], 12), s.splat(0xF)),
        s.and(s.shr(words[0], 24), s.splat(0xF0)),
        s.and(s.shr(words[1], 4), s.splat(0xF00)),
        s.and(s.shr(words[1], 16), s.splat(0xF000)),
    ];
    let bits = s.or(s.or(part[0], part[1]), s.or(part[2], part[3]));
    out.d(s, 0, s.mul_f(s.f16_low(bits), s.splat_f(0.125)));
}
