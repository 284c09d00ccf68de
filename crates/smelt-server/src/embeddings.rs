//! `/v1/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.

use std::sync::Arc;

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::embeddings::{
    Embedding, Embeddings, EmbeddingsRequest, OllamaEmbedding, OllamaEmbeddings, TextUsage, Vector,
};
use smelt_api::openai::Prompt;
use smelt_engine::scheduler::{PoolRequest, Task, Text, shorten};
use smelt_engine::tokenizer::Special;

use crate::app::{Call, json};
use crate::models::Loaded;
use crate::ollama::nanoseconds;
use crate::pool::{check_lengths, pool};
use crate::prompt::{self, beside};

/// OpenAI's route.
pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read(&call.body)?;
    let (encoding, model) = (wanted.encoding, call.app.models.find(wanted.model.as_deref()).await?);
    let Embedded { values, tokens } = embed(&call, &model, wanted).await?;
    let embedding =
        |(index, values)| Embedding { object: "embedding", index, embedding: Vector { values, encoding } };
    Ok(json(&Embeddings {
        object: "list",
        data: values.into_iter().enumerate().map(embedding).collect(),
        model: model.name().to_owned(),
        usage: TextUsage { prompt_tokens: tokens, total_tokens: tokens },
    }))
}

/// Ollama's route.
pub(crate) async fn embed_ollama(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read_ollama(&call.body)?;
    let (name, model) = (wanted.model.clone(), call.app.models.find(wanted.model.as_deref()).await?);
    let Embedded { values, tokens } = embed(&call, &model, wanted).await?;
    Ok(json(&OllamaEmbeddings {
        model: name.unwrap_or_default(),
        embeddings: values,
        total_duration: nanoseconds(call.arrival),
        load_duration: 0,
        prompt_eval_count: tokens,
    }))
}

/// Ollama's older route.
pub(crate) async fn embed_old(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read_old(&call.body)?;
    let model = call.app.models.find(wanted.model.as_deref()).await?;
    let embedded = embed(&call, &model, wanted).await?;
    Ok(json(&OllamaEmbedding { embedding: embedded.values.into_iter().next().unwrap_or_default() }))
}

/// Embeddings of a request's texts, and the tokens of all.
struct Embedded {
    values: Vec<Vec<f32>>,
    tokens: usize,
}

async fn embed(call: &Call, model: &Arc<Loaded>, wanted: EmbeddingsRequest) -> Result<Embedded, ApiError> {
    call.tolerate(&wanted.unknown);
    let hidden_dim = model.model().facts().hidden_dim;
    let dimensions = match wanted.dimensions {
        Some(n) if n > hidden_dim => {
            let problem = format!("is {n}, but this model's embeddings have {hidden_dim} values");
            return Err(ApiError::value("dimensions", problem));
        }
        n => n.unwrap_or(hidden_dim),
    };
    let context = match wanted.num_ctx {
        Some(n) => n.min(model.context),
        None => model.context,
    };
    let (encoding, input, truncate) = (model.clone(), wanted.input, wanted.truncate);
    let texts = beside(move || {
        let texts = input.into_iter().map(|prompt| encode(encoding.model(), prompt));
        let mut texts = texts.collect::<Result<Vec<Text>, ApiError>>()?;
        if truncate {
            texts.iter_mut().for_each(|text| cut(encoding.model(), text, context));
        }
        check_lengths(&texts, context, "input")?;
        Ok(texts)
    });
    let texts = texts.await?;
    if texts.is_empty() {
        return Ok(Embedded { values: Vec::new(), tokens: 0 });
    }
    let tokens = texts.iter().map(|text| text.tokens.len()).sum();
    let request = PoolRequest { texts, task: Task::Embedding, priority: wanted.priority };
    let queue_time = call.app.settings.limits.queue_time;
    let mut values = pool(model, request, queue_time, wanted.keep_alive).await?;
    values.iter_mut().for_each(|values| shorten(values, dimensions));
    Ok(Embedded { values, tokens })
}

/// A text's tokens, with those that the vocabulary puts around it. What it says never becomes a control token.
fn encode(model: &smelt_engine::Model, prompt: Prompt) -> Result<Text, ApiError> {
    let tokens = match prompt {
        Prompt::Text(text) => model.tokenizer().encode(&text, Special::Text, true),
        Prompt::Tokens(tokens) => {
            prompt::check_ids(model, &tokens, "input")?;
            tokens
        }
    };
    match tokens.is_empty() {
        true => Err(ApiError::value("input", "has a text without tokens; give at least one")),
        false => Ok(tokens.into()),
    }
}

/// Cuts a text that is too long, and ends it as it ended.
fn cut(model: &smelt_engine::Model, text: &mut Text, most: usize) {
    let last = text.tokens.last().copied().filter(|last| model.tokenizer().is_special(*last));
    if text.tokens.len() > most {
        text.tokens.truncate(most);
        if let (Some(end), Some(last)) = (text.tokens.last_mut(), last) {
            *end = last;
        }
    }
}
