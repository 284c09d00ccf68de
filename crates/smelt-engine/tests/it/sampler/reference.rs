//! Each stage by its definition: sort everything, in `f64`, with no shortcut.

use smelt_engine::sampler::{SamplerSettings, Stage};

/// (token, logit)
pub(super) type Tokens = Vec<(u32, f64)>;

pub(super) fn sorted(mut tokens: Tokens) -> Tokens {
    tokens.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    tokens
}

/// All unmasked tokens, likeliest first.
pub(super) fn tokens(logits: &[f32]) -> Tokens {
    let all = logits.iter().zip(0..).filter(|(logit, _)| logit.is_finite());
    sorted(all.map(|(&logit, id)| (id, f64::from(logit) + 0.0)).collect())
}

pub(super) fn softmax(tokens: &Tokens) -> Vec<f64> {
    let max = tokens.iter().fold(f64::NEG_INFINITY, |max, t| max.max(t.1));
    let weights: Vec<f64> = tokens.iter().map(|t| (t.1 - max).exp()).collect();
    let total: f64 = weights.iter().sum();
    weights.iter().map(|w| w / total).collect()
}

fn entropy(probabilities: &[f64]) -> f64 {
    probabilities.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum()
}

/// The shortest beginning with at least this much probability.
fn mass(ranked: Vec<((u32, f64), f64)>, mass: f64) -> Tokens {
    let mut sum = 0.0;
    let mut kept = Vec::new();
    for (token, p) in ranked {
        kept.push(token);
        sum += p;
        if sum >= mass {
            break;
        }
    }
    sorted(kept)
}

/// The stage with XTC always acting.
pub(super) fn stage(stage: Stage, s: &SamplerSettings, tokens: Tokens) -> Tokens {
    let p = softmax(&tokens);
    let max = tokens[0].1;
    match stage {
        Stage::TopNSigma if s.top_n_sigma > 0.0 => {
            let n = tokens.len() as f64;
            let mean = tokens.iter().map(|t| t.1).sum::<f64>() / n;
            let sigma = (tokens.iter().map(|t| (t.1 - mean).powi(2)).sum::<f64>() / n).sqrt();
            tokens.into_iter().filter(|t| t.1 >= max - f64::from(s.top_n_sigma) * sigma).collect()
        }
        Stage::TopK if s.top_k > 0 => tokens.into_iter().take(s.top_k as usize).collect(),
        Stage::Typical if s.typical_p < 1.0 => {
            let entropy = entropy(&p);
            let mut ranked: Vec<_> = tokens.into_iter().zip(p).collect();
            ranked.sort_by(|a, b| (-a.1.ln() - entropy).abs().total_cmp(&(-b.1.ln() - entropy).abs()));
            mass(ranked, f64::from(s.typical_p))
        }
        Stage::TopP if s.top_p < 1.0 => mass(tokens.into_iter().zip(p).collect(), f64::from(s.top_p)),
        Stage::MinP => {
            let least = f64::from(s.min_p) * p[0];
            tokens.into_iter().zip(p).filter(|(_, p)| *p >= least).map(|(t, _)| t).collect()
        }
        Stage::Xtc if s.xtc_probability == 1.0 => {
            let reaching = p.iter().filter(|p| **p >= f64::from(s.xtc_threshold)).count();
            tokens.into_iter().skip(reaching.saturating_sub(1)).collect()
        }
        Stage::Temperature => {
            let share = if tokens.len() > 1 { entropy(&p) / (tokens.len() as f64).ln() } else { 0.0 };
            let (t, range) = (f64::from(s.temperature), f64::from(s.dynatemp_range));
            let low = (t - range).max(0.0);
            let dynamic = low + (t + range - low) * share.powf(f64::from(s.dynatemp_exponent));
            let t = if range > 0.0 && tokens.len() > 1 { dynamic } else { t };
            tokens.into_iter().map(|(id, logit)| (id, logit / t)).collect()
        }
        _ => tokens,
    }
}

/// The whole chain: (token, probability), likeliest first.
pub(super) fn distribution(s: &SamplerSettings, logits: &[f32]) -> Vec<(u32, f64)> {
    let left = s.chain.iter().fold(tokens(logits), |tokens, &next| stage(next, s, tokens));
    let p = softmax(&left);
    left.into_iter().map(|(id, _)| id).zip(p).collect()
}
