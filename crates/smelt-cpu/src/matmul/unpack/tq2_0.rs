//! `TQ2_0`: 64 bytes of crumbs, f16 scale; zero at 1.

use super::{Unpack, crumbs, unit_scales};
use crate::isa::Simd;
use crate::matmul::class::{BITS_4, Scaled};
use crate::matmul::tile::{PANEL, TileBlock};

pub(crate) struct Tq2_0;

impl Unpack<66> for Tq2_0 {
    type Class = Scaled<32, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: &[&[u8; 66]; PANEL], v: usize, out: &mut TileBlock<'_>) {
        s.store_f(&mut out.d[0], v, s.f16s(rows, v, 64));
        unit_scales(s, 1, v, out);
        crumbs(s, rows, v, 0, |line, q| s.store(&mut out.codes[line], v, q));
    }
}
