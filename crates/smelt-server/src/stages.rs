//! Which stages choose a token, where a request lists them by llama.cpp's names.

use smelt_api::{ApiError, Sampling};
use smelt_engine::sampler::{Mirostat, Named, SamplerSettings, Stage};

/// Puts what a request says of stages and of Mirostat into the settings.
///
/// # Errors
/// Which name there is not.
pub(crate) fn settle(wishes: &Sampling, sampler: &mut SamplerSettings) -> Result<(), ApiError> {
    if let Some(names) = &wishes.stages {
        let listed = read(names)?;
        let off = SamplerSettings::neutral();
        if !listed.contains(&Named::Penalties) {
            sampler.repeat_penalty = off.repeat_penalty;
            sampler.presence_penalty = off.presence_penalty;
            sampler.frequency_penalty = off.frequency_penalty;
        }
        if !listed.contains(&Named::Dry) {
            sampler.dry_multiplier = off.dry_multiplier;
        }
        sampler.chain = listed.into_iter().filter_map(stage).collect();
        sampler.mirostat = None;
    }
    if let Some(is_on) = wishes.mirostat {
        sampler.mirostat = is_on.then(Mirostat::default);
    }
    if let Some(Mirostat { tau, eta }) = &mut sampler.mirostat {
        *tau = wishes.mirostat_tau.unwrap_or(*tau);
        *eta = wishes.mirostat_eta.unwrap_or(*eta);
    }
    Ok(())
}

/// The names of all that chooses a token with these settings, in the order in which it does.
pub(crate) fn names(sampler: &SamplerSettings) -> Vec<&'static str> {
    let stages = sampler.chain.iter().map(|stage| Named::Stage(*stage));
    // Those that come first always do, though their settings may make no difference.
    Named::all().filter(|named| stage(*named).is_none()).chain(stages).map(Named::name).collect()
}

fn stage(named: Named) -> Option<Stage> {
    match named {
        Named::Stage(stage) => Some(stage),
        Named::Penalties | Named::Dry => None,
    }
}

/// What a list of names stands for.
fn read(names: &[String]) -> Result<Vec<Named>, ApiError> {
    let mut listed = Vec::new();
    for name in names {
        let Some(named) = Named::of(name) else {
            let known: Vec<&str> = Named::all().map(Named::name).collect();
            let problem = format!("has {name:?}; there are {}", known.join(", "));
            return Err(ApiError::value("samplers", problem));
        };
        if listed.contains(&named) {
            return Err(ApiError::value("samplers", format!("has {} twice", named.name())));
        }
        if stage(named).is_none() && listed.iter().any(|before| stage(*before).is_some()) {
            let problem = format!("has {} behind a stage, but it comes before all of them", named.name());
            return Err(ApiError::value("samplers", problem));
        }
        listed.push(named);
    }
    Ok(listed)
}
