//! `/v1/rerank`, in the shape that Jina and Cohere have given it.

use serde::Serialize;
use serde_json::Value;

use crate::embeddings::TextUsage;
use crate::error::ApiError;
use crate::params::{Fields, Kind, Params, Support, param, shown};

use Kind::{Any, Bool, Integer, List, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Documents of one request.
const MOST_DOCUMENTS: usize = 2048;

/// The parameters.
pub static RERANK_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("query", Text, Required, "what is looked for"),
    param("documents", List, Yes, "strings, or objects with a `text`"),
    param(
        "texts",
        List,
        Yes,
        "TEI's name of documents; the answer then is TEI's too: a list of `index` and `score`",
    ),
    param("top_n", Integer(0, U31), Yes, "so many of the best; 0 is all"),
    param("return_documents", Bool, Yes, "tell the documents' texts too; off"),
    param("return_text", Bool, Yes, "TEI's name of return_documents"),
    param("raw_scores", Any, Only(&["false"]), "scores are from 0 to 1"),
    param("truncate", Any, Only(&["false"]), "a document that is too long is refused, never cut"),
    param("instruction", Text, Yes, "what counts as relevant, for models that are told in words"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
    param("user", Any, Harmless, "labels the request"),
    param("rank_fields", Any, Only(&["[\"text\"]"]), "documents are ranked by their text"),
    param("max_tokens_per_doc", Any, Only(&[]), "a document that is too long is refused, never cut"),
    param("max_chunks_per_doc", Any, Only(&[]), "a document that is too long is refused, never cut"),
    param("truncate_prompt_tokens", Any, Only(&[]), "a document that is too long is refused, never cut"),
]];

/// A request to order documents.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RerankRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// What is looked for.
    pub query: String,
    /// In which texts.
    pub documents: Vec<String>,
    /// So many of the best; all otherwise.
    pub top_n: Option<usize>,
    /// Tell their texts.
    pub return_documents: bool,
    /// Answer as TEI does.
    pub is_tei: bool,
    /// What counts as relevant.
    pub instruction: Option<String>,
    /// Lower goes first.
    pub priority: i32,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl RerankRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, RERANK_PARAMS)?;
        let (name, documents) = match (fields.list("documents"), fields.list("texts")) {
            (Some(documents), None) => ("documents", documents),
            (None, Some(texts)) => ("texts", texts),
            (None, None) => return Err(ApiError::missing("documents")),
            (Some(_), Some(_)) => {
                return Err(ApiError::value("texts", "can't be had together with `documents`"));
            }
        };
        if documents.is_empty() {
            return Err(ApiError::value(name, "must not be an empty list"));
        }
        if documents.len() > MOST_DOCUMENTS {
            let problem = format!("has {} entries, but at most {MOST_DOCUMENTS} are taken", documents.len());
            return Err(ApiError::value(name, problem));
        }
        let text = |(i, document): (usize, Value)| match document {
            Value::String(text) => Ok(text),
            Value::Object(mut fields) => match fields.remove("text") {
                Some(Value::String(text)) => Ok(text),
                _ => Err(ApiError::value(format!("{name}[{i}].text"), "must be a string")),
            },
            other => {
                let problem = format!("must be a string or an object with a `text`, not {}", shown(&other));
                Err(ApiError::value(format!("{name}[{i}]"), problem))
            }
        };
        Ok(Self {
            documents: documents.into_iter().enumerate().map(text).collect::<Result<_, _>>()?,
            is_tei: name == "texts",
            model: fields.text("model"),
            query: fields.text("query").unwrap_or_default(),
            top_n: fields.count("top_n").filter(|n| *n > 0),
            return_documents: fields.bool("return_documents").or(fields.bool("return_text")).unwrap_or(false),
            instruction: fields.text("instruction"),
            priority: fields.integer("priority").and_then(|n| i32::try_from(n).ok()).unwrap_or(0),
            unknown: fields.unknown().to_vec(),
        })
    }
}

/// A document's text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Document {
    /// As it was given.
    pub text: String,
}

/// A document in its place.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranked {
    /// Which of the request's documents.
    pub index: usize,
    /// How relevant it is, from 0 to 1.
    pub relevance_score: f32,
    /// Its text, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub document: Option<Document>,
}

/// A document in its place, as TEI tells it.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TeiRanked {
    /// Which of the request's documents.
    pub index: usize,
    /// How relevant it is, from 0 to 1.
    pub score: f32,
    /// Its text, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub text: Option<String>,
}

/// The documents, best first.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Ranking {
    /// Of the request.
    pub id: String,
    /// `list`.
    pub object: &'static str,
    /// The model's name.
    pub model: String,
    /// Tokens.
    pub usage: TextUsage,
    /// Best first; of equal ones the earlier.
    pub results: Vec<Ranked>,
}
