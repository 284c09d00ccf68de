//! The methods of Python's strings, dicts and lists.

use std::rc::Rc;

use super::error::{Fault, Res};
use super::eval::Evaluator;
use super::functions::brace_format;
use super::text::{Builder, Text, is_space};
use super::value::{Args, Callable, LoopState, Value, lookup, required};

const STR: &[&str] = &[
    "capitalize",
    "casefold",
    "center",
    "count",
    "endswith",
    "find",
    "format",
    "index",
    "isalnum",
    "isalpha",
    "isascii",
    "isdecimal",
    "isdigit",
    "islower",
    "isnumeric",
    "isspace",
    "isupper",
    "join",
    "ljust",
    "lower",
    "lstrip",
    "partition",
    "removeprefix",
    "removesuffix",
    "replace",
    "rfind",
    "rindex",
    "rjust",
    "rpartition",
    "rsplit",
    "rstrip",
    "split",
    "splitlines",
    "startswith",
    "strip",
    "swapcase",
    "title",
    "upper",
    "zfill",
];
const DICT: &[&str] = &["copy", "get", "items", "keys", "values"];
const LIST: &[&str] = &["copy", "count", "index"];
const TUPLE: &[&str] = &["count", "index"];
/// Methods that change their receiver, which the sandbox forbids.
const FORBIDDEN_LIST: &[&str] = &["append", "clear", "extend", "insert", "pop", "remove", "reverse", "sort"];
const FORBIDDEN_DICT: &[&str] = &["clear", "pop", "popitem", "setdefault", "update"];

/// The method `name` of `of`, if its type has one.
pub(super) fn find(of: &Value, name: &str) -> Res<Option<&'static str>> {
    let (methods, forbidden): (&[&'static str], &[&str]) = match of {
        Value::Str(_) => (STR, &[]),
        Value::Dict(_) => (DICT, FORBIDDEN_DICT),
        Value::List(_) => (LIST, FORBIDDEN_LIST),
        Value::Tuple(_) => (TUPLE, &[]),
        _ => return Ok(None),
    };
    if forbidden.contains(&name) {
        let kind = of.type_name();
        return Err(Fault::new(format!("access to attribute '{name}' of '{kind}' object is unsafe")));
    }
    Ok(methods.iter().find(|m| **m == name).copied())
}

pub(super) fn call(e: &mut Evaluator, of: &Value, name: &'static str, args: Args) -> Res<Value> {
    match of {
        Value::Str(t) => {
            e.charge(t.len() as u64 / 8)?;
            str_method(e, t, name, args)
        }
        Value::Dict(d) => {
            let pairs = || d.iter();
            match name {
                "get" => {
                    let [key, default] = args.bind(name, ["key", "default"])?;
                    e.charge(d.len() as u64 / 8)?;
                    let key = required(key, name, "key")?;
                    key.check_key()?;
                    Ok(lookup(d, &key).cloned().or(default).unwrap_or(Value::None))
                }
                _ => {
                    let [] = args.bind(name, [])?;
                    e.charge(d.len() as u64)?;
                    Ok(match name {
                        "items" => Value::list(
                            pairs().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()])).collect(),
                        ),
                        "keys" => Value::list(pairs().map(|(k, _)| k.clone()).collect()),
                        "values" => Value::list(pairs().map(|(_, v)| v.clone()).collect()),
                        _ => of.clone(),
                    })
                }
            }
        }
        Value::List(l) | Value::Tuple(l) => match name {
            "count" | "index" => {
                let [item] = args.bind(name, ["value"])?;
                let item = required(item, name, "value")?;
                e.charge(of.weight())?;
                if name == "count" {
                    return Ok(Value::int(l.iter().filter(|v| v.equals(&item)).count()));
                }
                match l.iter().position(|v| v.equals(&item)) {
                    Some(i) => Ok(Value::int(i)),
                    None => Err(Fault::new("the value is not in the list")),
                }
            }
            _ => Ok(of.clone()),
        },
        Value::Loop(state) => loop_method(e, state, name, args),
        Value::Callable(c) => match &**c {
            Callable::Cycler(items, at) => {
                let [] = args.bind(name, [])?;
                let value = items[at.get() % items.len()].clone();
                at.set(at.get().wrapping_add(1));
                Ok(value)
            }
            _ => Err(Fault::new(format!("a function has no method '{name}'"))),
        },
        other => Err(Fault::new(format!("'{}' object has no method '{name}'", other.type_name()))),
    }
}

