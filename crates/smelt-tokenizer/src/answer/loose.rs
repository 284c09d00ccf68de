//! Values in notations that are not quite JSON: Python's literals, and those of Gemma.

use serde_json::{Map, Value};

use super::cursor::{Cursor, Read, Stop};

/// How deep values may nest.
const DEEPEST: usize = 64;

/// A notation of values.
#[derive(Debug, Clone, Copy)]
pub(super) struct Notation {
    /// What stands on both sides of a string. A quote of one character knows escapes.
    pub(super) quotes: &'static [&'static str],
}

/// Python's, of which JSON's is nearly a part.
pub(super) const PYTHON: Notation = Notation { quotes: &["\"", "'"] };

impl Notation {
    /// Takes `KEY assign VALUE, …` up to `close`.
    pub(super) fn members(
        self,
        cursor: &mut Cursor<'_>,
        assign: &str,
        close: &str,
    ) -> Read<Map<String, Value>> {
        self.pairs(cursor, assign, close, DEEPEST)
    }

    fn pairs(
        self,
        cursor: &mut Cursor<'_>,
        assign: &str,
        close: &str,
        depth: usize,
    ) -> Read<Map<String, Value>> {
        let mut members = Map::new();
        loop {
            cursor.space();
            if cursor.has(close)? {
                return Ok(members);
            }
            let key = match self.string(cursor)? {
                Some(key) => key,
                None => cursor.run(|c| c.is_alphanumeric() || "_-$.".contains(c))?.to_owned(),
            };
            if key.is_empty() {
                return Err(Stop::Wrong);
            }
            cursor.space();
            cursor.expect(assign)?;
            members.insert(key, self.value(cursor, depth)?);
            cursor.space();
            if !cursor.has(",")? {
                cursor.expect(close)?;
                return Ok(members);
            }
        }
    }

    fn value(self, cursor: &mut Cursor<'_>, depth: usize) -> Read<Value> {
        let Some(depth) = depth.checked_sub(1) else { return Err(Stop::Wrong) };
        cursor.space();
        if let Some(text) = self.string(cursor)? {
            return Ok(Value::String(text));
        }
        if cursor.has("{")? {
            return Ok(Value::Object(self.pairs(cursor, ":", "}", depth)?));
        }
        for (open, close) in [("[", "]"), ("(", ")")] {
            if cursor.has(open)? {
                return self.items(cursor, close, depth);
            }
        }
        let word = cursor.run(|c| c.is_alphanumeric() || "_-+.".contains(c))?;
        match word {
            "True" | "true" => Ok(Value::Bool(true)),
            "False" | "false" => Ok(Value::Bool(false)),
            "None" | "null" => Ok(Value::Null),
            number => {
                serde_json::from_str::<serde_json::Number>(number).map(Value::Number).map_err(|_| Stop::Wrong)
            }
        }
    }

    fn items(self, cursor: &mut Cursor<'_>, close: &str, depth: usize) -> Read<Value> {
        let mut items = Vec::new();
        loop {
            cursor.space();
            if cursor.has(close)? {
                return Ok(Value::Array(items));
            }
            items.push(self.value(cursor, depth)?);
            cursor.space();
            if !cursor.has(",")? {
                cursor.expect(close)?;
                return Ok(Value::Array(items));
            }
        }
    }

    /// A string, if one stands here.
    fn string(self, cursor: &mut Cursor<'_>) -> Read<Option<String>> {
        for quote in self.quotes {
            if cursor.has(quote)? {
                return match quote.chars().collect::<Vec<_>>()[..] {
                    [quote] => escaped(cursor, quote).map(Some),
                    _ => Ok(Some(cursor.until(quote)?.to_owned())),
                };
            }
        }
        Ok(None)
    }
}

/// The rest of a string with Python's escapes; one that Python doesn't know stays as it is.
fn escaped(cursor: &mut Cursor<'_>, quote: char) -> Read<String> {
    let mut text = String::new();
    loop {
        text.push_str(cursor.run(|c| c != quote && c != '\\')?);
        if cursor.peek()? == quote {
            cursor.at += quote.len_utf8();
            return Ok(text);
        }
        cursor.at += 1;
        let code = cursor.peek()?;
        cursor.at += code.len_utf8();
        match code {
            'n' => text.push('\n'),
            't' => text.push('\t'),
            'r' => text.push('\r'),
            '\\' | '\'' | '"' | '/' => text.push(code),
            '\n' => {}
            'x' => text.push(character(cursor, 2)?),
            'u' => text.push(character(cursor, 4)?),
            'U' => text.push(character(cursor, 8)?),
            other => text.extend(['\\', other]),
        }
    }
}

/// A character by its number in so many hexadecimal digits.
fn character(cursor: &mut Cursor<'_>, digits: usize) -> Read<char> {
    let mut number = 0;
    for _ in 0..digits {
        let digit = cursor.peek()?;
        number = number * 16 + digit.to_digit(16).ok_or(Stop::Wrong)?;
        cursor.at += 1;
    }
    char::from_u32(number).ok_or(Stop::Wrong)
}
