//! Global functions, and the two ways of Python to format with a string.

use std::cell::Cell;
use std::rc::Rc;

use super::error::{Fault, Res};
use super::eval::Evaluator;
use super::format::to_text;
use super::text::{Builder, Text};
use super::value::{Args, Callable, Dict, Value, insert, lookup, required};

/// Names of the global functions.
const GLOBALS: &[&str] =
    &["range", "dict", "namespace", "cycler", "joiner", "raise_exception", "strftime_now"];

pub(super) fn global(name: &str) -> Option<Value> {
    let name = GLOBALS.iter().find(|g| **g == name)?;
    Some(Value::Callable(Rc::new(Callable::Function(name))))
}

pub(super) fn call(e: &mut Evaluator, name: &'static str, args: Args) -> Res<Value> {
    match name {
        "range" => range(e, args),
        "dict" => Ok(Value::dict(make_dict(e, args)?)),
        "namespace" => {
            let fields = make_dict(e, args)?;
            let hidden = fields.iter().any(|(k, _)| k.as_text().is_some_and(|t| t.as_str().starts_with('_')));
            if hidden {
                return Err(Fault::new("names in a namespace can't begin with an underscore"));
            }
            Ok(e.namespace(fields))
        }
        "cycler" if args.positional.is_empty() => Err(Fault::new("at least one item has to be provided")),
        "cycler" => Ok(Value::Callable(Rc::new(Callable::Cycler(args.positional, Cell::new(0))))),
        "joiner" => {
            let [sep] = args.bind(name, ["sep"])?;
            let sep = sep.unwrap_or_else(|| Value::template(", "));
            Ok(Value::Callable(Rc::new(Callable::Joiner(sep, Cell::new(false)))))
        }
        "raise_exception" => {
            let [message] = args.bind(name, ["message"])?;
            let message = required(message, name, "message")?;
            Err(Fault::raised(to_text(&message)?.as_str()))
        }
        "strftime_now" => {
            let [format] = args.bind(name, ["format"])?;
            let format = e.text(&required(format, name, "format")?)?;
            let Some(now) = e.now else {
                return Err(Fault::new("the template asks for the date, and none was given"));
            };
            let text = jiff::fmt::strtime::format(format.as_str(), now)
                .map_err(|err| Fault::new(format!("strftime_now('{}'): {err}", format.as_str())))?;
            Ok(Value::Str(if format.any_user() { Text::user(text) } else { Text::template(text) }))
        }
        other => Err(Fault::new(format!("unknown function '{other}'"))),
    }
}

fn range(e: &mut Evaluator, args: Args) -> Res<Value> {
    let ints = args
        .positional
        .iter()
        .map(|v| {
            v.as_int().ok_or_else(|| {
                Fault::new(format!("'{}' object cannot be interpreted as an integer", v.type_name()))
            })
        })
        .collect::<Res<Vec<_>>>()?;
    let (start, stop, step) = match ints[..] {
        [stop] => (0, stop, 1),
        [start, stop] => (start, stop, 1),
        [start, stop, step] if step != 0 => (start, stop, step),
        _ => return Err(Fault::new("range() takes one to three numbers, and a step that is not 0")),
    };
    let span = if step > 0 { stop.saturating_sub(start) } else { start.saturating_sub(stop) };
    let count = span.max(0).saturating_add(step.saturating_abs() - 1) / step.saturating_abs();
    e.charge(u64::try_from(count).unwrap_or(u64::MAX))?;
    let mut items = Vec::new();
    let mut at = start;
    for _ in 0..count {
        items.push(Value::Int(at));
        at = at.saturating_add(step);
    }
    Ok(Value::list(items))
}

/// `dict(mapping or pairs, key=value …)`.
fn make_dict(e: &mut Evaluator, args: Args) -> Res<Dict> {
    let mut dict = Dict::new();
    let mut sources = args.positional.into_iter();
    match sources.next() {
        None => {}
        Some(Value::Dict(d)) => dict.clone_from(&d),
        Some(pairs) => {
            for pair in e.iterate(&pairs)?.iter() {
                match &e.iterate(pair)?[..] {
                    [key, value] => {
                        key.check_key()?;
                        e.charge(dict.len() as u64 / 8)?;
                        insert(&mut dict, key.clone(), value.clone());
                    }
                    _ => return Err(Fault::new("dict() needs pairs")),
                }
            }
        }
    }
    if sources.next().is_some() {
        return Err(Fault::new("dict() takes at most one positional argument"));
    }
    for (key, value) in args.keyword {
        insert(&mut dict, Value::template(&*key), value);
    }
    Ok(dict)
}

