//! How quantisers choose scales and codes: the searches of ggml's reference quantisers, which formats share.
//!
//! All take finite values; anything else gives some codes, never a panic.

mod affine;
mod codebook;
mod symmetric;

pub(crate) use affine::Affine;
pub(crate) use codebook::{nearest_e2m1, nearest_level, weighted_scale};
pub(crate) use symmetric::{descend, sweep};

/// Magnitudes below this count as zero.
pub(crate) const TINY: f32 = 1e-15;

/// The nearest integer, ties to even; saturates, and 0 for NaN.
pub(crate) fn nearest(x: f32) -> i32 {
    x.round_ties_even() as i32
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
    if x == 0.0 { 0.0 } else { 1.0 / x }
}
