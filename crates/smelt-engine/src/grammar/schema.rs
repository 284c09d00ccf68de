//! From a JSON schema to one that llguidance enforces exactly.
//!
//! llguidance reads schemas leniently, and takes some things differently than the standard does. So each schema is
//! written anew: only with keywords of the list in [`super::keywords`], each of the right type; every reference resolved
//! to a definition of its own; regular expressions, numbers and counts in the form that is read as it is meant. What
//! can't be enforced is refused by name.

use super::keywords::{self, Format, Use};
use super::{GrammarError, MOST_NESTING, pattern};
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Patterns that one value may have to meet at once.
const MOST_PATTERNS: usize = 4;

/// Rounds in which numbers of patterns travel along references.
const MOST_ROUNDS: usize = 64;

/// Parts of a schema, references resolved.
const MOST_PARTS: usize = 20_000;
/// Whole numbers up to here are the same as JSON and as `f64`.
const EXACT: f64 = 9_007_199_254_740_992.0;
/// Levels of references that are written out within one place.
const MOST_INLINED: usize = 8;

/// A document that llguidance reads as `schema` is meant.
///
/// # Errors
/// The keyword that can't be enforced, and where it stands.
pub(super) fn lower(schema: &Value) -> Result<Value, GrammarError> {
    let mut lowering = Lowering {
        root: schema,
        targets: Vec::new(),
        known: HashMap::new(),
        parts: 0,
        depth: 0,
        factors: Vec::new(),
        inlined: Vec::new(),
    };
    let root = lowering.definition("#".into());
    let mut definitions = Map::new();
    // Each may bring further ones.
    while let Some(target) = lowering.targets.get(definitions.len()).cloned() {
        let part = lowering.resolve(&target)?;
        let lowered = lowering.schema(part, &target)?;
        definitions.insert(format!("d{}", definitions.len()), lowered);
    }
    check_patterns(&definitions, &lowering.targets)?;
    Ok(json!({
        "$ref": root,
        "$defs": definitions,
        // Between tokens a space or a line break with an indent, as people write JSON; a model can't fill its answer with
        // white space. Escapes are those that have one spelling, so that a name can't be written in two ways.
        "x-guidance": {
            "whitespace_flexible": true,
            "whitespace_pattern": r" |\n[ ]{0,12}",
            "json_allowed_escapes": "nrbtf\\\"",
        },
    }))
}

struct Lowering<'a> {
    root: &'a Value,
    /// Where the definitions stand, as JSON pointers with `#`.
    targets: Vec<String>,
    /// Where in [`Self::targets`] each is.
    known: HashMap<String, usize>,
    parts: usize,
    /// Schemas that the present one is in, those of references that are written out counted too.
    depth: usize,
    /// What numbers must be multiples of.
    factors: Vec<(u64, u32)>,
    /// References that are being written out.
    inlined: Vec<String>,
}

/// Refuses more patterns on one value than [`MOST_PATTERNS`]: the work of meeting them all grows with the product of their sizes,
/// and no limit of llguidance's bounds it.
fn check_patterns(definitions: &Map<String, Value>, targets: &[String]) -> Result<(), GrammarError> {
    let mut known = vec![0; definitions.len()];
    // References mostly lead to later definitions. Those that lead back take further rounds, and what is still unknown then is a
    // chain that no pattern came through.
    for _ in 0..MOST_ROUNDS {
        let before = known.clone();
        for (i, definition) in definitions.values().enumerate().rev() {
            known[i] = patterns(definition, &known).ok_or_else(|| {
                let why = format!(
                    "more than {MOST_PATTERNS} of them meet on one value; write one that says it all"
                );
                refuse(&targets[i], "pattern", why)
            })?;
        }
        if known == before {
            break;
        }
    }
    Ok(())
}

