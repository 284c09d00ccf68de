//! Inverse frequencies of rotary embeddings (Su et al. 2021, arXiv 2104.09864) and the ways to stretch them.

use crate::{Error, Keys, RopeSpec};
use smelt_backend::RopeStyle;

/// `theta^(−2i/n_rot)` for each of `n_rot / 2` pairs.
#[must_use]
pub fn inverse_frequencies(theta: f32, n_rot: usize) -> Vec<f32> {
    (0..n_rot / 2).map(|i| f64::from(theta).powf(-2.0 * i as f64 / n_rot as f64) as f32).collect()
}

/// YaRN's settings (Peng et al. 2023, arXiv 2309.00071).
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Yarn {
    /// How much longer than trained.
    pub factor: f32,
    /// Tokens trained on.
    pub original_context: usize,
    /// Pairs that turn more often than this over the original context keep their frequency.
    pub beta_fast: f32,
    /// Pairs that turn less often than this are slowed by `factor`.
    pub beta_slow: f32,
}

impl Yarn {
    /// Blends kept and slowed frequencies.
    #[must_use]
    pub fn apply(&self, theta: f32, inv_freq: &[f32]) -> Vec<f32> {
        let n_rot = 2.0 * inv_freq.len() as f32;
        let dim = |turns: f32| {
            n_rot * (self.original_context as f32 / (turns * std::f32::consts::TAU)).ln() / (2.0 * theta.ln())
        };
        let low = dim(self.beta_fast).floor().max(0.0);
        let high = dim(self.beta_slow).ceil().min(n_rot - 1.0);
        let blend = |(i, f): (usize, &f32)| {
            let slowed = ((i as f32 - low) / (high - low).max(0.001)).clamp(0.0, 1.0);
            f / self.factor * slowed + f * (1.0 - slowed)
        };
        inv_freq.iter().enumerate().map(blend).collect()
    }

    /// What sine and cosine are multiplied by.
    #[must_use]
    pub fn magnitude(&self) -> f32 {
        if self.factor > 1.0 { 0.1 * self.factor.ln() + 1.0 } else { 1.0 }
    }
}

/// The rotation that a family's `rope.*` keys and `rope_*` tensors describe, for heads of `head_dim` values and a
/// cache of `context` tokens (which decides between longrope's two tables).
///
/// # Errors
/// If a key makes no sense or a scaling type is unknown.
pub fn from_keys(
    keys: &Keys<'_>,
    style: RopeStyle,
    head_dim: usize,
    context: usize,
) -> Result<RopeSpec, Error> {
    let n_rot = keys.count("rope.dimension_count")?.unwrap_or(head_dim);
    if n_rot > head_dim || !n_rot.is_multiple_of(2) || n_rot == 0 {
        return Err(keys.error("rope.dimension_count", format!("is {n_rot} for heads of {head_dim}")));
    }
    let theta = positive(keys, "rope.freq_base", 10000.0)?;
    let mut inv_freq = inverse_frequencies(theta, n_rot);
    if let Some(factors) = keys.vector("rope_freqs.weight", inv_freq.len())? {
        divide(&mut inv_freq, &factors);
    }
    let original_context = keys.count("rope.scaling.original_context_length")?;
    let mut magnitude = keys.float("rope.scaling.attn_factor")?.unwrap_or(1.0);
    let which = if context > original_context.unwrap_or(usize::MAX) { "long" } else { "short" };
    if let Some(factors) = keys.vector(&format!("rope_factors_{which}.weight"), inv_freq.len())? {
        divide(&mut inv_freq, &factors);
    }
    let factor = positive(keys, "rope.scaling.factor", 1.0)?;
    match keys.text("rope.scaling.type")? {
        None | Some("none" | "longrope") => {}
        Some("linear") => inv_freq.iter_mut().for_each(|f| *f /= factor),
        Some("yarn") => {
            let original_context = match original_context {
                Some(n) if n > 0 => n,
                _ => keys.require_count("context_length")?,
            };
            let beta_fast = positive(keys, "rope.scaling.yarn_beta_fast", 32.0)?;
            let beta_slow = positive(keys, "rope.scaling.yarn_beta_slow", 1.0)?;
            let yarn = Yarn { factor, original_context, beta_fast, beta_slow };
            inv_freq = yarn.apply(theta, &inv_freq);
            magnitude *= yarn.magnitude();
        }
        Some(other) => return Err(keys.error("rope.scaling.type", format!("\"{other}\" is unknown"))),
    }
    Ok(RopeSpec { style, inv_freq, magnitude })
}

/// A number above zero.
pub(crate) fn positive(keys: &Keys<'_>, key: &str, default: f32) -> Result<f32, Error> {
    match keys.float(key)? {
        Some(v) if v <= 0.0 => Err(keys.error(key, format!("is {v}"))),
        v => Ok(v.unwrap_or(default)),
    }
}

fn divide(inv_freq: &mut [f32], factors: &[f32]) {
    for (f, factor) in inv_freq.iter_mut().zip(factors) {
        *f /= factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn yarn_keeps_fast_pairs_and_slows_slow_ones() {
        let yarn = Yarn { factor: 4.0, original_context: 32768, beta_fast: 32.0, beta_slow: 1.0 };
        let plain = inverse_frequencies(1e6, 128);
        let scaled = yarn.apply(1e6, &plain);
        assert_eq!(scaled[0], plain[0]);
        assert_eq!(scaled[63], plain[63] / 4.0);
        assert!(scaled.windows(2).all(|w| w[0] > w[1]));
        assert!((yarn.magnitude() - 1.138_629_4).abs() < 1e-6);
    }
}
