//! Which stages choose a token, by llama.cpp's names.

use smelt_api::ApiError;
use smelt_api::llamacpp::Wishes;
use smelt_engine::sampler::{Mirostat, SamplerSettings, Stage};

/// What llama.cpp calls a stage otherwise than Smelt.
const OTHER_NAMES: [(&str, &str); 1] = [("typ_p", "typical_p")];
/// What edits the model's logits before any stage.
const EDITS: [&str; 2] = ["penalties", "dry"];

/// Puts what a request says of stages and of Mirostat into the settings.
///
/// # Errors
/// Which of it can't be.
pub(super) fn settle(wishes: &Wishes, sampler: &mut SamplerSettings) -> Result<(), ApiError> {
    if let Some(names) = &wishes.samplers {
        sampler.chain = chain(names)?;
        let is_listed = |name: &str| names.iter().any(|listed| listed == name);
        let off = SamplerSettings::neutral();
        if !is_listed(EDITS[0]) {
            sampler.repeat_penalty = off.repeat_penalty;
            sampler.presence_penalty = off.presence_penalty;
            sampler.frequency_penalty = off.frequency_penalty;
        }
        if !is_listed(EDITS[1]) {
            sampler.dry_multiplier = off.dry_multiplier;
        }
        sampler.mirostat = None;
    }
    if let Some((is_on, tau, eta)) = wishes.mirostat {
        let usual = Mirostat::default();
        let own = Mirostat { tau: tau.unwrap_or(usual.tau), eta: eta.unwrap_or(usual.eta) };
        sampler.mirostat = is_on.then_some(own);
    }
    let invalid = |error: smelt_engine::sampler::SampleError| ApiError::value("samplers", error);
    sampler.validate().map_err(invalid)
}

/// The stages of these names.
fn chain(names: &[String]) -> Result<Vec<Stage>, ApiError> {
    let mut chain = Vec::new();
    for name in names {
        let other = OTHER_NAMES.iter().find(|(theirs, _)| theirs == name);
        match Stage::from_name(other.map_or(name, |(_, own)| own)) {
            Some(stage) => chain.push(stage),
            None if EDITS.contains(&name.as_str()) && chain.is_empty() => {}
            None if EDITS.contains(&name.as_str()) => {
                let problem = format!("has {name} behind a stage, but it comes before all of them");
                return Err(ApiError::value("samplers", problem));
            }
            None => {
                let known: Vec<&str> = Stage::DEFAULT_CHAIN.iter().map(|stage| stage.name()).collect();
                let problem = format!("has {name:?}; there are {}, {}", EDITS.join(", "), known.join(", "));
                return Err(ApiError::value("samplers", problem));
            }
        }
    }
    Ok(chain)
}