fn loop_method(e: &mut Evaluator, state: &Rc<LoopState>, name: &str, args: Args) -> Res<Value> {
    if name == "cycle" {
        let items = args.positional;
        return match items.len() {
            0 => Err(Fault::new("no items for cycling given")),
            n => Ok(items[state.index0.get() % n].clone()),
        };
    }
    for value in &args.positional {
        e.charge(value.weight())?;
    }
    let mut last = state.changed.borrow_mut();
    let same = last.as_ref().is_some_and(|old| {
        old.len() == args.positional.len() && old.iter().zip(&args.positional).all(|(a, b)| a.equals(b))
    });
    *last = Some(args.positional);
    Ok(Value::Bool(!same))
}

fn text_arg(slot: Option<Value>, method: &str, name: &str) -> Res<Text> {
    match required(slot, method, name)? {
        Value::Str(t) => Ok(t),
        Value::Undefined(why) => Err(Fault::new(&*why)),
        other => Err(Fault::new(format!("{method}() needs a string, not '{}'", other.type_name()))),
    }
}

fn count_arg(slot: Option<Value>) -> Option<usize> {
    slot.and_then(|v| v.as_int()).and_then(|i| usize::try_from(i).ok())
}

fn str_method(e: &mut Evaluator, t: &Text, name: &'static str, args: Args) -> Res<Value> {
    match name {
        "format" => return brace_format(e, t, &args),
        "split" | "rsplit" => {
            let [sep, max] = args.bind(name, ["sep", "maxsplit"])?;
            e.charge(t.len() as u64)?;
            let pieces = split(t, sep, count_arg(max), name == "rsplit")?;
            return Ok(Value::list(pieces.into_iter().map(Value::Str).collect()));
        }
        "splitlines" => {
            let [keep] = args.bind(name, ["keepends"])?;
            e.charge(t.len() as u64)?;
            let lines = split_lines(t, keep.is_some_and(|k| k.truth()));
            return Ok(Value::list(lines.into_iter().map(Value::Str).collect()));
        }
        "strip" | "lstrip" | "rstrip" => {
            let [chars] = args.bind(name, ["chars"])?;
            let chars = match chars {
                None | Some(Value::None) => None,
                some => Some(text_arg(some, name, "chars")?),
            };
            return Ok(Value::Str(strip(t, chars.as_ref(), name)));
        }
        "join" => {
            let [items] = args.bind(name, ["iterable"])?;
            let items = e.iterate(&required(items, name, "iterable")?)?;
            let mut out = Builder::default();
            for (i, item) in items.iter().enumerate() {
                if i > 0 {
                    out.push(t);
                }
                out.push(&text_arg(Some(item.clone()), name, "item")?);
            }
            return Ok(Value::Str(out.finish()?));
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let (old, new) = (text_arg(old, name, "old")?, text_arg(new, name, "new")?);
            return Ok(Value::Str(t.replace(old.as_str(), &new, count_arg(count))?));
        }
        "center" | "ljust" | "rjust" | "zfill" => return padded(t, name, args),
        _ => {}
    }
    if let Some(found) = search(t, name, &args)? {
        return Ok(found);
    }
    if let Some(Value::Str(affix)) = args.positional.first() {
        match name {
            "removeprefix" => {
                return Ok(Value::Str(match t.as_str().strip_prefix(affix.as_str()) {
                    Some(rest) => t.subslice(rest),
                    None => t.clone(),
                }));
            }
            "removesuffix" => {
                return Ok(Value::Str(match t.as_str().strip_suffix(affix.as_str()) {
                    Some(rest) => t.subslice(rest),
                    None => t.clone(),
                }));
            }
            "partition" | "rpartition" => return partition(t, affix, name == "rpartition"),
            _ => {}
        }
    }
    let [] = args.bind(name, [])?;
    Ok(match is_method(t.as_str(), name) {
        Some(b) => Value::Bool(b),
        None => Value::Str(case(t, name)?),
    })
}

