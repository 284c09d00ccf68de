//! The regular expressions of JSON Schema (ECMA-262) as those of `regex-syntax`.
//!
//! Both write most of it alike. What they write alike and mean differently is rewritten; what only one of them knows is
//! refused.

use std::borrow::Cow;
use std::fmt::Write as _;
use std::iter::Peekable;
use std::str::Chars;

/// ECMA-262's white space and line ends, as the inside of a class.
const SPACE: &str = r"\t-\r \u{a0}\u{1680}\u{2000}-\u{200a}\u{2028}\u{2029}\u{202f}\u{205f}\u{3000}\u{feff}";
const NOT_SPACE: &str = r"\x00-\x08\u{e}-\u{1f}!-\u{9f}\u{a1}-\u{167f}\u{1681}-\u{1fff}\u{200b}-\u{2027}\u{202a}-\u{202e}\u{2030}-\u{205e}\u{2060}-\u{2fff}\u{3001}-\u{fefe}\u{ff00}-\u{10ffff}";
const WORD: &str = "0-9A-Za-z_";
const NOT_WORD: &str = r"\x00-/:-@\[-\^`\{-\u{10ffff}";
const DIGIT: &str = "0-9";
const NOT_DIGIT: &str = r"\x00-/:-\u{10ffff}";

/// What `pattern` is in the words of `regex-syntax`.
///
/// # Errors
/// What of it is not known.
pub(super) fn translate(pattern: &str) -> Result<String, String> {
    let mut out = String::with_capacity(pattern.len() + 16);
    let mut chars = pattern.chars().peekable();
    while let Some(c) = chars.next() {
        match c {
            '\\' => match escape(&mut chars, false)? {
                Atom::Set(ranges) => drop(write!(out, "[{ranges}]")),
                one @ Atom::One(_) => write(&one, &mut out),
            },
            '[' => class(&mut chars, &mut out)?,
            '.' => out.push_str(r"[^\n\r\u{2028}\u{2029}]"),
            '(' => {
                out.push('(');
                group(&mut chars, &mut out)?;
            }
            c => out.push(c),
        }
    }
    Ok(out)
}

/// What may stand behind the parenthesis of a group. Names are of no use without references to them.
fn group(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    if chars.next_if_eq(&'?').is_none() {
        return Ok(());
    }
    match (chars.next(), chars.peek()) {
        (Some(':'), _) => out.push_str("?:"),
        (Some('<'), Some(c)) if !matches!(c, '=' | '!') => {
            out.push_str("?:");
            if !chars.any(|c| c == '>') {
                return Err("has a name without an end".into());
            }
        }
        (Some('=' | '!' | '<'), _) => return Err("looks ahead or behind".into()),
        _ => return Err("has a group of an unknown kind".into()),
    }
    Ok(())
}

/// What an escape or a character stands for.
enum Atom {
    One(char),
    /// Ranges, as the inside of a class.
    Set(Cow<'static, str>),
}

/// An escape, behind its backslash.
fn escape(chars: &mut Peekable<Chars<'_>>, in_class: bool) -> Result<Atom, String> {
    let Some(c) = chars.next() else { return Err("ends with a backslash".into()) };
    let set = |ranges: &'static str| Ok(Atom::Set(ranges.into()));
    Ok(Atom::One(match c {
        'd' => return set(DIGIT),
        'D' => return set(NOT_DIGIT),
        'w' => return set(WORD),
        'W' => return set(NOT_WORD),
        's' => return set(SPACE),
        'S' => return set(NOT_SPACE),
        'p' | 'P' if chars.peek() == Some(&'{') => {
            let name: String = chars.by_ref().take_while(|c| *c != '}').collect();
            return Ok(Atom::Set(format!("\\{c}{name}}}").into()));
        }
        'n' => '\n',
        'r' => '\r',
        't' => '\t',
        'f' => '\u{c}',
        'v' => '\u{b}',
        '0' if !chars.peek().is_some_and(char::is_ascii_digit) => '\0',
        'b' if in_class => '\u{8}',
        'c' => match chars.next() {
            Some(letter) if letter.is_ascii_alphabetic() => char::from(letter as u8 % 32),
            _ => return Err("has `\\c` without a letter".into()),
        },
        'x' => hex(chars, 2)?,
        'u' => unicode(chars)?,
        c if c.is_ascii_alphanumeric() => return Err(format!("has `\\{c}`")),
        c => c,
    }))
}

/// A class, behind its bracket.
fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let negated = chars.next_if_eq(&'^').is_some();
    if chars.next_if_eq(&']').is_some() {
        // ECMA-262's class of nothing, and of everything.
        out.push_str(if negated { r"[\x00-\u{10ffff}]" } else { r"[^\x00-\u{10ffff}]" });
        return Ok(());
    }
    out.push_str(if negated { "[^" } else { "[" });
    let atom = |chars: &mut Peekable<Chars<'_>>| match chars.next() {
        None => Err("has a class without an end".to_owned()),
        Some('\\') => escape(chars, true),
        Some(c) => Ok(Atom::One(c)),
    };
    while chars.next_if_eq(&']').is_none() {
        let first = atom(chars)?;
        let mut ahead = chars.clone();
        let is_range = ahead.next() == Some('-') && ahead.next().is_some_and(|c| c != ']');
        if !is_range {
            write(&first, out);
            continue;
        }
        chars.next();
        let last = atom(chars)?;
        write(&first, out);
        match (&first, &last) {
            (Atom::One(first), Atom::One(last)) if first > last => {
                return Err(format!("has the range {first}-{last}, which is empty"));
            }
            (Atom::One(_), Atom::One(_)) => out.push('-'),
            _ => write(&Atom::One('-'), out),
        }
        write(&last, out);
    }
    out.push(']');
    Ok(())
}

