//! `NVFP4`: four UE4M3 scales, then for each group of 16 eight bytes of nibbles (low: values 0..8, high: 8..16) that
//! are E2M1 floats.

use super::mxfp4::LEVELS;
use super::{Sink, Unpack, byte, look_up, nibbles};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Floats};

pub(crate) struct Nvfp4;

/// 2¹¹⁹: a UE4M3's seven bits in a float's exponent and upper mantissa are 2⁻¹¹⁹ of half its value, also if subnormal.
const HALF_SCALE: f32 = f32::from_bits((119 + 127) << 23);

impl Unpack<36> for Nvfp4 {
    type Class = Floats<16, BITS_5, 12, false>;
    const BLOCK: usize = 64;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 36>, v: usize, out: &mut impl Sink<S>) {
        let scales = s.dwords(rows, v, 0);
        let seven = s.splat(0x7F7F_7F7F);
        // 0x7f means zero; the same with the ignored top bit set is a number.
        let nothing = s.eq_bytes(scales, seven);
        let scales = s.and(s.and(scales, seven), s.xor(nothing, s.splat(-1)));
        for g in 0..4 {
            let bits = s.shl(byte(s, scales, g as u32), 20);
            out.d(s, g, s.mul_f(s.with_bits(bits), s.splat_f(HALF_SCALE)));
        }
        for half in 0..2 {
            let quads = s.quads(rows, v, 4 + 16 * half);
            let q = look_up(s, &LEVELS, nibbles(s, quads));
            out.codes(s, 8 * half, [q[0], q[1], q[4], q[5]]);
            out.codes(s, 8 * half + 4, [q[2], q[3], q[6], q[7]]);
        }
    }
}