/// The methods that look for a piece of the text.
fn search(t: &Text, name: &str, args: &Args) -> Res<Option<Value>> {
    let s = t.as_str();
    let char_index = |byte: usize| Value::int(s[..byte].chars().count());
    let [Some(piece)] = [args.positional.first()] else { return Ok(None) };
    Ok(Some(match (name, piece) {
        ("startswith" | "endswith", Value::Tuple(options)) => {
            let mut any = false;
            for option in options.iter() {
                let option = text_arg(Some(option.clone()), name, "prefix")?;
                any |= if name == "startswith" {
                    s.starts_with(option.as_str())
                } else {
                    s.ends_with(option.as_str())
                };
            }
            Value::Bool(any)
        }
        ("startswith" | "endswith" | "count" | "find" | "rfind" | "index" | "rindex", piece) => {
            let piece = text_arg(Some(piece.clone()), name, "sub")?;
            if args.positional.len() > 1 || !args.keyword.is_empty() {
                return Err(Fault::new(format!("{name}() with a start or end is not supported")));
            }
            match name {
                "startswith" => Value::Bool(s.starts_with(piece.as_str())),
                "endswith" => Value::Bool(s.ends_with(piece.as_str())),
                "count" => Value::int(s.matches(piece.as_str()).count()),
                _ => {
                    let found =
                        if name.starts_with('r') { s.rfind(piece.as_str()) } else { s.find(piece.as_str()) };
                    match found {
                        Some(byte) => char_index(byte),
                        None if name.ends_with("find") => Value::Int(-1),
                        None => return Err(Fault::new("substring not found")),
                    }
                }
            }
        }
        _ => return Ok(None),
    }))
}

/// `method` is `strip`, `lstrip` or `rstrip`.
pub(super) fn strip(t: &Text, chars: Option<&Text>, method: &str) -> Text {
    let drop = |c: char| chars.map_or_else(|| is_space(c), |set| set.as_str().contains(c));
    let mut s = t.as_str();
    if method != "rstrip" {
        s = s.trim_start_matches(drop);
    }
    if method != "lstrip" {
        s = s.trim_end_matches(drop);
    }
    t.subslice(s)
}

fn split(t: &Text, sep: Option<Value>, max: Option<usize>, from_right: bool) -> Res<Vec<Text>> {
    let max = max.unwrap_or(usize::MAX);
    let pieces: Vec<&str> = match sep {
        None | Some(Value::None) => split_space(t.as_str(), max, from_right),
        Some(sep) => {
            let sep = text_arg(Some(sep), "split", "sep")?;
            if sep.is_empty() {
                return Err(Fault::new("empty separator"));
            }
            let limit = max.saturating_add(1);
            if from_right {
                let mut pieces: Vec<_> = t.as_str().rsplitn(limit, sep.as_str()).collect();
                pieces.reverse();
                pieces
            } else {
                t.as_str().splitn(limit, sep.as_str()).collect()
            }
        }
    };
    Ok(pieces.into_iter().map(|p| t.subslice(p)).collect())
}

/// Splits at runs of white space, `max` times at most; what is left over keeps the white space at its far end.
fn split_space(s: &str, max: usize, from_right: bool) -> Vec<&str> {
    let trim = |s| {
        if from_right { str::trim_end_matches(s, is_space) } else { str::trim_start_matches(s, is_space) }
    };
    let mut pieces = Vec::new();
    let mut rest = trim(s);
    while !rest.is_empty() {
        let cut = if from_right { rest.rfind(is_space) } else { rest.find(is_space) };
        let Some(cut) = cut.filter(|_| pieces.len() < max) else {
            pieces.push(rest);
            break;
        };
        let width = rest[cut..].chars().next().map_or(1, char::len_utf8);
        let (head, tail) = (&rest[..cut], &rest[cut + width..]);
        let (piece, left) = if from_right { (tail, head) } else { (head, tail) };
        pieces.push(piece);
        rest = trim(left);
    }
    if from_right {
        pieces.reverse();
    }
    pieces
}

