//! `TQ1_0`: trits, five to a byte (the last four bytes hold four each), f16 scale; zero at 1.
//!
//! A byte is a fraction of 256 in base three: three times it is a trit and the fraction that is left.

use super::{Unpack, unit_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};
use crate::matmul::tile::TileBlock;

pub(crate) struct Tq1_0;

impl Unpack<54> for Tq1_0 {
    type Class = Scaled<32, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 54>, v: usize, out: &mut TileBlock<'_>) {
        s.store_f(&mut out.d[0], v, s.f16s(rows, v, 52));
        unit_scales(s, 1, v, out);
        // Trit n of a run of bytes follows trit n − 1 of all of them: 32 bytes, 16 bytes, 4 bytes.
        let (first, second, third) = (s.quads(rows, v, 0), s.quads(rows, v, 16), s.quads(rows, v, 32));
        for j in 0..4 {
            let mut runs = [Trits::new(s, first[j]), Trits::new(s, second[j]), Trits::new(s, third[j])];
            for n in 0..5 {
                s.store(&mut out.codes[8 * n + j], v, runs[0].next(s));
                s.store(&mut out.codes[8 * n + 4 + j], v, runs[1].next(s));
                s.store(&mut out.codes[40 + 4 * n + j], v, runs[2].next(s));
            }
        }
        let mut last = Trits::new(s, s.dwords(rows, v, 48));
        for n in 0..4 {
            s.store(&mut out.codes[60 + n], v, last.next(s));
        }
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