/// How many patterns a value must meet at once; `None` if it, or a value inside it, must meet too many.
fn patterns(schema: &Value, known: &[usize]) -> Option<usize> {
    let Value::Object(fields) = schema else { return Some(0) };
    let mut sum = 0;
    for (keyword, value) in fields {
        if matches!(keyword.as_str(), "const" | "enum") {
            continue;
        }
        let inside: Vec<usize> = match value {
            Value::Array(list) => list.iter().map(|part| patterns(part, known)).collect::<Option<_>>()?,
            Value::Object(parts) if matches!(keyword.as_str(), "properties" | "patternProperties") => {
                parts.values().map(|part| patterns(part, known)).collect::<Option<_>>()?
            }
            part => vec![patterns(part, known)?],
        };
        sum += match keyword.as_str() {
            "pattern" => 1,
            "allOf" => inside.iter().sum(),
            "anyOf" | "oneOf" => inside.into_iter().max().unwrap_or(0),
            "$ref" => {
                let index = value.as_str().and_then(|r| r.rsplit_once("/d")?.1.parse::<usize>().ok());
                index.and_then(|index| known.get(index).copied()).unwrap_or(0)
            }
            _ => 0,
        };
    }
    (sum <= MOST_PATTERNS).then_some(sum)
}

/// A keyword that can't be enforced.
fn refuse(at: &str, keyword: &str, why: impl Into<String>) -> GrammarError {
    GrammarError::Keyword { keyword: keyword.to_owned(), at: Some(at.to_owned()), why: why.into() }
}

/// The pointer one step below `at`.
fn below(at: &str, key: &str) -> String {
    format!("{at}/{}", key.replace('~', "~0").replace('/', "~1"))
}

impl<'a> Lowering<'a> {
    /// The reference to the definition of what stands at `target`.
    fn definition(&mut self, target: String) -> String {
        let index = *self.known.entry(target).or_insert_with_key(|target| {
            self.targets.push(target.clone());
            self.targets.len() - 1
        });
        format!("#/$defs/d{index}")
    }

    fn schema(&mut self, schema: &'a Value, at: &str) -> Result<Value, GrammarError> {
        self.parts += 1;
        if self.parts > MOST_PARTS {
            return Err(GrammarError::TooLarge { what: "parts of the schema", limit: MOST_PARTS });
        }
        let fields = match schema {
            Value::Bool(_) => return Ok(schema.clone()),
            Value::Object(fields) => fields,
            _ => {
                return Err(GrammarError::Invalid(format!(
                    "{at} is no schema: it must be an object, true or false"
                )));
            }
        };
        if self.depth == MOST_NESTING {
            return Err(GrammarError::TooLarge { what: "levels of the schema", limit: MOST_NESTING });
        }
        self.depth += 1;
        let lowered = self.object(fields, at);
        self.depth -= 1;
        lowered
    }

    fn object(&mut self, fields: &'a Map<String, Value>, at: &str) -> Result<Value, GrammarError> {
        // Keywords that look at one another are read together, so those that hold schemas for the same value come behind.
        let mut own = Map::new();
        let (mut applied, mut also) = (Vec::new(), Vec::new());
        for (keyword, value) in fields {
            let Some(treatment) = keywords::find(keyword) else { continue };
            let Some(lowered) = self.keyword(fields, keyword, treatment, value, at)? else { continue };
            if matches!(treatment, Use::Schemas | Use::OneOf | Use::Ref | Use::Const | Use::Enum)
                && keyword != "prefixItems"
            {
                applied.push((own.is_empty(), keyword.clone(), lowered));
            } else if matches!(treatment, Use::Format) && lowered.is_object() {
                also.push(lowered);
            } else {
                own.insert(keyword.clone(), lowered);
            }
        }
        check_together(fields, &own, at)?;
        let mut out = Map::new();
        // The order is that of properties, so what came before them stays there.
        for (is_before, keyword, value) in &applied {
            if *is_before {
                out.insert(keyword.clone(), value.clone());
            }
        }
        out.append(&mut own);
        out.extend(
            applied
                .into_iter()
                .filter(|(is_before, ..)| !is_before)
                .map(|(_, keyword, value)| (keyword, value)),
        );
        if !also.is_empty() {
            let all_of = out.entry("allOf").or_insert_with(|| json!([]));
            all_of.as_array_mut().into_iter().for_each(|list| list.append(&mut also));
        }
        Ok(out.into())
    }

