//! `TQ1_0`: trits, five to a byte (the last four bytes hold four each), f16 scale; zero at 1.
//!
//! A byte is a fraction of 256 in base three: three times it is a trit and the fraction that is left.

use super::{Sink, Unpack, unit_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Tq1_0;

impl Unpack<54> for Tq1_0 {
    type Class = Scaled<32, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 54>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 52));
        unit_scales(s, 1, out);
        // Trit n of a run of bytes follows trit n − 1 of all of them: 32 bytes, 16 bytes, 4 bytes.
        let (first, second, third) = (s.quads(rows, v, 0), s.quads(rows, v, 16), s.quads(rows, v, 32));
        run(s, first, 0, 8, out);
        run(s, second, 4, 8, out);
        run(s, third, 40, 4, out);
        let mut last = Trits::new(s, s.dwords(rows, v, 48));
        out.codes(s, 60, [last.next(s), last.next(s), last.next(s), last.next(s)]);
    }
}

/// Sixteen bytes of each row as five times sixteen trits, to lines `step` apart.
#[inline(always)]
fn run<S: Simd>(s: S, bytes: [S::I; 4], line: usize, step: usize, out: &mut impl Sink<S>) {
    let mut trits =
        [Trits::new(s, bytes[0]), Trits::new(s, bytes[1]), Trits::new(s, bytes[2]), Trits::new(s, bytes[3])];
    for n in 0..5 {
        let mut codes = bytes;
        for j in 0..4 {
            codes[j] = trits[j].next(s);
        }
        out.codes(s, line + step * n, codes);
    }
}

/// Four fractions of each lane: bytes 0 and 2, and bytes 1 and 3, in halves of 16 bits.
struct Trits<S: Simd> {
    even: S::I,
    odd: S::I,
}

impl<S: Simd> Trits<S> {
    #[inline(always)]
    fn new(s: S, bytes: S::I) -> Self {
        let low = s.splat(0x00FF_00FF);
        Self { even: s.and(bytes, low), odd: s.and(s.shr(bytes, 8), low) }
    }

    /// The next trit of each byte.
    #[inline(always)]
    fn next(&mut self, s: S) -> S::I {
        let low = s.splat(0x00FF_00FF);
        let even = s.add(self.even, s.shl(self.even, 1));
        let odd = s.add(self.odd, s.shl(self.odd, 1));
        (self.even, self.odd) = (s.and(even, low), s.and(odd, low));
        // No trit exceeds 2, so the odd ones need no shift: they are in the upper bytes already.
        s.or(s.and(s.shr(even, 8), low), s.and(odd, s.splat(0xFF00_FF00_u32 as i32)))
    }
}
