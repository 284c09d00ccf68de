//! Grammars of calls: what a model must write to call a tool.

use super::{Grammar, GrammarError, Source, gbnf, schema};
use smelt_tokenizer::answer::Shape;
use smelt_tokenizer::{TokenKind, Tokenizer};
use std::fmt::Write as _;

/// Rules that calls may take, for schemas and repetitions.
const MOST_RULES: usize = 4096;

/// A grammar in llguidance's dialect of Lark.
///
/// # Errors
/// The keyword of a schema that can't be enforced, or that there is too much.
pub(super) fn grammar(shape: &Shape, tokenizer: &Tokenizer) -> Result<Grammar, GrammarError> {
    let ids = 0..u32::try_from(tokenizer.vocab_size()).unwrap_or(u32::MAX);
    let controls = ids.filter(|id| tokenizer.kind(*id) == Some(TokenKind::Control));
    let controls =
        controls.filter_map(|id| Some((id, tokenizer.piece(id).filter(|piece| !piece.is_empty())?)));
    let mut rules =
        Rules { controls: controls.collect(), text: String::new(), count: 0, schemas: Vec::new() };
    let start = rules.expression(shape)?;
    let lark = format!("start: {start}\n{}", rules.text);
    if lark.len() > super::MOST_SCHEMA_BYTES {
        return Err(GrammarError::TooLarge { what: "bytes of all tools", limit: super::MOST_SCHEMA_BYTES });
    }
    Ok(Grammar(Source::Lark(lark)))
}

struct Rules<'a> {
    /// Control tokens and their texts.
    controls: Vec<(u32, &'a str)>,
    text: String,
    count: usize,
    /// Rules of schemas, which stand in several places, and their names.
    schemas: Vec<(String, String)>,
}

impl Rules<'_> {
    /// A new rule; its name.
    fn rule(&mut self, attributes: &str, body: &str) -> Result<String, GrammarError> {
        if self.count == MOST_RULES {
            return Err(GrammarError::TooLarge { what: "rules for calls", limit: MOST_RULES });
        }
        let name = format!("r{}", self.count);
        self.count += 1;
        // A string takes any text.
        let _ = writeln!(self.text, "{name}{attributes}: {body}");
        Ok(name)
    }

    fn expression(&mut self, shape: &Shape) -> Result<String, GrammarError> {
        Ok(match shape {
            Shape::Text(text) => self.literal(text),
            Shape::Json(schema) => {
                let body = format!("%json {}", schema::lower(schema)?);
                match self.schemas.iter().find(|(known, _)| *known == body) {
                    Some((_, name)) => name.clone(),
                    None => {
                        let name = self.rule("", &body)?;
                        self.schemas.push((body, name.clone()));
                        name
                    }
                }
            }
            Shape::Until(text) => match self.literal(text) {
                literal if literal.starts_with("<[") => {
                    let before = self.rule("", "/(?s:.*)/")?;
                    format!("{before} {literal}")
                }
                literal => self.rule("[lazy]", &format!("/(?s:.*)/ {literal}"))?,
            },
            Shape::Sequence(parts) => {
                let parts: Vec<String> =
                    parts.iter().map(|part| self.expression(part)).collect::<Result<_, _>>()?;
                parts.join(" ")
            }
            Shape::OneOf(options) => {
                let options: Vec<String> =
                    options.iter().map(|option| self.expression(option)).collect::<Result<_, _>>()?;
                format!("({})", options.join(" | "))
            }
            Shape::Optional(part) => format!("({})?", self.expression(part)?),
            Shape::Several(first, next) => {
                format!("{} ({})*", self.expression(first)?, self.expression(next)?)
            }
        })
    }

    /// A text, in which control tokens are named by their ids.
    fn literal(&self, mut text: &str) -> String {
        let mut parts: Vec<String> = Vec::new();
        let first = |text: &str| {
            let found =
                self.controls.iter().filter_map(|(id, piece)| Some((text.find(piece)?, piece.len(), *id)));
            found.min_by_key(|(at, length, _)| (*at, std::cmp::Reverse(*length)))
        };
        while let Some((at, length, id)) = first(text) {
            if at > 0 {
                parts.push(gbnf::quote(&text[..at]));
            }
            parts.push(format!("<[{id}]>"));
            text = &text[at + length..];
        }
        if !text.is_empty() || parts.is_empty() {
            parts.push(gbnf::quote(text));
        }
        parts.join(" ")
    }
}
