//! `Q8_K`: f32 scale, 256 signed bytes, and sums that are not read.

use super::{Sink, Unpack, unit_scales, wide};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_8, Scaled};

pub(crate) struct Q8K;

impl Unpack<292> for Q8K {
    type Class = Scaled<32, BITS_8, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 292>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.with_bits(s.dwords(rows, v, 0)));
        unit_scales(s, 128, out);
        for i in 0..16 {
            let q = s.quads(rows, v, 4 + 16 * i);
            out.codes(s, 4 * i, wide(s, q));
        }
    }
}
