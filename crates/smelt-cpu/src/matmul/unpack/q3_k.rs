//! `Q3_K`: 32 bytes of third bits, 64 bytes of crumbs, 16 packed 6-bit scales (zero at 32), f16 scale; zero at 4.

use super::{Sink, Unpack, crumbs, move_bit, signed_scales};
use crate::isa::{Rows, Simd};
use crate::matmul::class::{BITS_4, Scaled};

pub(crate) struct Q3K;

impl Unpack<110> for Q3K {
    type Class = Scaled<16, BITS_4, false>;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: Rows<'_, 110>, v: usize, out: &mut impl Sink<S>) {
        out.d(s, 0, s.f16s(rows, v, 108));
        signed_scales(s, &scales(s, rows, v), 4, out);
        let (first, second) = (s.quads(rows, v, 0), s.quads(rows, v, 16));
        sixteen::<S, 0>(s, s.quads(rows, v, 32), first, 0, out);
        sixteen::<S, 0>(s, s.quads(rows, v, 48), second, 4, out);
        sixteen::<S, 4>(s, s.quads(rows, v, 64), first, 32, out);
        sixteen::<S, 4>(s, s.quads(rows, v, 80), second, 36, out);
    }
}

/// Sixteen bytes of crumbs with their bits of the mask, of which bit `FIRST + c` belongs to crumb `c`. It is a constant
/// because shifts by variables cost three times as much.
#[inline(always)]
fn sixteen<S: Simd, const FIRST: u32>(
    s: S,
    quads: [S::I; 4],
    mask: [S::I; 4],
    line: usize,
    out: &mut impl Sink<S>,
) {
    let third = s.splat(0x0404_0404);
    let q = crumbs(s, quads);
    for c in 0..4 {
        let mut codes = quads;
        for j in 0..4 {
            let bit = s.and(move_bit(s, mask[j], FIRST + c as u32, 2), third);
            codes[j] = s.or(q[4 * c + j], bit);
        }
        out.codes(s, line + 8 * c, codes);
    }
}

/// The scales as signed bytes, four groups a vector: low nibbles of groups 0..8 and 8..16 share eight bytes, and bits
/// 4 and 5 of groups `i`, `i + 4`, `i + 8` and `i + 12` share a byte.
#[inline(always)]
fn scales<S: Simd>(s: S, rows: Rows<'_, 110>, v: usize) -> [S::I; 4] {
    let (low, high) = (s.dword_pairs(rows, v, 96), s.dwords(rows, v, 104));
    let (nibble, crumb) = (s.splat(0x0F0F_0F0F), s.splat(0x0303_0303));
    let (sign, extension) = (s.splat(0x2020_2020), [1, 2]);
    let mut out = [s.splat(0); 4];
    for i in 0..4 {
        let low = s.and(s.shr(low[i % 2], 4 * (i as u32 / 2)), nibble);
        let high = s.shl(s.and(s.shr(high, 2 * i as u32), crumb), 4);
        // Minus 32: the sixth bit flips, and extends as the sign.
        let x = s.xor(s.or(low, high), sign);
        let negative = s.and(x, sign);
        out[i] = s.or(x, s.or(s.shl(negative, extension[0]), s.shl(negative, extension[1])));
    }
    out
}
