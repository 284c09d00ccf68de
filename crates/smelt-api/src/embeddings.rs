//! `/v1/embeddings`, llama.cpp's `/embeddings`, and Ollama's `/api/embed` and `/api/embeddings`.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::{Serialize, Serializer};
use serde_json::Value;

use crate::error::ApiError;
use crate::keep_alive::KeepAlive;
use crate::ollama;
use crate::openai::{Prompt, prompts};
use crate::params::{Fields, Kind, Params, Support, param, shown};

use Kind::{Any, Bool, Integer, Object, Text};
use Support::{Harmless, Only, Required, Yes};

const U31: i64 = i32::MAX as i64;
/// Texts of one request.
const MOST_TEXTS: usize = 2048;
const DIMENSIONS: &str = "so many of the first values, of length 1 again: for models that are trained for it";

const INPUT: &str = "a string, token ids, a list of both, or a list of such";

/// What OpenAI's route and llama.cpp's share.
const VECTORS: Params = &[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("dimensions", Integer(1, U31), Yes, DIMENSIONS),
    param("pooling", Text, Yes, "`mean`, `cls`, `last` or `none`; without it, as the model's file says"),
    param("normalize", Bool, Yes, "make embeddings of length 1; on"),
    param(
        "embd_normalize",
        Integer(-1, 64),
        Yes,
        "the norm that is made 1, in llama.cpp's numbers: 2 is usual, 1 and others are p-norms, 0 makes the largest value \
         32760, -1 leaves embeddings as they are",
    ),
    param("add_special_tokens", Bool, Yes, "put around a text what the vocabulary asks for; on"),
    param("priority", Integer(-1000, 1000), Yes, "lower goes first; 0 is usual"),
    param("user", Any, Harmless, "labels the request"),
    param("truncate_prompt_tokens", Any, Only(&[]), "a text that is too long is refused, never cut"),
];

/// The parameters of OpenAI's route.
pub static EMBEDDINGS_PARAMS: &[Params] = &[
    VECTORS,
    &[
        param("input", Any, Required, INPUT),
        param("encoding_format", Text, Yes, "`float`, or `base64` of little-endian f32"),
    ],
];

/// The parameters of llama.cpp's route.
pub static STATES_PARAMS: &[Params] = &[
    VECTORS,
    &[
        param("input", Any, Yes, INPUT),
        param("content", Any, Yes, "the same"),
        param("encoding_format", Any, Only(&["\"float\""]), "/v1/embeddings tells bytes"),
    ],
];

/// The parameters of Ollama's route.
pub static EMBED_PARAMS: &[Params] = &[&[
    param("model", Text, Required, "the model's name; `:latest` may follow"),
    param("input", Any, Required, "a string or a list of strings"),
    param("truncate", Bool, Yes, "cut texts that are too long; on"),
    param("dimensions", Integer(1, U31), Yes, DIMENSIONS),
    param("options", Object, Yes, "`num_ctx`: tokens that a text may have"),
    param("keep_alive", Any, Yes, "how long the model is kept when nobody uses it any more"),
]];

/// The parameters of Ollama's older route.
pub static OLD_EMBEDDINGS_PARAMS: &[Params] = &[&[
    param("model", Text, Required, "the model's name; `:latest` may follow"),
    param("prompt", Text, Yes, "the text; without it, the embedding is empty"),
    param("options", Object, Yes, "`num_ctx`: tokens that a text may have"),
    param("keep_alive", Any, Yes, "how long the model is kept when nobody uses it any more"),
]];

/// How an embedding is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Encoding {
    /// A list of numbers.
    Float,
    /// Its bytes, little-endian f32, in base64.
    Base64,
}