    /// What a keyword becomes; `None` if it says nothing.
    fn keyword(
        &mut self,
        fields: &'a Map<String, Value>,
        keyword: &str,
        treatment: Use,
        value: &'a Value,
        at: &str,
    ) -> Result<Option<Value>, GrammarError> {
        let wrong = |wanted: &str| refuse(at, keyword, format!("it must be {wanted}"));
        let here = below(at, keyword);
        Ok(Some(match treatment {
            Use::Schema => self.schema(value, &here)?,
            Use::Schemas | Use::OneOf => {
                let options = value.as_array().ok_or_else(|| wrong("a list"))?;
                let lower = |(i, option): (usize, &'a Value)| {
                    let at = below(&here, &i.to_string());
                    match treatment {
                        Use::OneOf => self.inline(option, &at),
                        _ => self.schema(option, &at),
                    }
                };
                options.iter().enumerate().map(lower).collect::<Result<Vec<_>, _>>()?.into()
            }
            Use::SchemaMap | Use::PatternMap => {
                let schemas = value.as_object().ok_or_else(|| wrong("an object"))?;
                let mut lowered = Map::new();
                for (name, schema) in schemas {
                    let key = match treatment {
                        Use::PatternMap => pattern::translate(name)
                            .map_err(|why| refuse(at, keyword, format!("`{name}` {why}")))?,
                        _ => name.clone(),
                    };
                    lowered.insert(key, self.schema(schema, &below(&here, name))?);
                }
                lowered.into()
            }
            Use::Factor => {
                let factor = decimal(value).ok_or_else(|| wrong("a number over 0 with few digits"))?;
                self.factor(factor).ok_or_else(|| {
                    refuse(at, keyword, "too many different factors to find a common multiple of")
                })?;
                value.clone()
            }
            Use::Ref => {
                let reference = value.as_str().ok_or_else(|| wrong("a string"))?;
                let target = self.target(reference).map_err(|why| refuse(at, keyword, why))?;
                self.definition(target).into()
            }
            _ => return plain(fields, keyword, treatment, value, at),
        }))
    }

    /// A schema with a reference that is all it has written out, so that it can be told from others beside it.
    fn inline(&mut self, schema: &'a Value, at: &str) -> Result<Value, GrammarError> {
        let says = |keyword: &&String| {
            !matches!(keywords::find(keyword), None | Some(Use::Annotation | Use::Definitions))
        };
        let alone = |fields: &&Map<String, Value>| fields.keys().filter(says).eq(["$ref"]);
        let reference = schema.as_object().filter(alone).and_then(|fields| fields["$ref"].as_str());
        let Some(reference) = reference else { return self.schema(schema, at) };
        let target = self.target(reference).map_err(|why| refuse(at, "$ref", why))?;
        if self.inlined.contains(&target) || self.inlined.len() == MOST_INLINED {
            return self.schema(schema, at);
        }
        let part = self.resolve(&target)?;
        self.inlined.push(target.clone());
        let lowered = self.inline(part, &target);
        self.inlined.pop();
        lowered
    }

    /// Where a reference points, as a pointer.
    fn target(&self, reference: &str) -> Result<String, String> {
        let unknown = || {
            format!("nothing stands at `{reference}` in this document, and nothing is loaded from elsewhere")
        };
        let id = self.root.get("$id").and_then(Value::as_str).unwrap_or_default().trim_end_matches('#');
        let fragment = reference.strip_prefix(id).filter(|rest| rest.is_empty() || rest.starts_with('#'));
        let fragment =
            decode_percent(fragment.ok_or_else(unknown)?.trim_start_matches('#')).ok_or_else(unknown)?;
        if fragment.is_empty() {
            return Ok("#".into());
        }
        if fragment.starts_with('/') {
            let target = format!("#{fragment}");
            return self.resolve(&target).map(|_| target).map_err(|_| unknown());
        }
        anchor(self.root, &fragment, "#").ok_or_else(unknown)
    }

    /// What stands at a pointer.
    fn resolve(&self, target: &str) -> Result<&'a Value, GrammarError> {
        let mut part = self.root;
        for (depth, key) in target.split('/').skip(1).enumerate() {
            // Below an address of its own, `#` is that part's beginning.
            if depth > 0 && part.get("$id").is_some() {
                return Err(refuse(target, "$id", "a part with an address of its own can't be resolved"));
            }
            let key = key.replace("~1", "/").replace("~0", "~");
            let next = match part {
                Value::Array(items) => key.parse().ok().and_then(|i: usize| items.get(i)),
                _ => part.get(&key),
            };
            part = next.ok_or_else(|| refuse(target, "$ref", "nothing stands there"))?;
        }
        Ok(part)
    }

    /// Takes a factor; `None` when the product of all different ones, on a common scale, doesn't fit 32 bits: that is how
    /// common multiples are computed.
    fn factor(&mut self, factor: (u64, u32)) -> Option<()> {
        if !self.factors.contains(&factor) {
            self.factors.push(factor);
        }
        let scale = self.factors.iter().map(|(_, scale)| *scale).max()?;
        let scaled = |&(digits, own): &(u64, u32)| digits.checked_mul(10_u64.checked_pow(scale - own)?);
        let mut product = 1_u64;
        for factor in &self.factors {
            product = product.checked_mul(scaled(factor)?)?;
        }
        (product <= u64::from(u32::MAX)).then_some(())
    }
}