/// Python's `format % args`.
pub(super) fn percent_format(e: &mut Evaluator, format: &Text, args: &Value) -> Res<Value> {
    let positional: Vec<Value> = match args {
        Value::Tuple(t) => t.to_vec(),
        other => vec![other.clone()],
    };
    let mut next = positional.iter();
    let mut out = Builder::default();
    let s = format.as_str();
    let mut at = 0;
    while let Some(found) = s[at..].find('%') {
        out.push_range(format, at..at + found);
        at += found + 1;
        let key_end = if s[at..].starts_with('(') { s[at..].find(')').map(|i| at + i) } else { None };
        let named = match key_end {
            Some(end) => {
                let key = Value::template(&s[at + 1..end]);
                at = end + 1;
                match args {
                    Value::Dict(d) => {
                        Some(lookup(d, &key).cloned().ok_or_else(|| Fault::new("KeyError in a % format"))?)
                    }
                    _ => return Err(Fault::new("format requires a mapping")),
                }
            }
            None => None,
        };
        let spec_end = s[at..].find(|c: char| c.is_ascii_alphabetic() || c == '%').map(|i| at + i);
        let Some(end) = spec_end else { return Err(Fault::new("incomplete format")) };
        let (spec, kind) = (&s[at..end], s.as_bytes()[end]);
        at = end + 1;
        if kind == b'%' {
            out.push_str("%");
            continue;
        }
        let value = match named {
            Some(value) => value,
            None => {
                next.next().cloned().ok_or_else(|| Fault::new("not enough arguments for format string"))?
            }
        };
        let text = match kind {
            b's' => e.text(&value)?,
            b'd' | b'i' => Text::template(match value.as_float() {
                Some(f) => value.as_int().map_or_else(|| format!("{}", f.trunc()), |i| i.to_string()),
                None => return Err(Fault::new("%d format: a number is required")),
            }),
            b'f' | b'F' => {
                let digits = spec.split_once('.').map_or(Some(6), |(_, d)| d.parse::<usize>().ok());
                match (value.as_float(), digits.filter(|d| *d <= 100)) {
                    (Some(f), Some(digits)) => Text::template(format!("{f:.digits$}")),
                    _ => return Err(Fault::new("%f format: a number is required")),
                }
            }
            other => {
                let other = char::from(other);
                return Err(Fault::new(format!("the format character '{other}' is not supported")));
            }
        };
        pad(&mut out, &text, spec.split('.').next().unwrap_or_default())?;
    }
    out.push_range(format, at..s.len());
    if next.next().is_some() && matches!(args, Value::Tuple(_)) {
        return Err(Fault::new("not all arguments converted during string formatting"));
    }
    Ok(Value::Str(out.finish()?))
}

/// Appends `text` padded to the width of a `%` specification such as `-5` or `02`.
fn pad(out: &mut Builder, text: &Text, spec: &str) -> Res<()> {
    let left = spec.contains('-');
    let zero = spec.starts_with('0');
    let digits = spec.trim_start_matches(['-', '+', ' ', '0', '#']);
    let width = if digits.is_empty() { 0 } else { digits.parse::<usize>().unwrap_or(usize::MAX) };
    if width > super::text::MAX_TEXT {
        return Err(Fault::limit("a format width larger than any text"));
    }
    let fill = width.saturating_sub(text.chars());
    let filler = if zero && !left { "0" } else { " " };
    if !left {
        out.push_str(&filler.repeat(fill));
    }
    out.push(text);
    if left {
        out.push_str(&filler.repeat(fill));
    }
    out.check()
}

/// Python's `text.format(…)`, with fields by position or name and no format specification.
pub(super) fn brace_format(e: &mut Evaluator, format: &Text, args: &Args) -> Res<Value> {
    let mut out = Builder::default();
    let s = format.as_str();
    let (mut at, mut auto) = (0, 0);
    while let Some(found) = s[at..].find(['{', '}']) {
        out.push_range(format, at..at + found);
        at += found;
        let rest = &s[at..];
        if rest.starts_with("{{") || rest.starts_with("}}") {
            out.push_range(format, at..at + 1);
            at += 2;
            continue;
        }
        let Some(end) = rest.find('}').filter(|_| rest.starts_with('{')) else {
            return Err(Fault::new("single '}' or unclosed '{' in format string"));
        };
        let field = &rest[1..end];
        at += end + 1;
        let value = if field.is_empty() {
            auto += 1;
            args.positional.get(auto - 1)
        } else if let Ok(i) = field.parse::<usize>() {
            args.positional.get(i)
        } else {
            args.keyword.iter().find(|(k, _)| **k == *field).map(|(_, v)| v)
        };
        let Some(value) = value else {
            return Err(Fault::new(format!(
                "the format field '{{{field}}}' has no argument or is not supported"
            )));
        };
        let value = value.clone();
        out.push(&e.text(&value)?);
    }
    out.push_range(format, at..s.len());
    Ok(Value::Str(out.finish()?))
}