/// Python breaks lines at more characters than Rust does.
pub(super) fn split_lines(t: &Text, keep_ends: bool) -> Vec<Text> {
    let s = t.as_str();
    let mut lines = Vec::new();
    let mut start = 0;
    let mut chars = s.char_indices().peekable();
    while let Some((i, c)) = chars.next() {
        if !matches!(
            c,
            '\n' | '\r' | '\u{b}' | '\u{c}' | '\u{1c}'..='\u{1e}' | '\u{85}' | '\u{2028}' | '\u{2029}'
        ) {
            continue;
        }
        let mut end = i + c.len_utf8();
        if c == '\r' && chars.next_if(|(_, c)| *c == '\n').is_some() {
            end += 1;
        }
        lines.push(t.slice(start..if keep_ends { end } else { i }));
        start = end;
    }
    if start < s.len() {
        lines.push(t.slice(start..s.len()));
    }
    lines
}

fn partition(t: &Text, sep: &Text, from_right: bool) -> Res<Value> {
    if sep.is_empty() {
        return Err(Fault::new("empty separator"));
    }
    let found = if from_right { t.as_str().rfind(sep.as_str()) } else { t.as_str().find(sep.as_str()) };
    let empty = || Text::template("");
    let parts = match found {
        Some(i) => [t.slice(0..i), t.slice(i..i + sep.len()), t.slice(i + sep.len()..t.len())],
        None if from_right => [empty(), empty(), t.clone()],
        None => [t.clone(), empty(), empty()],
    };
    Ok(Value::tuple(parts.into_iter().map(Value::Str).collect()))
}

fn padded(t: &Text, name: &str, args: Args) -> Res<Value> {
    let [width, fill] = args.bind(name, ["width", "fillchar"])?;
    let width = count_arg(width).unwrap_or(0);
    if width > super::text::MAX_TEXT {
        return Err(Fault::limit("padding wider than any text"));
    }
    let fill = fill.map_or(Ok(Text::template(if name == "zfill" { "0" } else { " " })), |f| {
        text_arg(Some(f), name, "fillchar")
    })?;
    let missing = width.saturating_sub(t.chars());
    let left = match name {
        "ljust" => 0,
        // CPython puts the odd one to the left when the width is odd.
        "center" => missing / 2 + (missing & width & 1),
        _ => missing,
    };
    let mut out = Builder::default();
    let signed = name == "zfill" && t.as_str().starts_with(['+', '-']);
    out.push_range(t, 0..usize::from(signed));
    (0..left).for_each(|_| out.push(&fill));
    out.push_range(t, usize::from(signed)..t.len());
    (left..missing).for_each(|_| out.push(&fill));
    Ok(Value::Str(out.finish()?))
}

pub(super) fn is_all(s: &str, f: impl Fn(char) -> bool) -> bool {
    !s.is_empty() && s.chars().all(f)
}

pub(super) fn cased(c: char) -> bool {
    c.is_lowercase() || c.is_uppercase()
}

fn is_method(s: &str, name: &str) -> Option<bool> {
    Some(match name {
        "isspace" => is_all(s, is_space),
        "isalpha" => is_all(s, char::is_alphabetic),
        "isalnum" => is_all(s, char::is_alphanumeric),
        "isascii" => s.is_ascii(),
        "isdigit" | "isdecimal" | "isnumeric" => is_all(s, char::is_numeric),
        "islower" => is_all(s, |c| !c.is_uppercase()) && s.chars().any(cased),
        "isupper" => is_all(s, |c| !c.is_lowercase()) && s.chars().any(cased),
        _ => return None,
    })
}

/// Case mapping, character by character so that marks stay exact.
pub(super) fn case(t: &Text, name: &str) -> Res<Text> {
    let mut previous = None;
    t.map(|_, c, out| {
        let upper = match name {
            "upper" => true,
            "capitalize" => previous.is_none(),
            "title" => !previous.is_some_and(cased),
            "swapcase" => c.is_lowercase(),
            _ => false,
        };
        previous = Some(c);
        if upper {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
    })
}
