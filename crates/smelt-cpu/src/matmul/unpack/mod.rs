//! From the file's blocks to a tile: one small file a format.
//!
//! An unpacker works on sixteen rows at once with lanes = rows: it transposes the *packed* bytes
//! ([`Simd::quads`]), of which there are fewest, and takes them apart with shifts and masks. No later step has to
//! move data between lanes: dot products end lane by lane in the order of rows.

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

use super::Path;
use super::class::Class;
use super::sink::{Sink, Store};
use super::tile::{PANEL, Panel, Tile, TileShape};
use crate::isa::{Op, Rows, Simd};
use core::marker::PhantomData;
use core::ops::Range;

/// The way through tiles for the format `name`, if it has an unpacker: with the module above, the one line that makes a
/// format fast.
pub(super) fn path(name: &str) -> Option<Path> {
    Some(match name {
        "Q4_0" => Path::tile::<q4_0::Q4_0, 18>(),
        "Q4_1" => Path::tile::<q4_1::Q4_1, 20>(),
        "Q5_0" => Path::tile::<q5_0::Q5_0, 22>(),
        "Q5_1" => Path::tile::<q5_1::Q5_1, 24>(),
        "Q8_0" => Path::in_order::<q8_0::Q8_0, 34>(),
        "Q2_K" => Path::tile::<q2_k::Q2K, 84>(),
        "Q3_K" => Path::tile::<q3_k::Q3K, 110>(),
        "Q4_K" => Path::tile::<q4_k::Q4K, 144>(),
        "Q5_K" => Path::tile::<q5_k::Q5K, 176>(),
        "Q6_K" => Path::tile::<q6_k::Q6K, 210>(),
        "Q8_K" => Path::tile::<q8_k::Q8K, 292>(),
        "IQ1_S" => Path::tile::<iq1_s::Iq1S, 50>(),
        "IQ1_M" => Path::tile::<iq1_m::Iq1M, 56>(),
        "IQ2_XXS" => Path::tile::<iq2_xxs::Iq2Xxs, 66>(),
        "IQ2_XS" => Path::tile::<iq2_xs::Iq2Xs, 74>(),
        "IQ2_S" => Path::tile::<iq2_s::Iq2S, 82>(),
        "IQ3_XXS" => Path::tile::<iq3_xxs::Iq3Xxs, 98>(),
        "IQ3_S" => Path::tile::<iq3_s::Iq3S, 110>(),
        "IQ4_NL" => Path::tile::<iq4_nl::Iq4Nl, 18>(),
        "IQ4_XS" => Path::tile::<iq4_xs::Iq4Xs, 136>(),
        "TQ1_0" => Path::tile::<tq1_0::Tq1_0, 54>(),
        "TQ2_0" => Path::tile::<tq2_0::Tq2_0, 66>(),
        "MXFP4" => Path::tile::<mxfp4::Mxfp4, 17>(),
        "NVFP4" => Path::tile::<nvfp4::Nvfp4, 36>(),
        _ => return None,
    })
}

/// How a format's blocks of `B` bytes become a tile.
pub(crate) trait Unpack<const B: usize>: 'static {
    /// The micro-kernel that takes the tile.
    type Class: Class;
    /// Values of a block, a multiple of the class's.
    const BLOCK: usize;
    /// The lines of a block.
    const SHAPE: TileShape = {
        let mut shape = Self::Class::SHAPE;
        let per_block = Self::BLOCK / Self::Class::VALUES;
        shape.codes *= per_block;
        shape.floats *= per_block;
        shape
    };

    /// Unpacks rows `v * LANES..` of one block, which for `out` is `BLOCK / Class::VALUES` blocks in a row.
    fn unpack<S: Simd>(s: S, rows: Rows<'_, B>, v: usize, out: &mut impl Sink<S>);
}

/// A format of which one token reads the weights in their order ([`mod@super::in_order`]).
pub(crate) trait Dots<const B: usize>: Unpack<B> {
    /// Scales of `LANES` blocks of 32 values, and their dot products with as many activations each, as [`Simd::dots`] gives
    /// them.
    fn dots<S: Simd>(s: S, rows: Rows<'_, B>, acts: &[i8]) -> (S::F, S::I);
}

/// Unpacks a range of a panel's blocks to the tile's beginning.
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
        let first = self.blocks.start;
        for b in self.blocks {
            let rows = self.panel.blocks::<B>(0, PANEL, b);
            for v in 0..PANEL / S::LANES {
                U::unpack(s, rows, v, &mut Store { block: self.tile.block(U::SHAPE, b - first), v });
            }
        }
    }
}

/// Sixteen bytes of each row as 32 nibbles: four vectors of the low ones, then four of the high ones.
///
/// Like all of these it returns an array, and callers loop over indices: closures and iterators are not always inlined
/// into code for another instruction set, and one that is not costs a factor of ten.
#[inline(always)]
fn nibbles<S: Simd>(s: S, quads: [S::I; 4]) -> [S::I; 8] {
    let mask = s.splat(0x0F0F_0F0F);
    let mut out = [mask; 8];
    for j in 0..4 {
        out[j] = s.and(quads[j], mask);
        out[4 + j] = s.and(s.shr(quads[j], 4), mask);
    }
    out
}

