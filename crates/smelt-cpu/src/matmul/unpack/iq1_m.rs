//! `IQ1_M`: 32 low bytes of indices of eight trits, 32 nibbles of a 3-bit high part and the direction of the shift, four
//! words of four 3-bit scales and a quarter of the f16 scale.

use super::iq1_s::{TRITS, ZERO};
use super::{Sink, Unpack, byte, lane_scales, odd};
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
        let (seven, eight, twos) = (s.splat(7), s.splat(8), s.splat(0x0202_0202));
        for half in 0..2 {
            let low = s.quads(rows, v, 16 * half);
            for pair in 0..8 {
                let (mut index, mut up) = ([seven; 2], [twos; 2]);
                for j in 0..2 {
                    let i = 2 * pair + j;
                    let nibble = s.shr(nibbles[2 * half + i / 8], 4 * (i as u32 % 8));
                    index[j] = s.or(byte(s, low[i / 4], i as u32 % 4), s.shl(s.and(nibble, seven), 8));
                    // Bit 3 clear: up, which adds two to every byte.
                    let clear = s.eq_bytes(s.and(nibble, eight), s.splat(0));
                    up[j] = s.spread_byte::<0>(s.and(clear, twos));
                }
                let codes = s.lookup8(&TRITS, index);
                let (a, b) = (codes[0], codes[1]);
                let codes = [s.add(a[0], up[0]), s.add(a[1], up[0]), s.add(b[0], up[1]), s.add(b[1], up[1])];
                out.codes(s, 32 * half + 4 * pair, codes);
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
