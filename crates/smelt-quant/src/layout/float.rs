//! Formats without blocks: every value stands alone and the activations stay `f32`.

use super::{blocks, blocks_mut};
use crate::{Row, dot_f32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// One stored value.
pub(crate) trait Float: Copy + FromBytes + IntoBytes + KnownLayout + Immutable + Unaligned {
    fn decode(self) -> f32;
    fn encode(value: f32) -> Self;
}

pub(crate) fn dequantize<T: Float>(bytes: &[u8], out: &mut [f32]) {
    for (o, v) in out.iter_mut().zip(blocks::<T>(bytes)) {
        *o = v.decode();
    }
}

pub(crate) fn quantize<T: Float>(values: &[f32], out: &mut [u8]) {
    for (o, v) in blocks_mut::<T>(out).iter_mut().zip(values) {
        *o = T::encode(*v);
    }
}

pub(crate) fn vec_dot<T: Float>(bytes: &[u8], row: Row<'_>) -> f32 {
    let Row::F32(x) = row else { unreachable!("float weights take f32 activations") };
    dot_f32(blocks::<T>(bytes).iter().map(|v| v.decode()), x)
}