/// A request for embeddings.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmbeddingsRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// The texts, one at least but for Ollama.
    pub input: Vec<Prompt>,
    /// How they are written.
    pub encoding: Encoding,
    /// So many of the first values only.
    pub dimensions: Option<usize>,
    /// How states are pooled, where it says so.
    pub pooling: Option<String>,
    /// The norm that is made 1, in llama.cpp's numbers, where it says so.
    pub norm: Option<i32>,
    /// Tokens that the vocabulary asks for are put around texts.
    pub add_special: bool,
    /// Lower goes first.
    pub priority: i32,
    /// Cut what is too long.
    pub truncate: bool,
    /// Tokens that a text may have, where it says so.
    pub num_ctx: Option<usize>,
    /// How long the model is kept when nobody uses it any more.
    pub keep_alive: Option<KeepAlive>,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl EmbeddingsRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, EMBEDDINGS_PARAMS)?;
        let encoding = match fields.text("encoding_format").as_deref() {
            None | Some("float") => Encoding::Float,
            Some("base64") => Encoding::Base64,
            Some(_) => return Err(ApiError::value("encoding_format", "must be float or base64")),
        };
        let input = prompts("input", fields.take("input").unwrap_or_default(), MOST_TEXTS)?;
        Ok(Self { encoding, ..Self::vectors(&mut fields, input)? })
    }

    /// Reads a body of llama.cpp's route.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read_states(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, STATES_PARAMS)?;
        let (name, input) = match (fields.take("input"), fields.take("content")) {
            (Some(input), None) => ("input", input),
            (None, Some(content)) => ("content", content),
            (Some(_), Some(_)) => return Err(ApiError::value("content", "is `input` too: give one of them")),
            (None, None) => return Err(ApiError::missing("input")),
        };
        let input = prompts(name, input, MOST_TEXTS)?;
        Self::vectors(&mut fields, input)
    }

    fn vectors(fields: &mut Fields, input: Vec<Prompt>) -> Result<Self, ApiError> {
        let number = |n| i32::try_from(n).ok();
        let norm = match (fields.bool("normalize"), fields.integer("embd_normalize").and_then(number)) {
            (Some(_), Some(_)) => {
                let problem = "says what `embd_normalize` says too: give one of them";
                return Err(ApiError::value("normalize", problem));
            }
            (normalize, norm) => norm.or(normalize.map(|is_on| if is_on { 2 } else { -1 })),
        };
        Ok(Self {
            input,
            norm,
            pooling: fields.text("pooling"),
            add_special: fields.bool("add_special_tokens").unwrap_or(true),
            priority: fields.integer("priority").and_then(number).unwrap_or(0),
            ..Self::base(fields)
        })
    }

    /// Reads a body of Ollama's route.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read_ollama(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, EMBED_PARAMS)?;
        let text = |value: Value| match value {
            Value::String(text) => Ok(Prompt::Text(text)),
            other => Err(ApiError::value("input", format!("must be strings, not {}", shown(&other)))),
        };
        let input = match fields.take("input").unwrap_or_default() {
            Value::Array(items) if items.len() > MOST_TEXTS => {
                let problem = format!("has {} texts, but at most {MOST_TEXTS} are taken", items.len());
                return Err(ApiError::value("input", problem));
            }
            Value::Array(items) => items.into_iter().map(text).collect::<Result<_, _>>()?,
            one => vec![text(one)?],
        };
        Self::with_options(&mut fields, input)
    }

    /// Reads a body of Ollama's older route.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read_old(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, OLD_EMBEDDINGS_PARAMS)?;
        let input = fields.text("prompt").filter(|text| !text.is_empty()).map(Prompt::Text);
        Self::with_options(&mut fields, input.into_iter().collect())
    }

    fn with_options(fields: &mut Fields, input: Vec<Prompt>) -> Result<Self, ApiError> {
        let options = ollama::options(fields)?;
        let mut request = Self { input, num_ctx: options.count("num_ctx"), ..Self::base(fields) };
        request.keep_alive = ollama::keep_alive(fields)?;
        request.truncate = fields.bool("truncate").unwrap_or(true);
        request.unknown.extend_from_slice(options.unknown());
        Ok(request)
    }

    fn base(fields: &mut Fields) -> Self {
        Self {
            model: fields.text("model"),
            input: Vec::new(),
            encoding: Encoding::Float,
            dimensions: fields.count("dimensions"),
            pooling: None,
            norm: None,
            add_special: true,
            priority: 0,
            truncate: false,
            num_ctx: None,
            keep_alive: None,
            unknown: fields.unknown().to_vec(),
        }
    }
}

/// An embedding as it is written.
#[derive(Debug, Clone, PartialEq)]
pub struct Vector {
    /// Its values.
    pub values: Vec<f32>,
    /// How.
    pub encoding: Encoding,
}

impl Serialize for Vector {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.encoding {
            Encoding::Float => self.values.serialize(serializer),
            Encoding::Base64 => {
                let bytes: Vec<u8> = self.values.iter().flat_map(|value| value.to_le_bytes()).collect();
                serializer.serialize_str(&STANDARD.encode(bytes))
            }
        }
    }
}

/// One embedding.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Embedding {
    /// `embedding`.
    pub object: &'static str,
    /// Which text.
    pub index: usize,
    /// Its values.
    pub embedding: Vector,
}

/// The embeddings of a text in llama.cpp's shape: one, or one of each token.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TextVectors {
    /// Which text.
    pub index: usize,
    /// Their values.
    pub embedding: Vec<Vec<f32>>,
}

/// Tokens of a request that generates nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct TextUsage {
    /// Of the texts.
    pub prompt_tokens: usize,
    /// The same.
    pub total_tokens: usize,
}

/// The embeddings of a request.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Embeddings {
    /// `list`.
    pub object: &'static str,
    /// In the order of the texts.
    pub data: Vec<Embedding>,
    /// The model's name.
    pub model: String,
    /// Tokens.
    pub usage: TextUsage,
}

/// The embeddings of a request of Ollama's; durations in nanoseconds.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OllamaEmbeddings {
    /// The model's name.
    pub model: String,
    /// In the order of the texts.
    pub embeddings: Vec<Vec<f32>>,
    /// From the request's arrival.
    pub total_duration: u64,
    /// Models are loaded before they are asked.
    pub load_duration: u64,
    /// Tokens of the texts.
    pub prompt_eval_count: usize,
}

/// The embedding of a request of Ollama's older route.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct OllamaEmbedding {
    /// Its values.
    pub embedding: Vec<f32>,
}
