//! `Q2_K`: 16 bytes of a scale (low nibble) and a minimum (high), 64 bytes of crumbs, f16 scale and minimum.

use super::{Sink, Unpack, add_crumbs, crumbs, four_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Q2K;

impl Unpack<84> for Q2K {
    type Class = Scaled<16, BITS_4, true>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 84>, v: usize, out: &mut impl Sink<S>) {
        let floats = s.dwords(rows, v, 80);
        out.d(s, 0, s.f16_low(floats));
        out.m(s, 0, s.f16_high(floats));
        let nibble = s.splat(0x0F0F_0F0F);
        let packed = s.quads(rows, v, 0);
        for i in 0..4 {
            let (scales, mins) = (s.and(packed[i], nibble), s.and(s.shr(packed[i], 4), nibble));
            four_scales(s, scales, mins, i, out);
        }
        for part in 0..4 {
            let q = crumbs(s, s.quads(rows, v, 16 + 16 * part));
            add_crumbs(s, part, q, out);
        }
    }
}
