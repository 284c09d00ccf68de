//! Schemas within grammars of Lark: `%json` and the schema behind it.

use super::{GrammarError, schema};
use serde_json::{Deserializer, Value};

const JSON: &str = "%json";

/// The grammar with each of its schemas as llguidance reads it as it is meant.
///
/// # Errors
/// The keyword of a schema that can't be enforced, or that what stands behind `%json` is none.
pub(super) fn lower_schemas(text: &str) -> Result<String, GrammarError> {
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find(['"', '/', '#', '<', '%']) {
        let (before, from) = rest.split_at(at);
        out.push_str(before);
        let length = match from.strip_prefix(JSON) {
            Some(behind) => {
                let (schema, length) = schema_at(behind)?;
                out.push_str(&format!("{JSON} {}", schema::lower(&schema)?));
                rest = &behind[length..];
                continue;
            }
            None => lexeme(from),
        };
        out.push_str(&from[..length]);
        rest = &from[length..];
    }
    out.push_str(rest);
    Ok(out)
}

/// The schema at the beginning of a text, and its bytes.
fn schema_at(text: &str) -> Result<(Value, usize), GrammarError> {
    let mut values = Deserializer::from_str(text).into_iter::<Value>();
    match values.next() {
        Some(Ok(schema)) => Ok((schema, values.byte_offset())),
        Some(Err(error)) => {
            Err(GrammarError::Invalid(format!("what is behind `{JSON}` is no JSON: {error}")))
        }
        None => Err(GrammarError::Invalid(format!("a schema is missing behind `{JSON}`"))),
    }
}

/// Bytes of the string, the expression, the comment or the control token that begins here, in which nothing else counts; of
/// anything else, its first.
fn lexeme(text: &str) -> usize {
    let line = text.find('\n').unwrap_or(text.len());
    match text.as_bytes() {
        [b'#', ..] | [b'/', b'/', ..] => line,
        [quote @ (b'"' | b'/'), rest @ ..] => {
            let mut is_escaped = false;
            let is_end = |byte: &u8| {
                let ends = !is_escaped && byte == quote;
                is_escaped = !is_escaped && *byte == b'\\';
                ends
            };
            rest.iter().position(is_end).map_or(text.len(), |at| at + 2)
        }
        [b'<', ..] => {
            let end =
                text[1..].find(|c: char| c == '<' || c == '>' || c.is_whitespace()).map_or(0, |at| at + 1);
            if text[end..].starts_with('>') { end + 1 } else { 1 }
        }
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_schemas_are_schemas() {
        for text in [
            "start: \"%json {\" /%json \\/ [\"]/ <%json> // %json {\n# %json \"\n X",
            "start: \"\\\"%json\" /x/ </tool_call>",
            "start: \"open",
            "start: /open",
            "a < b",
        ] {
            assert_eq!(lower_schemas(text).unwrap(), text);
        }
        let lowered = lower_schemas("start: \"a\" %json {\"type\": \"object\"} \"b\"").unwrap();
        assert!(lowered.starts_with("start: \"a\" %json {\"$ref\""), "{lowered}");
        assert!(lowered.ends_with("} \"b\""), "{lowered}");
        for (text, word) in [
            ("start: %json {\"uniqueItems\": true}", "uniqueItems"),
            ("start: \"x\" (%json {\"type\": \"array\", \"contains\": {\"const\": 1}})", "contains"),
            ("start: %json", "missing"),
            ("start: %json {\"a\"", "no JSON"),
        ] {
            assert!(lower_schemas(text).unwrap_err().to_string().contains(word), "{text}");
        }
    }
}
