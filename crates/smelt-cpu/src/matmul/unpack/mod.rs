//! From the file's blocks to a tile: one small file a format.
//!
//! An unpacker works on sixteen rows at once with lanes = rows: it transposes the *packed* bytes
//! ([`Simd::quads`]), of which there are fewest, and takes them apart with shifts and masks. No later step has to
//! move data between lanes: dot products end lane by lane in the order of rows.

mod by_row;
mod iq1_m;
mod iq1_s;
mod iq2_s;
mod iq2_xs;
mod iq2_xxs;
mod iq3_s;
mod iq3_xxs;
mod iq4_nl;
mod iq4_xs;
mod mxfp4;
mod nvfp4;
mod q2_k;
mod q3_k;
mod q4_0;
mod q4_1;
mod q4_k;
mod q5_0;
mod q5_1;
mod q5_k;
mod q6_k;
mod q8_0;
mod q8_k;
mod tq1_0;
mod tq2_0;

pub(crate) use iq1_m::Iq1M;
pub(crate) use iq1_s::Iq1S;
pub(crate) use iq2_s::Iq2S;
pub(crate) use iq2_xs::Iq2Xs;
pub(crate) use iq2_xxs::Iq2Xxs;
pub(crate) use iq3_s::Iq3S;
pub(crate) use iq3_xxs::Iq3Xxs;
pub(crate) use iq4_nl::Iq4Nl;
pub(crate) use iq4_xs::Iq4Xs;
pub(crate) use mxfp4::Mxfp4;
pub(crate) use nvfp4::Nvfp4;
pub(crate) use q2_k::Q2K;
pub(crate) use q3_k::Q3K;
pub(crate) use q4_0::Q4_0;
pub(crate) use q4_1::Q4_1;
pub(crate) use q4_k::Q4K;
pub(crate) use q5_0::Q5_0;
pub(crate) use q5_1::Q5_1;
pub(crate) use q5_k::Q5K;
pub(crate) use q6_k::Q6K;
pub(crate) use q8_0::Q8_0;
pub(crate) use q8_k::Q8K;
pub(crate) use tq1_0::Tq1_0;
pub(crate) use tq2_0::Tq2_0;

use super::class::Class;
use super::tile::{PANEL, Panel, Tile, TileBlock};
use crate::isa::{Line, Op, Simd, prefetch};
use core::marker::PhantomData;
use core::ops::Range;

/// How a format's blocks of `B` bytes become a tile.
pub(crate) trait Unpack<const B: usize>: 'static {
    /// The micro-kernel that takes the tile.
    type Class: Class;
    /// Values of a block, a multiple of the class's.
    const BLOCK: usize;

    /// Unpacks rows `v * LANES..` of one block. `out` holds `BLOCK / Class::VALUES` tile blocks in a row.
    fn unpack<S: Simd>(s: S, rows: &[&[u8; B]; PANEL], v: usize, out: &mut TileBlock<'_>);
}

/// Unpacks a range of a panel's blocks to the tile's beginning, and prefetches the same share of the next panel.
pub(crate) struct UnpackBlocks<'a, U, const B: usize> {
    pub(crate) panel: &'a Panel<'a>,
    pub(crate) blocks: Range<usize>,
    pub(crate) tile: &'a mut Tile,
    pub(crate) format: PhantomData<U>,
}

impl<U: Unpack<B>, const B: usize> Op for UnpackBlocks<'_, U, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let per_block = U::BLOCK / U::Class::VALUES;
        let mut shape = U::Class::SHAPE;
        shape.codes *= per_block;
        shape.floats *= per_block;
        let first = self.blocks.start;
        for b in self.blocks {
            let rows = self.panel.blocks::<B>(b);
            for line in 0..(PANEL * B).div_ceil(64) {
                prefetch(self.panel.following(b * PANEL * B + line * 64));
            }
            let mut out = self.tile.block(shape, b - first);
            for v in 0..PANEL / S::LANES {
                U::unpack(s, &rows, v, &mut out);
            }
        }
    }
}

/// Sixteen bytes of each row as 32 nibbles: `put` gets lines 0..4 with the low ones and 4..8 with the high ones.
#[inline(always)]
fn nibbles<S: Simd>(s: S, quads: [S::I; 4], mut put: impl FnMut(usize, S::I)) {
    let mask = s.splat(0x0F0F_0F0F);
    for (j, q) in quads.into_iter().enumerate() {
        put(j, s.and(q, mask));
        put(4 + j, s.and(s.shr(q, 4), mask));
    }
}

