//! llama.cpp's own routes.

mod completion;

use axum::response::Response;
use smelt_api::llamacpp::{
    Bias, DefaultSettings, GenerationSettings, Modalities, PROPS_PARAMS, Props, SLOTS_PARAMS, Slot,
    TemplateCaps,
};
use smelt_api::params::Fields;
use smelt_api::{ApiError, Code, Limits, Sampling};
use smelt_engine::sampler::SamplerSettings;

pub(crate) use self::completion::{completion, infill};
use crate::app::{Call, json};
use crate::daemon::Request;
use crate::info::VERSION;
use crate::prompt;
use crate::stages;

/// What the server is.
pub(crate) async fn props(call: Call) -> Result<Response, ApiError> {
    let mut query = Fields::query(&call.query, PROPS_PARAMS)?;
    call.tolerate(query.unknown());
    let open = call.app.models.find(query.text("model").as_deref()).await?;
    let (model, source) = (open.model(), &open.source);
    let template = model.template().ok();
    let abilities = template.map(|template| template.abilities());
    let piece =
        |id: Option<u32>| id.and_then(|id| model.tokenizer().piece(id)).unwrap_or_default().to_owned();
    let request = prompt::request(&open, Vec::new(), &Sampling::default(), &Limits::default())?;
    Ok(json(&Props {
        default_generation_settings: DefaultSettings {
            n_ctx: open.context,
            params: generation_settings(&request, false),
        },
        total_slots: call.app.settings.scheduler.max_sequences,
        model_alias: source.name.clone(),
        model_path: source
            .file
            .file_name()
            .map(|name| name.to_string_lossy().into_owned())
            .unwrap_or_default(),
        chat_template: template.map(|template| template.source().to_owned()).unwrap_or_default(),
        chat_template_caps: TemplateCaps {
            supports_tools: abilities.is_some(),
            supports_tool_calls: abilities.is_some(),
            supports_thinking: abilities.is_some_and(|abilities| abilities.thinking.is_some()),
        },
        modalities: Modalities::default(),
        bos_token: piece(model.tokenizer().bos()),
        eos_token: piece(model.tokenizer().eos()),
        build_info: format!("smelt-{VERSION}"),
        is_sleeping: open.handle.process().is_none(),
    }))
}

/// As many places as answers are computed at once. Memory is shared by all, so that none of them has anything of its own:
/// which answer is where means nothing, and the first ones are told to be taken.
pub(crate) async fn slots(call: Call) -> Result<Response, ApiError> {
    let mut query = Fields::query(&call.query, SLOTS_PARAMS)?;
    call.tolerate(query.unknown());
    let open = call.app.models.find(query.text("model").as_deref()).await?;
    let (places, taken) = (call.app.settings.scheduler.max_sequences, open.handle.stats().await.running);
    if query.get("fail_on_no_slot").is_some() && taken >= places {
        return Err(ApiError::new(Code::Unavailable, "no slot is free").retry_after(1));
    }
    let slot = |id| Slot { id, n_ctx: open.context, speculative: false, is_processing: id < taken };
    Ok(json(&(0..places).map(slot).collect::<Vec<Slot>>()))
}

/// How a request is answered.
fn generation_settings(request: &Request, stream: bool) -> GenerationSettings {
    let sampler: &SamplerSettings = &request.sampler;
    let count = |n: Option<u32>| n.map_or(-1, i64::from);
    let most = request.max_tokens.and_then(|n| i64::try_from(n).ok()).unwrap_or(-1);
    let mirostat = sampler.mirostat.unwrap_or_default();
    let bias = |(token, bias): &(u32, f32)| Bias { token: *token, bias: bias.is_finite().then_some(*bias) };
    GenerationSettings {
        seed: sampler.seed.map_or_else(|| (-1).into(), Into::into),
        temperature: sampler.temperature,
        dynatemp_range: sampler.dynatemp_range,
        dynatemp_exponent: sampler.dynatemp_exponent,
        top_k: sampler.top_k,
        top_p: sampler.top_p,
        min_p: sampler.min_p,
        top_n_sigma: sampler.top_n_sigma,
        xtc_probability: sampler.xtc_probability,
        xtc_threshold: sampler.xtc_threshold,
        typical_p: sampler.typical_p,
        repeat_last_n: count(sampler.penalty_last_n),
        repeat_penalty: sampler.repeat_penalty,
        presence_penalty: sampler.presence_penalty,
        frequency_penalty: sampler.frequency_penalty,
        dry_multiplier: sampler.dry_multiplier,
        dry_base: sampler.dry_base,
        dry_allowed_length: sampler.dry_allowed_length,
        dry_penalty_last_n: count(sampler.dry_last_n),
        mirostat: if sampler.mirostat.is_some() { 2 } else { 0 },
        mirostat_tau: mirostat.tau,
        mirostat_eta: mirostat.eta,
        adaptive_target: -1.0,
        adaptive_decay: 0.9,
        stop: request.stop.clone(),
        max_tokens: most,
        n_predict: most,
        n_keep: 0,
        n_discard: 0,
        ignore_eos: request.ignore_eos,
        stream,
        logit_bias: sampler.logit_bias.iter().map(bias).collect(),
        n_probs: request.logprobs.unwrap_or(0),
        min_keep: 0,
        samplers: stages::names(sampler),
        timings_per_token: false,
        post_sampling_probs: request.post_sampling,
        lora: [],
    }
}
