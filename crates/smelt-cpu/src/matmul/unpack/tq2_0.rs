//! `TQ2_0`: 64 bytes of crumbs, f16 scale; zero at 1.

use super::{Sink, Unpack, add_crumbs, crumbs, unit_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Tq2_0;

impl Unpack<66> for Tq2_0 {
    type Class = Scaled<32, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 66>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 64));
        unit_scales(s, 1, out);
        for part in 0..4 {
            let q = crumbs(s, s.quads(rows, v, 16 * part));
            add_crumbs(s, part, q, out);
        }
    }
}
