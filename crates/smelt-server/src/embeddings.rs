//! `/v1/embeddings`, llama.cpp's `/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.

use std::sync::Arc;

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::embeddings::{
    Embedding, Embeddings, EmbeddingsRequest, OllamaEmbedding, OllamaEmbeddings, TextUsage, TextVectors,
    Vector,
};
use smelt_engine::scheduler::{PoolRequest, Task, Text};
use smelt_engine::tokenizer::Special;
use smelt_engine::{EUCLIDEAN, Pooling, normalize};

use crate::app::{Call, json};
use crate::models::OpenModel;
use crate::ollama::nanoseconds;
use crate::pool::{check_lengths, pool};
use crate::prompt::{self, beside};

/// Most values of the states of a request's tokens: 32 MiB, or ten times that in JSON.
const MOST_VALUES: usize = 1 << 23;

/// OpenAI's route.
pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read(&call.body)?;
    let (encoding, model) = (wanted.encoding, call.app.models.find(wanted.model.as_deref()).await?);
    let Embedded { values, tokens } = embed_texts(&call, &model, wanted).await?;
    let embedding =
        |(index, values)| Embedding { object: "embedding", index, embedding: Vector { values, encoding } };
    Ok(json(&Embeddings {
        object: "list",
        data: values.into_iter().enumerate().map(embedding).collect(),
        model: model.name().to_owned(),
        usage: TextUsage { prompt_tokens: tokens, total_tokens: tokens },
    }))
}

/// llama.cpp's route.
pub(crate) async fn states(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read_states(&call.body)?;
    let model = call.app.models.find(wanted.model.as_deref()).await?;
    let values = embed(&call, &model, wanted).await?.values;
    let vectors = values.into_iter().enumerate().map(|(index, embedding)| TextVectors { index, embedding });
    Ok(json(&vectors.collect::<Vec<_>>()))
}

/// Ollama's route.
pub(crate) async fn embed_ollama(call: Call) -> Result<Response, ApiError> {
    let wanted = EmbeddingsRequest::read_ollama(&call.body)?;
    let (name, model) = (wanted.model.clone(), call.app.models.find(wanted.model.as_deref()).await?);
    let Embedded { values, tokens } = embed_texts(&call, &model, wanted).await?;
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
    let embedded = embed_texts(&call, &model, wanted).await?;
    Ok(json(&OllamaEmbedding { embedding: embedded.values.into_iter().next().unwrap_or_default() }))
}

/// What came of a request's texts, and the tokens of all.
struct Embedded<T> {
    values: Vec<T>,
    tokens: usize,
}

/// An embedding of each text.
async fn embed_texts(
    call: &Call,
    model: &Arc<OpenModel>,
    wanted: EmbeddingsRequest,
) -> Result<Embedded<Vec<f32>>, ApiError> {
    if pooling(model, &wanted)? == Pooling::None {
        let problem =
            "of none leaves each token's states apart: ask /embeddings for them, or for another pooling";
        return Err(ApiError::value("pooling", problem));
    }
    let Embedded { values, tokens } = embed(call, model, wanted).await?;
    Ok(Embedded { values: values.into_iter().flatten().collect(), tokens })
}

/// How states are to be pooled.
fn pooling(model: &OpenModel, wanted: &EmbeddingsRequest) -> Result<Pooling, ApiError> {
    let Some(name) = &wanted.pooling else { return Ok(model.model().facts().pooling) };
    let named = Pooling::ALL.into_iter().find(|pooling| pooling.name() == name);
    named.ok_or_else(|| {
        let names = Pooling::ALL.map(Pooling::name).join(", ");
        ApiError::value("pooling", format!("must be one of {names}"))
    })
}

/// The embeddings of each text: one, or one of each token where states aren't pooled.
async fn embed(
    call: &Call,
    model: &Arc<OpenModel>,
    wanted: EmbeddingsRequest,
) -> Result<Embedded<Vec<Vec<f32>>>, ApiError> {
    call.tolerate(&wanted.unknown);
    let pooling = pooling(model, &wanted)?;
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
        // What a text says never becomes a control token; those that the vocabulary puts around it are there, if they are
        // wanted.
        let special = (Special::Text, wanted.add_special);
        let encode = |text| prompt::encode(encoding.model(), text, special, "input");
        let texts = input.into_iter().map(|text| encode(text).map(Text::from));
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
    let tokens: usize = texts.iter().map(|text| text.tokens.len()).sum();
    let n_values = tokens.saturating_mul(hidden_dim);
    if pooling == Pooling::None && n_values > MOST_VALUES {
        let problem = format!(
            "has {tokens} tokens, whose states have {n_values} values, but at most {MOST_VALUES} are told at once; send \
             less at a time"
        );
        return Err(ApiError::value("input", problem));
    }
    let request = PoolRequest { texts, task: Task::Embedding(pooling), priority: wanted.priority };
    let values = pool(call, model, request, wanted.keep_alive).await?;
    // States are told as they are, unless somebody asks for a norm.
    let norm = wanted.norm.unwrap_or(if pooling == Pooling::None { -1 } else { EUCLIDEAN });
    // Models that are trained for it have what matters most in front (Kusupati et al. 2022, "Matryoshka representation
    // learning", arXiv 2205.13147).
    let shaped = |state: &[f32]| {
        let mut embedding = state[..dimensions].to_vec();
        normalize(&mut embedding, norm);
        embedding
    };
    let values = values.iter().map(|values| values.chunks(hidden_dim).map(shaped).collect());
    Ok(Embedded { values: values.collect(), tokens })
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
