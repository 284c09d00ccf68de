//! `IQ4_NL`: f16 scale, 16 bytes of nibbles (low: values 0..16, high: 16..32) that index uneven signed levels.

use super::{Sink, Unpack, look_up, nibbles, offset_table};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_8, Floats};
use smelt_quant::codebooks::IQ4;

pub(crate) struct Iq4Nl;

static SIGNED: [u8; 16] = offset_table(&IQ4, 0);
static OFFSET: [u8; 16] = offset_table(&IQ4, 128);

/// The levels as codes of eight bits.
#[inline(always)]
pub(super) fn levels<S: Simd>() -> &'static [u8; 16] {
    if S::SIGNED_WIDE { &SIGNED } else { &OFFSET }
}

impl Unpack<18> for Iq4Nl {
    type Class = Floats<32, BITS_8, 128, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 18>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 0));
        out.codes(s, 0, look_up(s, levels::<S>(), nibbles(s, s.quads(rows, v, 2))));
    }
}
