//! Grammars of calls: what a model must write to call a tool.

use super::{Grammar, GrammarError, MOST_NESTING, Source, check_nesting, gbnf, schema};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use smelt_tokenizer::Tokenizer;
use smelt_tokenizer::answer::{CallFormat, Shape, Tool, ToolSet, Trigger};
use std::fmt::Write as _;

/// Rules that calls may take, for schemas and repetitions.
const MOST_RULES: usize = 4096;

/// Calls that a model may make, or not: what begins with a trigger goes on as a call.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Calls {
    pub(super) triggers: Vec<Trigger>,
    /// Of calls, the strictest first; the first one that compiles holds.
    pub(super) grammars: Vec<Grammar>,
}

impl Calls {
    /// Calls of these tools, by their schemas. Of a schema that can't be enforced, only the arguments' names and types are.
    /// With `alone` an answer that has a call has nothing else; otherwise content may stand in front of calls and behind.
    ///
    /// # Errors
    /// That the tools are too many.
    pub fn new(
        format: &CallFormat,
        tools: &ToolSet,
        (one_call, alone): (bool, bool),
        tokenizer: &Tokenizer,
    ) -> Result<Self, GrammarError> {
        let shape = |tools: &ToolSet| match alone {
            true => format.shape(tools, one_call),
            false => format.one_shape(tools, one_call),
        };
        let is_enforced = |tool: &Tool| {
            check_nesting(&tool.parameters, MOST_NESTING).is_ok()
                && check(&format.one_shape(&ToolSet::new(vec![tool.clone()]), true)).is_ok()
        };
        let strict =
            tools.tools().iter().map(|tool| if is_enforced(tool) { tool.clone() } else { plain(tool) });
        let strict = grammar(&shape(&ToolSet::new(strict.collect())), tokenizer);
        let plain = grammar(&shape(&ToolSet::new(tools.tools().iter().map(plain).collect())), tokenizer)?;
        let grammars = strict.into_iter().chain([plain]).collect();
        Ok(Self { triggers: format.triggers(tools), grammars })
    }
}

/// The tool with as much of its schema as can always be enforced.
fn plain(tool: &Tool) -> Tool {
    const TYPES: [&str; 7] = ["array", "boolean", "integer", "null", "number", "object", "string"];
    let typed = |(name, schema): (&String, &Value)| {
        let kind = schema["type"].as_str().filter(|kind| TYPES.contains(kind));
        (name.clone(), kind.map_or_else(|| json!({}), |kind| json!({"type": kind})))
    };
    let properties = tool.parameters["properties"].as_object();
    let properties: Map<String, Value> = properties.into_iter().flatten().map(typed).collect();
    let required = tool.parameters["required"].as_array();
    let required = required.into_iter().flatten().filter_map(Value::as_str);
    let required: Vec<&str> = required.filter(|name| properties.contains_key(*name)).collect();
    let parameters = json!({"type": "object", "required": required, "properties": properties});
    Tool { name: tool.name.clone(), parameters }
}

/// Whether all schemas in a shape can be enforced.
fn check(shape: &Shape) -> Result<(), GrammarError> {
    match shape {
        Shape::Json(schema) => schema::lower(schema).map(drop),
        Shape::Sequence(parts) | Shape::OneOf(parts) => parts.iter().try_for_each(check),
        Shape::Optional(part) => check(part),
        Shape::Several(first, next) => check(first).and_then(|()| check(next)),
        Shape::Text(_) | Shape::Letters(_) | Shape::Pattern(_) | Shape::Until(_) => Ok(()),
    }
}

/// A grammar in llguidance's dialect of Lark.
///
/// # Errors
/// The keyword of a schema that can't be enforced, or that there is too much.
pub(super) fn grammar(shape: &Shape, tokenizer: &Tokenizer) -> Result<Grammar, GrammarError> {
    let mut rules = Rules { tokenizer, text: String::new(), count: 0, schemas: Vec::new() };
    let start = rules.expression(shape)?;
    let lark = format!("start: {start}\n{}", rules.text);
    if lark.len() > super::MOST_SCHEMA_BYTES {
        return Err(GrammarError::TooLarge { what: "bytes of all tools", limit: super::MOST_SCHEMA_BYTES });
    }
    Ok(Grammar(Source::Lark(lark)))
}

struct Rules<'a> {
    tokenizer: &'a Tokenizer,
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
            Shape::Letters(text) => gbnf::quote(text),
            Shape::Pattern(regex) => self.rule("", &format!("/{regex}/"))?,
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
                let mut options: Vec<String> =
                    options.iter().map(|option| self.expression(option)).collect::<Result<_, _>>()?;
                // Without control tokens in it, a mark has one way to be written.
                options.dedup();
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
        while let Some((id, found)) = self.tokenizer.find_control(text) {
            if found.start > 0 {
                parts.push(gbnf::quote(&text[..found.start]));
            }
            parts.push(format!("<[{id}]>"));
            text = &text[found.end..];
        }
        if !text.is_empty() || parts.is_empty() {
            parts.push(gbnf::quote(text));
        }
        parts.join(" ")
    }
}
