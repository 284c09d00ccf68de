//! The keywords of JSON Schema, and what becomes of each.

use serde_json::Value;

/// What a keyword holds, and with it what becomes of it.
#[derive(Debug, Clone, Copy)]
pub(super) enum Use {
    /// A schema.
    Schema,
    /// A list of schemas.
    Schemas,
    /// Schemas by name.
    SchemaMap,
    /// Schemas by a pattern for names.
    PatternMap,
    /// A list of schemas of which exactly one may hold. They must differ in a way that can be seen.
    OneOf,
    /// A whole number, not negative.
    Count,
    /// A number.
    Bound,
    /// A number over zero.
    Factor,
    /// A regular expression.
    Pattern,
    /// The name of a format.
    Format,
    /// The name of a type, or a list of them.
    Types,
    /// A list of names.
    Names,
    /// A value.
    Const,
    /// A list of values.
    Enum,
    /// Where the schema stands that holds here too.
    Ref,
    /// Schemas that hold where something refers to them.
    Definitions,
    /// What the document is written in.
    Dialect,
    /// The address of the document; of a part of it, nothing can be resolved below.
    Id,
    /// It says nothing about values.
    Annotation,
    /// It can't be enforced, except where it says nothing; the reason.
    Refused(fn(&Value) -> bool, &'static str),
}

fn never(_: &Value) -> bool {
    false
}

fn is_true(value: &Value) -> bool {
    *value == Value::Bool(true) || value.as_object().is_some_and(serde_json::Map::is_empty)
}

fn is_false(value: &Value) -> bool {
    *value == Value::Bool(false)
}

/// A schema of names that every name meets.
fn any_name(value: &Value) -> bool {
    let is_string = |object: &serde_json::Map<String, Value>| {
        object.len() == 1 && object.get("type").is_some_and(|kind| kind == "string")
    };
    is_true(value) || value.as_object().is_some_and(is_string)
}

const SIBLINGS: &str = "a grammar can't look at what else the value holds";
const TWICE: &str = "a value can't be held against two schemas of which one may fail";

/// Every keyword of draft 2020-12, and those of earlier ones that schemas still have. What isn't here is no keyword:
/// the standard has it ignored.
#[rustfmt::skip]
pub(super) static KEYWORDS: &[(&str, Use)] = &[
    ("type", Use::Types),
    ("const", Use::Const),
    ("enum", Use::Enum),
    ("minimum", Use::Bound),
    ("maximum", Use::Bound),
    ("exclusiveMinimum", Use::Bound),
    ("exclusiveMaximum", Use::Bound),
    ("multipleOf", Use::Factor),
    ("minLength", Use::Count),
    ("maxLength", Use::Count),
    ("pattern", Use::Pattern),
    ("format", Use::Format),
    ("prefixItems", Use::Schemas),
    ("items", Use::Schema),
    ("minItems", Use::Count),
    ("maxItems", Use::Count),
    ("properties", Use::SchemaMap),
    ("patternProperties", Use::PatternMap),
    ("additionalProperties", Use::Schema),
    ("required", Use::Names),
    ("minProperties", Use::Count),
    ("maxProperties", Use::Count),
    ("allOf", Use::Schemas),
    ("anyOf", Use::Schemas),
    ("oneOf", Use::OneOf),
    ("$ref", Use::Ref),
    ("$defs", Use::Definitions),
    ("definitions", Use::Definitions),
    ("$schema", Use::Dialect),
    ("$id", Use::Id),
    ("$anchor", Use::Annotation),
    ("$dynamicAnchor", Use::Annotation),
    ("$comment", Use::Annotation),
    ("title", Use::Annotation),
    ("description", Use::Annotation),
    ("default", Use::Annotation),
    ("examples", Use::Annotation),
    ("deprecated", Use::Annotation),
    ("readOnly", Use::Annotation),
    ("writeOnly", Use::Annotation),
    ("contentEncoding", Use::Annotation),
    ("contentMediaType", Use::Annotation),
    ("contentSchema", Use::Annotation),
    // Without `if` and `contains` these say nothing; with them, those are refused.
    ("then", Use::Annotation),
    ("else", Use::Annotation),
    ("minContains", Use::Annotation),
    ("maxContains", Use::Annotation),
    ("if", Use::Refused(never, TWICE)),
    ("not", Use::Refused(is_false, TWICE)),
    ("contains", Use::Refused(never, "a grammar can't count the items that meet a schema")),
    ("uniqueItems", Use::Refused(is_false, "a grammar can't compare items")),
    ("propertyNames", Use::Refused(any_name, "use `patternProperties` with `additionalProperties: false`")),
    ("dependentRequired", Use::Refused(never, SIBLINGS)),
    ("dependentSchemas", Use::Refused(never, SIBLINGS)),
    ("unevaluatedItems", Use::Refused(is_true, "use `items: false`")),
    ("unevaluatedProperties", Use::Refused(is_true, "use `additionalProperties: false`")),
    ("$dynamicRef", Use::Refused(never, "use `$ref`")),
    ("$recursiveRef", Use::Refused(never, "use `$ref`")),
    ("$vocabulary", Use::Refused(never, "the vocabulary is the standard's own")),
    ("additionalItems", Use::Refused(is_true, "it is of an earlier draft: use `prefixItems` and `items`")),
    ("dependencies", Use::Refused(never, SIBLINGS)),
];

/// The drafts whose schemas are read, all by the rules of 2020-12.
pub(super) const DIALECTS: &[&str] = &[
    "https://json-schema.org/draft/2020-12/schema",
    "https://json-schema.org/draft/2019-09/schema",
    "http://json-schema.org/draft-07/schema",
    "http://json-schema.org/draft-06/schema",
    "http://json-schema.org/draft-04/schema",
];

/// The names of types.
pub(super) const TYPES: &[&str] = &["null", "boolean", "number", "integer", "string", "array", "object"];

/// How a format is enforced.
#[derive(Debug, Clone, Copy)]
pub(super) enum Format {
    /// By llguidance's own expression.
    Known,
    /// By this expression, on strings of at most so many characters.
    Pattern(&'static str, u32),
    /// Not at all.
    Refused,
}

/// A day, with leap years.
macro_rules! date {
    () => {
        concat!(
            "(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)",
            "|02-(?:0[1-9]|1[0-9]|2[0-8]))",
            "|(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)-02-29)"
        )
    };
}

/// A time of day. There are leap seconds in the standard, but not every hour has one.
macro_rules! time {
    () => {
        concat!(
            r"(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?",
            "(?:[zZ]|[+-](?:[01][0-9]|2[0-3]):[0-5][0-9])"
        )
    };
}

/// A label of a host's name: at most 63 characters, no hyphen at an end, and none at the third and fourth place, where
/// those would have to be Punycode.
macro_rules! label {
    () => {
        concat!(
            "(?:[0-9A-Za-z]{1,2}|[0-9A-Za-z][0-9A-Za-z-](?:[0-9A-Za-z](?:[0-9A-Za-z-]{0,59}[0-9A-Za-z])?",
            "|-[0-9A-Za-z](?:[0-9A-Za-z-]{0,58}[0-9A-Za-z])?))"
        )
    };
}

/// The formats of the standard. Some are narrower than there: of several ways to write a value one is enough. Another name
/// is a label of its writer's.
pub(super) static FORMATS: &[(&str, Format)] = &[
    ("date-time", Format::Pattern(concat!("^", date!(), "[tT]", time!(), "$"), 64)),
    ("date", Format::Pattern(concat!("^", date!(), "$"), 10)),
    ("time", Format::Pattern(concat!("^", time!(), "$"), 64)),
    ("hostname", Format::Pattern(concat!("^", label!(), r"(?:\.", label!(), ")*$"), 253)),
    ("duration", Format::Known),
    ("email", Format::Known),
    ("ipv4", Format::Known),
    ("ipv6", Format::Known),
    ("uuid", Format::Known),
    ("uri", Format::Known),
    ("idn-email", Format::Refused),
    ("idn-hostname", Format::Refused),
    ("iri", Format::Refused),
    ("iri-reference", Format::Refused),
    ("uri-reference", Format::Refused),
    ("uri-template", Format::Refused),
    ("json-pointer", Format::Refused),
    ("relative-json-pointer", Format::Refused),
    ("regex", Format::Refused),
];

/// The keyword `name`, if it is one.
pub(super) fn find(name: &str) -> Option<Use> {
    KEYWORDS.iter().find(|(keyword, _)| *keyword == name).map(|(_, treatment)| *treatment)
}
