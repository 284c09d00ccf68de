//! What formats share: reading bytes as blocks, and one dequantiser and one dot product per shape of block.
//!
//! A format's file says how its block unpacks into integer codes and scales; [`grouped`] (blocks of 16 or 32 values
//! per float scale), [`super_block`] (256 values with integer scales under one float scale) and [`float`] (no
//! blocks) turn that into the functions of a [`Format`](crate::Format).

pub(crate) mod bits;
pub(crate) mod float;
pub(crate) mod grid;
pub(crate) mod grouped;
pub(crate) mod super_block;

use half::f16;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// A little-endian half as it lies in a block.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(crate) struct F16([u8; 2]);

impl F16 {
    /// Rounds to nearest even.
    pub(crate) fn new(value: f32) -> Self {
        Self(f16::from_f32(value).to_le_bytes())
    }

    pub(crate) fn from_bits(bits: u16) -> Self {
        Self(bits.to_le_bytes())
    }

    pub(crate) fn get(self) -> f32 {
        f16::from_le_bytes(self.0).to_f32()
    }
}

/// The whole blocks in `bytes`.
pub(crate) fn blocks<B: FromBytes + KnownLayout + Immutable + Unaligned>(bytes: &[u8]) -> &[B] {
    let whole = bytes.len() - bytes.len() % size_of::<B>();
    <[B]>::ref_from_bytes(&bytes[..whole]).expect("an unaligned type fits any whole number of its sizes")
}

/// The whole blocks in `bytes`, to write.
pub(crate) fn blocks_mut<B: FromBytes + IntoBytes + KnownLayout + Unaligned>(bytes: &mut [u8]) -> &mut [B] {
    let whole = bytes.len() - bytes.len() % size_of::<B>();
    <[B]>::mut_from_bytes(&mut bytes[..whole]).expect("an unaligned type fits any whole number of its sizes")
}

/// Encodes whole blocks of `N` values one by one.
pub(crate) fn quantize_blocks<B, const N: usize>(
    values: &[f32],
    out: &mut [u8],
    encode: impl Fn(&[f32; N]) -> B,
) where
    B: FromBytes + IntoBytes + KnownLayout + Unaligned,
{
    for (block, values) in blocks_mut::<B>(out).iter_mut().zip(values.as_chunks::<N>().0) {
        *block = encode(values);
    }
}

/// `Σ a·b`, exact.
pub(crate) fn dot<const N: usize>(a: &[i8; N], b: &[i8; N]) -> i32 {
    a.iter().zip(b).map(|(&a, &b)| i32::from(a) * i32::from(b)).sum()
}
