//! `MXFP4`: an exponent byte, 16 bytes of nibbles (low: values 0..16, high: 16..32) that are E2M1 floats.

use super::{Sink, Unpack, look_up, nibbles, offset_table};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Floats};
use smelt_quant::codebooks::E2M1_DOUBLED;

pub(crate) struct Mxfp4;

/// Twice the E2M1 values, offset by 12.
pub(super) static LEVELS: [u8; 16] = offset_table(&E2M1_DOUBLED, 12);

impl Unpack<17> for Mxfp4 {
    type Class = Floats<32, BITS_5, 12, false>;
    const BLOCK: usize = 32;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 17>, v: usize, out: &mut impl Sink<S>) {
        let e = s.and(s.dwords(rows, v, 0), s.splat(0xFF));
        // The bits of 2^(e − 128): (e − 1) << 23, or where that is subnormal (e < 2) (e + 1) << 21, which is less
        // everywhere else.
        let normal = s.shl(s.add(e, s.splat(-1)), 23);
        let subnormal = s.shl(s.add(e, s.splat(1)), 21);
        out.d(s, 0, s.with_bits(s.max(normal, subnormal)));
        let q = nibbles(s, s.quads(rows, v, 1));
        out.codes(s, 0, look_up(s, &LEVELS, q));
    }
}
