//! What each stage does to the candidates.

use super::candidates::Candidates;
use super::settings::{SamplerSettings, Stage};

/// Runs one stage. `chance`, at least 0 and under 1, is this step's random number for XTC.
pub(super) fn run(stage: Stage, settings: &SamplerSettings, candidates: &mut Candidates, chance: f64) {
    match stage {
        Stage::TopNSigma => top_n_sigma(f64::from(settings.top_n_sigma), candidates),
        Stage::TopK => candidates.keep_top(settings.top_k as usize),
        Stage::Typical => typical(f64::from(settings.typical_p), candidates),
        Stage::TopP => top_p(f64::from(settings.top_p), candidates),
        Stage::MinP => min_p(f64::from(settings.min_p), candidates),
        Stage::Xtc => {
            if chance < f64::from(settings.xtc_probability) {
                exclude_top(f64::from(settings.xtc_threshold), candidates);
            }
        }
        Stage::Temperature => scale(settings, candidates),
        // What tokens stand for is not known.
        Stage::Infill => {}
    }
}

fn top_n_sigma(n: f64, candidates: &mut Candidates) {
    let logits = || candidates.items().iter().map(|candidate| f64::from(candidate.logit));
    let len = candidates.len() as f64;
    let mean = logits().sum::<f64>() / len;
    let variance = logits().map(|logit| (logit - mean) * (logit - mean)).sum::<f64>() / len;
    let least = candidates.max() - n * variance.sqrt();
    candidates.retain(|logit| logit >= least);
}

/// Prefers tokens whose surprise is closest to the entropy, the expected surprise.
fn typical(mass: f64, candidates: &mut Candidates) {
    let softmax = candidates.softmax();
    let entropy = softmax.entropy(candidates);
    candidates.keep_mass(mass, softmax, |logit| (softmax.surprise(logit) - entropy).abs());
}

fn top_p(mass: f64, candidates: &mut Candidates) {
    let softmax = candidates.softmax();
    candidates.keep_mass(mass, softmax, |logit| softmax.max - logit);
}

fn min_p(share: f64, candidates: &mut Candidates) {
    let least = candidates.max() + share.ln();
    candidates.retain(|logit| logit >= least);
}

/// XTC: of the tokens with at least this probability only the least likely stays.
fn exclude_top(threshold: f64, candidates: &mut Candidates) {
    let softmax = candidates.softmax();
    let reaching = candidates
        .items()
        .iter()
        .filter(|candidate| softmax.probability(f64::from(candidate.logit)) >= threshold)
        .count();
    if reaching > 1 {
        candidates.drop_first(reaching - 1);
    }
}

/// Divides by the temperature, relative to the greatest logit so that no quotient overflows.
fn scale(settings: &SamplerSettings, candidates: &mut Candidates) {
    let max = candidates.max();
    let temperature = temperature(settings, candidates);
    if temperature > 0.0 {
        candidates.map(|logit| (logit - max) / temperature);
    } else {
        candidates.keep_top(1);
    }
}

/// The temperature of this step: fixed, or within its range by how the candidates' entropy compares with the greatest
/// that so many can have.
fn temperature(settings: &SamplerSettings, candidates: &Candidates) -> f64 {
    let temperature = f64::from(settings.temperature);
    let range = f64::from(settings.dynatemp_range);
    if range == 0.0 || candidates.len() < 2 {
        return temperature;
    }
    let low = (temperature - range).max(0.0);
    let high = temperature + range;
    let entropy = candidates.softmax().entropy(candidates);
    let share = (entropy / (candidates.len() as f64).ln()).clamp(0.0, 1.0);
    low + (high - low) * share.powf(f64::from(settings.dynatemp_exponent))
}

/// Mirostat 2: drops tokens with a surprise over `mu` bits; the likeliest always stays.
pub(super) fn mirostat(mu: f64, candidates: &mut Candidates) {
    let softmax = candidates.softmax();
    candidates.retain(|logit| softmax.surprise(logit) <= mu * std::f64::consts::LN_2);
}
