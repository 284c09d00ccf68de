//! `Q8_0`: f16 scale, 32 signed bytes.

use super::{Dots, Sink, Unpack, wide};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_8, Floats};

pub(crate) struct Q8_0;

impl Unpack<34> for Q8_0 {
    type Class = Floats<32, BITS_8, 128, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 34>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 0));
        for half in 0..2 {
            let q = s.quads(rows, v, 2 + 16 * half);
            out.codes(s, 4 * half, wide(s, q));
        }
    }
}

impl Dots<34> for Q8_0 {
    #[inline(always)]
    fn dots<S: Simd>(s: S, rows: Rows<'_, 34>, acts: &[i8]) -> (S::F, S::I) {
        (s.f16s(rows, 0, 0), s.dots(rows, 2, acts))
    }
}