/// What a keyword without schemas in it becomes; `None` if it says nothing.
fn plain(
    fields: &Map<String, Value>,
    keyword: &str,
    treatment: Use,
    value: &Value,
    at: &str,
) -> Result<Option<Value>, GrammarError> {
    let wrong = |wanted: &str| refuse(at, keyword, format!("it must be {wanted}"));
    Ok(Some(match treatment {
        Use::Annotation => return Ok(None),
        Use::Refused(says_nothing, _) if says_nothing(value) => return Ok(None),
        Use::Refused(_, why) => return Err(refuse(at, keyword, why)),
        Use::Definitions if value.is_object() => return Ok(None),
        Use::Definitions => return Err(wrong("an object")),
        Use::Dialect => {
            let known = value.as_str().map(|text| text.trim_end_matches('#'));
            return match known.filter(|text| keywords::DIALECTS.contains(text)) {
                Some(_) => Ok(None),
                None => Err(refuse(at, keyword, "only the drafts 4 to 2020-12 are known")),
            };
        }
        Use::Id if at == "#" => return Ok(None),
        Use::Id => {
            return Err(refuse(at, keyword, "a part with an address of its own can't be resolved"));
        }
        Use::Count => {
            let whole = |x: &f64| x.fract() == 0.0 && (0.0..=f64::from(u32::MAX)).contains(x);
            let count = value.as_f64().filter(whole).ok_or_else(|| wrong("a whole number below 2^32"))?;
            whole_number(count)
        }
        Use::Bound => number(value).ok_or_else(|| wrong("a number within 2^53"))?,
        Use::Pattern => {
            let text = value.as_str().ok_or_else(|| wrong("a string"))?;
            pattern::translate(text).map_err(|why| refuse(at, keyword, format!("the pattern {why}")))?.into()
        }
        Use::Format => return format(fields, value).map_err(|why| refuse(at, keyword, why)),
        Use::Types => {
            let known = |kind: &Value| kind.as_str().is_some_and(|kind| keywords::TYPES.contains(&kind));
            let all_known = match value {
                Value::Array(kinds) => !kinds.is_empty() && kinds.iter().all(known),
                kind => known(kind),
            };
            all_known.then(|| value.clone()).ok_or_else(|| wrong("a known type, or a list of them"))?
        }
        Use::Names => {
            let is_names = value.as_array().is_some_and(|names| names.iter().all(Value::is_string));
            is_names.then(|| value.clone()).ok_or_else(|| wrong("a list of names"))?
        }
        Use::Const => literal(value).map_err(|why| refuse(at, keyword, why))?,
        Use::Enum => {
            let values = value.as_array().filter(|values| !values.is_empty());
            let values = values.ok_or_else(|| wrong("a list of at least one value"))?;
            let literals: Result<Vec<Value>, _> = values.iter().map(literal).collect();
            literals.map_err(|why| refuse(at, keyword, why))?.into()
        }
        // Those that hold schemas are read before.
        Use::Schema
        | Use::Schemas
        | Use::SchemaMap
        | Use::PatternMap
        | Use::OneOf
        | Use::Factor
        | Use::Ref => return Ok(None),
    }))
}

