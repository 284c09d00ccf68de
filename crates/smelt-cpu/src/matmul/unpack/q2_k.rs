//! `Q2_K`: 16 bytes of a scale (low nibble) and a minimum (high), 64 bytes of crumbs, f16 scale and minimum.

use super::{Unpack, crumb_line, crumbs, four_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};
use crate::matmul::tile::TileBlock;

pub(crate) struct Q2K;

impl Unpack<84> for Q2K {
    type Class = Scaled<16, BITS_4, true>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 84>, v: usize, out: &mut TileBlock<'_>) {
        let floats = s.dwords(rows, v, 80);
        s.store_f(&mut out.d[0], v, s.f16_low(floats));
        s.store_f(&mut out.m[0], v, s.f16_high(floats));
        let nibble = s.splat(0x0F0F_0F0F);
        let packed = s.quads(rows, v, 0);
        for i in 0..4 {
            let (scales, mins) = (s.and(packed[i], nibble), s.and(s.shr(packed[i], 4), nibble));
            four_scales(s, scales, mins, i, v, out);
        }
        for part in 0..4 {
            let q = crumbs(s, s.quads(rows, v, 16 + 16 * part));
            for i in 0..16 {
                s.store(&mut out.codes[crumb_line(part, i)], v, q[i]);
            }
        }
    }
}
