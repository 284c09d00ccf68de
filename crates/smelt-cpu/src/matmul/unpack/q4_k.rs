//! `Q4_K`: f16 scale and minimum, 8 + 8 packed 6-bit scales and minima, 128 bytes of nibbles.
//!
//! Bytes 32·c.. of the nibbles hold group 2·c in their low halves and group 2·c + 1 in the high ones.

use super::{Sink, Unpack, four_scales, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Q4K;

impl Unpack<144> for Q4K {
    type Class = Scaled<32, BITS_4, true>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 144>, v: usize, out: &mut impl Sink<S>) {
        scales_and_minima(s, s.quads(rows, v, 0), out);
        for c in 0..4 {
            for half in 0..2 {
                let q = nibbles(s, s.quads(rows, v, 16 + 32 * c + 16 * half));
                out.codes(s, 16 * c + 4 * half, [q[0], q[1], q[2], q[3]]);
                out.codes(s, 16 * c + 4 * half + 8, [q[4], q[5], q[6], q[7]]);
            }
        }
    }
}

/// The first sixteen bytes of a `Q4_K` or `Q5_K` block: `d`, `dmin`, and twelve bytes that hold eight 6-bit scales and
/// eight 6-bit minima (the first four of each in the low bits of bytes 0..8, the rest split over bytes 8..12 and the
/// top bits).
#[inline(always)]
pub(super) fn scales_and_minima<S: Simd>(s: S, head: [S::I; 4], out: &mut impl Sink<S>) {
    out.d(s, 0, s.f16_low(head[0]));
    out.m(s, 0, s.f16_high(head[0]));
    let [_, low_scales, low_mins, high] = head;
    let (six, four, two) = (s.splat(0x3F3F_3F3F), s.splat(0x0F0F_0F0F), s.splat(0x3030_3030));
    let scales = [s.and(low_scales, six), s.or(s.and(high, four), s.and(s.shr(low_scales, 2), two))];
    let mins = [s.and(low_mins, six), s.or(s.and(s.shr(high, 4), four), s.and(s.shr(low_mins, 2), two))];
    for i in 0..2 {
        four_scales(s, scales[i], mins[i], i, out);
    }
}
