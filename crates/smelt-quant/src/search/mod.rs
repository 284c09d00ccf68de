//! How quantisers choose scales and codes: the searches of ggml's reference quantisers, which formats share.
//!
//! All take finite values; anything else gives some codes, never a panic.

mod affine;
mod codebook;
mod symmetric;

pub(crate) use affine::Affine;
pub(crate) use codebook::{IQ4_LEVELS, nearest_e2m1};
pub(crate) use symmetric::{descend, sweep};

/// Magnitudes below this count as zero.
pub(crate) const TINY: f32 = 1e-15;

/// The nearest integer, ties to even; ±2²¹ for anything beyond, and some integer for NaN.
///
/// Adding 1.5 · 2²³ leaves the integer in the low mantissa bits. `round_ties_even` would be a library call on a
/// processor without SSE 4.1, and the searches do little else.
pub(crate) fn nearest(x: f32) -> i32 {
    const LIMIT: f32 = 2_097_152.0;
    const SHIFT: f32 = 12_582_912.0;
    ((x.clamp(-LIMIT, LIMIT) + SHIFT).to_bits() & 0x7f_ffff) as i32 - 0x40_0000
}

/// The value of largest magnitude with its sign, 0 if there is none.
pub(crate) fn peak(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |peak: f32, &v| if v.abs() > peak.abs() { v } else { peak })
}

/// Largest magnitude.
pub(crate) fn amax(values: &[f32]) -> f32 {
    peak(values).abs()
}

/// `1 / x`, or 0 for 0.
pub(crate) fn inverse(x: f32) -> f32 {
    ratio(1.0, x)
}

/// `a / x`, or 0 for `x = 0`.
pub(crate) fn ratio(a: f32, x: f32) -> f32 {
    if x == 0.0 { 0.0 } else { a / x }
}
