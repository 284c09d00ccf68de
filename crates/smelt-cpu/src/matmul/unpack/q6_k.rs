//! `Q6_K`: 128 bytes of low nibbles, 64 bytes of high bit pairs, 16 signed scales, f16 scale; zero at 32.
//!
//! Each half of 128 values has 64 bytes `l` and 32 bytes `h`: value `32·q + i` takes a nibble of
//! `l[32·(q mod 2) + i]` (the high one for `q ≥ 2`) and bits `2·q..` of `h[i]`.

use super::{Unpack, signed_scales};
use crate::isa::{Line, Rows, Simd};
use crate::matmul::class::{BITS_6, Scaled};
use crate::matmul::tile::TileBlock;

pub(crate) struct Q6K;

impl Unpack<210> for Q6K {
    type Class = Scaled<16, BITS_6, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 210>, v: usize, out: &mut TileBlock<'_>) {
        s.store_f(&mut out.d[0], v, s.f16s(rows, v, 208));
        signed_scales(s, &s.quads(rows, v, 192), 32, v, out);
        for half in 0..2 {
            for i in 0..2 {
                let first = s.quads(rows, v, 64 * half + 16 * i);
                let second = s.quads(rows, v, 64 * half + 32 + 16 * i);
                let high = s.quads(rows, v, 128 + 32 * half + 16 * i);
                let codes = &mut out.codes[32 * half + 4 * i..];
                for j in 0..4 {
                    six_bits(s, first[j], second[j], high[j], &mut codes[j..], v);
                }
            }
        }
    }
}

/// Four bytes of each row's two nibble planes and of the bit pairs: sixteen codes, to lines 0, 8, 16 and 24.
#[inline(always)]
fn six_bits<S: Simd>(s: S, first: S::I, second: S::I, high: S::I, out: &mut [Line], v: usize) {
    let (nibble, pair) = (s.splat(0x0F0F_0F0F), s.splat(0x3030_3030));
    s.store(&mut out[0], v, s.or(s.and(first, nibble), s.and(s.shl(high, 4), pair)));
    s.store(&mut out[8], v, s.or(s.and(second, nibble), s.and(s.shl(high, 2), pair)));
    s.store(&mut out[16], v, s.or(s.and(s.shr(first, 4), nibble), s.and(high, pair)));
    s.store(&mut out[24], v, s.or(s.and(s.shr(second, 4), nibble), s.and(s.shr(high, 2), pair)));
}
