//! `NVFP4`: four UE4M3 scales, then for each group of 16 eight bytes of nibbles (low: values 0..8, high: 8..16) that
//! are E2M1 floats.

use super::mxfp4::LEVELS;
use super::{Unpack, byte};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_5, Floats};
use crate::matmul::tile::TileBlock;

pub(crate) struct Nvfp4;

/// 2¹¹⁹: a UE4M3's seven bits in a float's exponent and upper mantissa are 2⁻¹¹⁹ of half its value, also if subnormal.
const HALF_SCALE: f32 = f32::from_bits((119 + 127) << 23);

impl Unpack<36> for Nvfp4 {
    type Class = Floats<16, BITS_5, 12, false>;
    const BLOCK: usize = 64;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 36>, v: usize, out: &mut TileBlock<'_>) {
        let scales = s.dwords(rows, v, 0);
        let seven = s.splat(0x7F7F_7F7F);
        // 0x7f means zero; the same with the ignored top bit set is a number.
        let nothing = s.eq_bytes(scales, seven);
        let scales = s.and(s.and(scales, seven), s.xor(nothing, s.splat(-1)));
        let nibble = s.splat(0x0F0F_0F0F);
        for g in 0..4 {
            let bits = s.shl(byte(s, scales, g as u32), 20);
            s.store_f(&mut out.d[g], v, s.mul_f(s.with_bits(bits), s.splat_f(HALF_SCALE)));
        }
        for half in 0..2 {
            let quads = s.quads(rows, v, 4 + 16 * half);
            for j in 0..4 {
                let q = quads[j];
                let line = 8 * half + 4 * (j / 2) + j % 2;
                s.store(&mut out.codes[line], v, s.lookup(&LEVELS, s.and(q, nibble)));
                s.store(&mut out.codes[line + 2], v, s.lookup(&LEVELS, s.and(s.shr(q, 4), nibble)));
            }
        }
    }
}
