//! Log-probabilities of the model's own distribution, before bias, penalties, truncation and temperature.

use super::SampleError;
use super::candidates::{Candidates, weight};

/// The log-softmax of a row of logits.
#[derive(Debug, Clone, Copy)]
pub struct LogProbs<'a> {
    /// (vocab_size)
    logits: &'a [f32],
    /// ln Σ exp(logit)
    log_sum: f64,
}

impl<'a> LogProbs<'a> {
    /// Of the model's logits (vocab_size). [`super::Sampler::sample`] leaves its row as the model wrote it, so this can
    /// be asked before or after.
    ///
    /// # Errors
    /// [`SampleError::NotFinite`] if a logit is NaN or +inf, [`SampleError::AllMasked`] if all are −inf.
    pub fn new(logits: &'a [f32]) -> Result<Self, SampleError> {
        super::check_finite(logits)?;
        let max = logits.iter().fold(f32::NEG_INFINITY, |max, &logit| max.max(logit));
        if max == f32::NEG_INFINITY {
            return Err(SampleError::AllMasked);
        }
        let max = f64::from(max);
        let total: f64 = logits.iter().map(|&logit| weight(f64::from(logit) - max)).sum();
        Ok(Self { logits, log_sum: max + total.ln() })
    }

    /// ln p of a token: −inf if it is masked, `None` if the vocabulary does not have it.
    pub fn of(&self, token: u32) -> Option<f32> {
        self.logits.get(token as usize).map(|&logit| (f64::from(logit) - self.log_sum) as f32)
    }

    /// The `n` likeliest tokens with ln p, likeliest first, of equals the lowest id first. Fewer if fewer are unmasked.
    pub fn top(&self, n: usize) -> Vec<(u32, f32)> {
        if n == 0 {
            return Vec::new();
        }
        let mut candidates = Candidates::new();
        candidates.fill_top(self.logits, n);
        let items = candidates.items().iter();
        items.map(|candidate| (candidate.id, (f64::from(candidate.logit) - self.log_sum) as f32)).collect()
    }
}

/// The `n` likeliest tokens with their log-probabilities, likeliest first; see [`LogProbs`].
///
/// # Errors
/// Those of [`LogProbs::new`].
pub fn top_logprobs(logits: &[f32], n: usize) -> Result<Vec<(u32, f32)>, SampleError> {
    Ok(LogProbs::new(logits)?.top(n))
}
