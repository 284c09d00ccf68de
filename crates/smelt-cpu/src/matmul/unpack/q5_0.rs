//! `Q5_0`: f16 scale, 32 fifth bits, 16 bytes of nibbles (low: values 0..16, high: 16..32), zero at 16.

use super::{Sink, Unpack, nibbles_with_fifth_bit};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Floats};

pub(crate) struct Q5_0;

impl Unpack<22> for Q5_0 {
    type Class = Floats<32, BITS_5, 16, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 22>, v: usize, out: &mut impl Sink<S>) {
        let head = s.dword_pairs(rows, v, 0);
        out.d(s, 0, s.f16_low(head[0]));
        let fifth = s.or(s.shr(head[0], 16), s.shl(head[1], 16));
        nibbles_with_fifth_bit(s, s.quads(rows, v, 6), fifth, out);
    }
}