/// Shifts lanes so that bit `from` of each byte becomes bit `to`; the other bits are the caller's to mask.
#[inline(always)]
fn move_bit<S: Simd>(s: S, x: S::I, from: u32, to: u32) -> S::I {
    if from < to { s.shl(x, to - from) } else { s.shr(x, from - to) }
}

/// Sixteen bytes of each row as 32 nibbles, and bit `i` of each row's `fifth` as bit 4 of nibble `i`.
#[inline(always)]
fn nibbles_with_fifth_bit<S: Simd>(s: S, quads: [S::I; 4], fifth: S::I, out: &mut [Line], v: usize) {
    let (nibble, sixteen) = (s.splat(0x0F0F_0F0F), s.splat(0x1010_1010));
    // In a byte copied to all four places, these pick bits 0 to 3, or 4 to 7.
    let (low_bits, high_bits) = (s.splat(0x0804_0201), s.splat(0x8040_2010_u32 as i32));
    let bytes = [
        s.spread_byte::<0>(fifth),
        s.spread_byte::<1>(fifth),
        s.spread_byte::<2>(fifth),
        s.spread_byte::<3>(fifth),
    ];
    for i in 0..8 {
        let q = quads[i % 4];
        let code = s.and(if i < 4 { q } else { s.shr(q, 4) }, nibble);
        let bits = if i % 2 == 0 { low_bits } else { high_bits };
        let set = s.eq_bytes(s.and(bytes[i / 2], bits), bits);
        s.store(&mut out[i], v, s.or(code, s.and(set, sixteen)));
    }
}

/// Byte `n` of each lane, zero-extended.
#[inline(always)]
fn byte<S: Simd>(s: S, x: S::I, n: u32) -> S::I {
    s.and(s.shr(x, 8 * n), s.splat(0xFF))
}

/// Byte `n` of each lane, sign-extended.
#[inline(always)]
fn signed_byte<S: Simd>(s: S, x: S::I, n: u32) -> S::I {
    s.sar(s.shl(x, 24 - 8 * n), 24)
}

/// Two lanes' low halves side by side.
#[inline(always)]
fn pair<S: Simd>(s: S, low: S::I, high: S::I) -> S::I {
    s.or(s.and(low, s.splat(0xFFFF)), s.shl(high, 16))
}

/// Signed scales of four groups a vector, and the corrections for codes of which `zero` means zero.
#[inline(always)]
fn signed_scales<S: Simd>(s: S, vectors: &[S::I], zero: i32, v: usize, out: &mut TileBlock<'_>) {
    let zero = s.splat(-zero);
    for (i, &x) in vectors.iter().enumerate() {
        for j in 0..2 {
            let low = signed_byte(s, x, 2 * j as u32);
            let high = signed_byte(s, x, 2 * j as u32 + 1);
            s.store(&mut out.scales[4 * i + 2 * j], v, pair(s, low, low));
            s.store(&mut out.scales[4 * i + 2 * j + 1], v, pair(s, high, high));
            s.store(&mut out.pairs[2 * i + j], v, pair(s, s.mul(low, zero), s.mul(high, zero)));
        }
    }
}

/// Scale one for every group, and the corrections for codes of which `zero` means zero.
#[inline(always)]
fn unit_scales<S: Simd>(s: S, zero: i32, v: usize, out: &mut TileBlock<'_>) {
    let (one, zero) = (s.splat(1), s.splat(-zero));
    for line in out.scales.iter_mut() {
        s.store(line, v, pair(s, one, one));
    }
    for line in out.pairs.iter_mut() {
        s.store(line, v, pair(s, zero, zero));
    }
}

/// 64 bytes of each row from `offset` as 256 crumbs: value `128·h + 32·c + l` in bits `2·c..` of byte `32·h + l`.
/// `put` gets the index of each line and its crumbs.
#[inline(always)]
fn crumbs<S: Simd, const B: usize>(
    s: S,
    rows: &[&[u8; B]; PANEL],
    v: usize,
    offset: usize,
    mut put: impl FnMut(usize, S::I),
) {
    let mask = s.splat(0x0303_0303);
    for part in 0..4 {
        let (h, i) = (part / 2, part % 2);
        for (j, q) in s.quads(rows, v, offset + 32 * h + 16 * i).into_iter().enumerate() {
            for c in 0..4 {
                put(32 * h + 8 * c + 4 * i + j, s.and(s.shr(q, 2 * c as u32), mask));
            }
        }
    }
}

/// A codebook of signed bytes, offset by `zero`.
const fn offset_table(table: &[i8; 16], zero: i32) -> [u8; 16] {
    let mut out = [0; 16];
    let mut i = 0;
    while i < 16 {
        out[i] = (table[i] as i32 + zero) as u8;
        i += 1;
    }
    out
}
