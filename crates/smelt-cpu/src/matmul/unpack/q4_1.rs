//! `Q4_1`: f16 scale, f16 minimum, 16 bytes of nibbles (low: values 0..16, high: 16..32).

use super::{Sink, Unpack, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Floats};

pub(crate) struct Q4_1;

impl Unpack<20> for Q4_1 {
    type Class = Floats<32, BITS_4, 0, true>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 20>, v: usize, out: &mut impl Sink<S>) {
        let header = s.dwords(rows, v, 0);
        out.d(s, 0, s.f16_low(header));
        out.m(s, 0, s.f16_high(header));
        let q = nibbles(s, s.quads(rows, v, 4));
        out.codes(s, 0, q);
    }
}
