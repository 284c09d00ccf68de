//! `/v1/rerank`.

use axum::response::Response;
use smelt_api::embeddings::TextUsage;
use smelt_api::rerank::{Document, Ranked, Ranking, RerankRequest, TeiRanked};
use smelt_api::{ApiError, Code};
use smelt_engine::Reranking;
use smelt_engine::scheduler::PoolRequest;
use smelt_engine::tokenizer::Special;

use crate::app::{Call, json};
use crate::pool::{check_lengths, pool, too_long};
use crate::prompt::beside;

pub(crate) async fn create(call: Call) -> Result<Response, ApiError> {
    let mut wanted = RerankRequest::read(&call.body)?;
    call.tolerate(&wanted.unknown);
    let model = call.app.models.find(wanted.model.as_deref()).await?;
    let (query, documents) = (std::mem::take(&mut wanted.query), std::mem::take(&mut wanted.documents));
    let name = if wanted.is_tei { "texts" } else { "documents" };
    let (instruction, encoding) = (wanted.instruction.take(), model.clone());
    let prepared = beside(move || {
        // They stand in the text of every document: all of these could be larger than any memory.
        for (param, text) in [("query", Some(&query)), ("instruction", instruction.as_ref())] {
            let encode =
                |text: &String| encoding.model().tokenizer().encode(text, Special::Text, false).len();
            match text.map(encode) {
                Some(n) if n > encoding.context => {
                    return Err(too_long(param.to_owned(), n, encoding.context));
                }
                _ => {}
            }
        }
        let reranking = encoding.model().rerank(&query, &documents, instruction.as_deref());
        let reranking = reranking.map_err(|error| ApiError::new(Code::InvalidValue, error.to_string()))?;
        check_lengths(&reranking.texts, encoding.context, name)?;
        Ok((reranking, documents))
    });
    let (reranking, mut documents): (Reranking, Vec<String>) = prepared.await?;
    let tokens = reranking.texts.iter().map(|text| text.tokens.len()).sum();
    let request = PoolRequest {
        texts: reranking.texts.clone(),
        task: reranking.task.clone(),
        priority: wanted.priority,
    };
    let values = pool(&call, &model, request, None).await?;
    let mut scores: Vec<(usize, f32)> =
        values.iter().map(|values| reranking.relevance(values)).enumerate().collect();
    // A stable sort: of equal ones the earlier stays first.
    scores.sort_by(|a, b| b.1.total_cmp(&a.1));
    scores.truncate(wanted.top_n.unwrap_or(usize::MAX));
    let mut text = |index: usize| wanted.return_documents.then(|| std::mem::take(&mut documents[index]));
    if wanted.is_tei {
        let ranked = |(index, score)| TeiRanked { index, score, text: text(index) };
        return Ok(json(&scores.into_iter().map(ranked).collect::<Vec<TeiRanked>>()));
    }
    let ranked = |(index, relevance_score)| Ranked {
        index,
        relevance_score,
        document: text(index).map(|text| Document { text }),
    };
    Ok(json(&Ranking {
        id: format!("rerank-{}", call.id),
        object: "list",
        model: model.name().to_owned(),
        usage: TextUsage { prompt_tokens: tokens, total_tokens: tokens },
        results: scores.into_iter().map(ranked).collect(),
    }))
}