/// Writes an atom so that it is only itself, in a class and outside.
fn write(atom: &Atom, out: &mut String) {
    match atom {
        Atom::One(c) if c.is_ascii_alphanumeric() || !c.is_ascii() => out.push(*c),
        Atom::One(c) => drop(write!(out, r"\x{:02x}", u32::from(*c))),
        Atom::Set(ranges) => out.push_str(ranges),
    }
}

fn hex(chars: &mut Peekable<Chars<'_>>, digits: usize) -> Result<char, String> {
    let text: String = chars.by_ref().take(digits).collect();
    let code = u32::from_str_radix(&text, 16).ok().filter(|_| text.len() == digits && !text.starts_with('+'));
    code.and_then(char::from_u32).ok_or_else(|| format!("has the escape `{text}`, which is no character"))
}

/// `\uHHHH`, two of them for what needs surrogates, or `\u{H…}`.
fn unicode(chars: &mut Peekable<Chars<'_>>) -> Result<char, String> {
    if chars.next_if_eq(&'{').is_some() {
        let text: String = chars.by_ref().take_while(|c| *c != '}').collect();
        let code = u32::from_str_radix(&text, 16).ok().and_then(char::from_u32);
        return code.ok_or_else(|| format!("has the escape `{text}`, which is no character"));
    }
    let mut unit = || -> Option<u16> {
        let text: String = chars.by_ref().take(4).collect();
        u16::from_str_radix(&text, 16).ok()
    };
    let first = unit().ok_or("has `\\u` without four digits")?;
    let mut units = vec![first];
    if (0xd800..0xdc00).contains(&first) {
        let is_escape = chars.next() == Some('\\') && chars.next() == Some('u');
        let text: String = chars.by_ref().take(4).collect();
        units.extend(u16::from_str_radix(&text, 16).ok().filter(|_| is_escape));
    }
    let mut decoded = char::decode_utf16(units);
    match (decoded.next(), decoded.next()) {
        (Some(Ok(c)), None) => Ok(c),
        _ => Err("has half of a surrogate pair".into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_automata::meta::Regex;

    #[test]
    fn what_both_write_alike_means_what_ecma_says() {
        let cases: &[(&str, &[&str], &[&str])] = &[
            (r"^\d$", &["0", "9"], &["a", "\u{9ea}"]),
            (r"^\D$", &["a", "\u{9ea}"], &["0"]),
            (r"^\w$", &["a", "_"], &["é", "-"]),
            (r"^\W$", &["é", "-", "[", "`"], &["a", "_", "0"]),
            (r"^\s$", &[" ", "\u{feff}", "\u{b}", "\u{2029}"], &["\u{85}", "a"]),
            (r"^\S$", &["\u{85}", "a"], &[" ", "\u{feff}", "\t", "\u{a0}"]),
            (r"^[\S]$", &["a"], &["\u{2003}"]),
            (r"^.$", &["a", "\u{85}"], &["\n", "\r", "\u{2028}"]),
            (r"^\cC$", &["\u{3}"], &["C"]),
            (r"^[^]$", &["\n"], &["ab"]),
            (r"^[a&&b]+$", &["a&b"], &["c"]),
            (r"^[+--]$", &["+", ",", "-"], &["."]),
            (r"^[\w-.]$", &["a", "-", "."], &["/", ","]),
            (r"^[-a-]$", &["a", "-"], &["b"]),
            (r"^[[]$", &["["], &["]"]),
            (r"^[\b]$", &["\u{8}"], &["b"]),
            (r"^\/\-[\/\-\]]$", &["/-]"], &["/--\\"]),
            (r"^(?<year>\d{4})-(?:0|1)$", &["2024-1"], &["24-1"]),
            (r"^\u00e9\u{1F432}\ud83d\udc32$", &["é🐲🐲"], &["é"]),
            (r"^\p{Letter}+$", &["é"], &["1"]),
            (r"^\P{Letter}$", &["1"], &["é"]),
            ("^ #x$", &[" #x"], &["x"]),
        ];
        for (pattern, yes, no) in cases {
            let translated = translate(pattern).unwrap();
            let regex = Regex::new(&translated).unwrap_or_else(|e| panic!("{pattern}: {translated}: {e}"));
            yes.iter().for_each(|text| assert!(regex.is_match(text), "{pattern}: {text:?}"));
            no.iter().for_each(|text| assert!(!regex.is_match(text), "{pattern}: {text:?}"));
        }
    }

    #[test]
    fn what_is_not_known_is_refused() {
        for pattern in [
            r"(?=a)", r"(?!a)", r"(?<=a)", r"(?<!a)", r"(a)\1", r"\bx", r"\B", r"\Z", r"\k<a>", r"(?i)a", "[",
        ] {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
        for pattern in ["\\", r"\u", r"\ud800", r"\u{110000}", r"\x1", r"\c", "[\\", "(?", "(?<"] {
            assert!(translate(pattern).is_err(), "{pattern}");
        }
    }
}
