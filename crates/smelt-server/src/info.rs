//! Routes that tell what there is.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use axum::http::StatusCode;
use axum::response::Response;
use jiff::Timestamp;
use serde_json::{Value, json};
use smelt_api::ApiError;
use smelt_api::ollama::{self, Details, ListedModel};
use smelt_api::openai::{Model, Page};

use crate::app::{Call, json};
use crate::models::{Offer, OpenModel};

/// The version of Smelt.
pub(crate) const VERSION: &str = env!("CARGO_PKG_VERSION");

pub(crate) async fn health(call: Call) -> Result<Response, ApiError> {
    let (is_fine, word) = call.app.health();
    let mut response = json(&json!({"status": word}));
    if !is_fine {
        *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
    }
    Ok(response)
}

pub(crate) async fn version(_: Call) -> Result<Response, ApiError> {
    Ok(json(&ollama::Version { version: VERSION }))
}

pub(crate) async fn models(call: Call) -> Result<Response, ApiError> {
    let since = call.app.models.since;
    let data = offered(&call).await.iter().map(|card| openai_model(card, since)).collect();
    Ok(json(&Page { object: "list", data }))
}

pub(crate) async fn model(call: Call) -> Result<Response, ApiError> {
    let model = call.app.models.find(call.tail.as_deref()).await?;
    Ok(json(&openai_model(&Card::of(&model), call.app.models.since)))
}

/// What lists tell of a model.
#[derive(Debug, Clone)]
struct Card {
    listed: ListedModel,
    aliases: Vec<String>,
    context: usize,
}

/// The cards of models by their names, with when their files were written: lists are asked for all the time, and to read a
/// file for them takes as long as its vocabulary is large.
#[derive(Debug, Default)]
pub(crate) struct Cards(Mutex<HashMap<String, (SystemTime, Card)>>);

/// The card of a model.
///
/// # Errors
/// If its file makes no sense.
async fn card(call: &Call, offer: &Offer) -> Result<Card, ApiError> {
    let cards = || call.app.cards.0.lock().unwrap_or_else(PoisonError::into_inner);
    let (name, written) = (&offer.source.name, std::fs::metadata(&offer.source.file));
    let written = written.and_then(|meta| meta.modified()).ok();
    let known = cards().get(name).filter(|(at, _)| Some(*at) == written).map(|(_, card)| card.clone());
    if let Some(card) = known {
        return Ok(card);
    }
    let card = Card::of(&*call.app.models.open(offer).await?);
    if let Some(written) = written {
        cards().insert(name.clone(), (written, card.clone()));
    }
    Ok(card)
}

/// All models whose files make sense.
async fn offered(call: &Call) -> Vec<Card> {
    let models = &call.app.models;
    let offers = models.offers();
    let mut all = Vec::with_capacity(offers.len());
    for offer in &offers {
        match card(call, offer).await {
            Ok(card) => all.push(card),
            Err(error) => tracing::warn!(model = offer.source.name, why = error.message, "not listed"),
        }
    }
    all
}

fn openai_model(card: &Card, since: Timestamp) -> Model {
    Model {
        id: card.listed.name.clone(),
        aliases: card.aliases.clone(),
        object: "model",
        created: seconds(since),
        owned_by: "smelt",
        root: card.listed.name.clone(),
        max_model_len: card.context,
    }
}

/// Seconds since 1970.
pub(crate) fn seconds(time: Timestamp) -> u64 {
    u64::try_from(time.as_second()).unwrap_or(0)
}

pub(crate) async fn tags(call: Call) -> Result<Response, ApiError> {
    Ok(json(&ollama::Models { models: offered(&call).await.into_iter().map(|card| card.listed).collect() }))
}

pub(crate) async fn ps(call: Call) -> Result<Response, ApiError> {
    let models = &call.app.models;
    let mut running = Vec::new();
    for offer in models.offers().iter().filter(|offer| offer.handle.process().is_some()) {
        let card = card(&call, offer).await?;
        running.push(ListedModel {
            context_length: Some(card.context),
            expires_at: Some(offer.handle.expires().to_string()),
            size_vram: Some(0),
            ..card.listed
        });
    }
    Ok(json(&ollama::Models { models: running }))
}

impl Card {
    fn of(model: &OpenModel) -> Self {
        let listed = ListedModel {
            name: model.name().to_owned(),
            model: model.name().to_owned(),
            modified_at: model.modified.to_string(),
            size: model.model().facts().weight_bytes,
            digest: model.source.digest.clone(),
            details: details(model),
            context_length: None,
            expires_at: None,
            size_vram: None,
        };
        Self { listed, aliases: model.source.aliases.clone(), context: model.context }
    }
}

fn details(model: &OpenModel) -> Details {
    let facts = model.model().facts();
    Details {
        parent_model: String::new(),
        format: "gguf",
        family: facts.architecture.to_owned(),
        families: vec![facts.architecture.to_owned()],
        parameter_size: count(facts.parameters),
        quantization_level: model.source.quantization.clone(),
    }
}

/// A number of parameters as people write it.
#[expect(clippy::cast_precision_loss, reason = "three digits are shown")]
fn count(parameters: u64) -> String {
    let units = [(1e9, "B"), (1e6, "M"), (1e3, "K")];
    let n = parameters as f64;
    let (scale, unit) = units.into_iter().find(|(scale, _)| n >= *scale).unwrap_or((1.0, ""));
    match n / scale {
        x if x < 10.0 && !unit.is_empty() => format!("{x:.1}{unit}"),
        x => format!("{x:.0}{unit}"),
    }
}

pub(crate) async fn show(call: Call) -> Result<Response, ApiError> {
    let model = call.app.models.find(Some(&ollama::read_show(&call.body)?)).await?;
    let facts = model.model().facts();
    let family = facts.architecture;
    let info: [(String, Value); 6] = [
        ("general.architecture".into(), family.into()),
        ("general.basename".into(), facts.name.as_str().into()),
        ("general.parameter_count".into(), facts.parameters.into()),
        (format!("{family}.context_length"), facts.trained_context.into()),
        (format!("{family}.block_count"), facts.n_layers.into()),
        (format!("{family}.vocab_size"), facts.vocab_size.into()),
    ];
    // A template that doesn't compile is as good as none.
    let template = model.model().template().map(|t| t.source().to_owned()).unwrap_or_default();
    Ok(json(&ollama::Show {
        template,
        details: details(&model),
        model_info: info.into_iter().collect(),
        capabilities: capabilities(&model),
        modified_at: model.modified.to_string(),
    }))
}

/// What a model can do, in Ollama's words. Tools are told to every model that has a template.
fn capabilities(model: &OpenModel) -> Vec<&'static str> {
    let abilities = model.model().template().ok().map(|template| template.abilities());
    let thinks = abilities.is_some_and(|abilities| abilities.thinking.is_some());
    let generates = model.model().facts().generates();
    let all = [
        ("completion", generates),
        ("embedding", !generates),
        ("tools", generates && abilities.is_some()),
        ("thinking", generates && thinks),
    ];
    all.into_iter().filter(|(_, is_so)| *is_so).map(|(name, _)| name).collect()
}

#[cfg(test)]
mod tests {
    #[test]
    fn parameters_are_counted_as_people_do() {
        for (n, text) in
            [(134_515_008, "135M"), (1_500_000_000, "1.5B"), (70_600_000_000, "71B"), (412, "412")]
        {
            assert_eq!(super::count(n), text);
        }
    }
}
