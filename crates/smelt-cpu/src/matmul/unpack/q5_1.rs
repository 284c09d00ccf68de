//! `Q5_1`: f16 scale, f16 minimum, 32 fifth bits, 16 bytes of nibbles (low: values 0..16, high: 16..32).

use super::{Sink, Unpack, nibbles_with_fifth_bit};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Floats};

pub(crate) struct Q5_1;

impl Unpack<24> for Q5_1 {
    type Class = Floats<32, BITS_5, 0, true>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 24>, v: usize, out: &mut impl Sink<S>) {
        let [header, fifth] = s.dword_pairs(rows, v, 0);
        out.d(s, 0, s.f16_low(header));
        out.m(s, 0, s.f16_high(header));
        nibbles_with_fifth_bit(s, s.quads(rows, v, 8), fifth, out);
    }
}
