//! `/tokenize` and `/detokenize`: the routes that routers and benchmarks ask, with vLLM's and llama.cpp's names.

use serde::Serialize;
use serde_json::{Map, Value};

use crate::error::ApiError;
use crate::message::{ChatMessage, MESSAGE, Role};
use crate::params::{Fields, Kind, Params, Support, param, shown};
use crate::tools::{TOOL, Tools};

use Kind::{Bool, Ids, Items, Object, Text};
use Support::{Required, Yes};

/// The parameters of `/tokenize`.
pub static TOKENIZE_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("prompt", Text, Yes, "the text, in vLLM's word"),
    param("content", Text, Yes, "the text, in llama.cpp's word"),
    param("messages", Items(MESSAGE), Yes, "a conversation, rendered by the model's chat template"),
    param(
        "add_special_tokens",
        Bool,
        Yes,
        "add BOS and EOS where the vocabulary asks for them; on for `prompt`",
    ),
    param("add_special", Bool, Yes, "the same, off for `content`"),
    param("parse_special", Bool, Yes, "read control tokens in the text as such; on"),
    param("return_token_strs", Bool, Yes, "tell the tokens' texts too"),
    param("add_generation_prompt", Bool, Yes, "end a conversation where the answer begins; on"),
    param("chat_template_kwargs", Object, Yes, "variables for the chat template"),
    param("with_pieces", Bool, Yes, "tell each token as an object of its id and its text, as llama.cpp does"),
    param("tools", Items(TOOL), Yes, "functions that the model is told of"),
]];

/// The parameters of `/detokenize`.
pub static DETOKENIZE_PARAMS: &[Params] = &[&[
    param("model", Text, Yes, "the model's name; may be left out if there is only one"),
    param("tokens", Ids, Required, "token ids"),
]];

/// What to tokenize.
#[derive(Debug, Clone, PartialEq)]
pub enum Source {
    /// A text.
    Text {
        /// The text.
        text: String,
        /// Add BOS and EOS.
        add_special: bool,
        /// Read control tokens.
        parse_special: bool,
    },
    /// A conversation.
    Chat {
        /// The messages.
        messages: Vec<ChatMessage>,
        /// What the model may call.
        tools: Tools,
        /// End where the answer begins.
        add_generation_prompt: bool,
        /// Variables for the template.
        template_kwargs: Map<String, Value>,
    },
}

/// A request to tokenize.
#[derive(Debug, Clone, PartialEq)]
pub struct TokenizeRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// What to tokenize.
    pub source: Source,
    /// Tell the tokens' texts.
    pub strings: bool,
    /// Tell them beside the ids.
    pub pieces: bool,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl TokenizeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, TOKENIZE_PARAMS)?;
        let (prompt, content) = (fields.text("prompt"), fields.text("content"));
        let add = fields.bool("add_special_tokens").or(fields.bool("add_special"));
        let parse_special = fields.bool("parse_special").unwrap_or(true);
        let source = match (prompt, content, fields.list("messages")) {
            (Some(text), None, None) => {
                Source::Text { text, add_special: add.unwrap_or(true), parse_special }
            }
            (None, Some(text), None) => {
                Source::Text { text, add_special: add.unwrap_or(false), parse_special }
            }
            (None, None, Some(messages)) => {
                let roles = [Role::System, Role::Developer, Role::User, Role::Assistant, Role::Tool];
                Source::Chat {
                    messages: ChatMessage::read_all(messages, "messages", &roles)?,
                    tools: Tools::read(&mut fields)?,
                    add_generation_prompt: fields.bool("add_generation_prompt").unwrap_or(true),
                    template_kwargs: fields.object("chat_template_kwargs").unwrap_or_default(),
                }
            }
            (None, None, None) => return Err(ApiError::missing("prompt")),
            _ => {
                return Err(ApiError::value("prompt", "excludes `content` and `messages`: give one of them"));
            }
        };
        Ok(Self {
            model: fields.text("model"),
            source,
            strings: fields.bool("return_token_strs").unwrap_or(false),
            pieces: fields.bool("with_pieces").unwrap_or(false),
            unknown: fields.unknown().to_vec(),
        })
    }
}

/// Tokens of a text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenizeResponse {
    /// How many.
    pub count: usize,
    /// Tokens of the model's context.
    pub max_model_len: usize,
    /// The tokens.
    pub tokens: Tokens,
    /// Their texts, if asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub token_strs: Option<Vec<String>>,
}

/// Tokens as a request wants them told.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Tokens {
    /// Their ids.
    Ids(Vec<u32>),
    /// With their texts.
    Pieces(Vec<TokenPiece>),
}

/// A token with its text.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct TokenPiece {
    /// Its id.
    pub id: u32,
    /// What it says.
    pub piece: Piece,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(untagged)]
pub enum Piece {
    /// Text.
    Text(String),
    /// Bytes that are no text by themselves.
    Bytes(Vec<u8>),
}

impl TokenPiece {
    /// A token of these bytes.
    #[must_use]
    pub fn new(id: u32, bytes: &[u8]) -> Self {
        let piece = match std::str::from_utf8(bytes) {
            Ok(text) => Piece::Text(text.to_owned()),
            Err(_) => Piece::Bytes(bytes.to_vec()),
        };
        Self { id, piece }
    }
}

/// A request to turn tokens to text.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DetokenizeRequest {
    /// The model asked for.
    pub model: Option<String>,
    /// Their ids.
    pub tokens: Vec<u32>,
    /// Fields that nobody knows.
    pub unknown: Vec<String>,
}

impl DetokenizeRequest {
    /// Reads a request's body.
    ///
    /// # Errors
    /// What a client can do wrong.
    pub fn read(body: &[u8]) -> Result<Self, ApiError> {
        let mut fields = Fields::parse(body, DETOKENIZE_PARAMS)?;
        let id = |(i, value): (usize, &Value)| {
            let id = value.as_u64().and_then(|id| u32::try_from(id).ok());
            id.ok_or_else(|| {
                ApiError::value(format!("tokens[{i}]"), format!("must be a token id, not {}", shown(value)))
            })
        };
        let tokens = fields.list("tokens").unwrap_or_default();
        let tokens = tokens.iter().enumerate().map(id).collect::<Result<_, _>>()?;
        Ok(Self { tokens, unknown: fields.unknown().to_vec(), model: fields.text("model") })
    }
}

/// Text of tokens, in vLLM's and llama.cpp's words.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct DetokenizeResponse {
    /// vLLM's.
    pub prompt: String,
    /// llama.cpp's.
    pub content: String,
}
