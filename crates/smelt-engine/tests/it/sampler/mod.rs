//! The sampler against plain `f64` definitions, hand values, and statistics.

mod edits;
mod infill;
mod recommended;
mod reference;
mod stages;
mod steps;

use fastrand::Rng;
use smelt_engine::sampler::{SampleError, Sampler, SamplerSettings};

/// Logits with about that standard deviation; coarse ones have many ties.
fn random_logits(rng: &mut Rng, len: usize, spread: f32, coarse: bool) -> Vec<f32> {
    (0..len)
        .map(|_| {
            // The sum of four uniform numbers is close enough to normal.
            let normal = ((0..4).map(|_| rng.f32()).sum::<f32>() - 2.0) * 1.732;
            let logit = normal * spread;
            if coarse { logit.round() } else { logit }
        })
        .collect()
}

fn distribution(
    settings: SamplerSettings,
    logits: &[f32],
    prompt: &[u32],
) -> Result<Vec<(u32, f32)>, SampleError> {
    let mut row = logits.to_vec();
    let result = Sampler::new(settings, logits.len(), prompt)?.distribution(&mut row);
    assert!(row.iter().zip(logits).all(|(a, b)| a.to_bits() == b.to_bits()), "the logits were not restored");
    result
}
