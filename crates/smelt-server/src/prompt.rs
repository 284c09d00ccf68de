//! From texts to tokens, and from a request's wishes to the sampler's settings.

use smelt_api::openai::{Piece, Prompt};
use smelt_api::{ApiError, Code, Limits, Sampling};
use smelt_engine::sampler::{SamplerSettings, Stage};
use smelt_engine::tokenizer::Special;
use smelt_engine::{Error, Infill, LineLimits, Model};

use crate::daemon::Request;
use crate::models::OpenModel;
use crate::stages;

/// Does what takes long, such as tokenizing a long text, beside the tasks of other requests.
pub(crate) async fn beside<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, ApiError> + Send + 'static,
) -> Result<T, ApiError> {
    let failed = |e| ApiError::new(Code::Internal, format!("the request's preparation failed: {e}"));
    tokio::task::spawn_blocking(work).await.map_err(failed)?
}

/// The tokens of a raw text, in which control tokens are what they look like. Where it begins with BOS, none is added.
pub(crate) fn encode_text(model: &Model, text: &str, add_special: bool) -> Vec<u32> {
    let tokenizer = model.tokenizer();
    let mut ids = tokenizer.encode(text, Special::Parse, add_special);
    let bos = tokenizer.bos().filter(|_| add_special && tokenizer.adds_bos());
    if bos.is_some_and(|bos| ids.starts_with(&[bos, bos])) {
        ids.remove(0);
    }
    ids
}

/// A prompt's tokens; `param` is to blame where it has none, or one that isn't there. Texts in it are read as `special` says,
/// and BOS stands where the vocabulary asks for it if `add_special` does, and the prompt begins with text.
///
/// # Errors
/// What is wrong with it.
pub(crate) fn encode(
    model: &Model,
    prompt: Prompt,
    (special, add_special): (Special, bool),
    param: &str,
) -> Result<Vec<u32>, ApiError> {
    let text = |text: &str, add_special| match special {
        Special::Parse => encode_text(model, text, add_special),
        Special::Text => model.tokenizer().encode(text, special, add_special),
    };
    let piece = |(i, piece): (usize, Piece)| match piece {
        Piece::Token(id) => vec![id],
        Piece::Text(piece) => text(&piece, add_special && i == 0),
    };
    let tokens = match prompt {
        Prompt::Text(prompt) => text(&prompt, add_special),
        Prompt::Tokens(tokens) => tokens,
        Prompt::Mixed(pieces) => pieces.into_iter().enumerate().flat_map(piece).collect(),
    };
    check_ids(model, &tokens, param)?;
    match tokens.is_empty() {
        true => Err(ApiError::value(param, "has a text without tokens; give at least one")),
        false => Ok(tokens),
    }
}

/// The tokens of a prompt whose answer stands in front of `suffix`.
///
/// # Errors
/// If the model was not trained to fill text in.
pub(crate) fn encode_around(model: &Model, prefix: &str, suffix: &str) -> Result<Vec<u32>, ApiError> {
    let around = Infill { prefix, suffix, ..Infill::default() };
    model.infill(around).map_err(|error| ApiError::unsupported("suffix", error))
}

/// Checks ids against the vocabulary.
pub(crate) fn check_ids(model: &Model, ids: &[u32], param: &str) -> Result<(), ApiError> {
    let size = model.tokenizer().vocab_size();
    match ids.iter().find(|id| **id as usize >= size) {
        None => Ok(()),
        Some(id) => Err(ApiError::value(
            param,
            format!("has the token {id}, but the vocabulary ends at {}", size - 1),
        )),
    }
}

/// A request of the engine: how a prompt is continued, and where answers end.
///
/// # Errors
/// As [`sampler`].
pub(crate) fn request(
    open: &OpenModel,
    tokens: Vec<u32>,
    sampling: &Sampling,
    limits: &Limits,
) -> Result<Request, ApiError> {
    Ok(Request {
        max_tokens: limits.max_tokens.or(open.source.defaults.max_tokens),
        stop: limits.stop.clone(),
        lines: LineLimits { indent: limits.indent, time: limits.line_time },
        ignore_eos: limits.ignore_eos,
        show_special: limits.show_special,
        ..Request::new(tokens, sampler(open, sampling)?)
    })
}