/// Shifts lanes so that bit `from` of each byte becomes bit `to`; the other bits are the caller's to mask.
#[inline(always)]
fn move_bit<S: Simd>(s: S, x: S::I, from: u32, to: u32) -> S::I {
    if from < to { s.shl(x, to - from) } else { s.shr(x, from - to) }
}

/// Sixteen bytes of each row as 32 nibbles, and bit `i` of each row's `fifth` as bit 4 of nibble `i`.
#[inline(always)]
fn nibbles_with_fifth_bit<S: Simd>(s: S, quads: [S::I; 4], fifth: S::I, out: &mut impl Sink<S>) {
    let (nibble, minus_16) = (s.splat(0x0F0F_0F0F), s.splat(0xF0F0_F0F0_u32 as i32));
    // In a byte copied to all four places, these pick bits 0 to 3, or 4 to 7.
    let (low_bits, high_bits) = (s.splat(0x0804_0201), s.splat(0x8040_2010_u32 as i32));
    let bytes = [
        s.spread_byte::<0>(fifth),
        s.spread_byte::<1>(fifth),
        s.spread_byte::<2>(fifth),
        s.spread_byte::<3>(fifth),
    ];
    let mut codes = [nibble; 8];
    for i in 0..8 {
        let q = quads[i % 4];
        let code = s.and(if i < 4 { q } else { s.shr(q, 4) }, nibble);
        let bits = if i % 2 == 0 { low_bits } else { high_bits };
        codes[i] = s.sub_where(code, minus_16, bytes[i / 2], bits);
    }
    out.codes(s, 0, codes);
}

/// Byte `n` of each lane, zero-extended.
#[inline(always)]
fn byte<S: Simd>(s: S, x: S::I, n: u32) -> S::I {
    s.and(s.shr(x, 8 * n), s.splat(0xFF))
}

/// Two lanes' low halves side by side.
#[inline(always)]
fn pair<S: Simd>(s: S, low: S::I, high: S::I) -> S::I {
    s.or(s.and(low, s.splat(0xFFFF)), s.shl(high, 16))
}

/// Bits of each lane's low byte in both of its halves: those from bit `LOW` on move to bit 8 of the low half, and those from
/// bit `HIGH` on of the high half. The other bits are the caller's to mask.
#[inline(always)]
fn bits_above<S: Simd>(s: S, twice: S::I, low: u32, high: u32) -> S::I {
    s.mul_halves(twice, s.splat((1 << (8 - low)) | (1 << (24 - high))))
}

/// Signed scales of four groups a vector, and the corrections for codes of which `zero` means zero.
#[inline(always)]
fn signed_scales<S: Simd>(s: S, vectors: &[S::I; 4], zero: i32, out: &mut impl Sink<S>) {
    let zero = s.splat((-zero & 0xFFFF) * 0x1_0001);
    for i in 0..4 {
        let x = vectors[i];
        out.scale(s, 4 * i, s.signed_halves::<0, 0>(x));
        out.scale(s, 4 * i + 1, s.signed_halves::<1, 1>(x));
        out.scale(s, 4 * i + 2, s.signed_halves::<2, 2>(x));
        out.scale(s, 4 * i + 3, s.signed_halves::<3, 3>(x));
        out.pair(s, 2 * i, s.mul_halves(s.signed_halves::<0, 1>(x), zero));
        out.pair(s, 2 * i + 1, s.mul_halves(s.signed_halves::<2, 3>(x), zero));
    }
}

/// Unsigned scales and minima of four groups, a byte each.
#[inline(always)]
fn four_scales<S: Simd>(s: S, scales: S::I, minima: S::I, i: usize, out: &mut impl Sink<S>) {
    out.scale(s, 4 * i, s.halves::<0, 0>(scales));
    out.scale(s, 4 * i + 1, s.halves::<1, 1>(scales));
    out.scale(s, 4 * i + 2, s.halves::<2, 2>(scales));
    out.scale(s, 4 * i + 3, s.halves::<3, 3>(scales));
    out.pair(s, 2 * i, s.halves::<0, 1>(minima));
    out.pair(s, 2 * i + 1, s.halves::<2, 3>(minima));
}

/// The signed scale of group `g`, which has a lane to itself.
#[inline(always)]
fn lane_scale<S: Simd>(s: S, g: usize, scale: S::I, out: &mut impl Sink<S>) {
    out.scale(s, g, pair(s, scale, scale));
}

/// The corrections for such scales.
#[inline(always)]
fn lane_pairs<S: Simd, const N: usize>(s: S, scales: &[S::I; N], zero: i32, out: &mut impl Sink<S>) {
    let zero = s.splat(-zero);
    for p in 0..N / 2 {
        out.pair(s, p, pair(s, s.mul(scales[2 * p], zero), s.mul(scales[2 * p + 1], zero)));
    }
}

