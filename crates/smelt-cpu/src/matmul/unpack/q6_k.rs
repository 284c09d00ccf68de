//! `Q6_K`: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 scale; zero at 32.
//!
//! Each half of 128 values has 64 bytes `l` and 32 bytes `h`: value `32·q + i` takes a nibble of
//! `l[32·(q mod 2) + i]` (the high one for `q ≥ 2`) and bits `2·q..` of `h[i]`.

use super::{Sink, Unpack, signed_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_6, Scaled};

pub(crate) struct Q6K;

impl Unpack<210> for Q6K {
    type Class = Scaled<16, BITS_6, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 210>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 208));
        signed_scales(s, &s.quads(rows, v, 192), 32, out);
        for half in 0..2 {
            for i in 0..2 {
                let first = s.quads(rows, v, 64 * half + 16 * i);
                let second = s.quads(rows, v, 64 * half + 32 + 16 * i);
                let high = s.quads(rows, v, 128 + 32 * half + 16 * i);
                six_bits(s, first, second, high, 32 * half + 4 * i, out);
            }
        }
    }
}

/// Sixteen bytes of each row's two nibble planes and of the bit pairs: 64 codes, four lines from each of `line`, 8, 16 and
/// 24 lines on.
#[inline(always)]
fn six_bits<S: Simd>(
    s: S,
    first: [S::I; 4],
    second: [S::I; 4],
    high: [S::I; 4],
    line: usize,
    out: &mut impl Sink<S>,
) {
    let (nibble, pair) = (s.splat(0x0F0F_0F0F), s.splat(0x3030_3030));
    let mut codes = [first; 4];
    for j in 0..4 {
        codes[0][j] = s.or(s.and(first[j], nibble), s.and(s.shl(high[j], 4), pair));
        codes[1][j] = s.or(s.and(second[j], nibble), s.and(s.shl(high[j], 2), pair));
        codes[2][j] = s.or(s.and(s.shr(first[j], 4), nibble), s.and(high[j], pair));
        codes[3][j] = s.or(s.and(s.shr(second[j], 4), nibble), s.and(s.shr(high[j], 2), pair));
    }
    for i in 0..4 {
        out.codes(s, line + 8 * i, codes[i]);
    }
}
