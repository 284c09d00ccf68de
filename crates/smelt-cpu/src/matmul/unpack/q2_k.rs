//! `Q2_K`: 16 bytes of a scale (low nibble) and a minimum (high), 64 bytes of crumbs, f16 scale and minimum.

use super::{Unpack, byte, crumbs, pair};
use crate::isa::Simd;
use crate::matmul::class::{BITS_4, Scaled};
use crate::matmul::tile::{PANEL, TileBlock};

pub(crate) struct Q2K;

impl Unpack<84> for Q2K {
    type Class = Scaled<16, BITS_4, true>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: &[&[u8; 84]; PANEL], v: usize, out: &mut TileBlock<'_>) {
        let floats = s.dwords(rows, v, 80);
        s.store_f(&mut out.d[0], v, s.f16_low(floats));
        s.store_f(&mut out.m[0], v, s.f16_high(floats));
        let nibble = s.splat(0x0F0F_0F0F);
        for (i, q) in s.quads(rows, v, 0).into_iter().enumerate() {
            let (scales, mins) = (s.and(q, nibble), s.and(s.shr(q, 4), nibble));
            for j in 0..4 {
                let scale = byte(s, scales, j as u32);
                s.store(&mut out.scales[4 * i + j], v, pair(s, scale, scale));
            }
            for j in 0..2 {
                let (low, high) = (byte(s, mins, 2 * j as u32), byte(s, mins, 2 * j as u32 + 1));
                s.store(&mut out.pairs[2 * i + j], v, pair(s, low, high));
            }
        }
        crumbs(s, rows, v, 16, |line, q| s.store(&mut out.codes[line], v, q));
    }
}
