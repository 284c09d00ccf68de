//! Grammars: what an answer must look like, from a JSON schema, a regular expression, or a grammar as text.
//!
//! ```text
//! Grammar               what was asked for, checked as far as that goes without a model
//!   ├─ schema           JSON schemas: keywords that can be enforced, and how
//!   ├─ calls            calls of tools, as a family of models writes them
//!   ├─ lark             schemas within grammars
//!   └─ gbnf             llama.cpp's notation
//! Model::constrain      a Constraint for an answer of this model
//!   ├─ compiler         a grammar over the model's tokens, and the last few of them kept
//!   ├─ matcher          where an answer is in it; masks are computed on threads of their own
//!   ├─ triggered        content, and calls from where one begins
//!   └─ thoughts         the same, beginning behind a think block
//! ```
//!
//! llguidance does the parsing: an Earley parser over a lexer of derivatives, which walks the vocabulary as a trie.

mod calls;
mod compiler;
mod gbnf;
mod keywords;
mod lark;
mod matcher;
mod pattern;
mod schema;
mod thoughts;
mod triggered;
mod workers;

pub use calls::Calls;
pub(crate) use compiler::Compiler;

use crate::{Constraint, Model};
use matcher::GrammarConstraint;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use smelt_tokenizer::Tokenizer;
use smelt_tokenizer::answer::{Shape, ThinkTags};
use thoughts::Thoughts;
use triggered::Triggered;

/// Bytes that a schema may have.
pub const MOST_SCHEMA_BYTES: usize = 1 << 20;
/// Bytes that a grammar or a regular expression may have.
pub const MOST_GRAMMAR_BYTES: usize = 1 << 16;
/// Brackets that may be open at a time in a grammar or a regular expression, and levels of a schema.
pub const MOST_NESTING: usize = 100;

/// What an answer must look like.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Grammar(Source);

#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
enum Source {
    /// A schema as llguidance takes it.
    Schema(Value),
    /// A grammar in llguidance's dialect of Lark.
    Lark(String),
    Regex(String),
}

/// Why a grammar can't be enforced.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum GrammarError {
    /// A keyword of a JSON schema.
    #[error("the schema can't be enforced: `{keyword}`{}: {why}", at.as_ref().map(|at| format!(" at {at}")).unwrap_or_default())]
    Keyword {
        /// The keyword.
        keyword: String,
        /// The part of the schema that has it, as a JSON pointer, if it is known.
        at: Option<String>,
        /// Why.
        why: String,
    },
    /// It is larger than untrusted input may be.
    #[error("the grammar is too large: {what} are limited to {limit}")]
    TooLarge {
        /// What there are too many of.
        what: &'static str,
        /// How many there may be.
        limit: usize,
    },
    /// It is not well-formed, or uses what isn't there.
    #[error("the grammar can't be used: {0}")]
    Invalid(String),
    /// The model's vocabulary can't be constrained.
    #[error("the model's answers can't be constrained: {0}")]
    Vocabulary(String),
}

impl Grammar {
    /// A value that a JSON schema (draft 2020-12) allows.
    ///
    /// A value is written in one way: names in the order in which the schema lists them, those that it doesn't list behind
    /// them, numbers without needless digits where they have bounds, strings without needless escapes.
    ///
    /// # Errors
    /// The keyword that can't be enforced, or that the schema is too large.
    pub fn from_json_schema(schema: &Value) -> Result<Self, GrammarError> {
        check_nesting(schema, MOST_NESTING)?;
        if schema.to_string().len() > MOST_SCHEMA_BYTES {
            return Err(GrammarError::TooLarge { what: "bytes of the schema", limit: MOST_SCHEMA_BYTES });
        }
        schema::lower(schema).map(|lowered| Self(Source::Schema(lowered)))
    }

    /// Any JSON object.
    ///
    /// # Errors
    /// None in fact.
    pub fn json_object() -> Result<Self, GrammarError> {
        Self::from_json_schema(&json!({"type": "object"}))
    }

    /// A text that a regular expression matches as a whole. The syntax is that of Rust's `regex`, without assertions.
    ///
    /// # Errors
    /// If it is too large.
    pub fn regex(regex: &str) -> Result<Self, GrammarError> {
        check_text(regex)?;
        Ok(Self(Source::Regex(regex.to_owned())))
    }

    /// One of several texts.
    ///
    /// # Errors
    /// If there is none, or they are too large.
    pub fn choice(texts: &[String]) -> Result<Self, GrammarError> {
        if texts.is_empty() {
            return Err(GrammarError::Invalid("there is nothing to choose from".into()));
        }
        // As a list of strings a grammar has no characters that mean something.
        let quoted: Vec<String> = texts.iter().map(|text| gbnf::quote(text)).collect();
        let lark = format!("start: {}\n", quoted.join(" | "));
        if lark.len() > MOST_GRAMMAR_BYTES {
            return Err(GrammarError::TooLarge { what: "bytes of all choices", limit: MOST_GRAMMAR_BYTES });
        }
        Ok(Self(Source::Lark(lark)))
    }

