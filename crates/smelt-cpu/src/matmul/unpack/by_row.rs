//! Formats that are decoded row by row with table look-ups, and transposed after that.
//!
//! Loops are indexed: the iterators' and arrays' adapters are not always inlined into code for another instruction set.

use super::{Unpack, signed_scales};
use crate::isa::{Line, Simd};
use crate::matmul::class::Class;
use crate::matmul::tile::{PANEL, TileBlock};
use half::f16;

/// One row of one super-block.
pub(crate) struct RowBlock {
    /// The float scale.
    pub(super) d: f32,
    /// A signed scale a group; the rest is unused.
    pub(super) scales: [i8; 16],
    /// Unsigned codes, offset by the format's zero.
    pub(super) codes: [u8; 256],
}

/// A format of super-blocks of `B` bytes that is decoded row by row.
pub(crate) trait ByRow<const B: usize>: 'static {
    /// The micro-kernel's constants.
    type Class: Class;
    /// Unsigned code that means zero.
    const ZERO: i32;
    /// Decodes one block.
    fn decode(block: &[u8; B]) -> RowBlock;
}

impl<F: ByRow<B>, const B: usize> Unpack<B> for F {
    type Class = F::Class;
    const BLOCK: usize = 256;

    #[inline(always)]
    fn unpack<S: Simd>(s: S, rows: &[&[u8; B]; PANEL], v: usize, out: &mut TileBlock<'_>) {
        let (mut codes, mut scales, mut d) = ([[0u8; 256]; PANEL], [[0u8; 16]; PANEL], Line::ZERO);
        for r in v * S::LANES..(v + 1) * S::LANES {
            let row = F::decode(rows[r]);
            codes[r] = row.codes;
            for i in 0..16 {
                scales[r][i] = row.scales[i] as u8;
            }
            d.0[r] = row.d.to_bits();
        }
        s.store(&mut out.d[0], v, s.load(&d, v));
        let vectors = s.quads(&scales.each_ref(), v, 0);
        signed_scales(s, &vectors[..out.scales.len() / 4], F::ZERO, v, out);
        let codes = codes.each_ref();
        for i in 0..16 {
            for (j, q) in s.quads(&codes, v, 16 * i).into_iter().enumerate() {
                s.store(&mut out.codes[4 * i + j], v, q);
            }
        }
    }
}

/// The IEEE half at byte `offset`.
pub(super) fn half_at(block: &[u8], offset: usize) -> f32 {
    f16::from_le_bytes([block[offset], block[offset + 1]]).to_f32()
}

/// The little-endian 16 bits at byte `offset`.
pub(super) fn u16_at(block: &[u8], offset: usize) -> u16 {
    u16::from_le_bytes([block[offset], block[offset + 1]])
}

/// The little-endian 32 bits at byte `offset`.
pub(super) fn u32_at(block: &[u8], offset: usize) -> u32 {
    u32::from_le_bytes([block[offset], block[offset + 1], block[offset + 2], block[offset + 3]])
}

/// `0xFF` in byte `i` for bit `i`.
static MASKS: [u64; 256] = {
    let mut out = [0; 256];
    let mut bits = 0;
    while bits < 256 {
        let mut i = 0;
        while i < 8 {
            if bits >> i & 1 == 1 {
                out[bits] |= 0xFF << (8 * i);
            }
            i += 1;
        }
        bits += 1;
    }
    out
};

/// Eight magnitudes with signs (bit set = negative), offset by `zero`, which is no less than any of them.
#[inline(always)]
pub(super) fn signed(magnitudes: [i8; 8], signs: u8, zero: u8) -> [u8; 8] {
    // No byte carries or borrows: 0 ≤ zero − magnitude and zero + magnitude ≤ 255.
    let mut x = [0; 8];
    for i in 0..8 {
        x[i] = magnitudes[i] as u8;
    }
    let x = u64::from_le_bytes(x);
    let zeros = u64::from(zero) * 0x0101_0101_0101_0101;
    let mask = MASKS[usize::from(signs)];
    ((zeros + x) & !mask | (zeros - x) & mask).to_le_bytes()
}

/// Two quadruples of magnitudes as eight.
#[inline(always)]
pub(super) fn eight([a, b, c, d]: [i8; 4], [e, f, g, h]: [i8; 4]) -> [i8; 8] {
    [a, b, c, d, e, f, g, h]
}

/// Eight trits, shifted up or down by an eighth, in eighths, offset by 9: `8 · trit ± 1 + 9`.
#[inline(always)]
pub(super) fn shifted(trits: [i8; 8], down: bool) -> [u8; 8] {
    let up = if down { 0 } else { 2 };
    let mut codes = [0; 8];
    for i in 0..8 {
        codes[i] = (((trits[i] + 1) << 3) + up) as u8;
    }
    codes
}
