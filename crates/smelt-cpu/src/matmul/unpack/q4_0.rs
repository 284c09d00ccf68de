//! `Q4_0`: f16 scale, 16 bytes of nibbles (low: values 0..16, high: 16..32), zero at 8.

use super::{Sink, Unpack, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Floats};

pub(crate) struct Q4_0;

impl Unpack<18> for Q4_0 {
    type Class = Floats<32, BITS_4, 8, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 18>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 0));
        let q = nibbles(s, s.quads(rows, v, 2));
        out.codes(s, 0, q);
    }
}
