//! `IQ4_NL`: f16 scale, 16 bytes of nibbles (low: values 0..16, high: 16..32) that index uneven signed levels.

use super::{Unpack, nibbles, offset_table};
use crate::isa::{Line, Rows, Simd};
use crate::matmul::class::{BITS_8, Floats};
use crate::matmul::tile::TileBlock;
use smelt_quant::codebooks::IQ4;

pub(crate) struct Iq4Nl;

/// The levels, offset by 128.
static LEVELS: [u8; 16] = offset_table(&IQ4, 128);

impl Unpack<18> for Iq4Nl {
    type Class = Floats<32, BITS_8, 128, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 18>, v: usize, out: &mut TileBlock<'_>) {
        s.store_f(&mut out.d[0], v, s.f16s(rows, v, 0));
        levels(s, s.quads(rows, v, 2), out.codes, v);
    }
}

/// Sixteen bytes of each row as 32 levels.
#[inline(always)]
pub(super) fn levels<S: Simd>(s: S, quads: [S::I; 4], out: &mut [Line], v: usize) {
    let q = nibbles(s, quads);
    for line in 0..8 {
        s.store(&mut out[line], v, s.lookup(&LEVELS, q[line]));
    }
}