/// The sampler's settings: the request's wishes, over what the operator chose for the model, over what the model's file
/// recommends, over the operator's for any model.
///
/// # Errors
/// If a wish names a token that isn't there, or doesn't go with another one.
pub(crate) fn sampler(open: &OpenModel, wishes: &Sampling) -> Result<SamplerSettings, ApiError> {
    let (model, defaults) = (open.model(), &open.source.defaults);
    let mut settings = defaults.sampler.clone();
    model
        .recommended()
        .apply(&mut settings, |setting| defaults.chosen.iter().any(|chosen| chosen == setting));
    settings.seed = wishes.seed.unwrap_or(settings.seed);
    settings.logit_bias.extend_from_slice(&wishes.logit_bias);
    // A stage that is asked for must run, whatever order the file recommends.
    let stages = [
        (wishes.temperature, Stage::Temperature),
        (wishes.top_p, Stage::TopP),
        (wishes.top_k.map(|_| 0.0), Stage::TopK),
        (wishes.min_p, Stage::MinP),
        (wishes.typical_p, Stage::Typical),
        (wishes.top_n_sigma, Stage::TopNSigma),
        (wishes.xtc_probability, Stage::Xtc),
    ];
    let asked = |stage: &Stage| stages.iter().any(|(wish, of)| wish.is_some() && of == stage);
    if Stage::DEFAULT_CHAIN.iter().any(|stage| asked(stage) && !settings.chain.contains(stage)) {
        settings.chain = Stage::DEFAULT_CHAIN.to_vec();
    }
    if Stage::DEFAULT_CHAIN.iter().any(|stage| asked(stage) && *stage != Stage::Temperature) {
        settings.mirostat = None;
    }
    let numbers = [
        (&mut settings.temperature, wishes.temperature),
        (&mut settings.top_p, wishes.top_p),
        (&mut settings.min_p, wishes.min_p),
        (&mut settings.typical_p, wishes.typical_p),
        (&mut settings.top_n_sigma, wishes.top_n_sigma),
        (&mut settings.repeat_penalty, wishes.repeat_penalty),
        (&mut settings.presence_penalty, wishes.presence_penalty),
        (&mut settings.frequency_penalty, wishes.frequency_penalty),
        (&mut settings.dry_multiplier, wishes.dry_multiplier),
        (&mut settings.dry_base, wishes.dry_base),
        (&mut settings.xtc_probability, wishes.xtc_probability),
        (&mut settings.xtc_threshold, wishes.xtc_threshold),
        (&mut settings.dynatemp_range, wishes.dynatemp_range),
        (&mut settings.dynatemp_exponent, wishes.dynatemp_exponent),
    ];
    for (setting, wish) in numbers {
        *setting = wish.unwrap_or(*setting);
    }
    settings.top_k = wishes.top_k.unwrap_or(settings.top_k);
    settings.penalty_last_n = wishes.repeat_last_n.unwrap_or(settings.penalty_last_n);
    settings.dry_allowed_length = wishes.dry_allowed_length.unwrap_or(settings.dry_allowed_length);
    settings.dry_last_n = wishes.dry_last_n.unwrap_or(settings.dry_last_n);
    if settings.dry_multiplier > 0.0 {
        settings.dry_breakers = open.dry_breakers(wishes.dry_breakers.as_deref())?;
    }
    stages::settle(wishes, &mut settings)?;
    let size = model.facts().vocab_size;
    let invalid = |e| ApiError::new(Code::InvalidValue, Error::Sampler(e).to_string());
    settings.validate().map_err(invalid)?;
    match settings.logit_bias.iter().find(|(id, _)| *id as usize >= size) {
        None => Ok(settings),
        Some((id, _)) => {
            Err(ApiError::value("logit_bias", format!("has the token {id}, but the model has {size} tokens")))
        }
    }
}
