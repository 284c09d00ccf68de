//! `Q4_1`: f16 scale, f16 minimum, 16 bytes of nibbles (low: values 0..16, high: 16..32).

use super::{Unpack, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Floats};
use crate::matmul::tile::TileBlock;

pub(crate) struct Q4_1;

impl Unpack<20> for Q4_1 {
    type Class = Floats<32, BITS_4, 0, true>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 20>, v: usize, out: &mut TileBlock<'_>) {
        let header = s.dwords(rows, v, 0);
        s.store_f(&mut out.d[0], v, s.f16_low(header));
        s.store_f(&mut out.m[0], v, s.f16_high(header));
        let q = nibbles(s, s.quads(rows, v, 4));
        for line in 0..8 {
            s.store(&mut out.codes[line], v, q[line]);
        }
    }
}