/// All scales of this kind, and the corrections.
#[inline(always)]
fn lane_scales<S: Simd, const N: usize>(s: S, scales: &[S::I; N], zero: i32, out: &mut impl Sink<S>) {
    for g in 0..N {
        lane_scale(s, g, scales[g], out);
    }
    lane_pairs(s, scales, zero, out);
}

/// Scale one for every group of 32, and the corrections for codes of which `zero` means zero.
#[inline(always)]
fn unit_scales<S: Simd>(s: S, zero: i32, out: &mut impl Sink<S>) {
    lane_scales(s, &[s.splat(1); 8], zero, out);
}

/// `2·x + 1`.
#[inline(always)]
fn odd<S: Simd>(s: S, x: S::I) -> S::I {
    s.add(s.add(x, x), s.splat(1))
}

/// Eight nibbles of each of two vectors, low ones first, as scales `2·n + 1`.
#[inline(always)]
fn odd_nibbles<S: Simd>(s: S, packed: [S::I; 2]) -> [S::I; 16] {
    let mut out = [s.splat(0); 16];
    for g in 0..16 {
        out[g] = odd(s, s.and(s.shr(packed[g / 8], 4 * (g as u32 % 8)), s.splat(15)));
    }
    out
}

/// The lowest four times seven bits of a lane, each in a byte.
#[inline(always)]
fn four_sevens<S: Simd>(s: S, word: S::I) -> S::I {
    let low = s.or(s.and(word, s.splat(0x7F)), s.and(s.shl(word, 1), s.splat(0x7F00)));
    let high = s.or(s.and(s.shl(word, 2), s.splat(0x7F_0000)), s.and(s.shl(word, 3), s.splat(0x7F00_0000)));
    s.or(low, high)
}

/// Seven signs a byte, to which the eighth is added that makes the number of set bits even.
#[inline(always)]
fn even_signs<S: Simd>(s: S, sevens: S::I) -> S::I {
    let folded = s.xor(sevens, s.and(s.shr(sevens, 4), s.splat(0x0F0F_0F0F)));
    let folded = s.xor(folded, s.and(s.shr(folded, 2), s.splat(0x0303_0303)));
    let folded = s.xor(folded, s.and(s.shr(folded, 1), s.splat(0x0101_0101)));
    s.or(sevens, s.shl(s.and(folded, s.splat(0x0101_0101)), 7))
}

/// 32 magnitudes, at most `zero`, with the signs of four bytes (a set bit means negative), as codes offset by `zero`.
#[inline(always)]
fn signed<S: Simd>(s: S, x: [S::I; 8], signs: S::I, zero: i32, line: usize, out: &mut impl Sink<S>) {
    // In a byte copied to all four places, these pick bits 0 to 3, or 4 to 7.
    let (low_bits, high_bits) = (s.splat(0x0804_0201), s.splat(0x8040_2010_u32 as i32));
    let zero = s.splat(zero * 0x0101_0101);
    let bytes = [
        s.spread_byte::<0>(signs),
        s.spread_byte::<1>(signs),
        s.spread_byte::<2>(signs),
        s.spread_byte::<3>(signs),
    ];
    let mut codes = x;
    for i in 0..8 {
        let bits = if i % 2 == 0 { low_bits } else { high_bits };
        // No byte carries: zero + x ≤ 255.
        codes[i] = s.sub_where(s.add(zero, x[i]), s.add(x[i], x[i]), bytes[i / 2], bits);
    }
    out.codes(s, line, codes);
}

/// Sixteen bytes of each row as 64 crumbs: vector `4·c + j` holds bits `2·c..` of the bytes of `quads[j]`.
#[inline(always)]
fn crumbs<S: Simd>(s: S, quads: [S::I; 4]) -> [S::I; 16] {
    let mask = s.splat(0x0303_0303);
    let mut out = [mask; 16];
    for i in 0..16 {
        out[i] = s.and(s.shr(quads[i % 4], 2 * (i as u32 / 4)), mask);
    }
    out
}

/// Hands over the [`crumbs`] of the `part`-th sixteen bytes, where value `128·h + 32·c + l` lies in bits `2·c..` of byte
/// `32·h + l`.
#[inline(always)]
fn add_crumbs<S: Simd>(s: S, part: usize, q: [S::I; 16], out: &mut impl Sink<S>) {
    for c in 0..4 {
        let line = 32 * (part / 2) + 8 * c + 4 * (part % 2);
        out.codes(s, line, [q[4 * c], q[4 * c + 1], q[4 * c + 2], q[4 * c + 3]]);
    }
}

/// Every byte (0..=15) replaced by the table's.
#[inline(always)]
fn look_up<S: Simd>(s: S, table: &[u8; 16], mut codes: [S::I; 8]) -> [S::I; 8] {
    for i in 0..8 {
        codes[i] = s.lookup(table, codes[i]);
    }
    codes
}

/// Signed bytes as codes of eight bits, which are offset by 128 unless products take them as they are.
#[inline(always)]
fn wide<S: Simd>(s: S, mut x: [S::I; 4]) -> [S::I; 4] {
    if !S::SIGNED_WIDE {
        for i in 0..4 {
            x[i] = s.xor(x[i], s.splat(0x8080_8080_u32 as i32));
        }
    }
    x
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
