//! Values in notations that are not quite JSON: Python's literals, and those of Gemma.

use serde_json::{Map, Value};

use super::cursor::{Cursor, Read, Stop, undecided};

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

/// The arguments of a call, as far as they were read.
#[derive(Debug, Default)]
pub(super) struct Members {
    pub(super) done: Map<String, Value>,
    /// The name and the text of one that goes on.
    pub(super) open: Option<(String, String)>,
}

impl Notation {
    /// Takes `KEY assign VALUE, …` up to `close`. Where the text ends in them, `into` has what was read.
    pub(super) fn members(
        self,
        cursor: &mut Cursor<'_>,
        (assign, close): (&str, &str),
        into: &mut Members,
    ) -> Read<()> {
        self.pairs(cursor, (assign, close), DEEPEST, into)
    }

    fn pairs(
        self,
        cursor: &mut Cursor<'_>,
        (assign, close): (&str, &str),
        depth: usize,
        into: &mut Members,
    ) -> Read<()> {
        loop {
            cursor.space();
            if cursor.has(close)? {
                return Ok(());
            }
            let mut key = None;
            if !self.string(cursor, &mut key)? {
                key = Some(cursor.run(|c| c.is_alphanumeric() || "_-$.".contains(c))?.to_owned());
            }
            let key = key.filter(|key| !key.is_empty()).ok_or(Stop::Wrong)?;
            cursor.space();
            cursor.expect(assign)?;
            cursor.space();
            let mut text = None;
            let value = match self.string(cursor, &mut text) {
                Ok(false) => self.value(cursor, depth)?,
                Ok(true) => text.into(),
                Err(stop) => {
                    into.open = text.map(|text| (key, text));
                    return Err(stop);
                }
            };
            into.done.insert(key, value);
            cursor.space();
            if !cursor.has(",")? {
                return cursor.expect(close);
            }
        }
    }

    fn value(self, cursor: &mut Cursor<'_>, depth: usize) -> Read<Value> {
        let Some(depth) = depth.checked_sub(1) else { return Err(Stop::Wrong) };
        cursor.space();
        let mut text = None;
        if self.string(cursor, &mut text)? {
            return Ok(text.into());
        }
        if cursor.has("{")? {
            let mut members = Members::default();
            self.pairs(cursor, (":", "}"), depth, &mut members)?;
            return Ok(Value::Object(members.done));
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

    /// Takes a string, if one stands here: whether. Where the text ends in it, `into` has what of it is certain.
    fn string(self, cursor: &mut Cursor<'_>, into: &mut Option<String>) -> Read<bool> {
        for quote in self.quotes {
            if !cursor.has(quote)? {
                continue;
            }
            let text = into.insert(String::new());
            match quote.chars().collect::<Vec<_>>()[..] {
                [quote] => escaped(cursor, quote, text)?,
                _ => {
                    let rest = cursor.rest();
                    let certain = &rest[..undecided(rest, [*quote])];
                    let whole = cursor.until(quote);
                    text.push_str(whole.unwrap_or(certain));
                    whole?;
                }
            }
            return Ok(true);
        }
        Ok(false)
    }
}

/// The rest of a string with Python's escapes; one that Python doesn't know stays as it is.
fn escaped(cursor: &mut Cursor<'_>, quote: char, text: &mut String) -> Read<()> {
    loop {
        let plain = |c| c != quote && c != '\\';
        let rest = cursor.rest();
        match cursor.run(plain) {
            Ok(run) => text.push_str(run),
            Err(stop) => {
                text.push_str(rest);
                return Err(stop);
            }
        }
        if cursor.peek()? == quote {
            cursor.at += quote.len_utf8();
            return Ok(());
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