/// Where the part with an anchor stands.
fn anchor(schema: &Value, name: &str, at: &str) -> Option<String> {
    let fields = schema.as_object()?;
    if at != "#" && fields.contains_key("$id") {
        return None;
    }
    let is_it = |key: &str| fields.get(key).is_some_and(|anchor| anchor == name);
    if is_it("$anchor") || is_it("$dynamicAnchor") {
        return Some(at.to_owned());
    }
    fields.iter().find_map(|(keyword, value)| {
        let here = below(at, keyword);
        match (keywords::find(keyword)?, value) {
            (Use::Schema, schema) => anchor(schema, name, &here),
            (Use::Schemas | Use::OneOf, Value::Array(schemas)) => {
                let find = |(i, schema): (usize, &Value)| anchor(schema, name, &below(&here, &i.to_string()));
                schemas.iter().enumerate().find_map(find)
            }
            (Use::SchemaMap | Use::PatternMap | Use::Definitions, Value::Object(schemas)) => {
                schemas.iter().find_map(|(key, schema)| anchor(schema, name, &below(&here, key)))
            }
            _ => None,
        }
    })
}

/// What of a schema's keywords only shows when they are seen together.
fn check_together(
    fields: &Map<String, Value>,
    own: &Map<String, Value>,
    at: &str,
) -> Result<(), GrammarError> {
    // A name that isn't listed could come twice, and count twice.
    let required = fields.get("required").and_then(Value::as_array).map_or(0, Vec::len) as u64;
    match own.get("minProperties").and_then(Value::as_u64) {
        Some(least) if least > required.max(1) => {
            Err(refuse(at, "minProperties", "more than 1 can only be had by listing the names in `required`"))
        }
        _ => Ok(()),
    }
}

/// What a format becomes: llguidance's name of it, or a schema. It is enforced where a string is asked for; elsewhere it
/// says nothing, as the standard has it.
fn format(fields: &Map<String, Value>, value: &Value) -> Result<Option<Value>, String> {
    let name = value.as_str().ok_or("it must be a string")?;
    let asks_for_string = match fields.get("type") {
        Some(Value::Array(kinds)) => kinds.iter().any(|kind| kind == "string"),
        kind => kind.is_some_and(|kind| kind == "string"),
    };
    let known = keywords::FORMATS.iter().find(|(known, _)| *known == name).filter(|_| asks_for_string);
    match known.map(|(_, format)| *format) {
        None => Ok(None),
        Some(Format::Known) => Ok(Some(value.clone())),
        Some(Format::Pattern(pattern, most)) => Ok(Some(json!({"pattern": pattern, "maxLength": most}))),
        Some(Format::Refused) => Err(format!("`{name}` can't be enforced; use `pattern`")),
    }
}

/// A number within what JSON and `f64` have in common, whole ones as such.
fn number(value: &Value) -> Option<Value> {
    let number = value.as_f64().filter(|x| x.abs() <= EXACT)?;
    Some(if number.fract() == 0.0 { whole_number(number) } else { value.clone() })
}

#[expect(clippy::cast_possible_truncation, reason = "whole, and within 2^53")]
fn whole_number(number: f64) -> Value {
    (number as i64).into()
}

/// A number over zero as digits and how many of them stand behind the point.
fn decimal(value: &Value) -> Option<(u64, u32)> {
    let text = number(value)?.to_string();
    let (whole, fraction) = text.split_once('.').unwrap_or((&text, ""));
    let digits: u64 = [whole, fraction].concat().parse().ok()?;
    (digits > 0).then_some((digits, u32::try_from(fraction.len()).ok()?))
}

/// A value as it is to be written.
fn literal(value: &Value) -> Result<Value, String> {
    match value {
        Value::Number(shown) => number(value).ok_or_else(|| format!("{shown} has too many digits")),
        // These have escapes of the form `\u0000` only.
        Value::String(text)
            if text.chars().any(|c| c.is_ascii_control() && !"\n\r\t\u{8}\u{c}".contains(c)) =>
        {
            Err(format!("{value} has a control character that isn't written"))
        }
        Value::Array(items) => Ok(items.iter().map(literal).collect::<Result<Vec<_>, _>>()?.into()),
        Value::Object(fields) => {
            let field = |(name, value): (&String, &Value)| Ok::<_, String>((name.clone(), literal(value)?));
            Ok(fields.iter().map(field).collect::<Result<Map<_, _>, _>>()?.into())
        }
        other => Ok(other.clone()),
    }
}

/// A URI's fragment without its escapes.
fn decode_percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'%' {
            let (digits, tail) = tail.split_at_checked(2)?;
            bytes.push(u8::from_str_radix(std::str::from_utf8(digits).ok()?, 16).ok()?);
            rest = tail;
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).ok()
}
