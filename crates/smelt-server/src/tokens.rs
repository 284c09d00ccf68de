//! `/tokenize` and `/detokenize`.

use axum::response::Response;
use smelt_api::ApiError;
use smelt_api::openai::token_text;
use smelt_api::tokens::{
    DetokenizeRequest, DetokenizeResponse, Source, TokenPiece, TokenizeRequest, TokenizeResponse, Tokens,
};
use smelt_engine::tokenizer::Special;

use crate::app::{Call, json};
use crate::conversation::{ChatPrompt, prepare};
use crate::prompt::{self, beside};

pub(crate) async fn tokenize(call: Call) -> Result<Response, ApiError> {
    let request = TokenizeRequest::read(&call.body)?;
    call.tolerate(&request.unknown);
    let model = call.app.models.find(request.model.as_deref()).await?;
    let tokens = match request.source {
        Source::Text { text, add_special, parse_special } => {
            let model = model.clone();
            beside(move || {
                Ok(match parse_special {
                    true => prompt::encode_text(model.model(), &text, add_special),
                    false => model.model().tokenizer().encode(&text, Special::Text, add_special),
                })
            })
            .await?
        }
        Source::Chat { messages, tools, add_generation_prompt, template_kwargs } => {
            let closed = !add_generation_prompt;
            let prompt =
                ChatPrompt { messages, tools, kwargs: template_kwargs, closed, ..ChatPrompt::default() };
            prepare(&model, prompt).await?.tokens
        }
    };
    let tokenizer = model.model().tokenizer();
    let bytes = |id: u32| tokenizer.token_bytes(id, true).unwrap_or_default();
    Ok(json(&TokenizeResponse {
        count: tokens.len(),
        max_model_len: model.context,
        token_strs: request.strings.then(|| tokens.iter().map(|id| token_text(bytes(*id))).collect()),
        tokens: match request.pieces {
            true => Tokens::Pieces(tokens.iter().map(|id| TokenPiece::new(*id, bytes(*id))).collect()),
            false => Tokens::Ids(tokens),
        },
    }))
}

pub(crate) async fn detokenize(call: Call) -> Result<Response, ApiError> {
    let request = DetokenizeRequest::read(&call.body)?;
    call.tolerate(&request.unknown);
    let model = call.app.models.find(request.model.as_deref()).await?;
    prompt::check_ids(model.model(), &request.tokens, "tokens")?;
    let text = beside(move || Ok(model.model().tokenizer().decode(&request.tokens, true))).await?;
    Ok(json(&DetokenizeResponse { prompt: text.clone(), content: text }))
}