    /// A grammar in llguidance's dialect of Lark, which begins with the rule `start`.
    ///
    /// # Errors
    /// If it is too large, or a schema in it has a keyword that can't be enforced.
    pub fn lark(text: &str) -> Result<Self, GrammarError> {
        check_text(text)?;
        lark::lower_schemas(text).map(|lark| Self(Source::Lark(lark)))
    }

    /// A grammar in GBNF, llama.cpp's notation, which begins with the rule `root`.
    ///
    /// # Errors
    /// Where it is not well-formed, or that it is too large.
    pub fn gbnf(text: &str) -> Result<Self, GrammarError> {
        check_text(text)?;
        gbnf::to_lark(text).map(|lark| Self(Source::Lark(lark)))
    }

    /// Calls of tools, in the notation of a family of models. Control tokens in it are those of `tokenizer`.
    ///
    /// # Errors
    /// The keyword of a tool's schema that can't be enforced, or that the tools are too many.
    pub fn calls(shape: &Shape, tokenizer: &Tokenizer) -> Result<Self, GrammarError> {
        calls::grammar(shape, tokenizer)
    }

    /// A grammar as text: GBNF if it defines rules with `::=`, else Lark.
    ///
    /// # Errors
    /// As [`Self::gbnf`] and [`Self::lark`].
    pub fn text(text: &str) -> Result<Self, GrammarError> {
        if text.contains("::=") { Self::gbnf(text) } else { Self::lark(text) }
    }
}

impl Model {
    /// Holds an answer of this model to a grammar. It compiles the grammar, which takes up to seconds for large ones, and
    /// tens of milliseconds the first time at all; the last few are kept.
    ///
    /// # Errors
    /// Why the grammar can't be enforced, or the vocabulary be constrained.
    pub fn constrain(&self, grammar: &Grammar) -> Result<Box<dyn Constraint>, GrammarError> {
        let (position, workers) = self.grammars.begin(&self.tokenizer, grammar)?;
        Ok(Box::new(GrammarConstraint::new(position, self.tokenizer.clone(), workers)))
    }

    /// Holds the calls in an answer of this model, and its content to another constraint if there is one.
    ///
    /// # Errors
    /// As [`Self::constrain`].
    pub fn constrain_calls(
        &self,
        calls: &Calls,
        content: Option<Box<dyn Constraint>>,
    ) -> Result<Box<dyn Constraint>, GrammarError> {
        let mut begun = Err(GrammarError::Invalid("there are no calls".into()));
        for grammar in &calls.grammars {
            begun = self.grammars.begin(&self.tokenizer, grammar);
            if begun.is_ok() {
                break;
            }
        }
        Ok(Box::new(Triggered::new(begun?, &self.tokenizer, &calls.triggers, content)))
    }

    /// Holds what the model says when it has thought to a constraint. `is_open` says that the prompt has opened the think
    /// block; otherwise the model may open one.
    #[must_use]
    pub fn behind_thoughts(
        &self,
        then: Box<dyn Constraint>,
        tags: &'static ThinkTags,
        is_open: bool,
    ) -> Box<dyn Constraint> {
        Box::new(Thoughts::new(&self.tokenizer, tags, is_open, then))
    }
}

/// Checks the size of a text and its nesting; what is quoted in it counts as well, which no one reaches.
fn check_text(text: &str) -> Result<(), GrammarError> {
    if text.len() > MOST_GRAMMAR_BYTES {
        return Err(GrammarError::TooLarge { what: "bytes of the grammar", limit: MOST_GRAMMAR_BYTES });
    }
    let mut depth = 0_usize;
    for c in text.bytes() {
        match c {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' => depth = depth.saturating_sub(1),
            _ => {}
        }
        if depth > MOST_NESTING {
            return Err(GrammarError::TooLarge { what: "brackets within brackets", limit: MOST_NESTING });
        }
    }
    Ok(())
}

fn check_nesting(value: &Value, left: usize) -> Result<(), GrammarError> {
    let Some(left) = left.checked_sub(1) else {
        return Err(GrammarError::TooLarge { what: "levels of the schema", limit: MOST_NESTING });
    };
    match value {
        Value::Array(items) => items.iter().try_for_each(|item| check_nesting(item, left)),
        Value::Object(fields) => fields.values().try_for_each(|field| check_nesting(field, left)),
        _ => Ok(()),
    }
}
