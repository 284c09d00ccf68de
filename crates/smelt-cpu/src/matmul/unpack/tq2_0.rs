//! `TQ2_0`: 64 bytes of crumbs, f16 scale; zero at 1.

use super::{Unpack, crumb_line, crumbs, unit_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};
use crate::matmul::tile::TileBlock;

pub(crate) struct Tq2_0;

impl Unpack<66> for Tq2_0 {
    type Class = Scaled<32, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 66>, v: usize, out: &mut TileBlock<'_>) {
        s.store_f(&mut out.d[0], v, s.f16s(rows, v, 64));
        unit_scales(s, 1, v, out);
        for part in 0..4 {
            let q = crumbs(s, s.quads(rows, v, 16 * part));
            for i in 0..16 {
                s.store(&mut out.codes[crumb_line(part, i)], v, q[i]);
            }
        }
    }
}
