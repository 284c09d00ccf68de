//! Jinja's filters, with Hugging Face's `tojson` (no HTML escapes, `json.dumps`'s options).

use std::cmp::Ordering;

use super::error::{Fault, Res};
use super::eval::Evaluator;
use super::format::Json;
use super::methods::{case, split_lines, strip};
use super::text::{Builder, MAX_TEXT, Text, is_space};
use super::value::{Args, Dict, Value, required};

/// Names of the filters, for `is filter` and for messages.
const FILTERS: &[&str] = &[
    "abs",
    "attr",
    "batch",
    "capitalize",
    "center",
    "count",
    "d",
    "default",
    "dictsort",
    "e",
    "escape",
    "first",
    "float",
    "forceescape",
    "format",
    "groupby",
    "indent",
    "int",
    "items",
    "join",
    "last",
    "length",
    "list",
    "lower",
    "map",
    "max",
    "min",
    "reject",
    "rejectattr",
    "replace",
    "reverse",
    "round",
    "safe",
    "select",
    "selectattr",
    "slice",
    "sort",
    "string",
    "sum",
    "title",
    "tojson",
    "trim",
    "truncate",
    "unique",
    "upper",
    "wordcount",
];

pub(super) fn exists(name: &str) -> bool {
    FILTERS.contains(&name)
}

/// Applies the filter `name` to `input`.
pub(super) fn apply(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    if !exists(name) {
        return Err(Fault::new(format!("No filter named '{name}'")));
    }
    e.charge(input.weight())?;
    match name {
        "trim" | "upper" | "lower" | "capitalize" | "title" | "string" | "safe" | "replace" | "indent"
        | "center" | "escape" | "e" | "forceescape" | "wordcount" | "truncate" | "format" => {
            text_filter(e, name, input, args)
        }
        "map" | "select" | "reject" | "selectattr" | "rejectattr" => per_item(e, name, input, args),
        "sort" | "unique" | "min" | "max" | "groupby" | "dictsort" => ordering(e, name, input, args),
        "abs" | "int" | "float" | "round" => number_filter(name, input, args),
        "tojson" => tojson(e, input, args),
        "default" | "d" => {
            let [default, boolean] = args.bind(name, ["default_value", "boolean"])?;
            let use_default = input.is_undefined() || (boolean.is_some_and(|b| b.truth()) && !input.truth());
            Ok(if use_default { default.unwrap_or_else(|| Value::template("")) } else { input.clone() })
        }
        "attr" => {
            let [attribute] = args.bind(name, ["name"])?;
            let attribute = e.text(&required(attribute, name, "name")?)?;
            match input {
                Value::Dict(_) if super::methods::find(input, attribute.as_str())?.is_none() => {
                    Ok(super::expr::missing(input, attribute.as_str()))
                }
                _ => e.attribute(input, attribute.as_str()),
            }
        }
        _ => sequence_filter(e, name, input, args),
    }
}

fn text_filter(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    let text = e.text(input)?;
    Ok(Value::Str(match name {
        "trim" => {
            let [chars] = args.bind(name, ["chars"])?;
            let chars = chars.filter(|c| !matches!(c, Value::None)).map(|c| e.text(&c)).transpose()?;
            strip(&text, chars.as_ref(), "strip")
        }
        "replace" => {
            let [old, new, count] = args.bind(name, ["old", "new", "count"])?;
            let (old, new) = (required(old, name, "old")?, required(new, name, "new")?);
            let (old, new) = (e.text(&old)?, e.text(&new)?);
            let count = count.and_then(|c| c.as_int()).and_then(|c| usize::try_from(c).ok());
            text.replace(old.as_str(), &new, count)?
        }
        "indent" => indent(e, &text, args)?,
        "format" => return super::functions::percent_format(e, &text, &format_args(args)),
        "truncate" => truncate(e, &text, args)?,
        "center" => {
            let [width] = args.bind(name, ["width"])?;
            let args = Args { positional: vec![width.unwrap_or(Value::Int(80))], keyword: Vec::new() };
            return super::methods::call(e, &Value::Str(text), "center", args);
        }
        _ => {
            let [] = args.bind(name, [])?;
            match name {
                "wordcount" => return Ok(Value::int(words(text.as_str()))),
                "escape" | "e" => text.escaped()?,
                "forceescape" => text.as_markup(false).escaped()?,
                "safe" => text.as_markup(true),
                "title" => jinja_title(&text)?,
                "upper" | "lower" | "capitalize" => case(&text, name)?,
                _ => text,
            }
        }
    }))
}

fn format_args(args: Args) -> Value {
    if args.keyword.is_empty() {
        return Value::tuple(args.positional);
    }
    Value::dict(args.keyword.into_iter().map(|(k, v)| (Value::template(&*k), v)).collect())
}

fn words(s: &str) -> usize {
    s.split(|c: char| !c.is_alphanumeric() && c != '_').filter(|w| !w.is_empty()).count()
}

/// Jinja's `title` begins a word after white space and brackets only.
fn jinja_title(t: &Text) -> Res<Text> {
    let mut start = true;
    t.map(|_, c, out| {
        if start {
            out.extend(c.to_uppercase());
        } else {
            out.extend(c.to_lowercase());
        }
        start = is_space(c) || matches!(c, '-' | '(' | '{' | '[' | '<');
    })
}

fn indent(e: &mut Evaluator, text: &Text, args: Args) -> Res<Text> {
    let [width, first, blank] = args.bind("indent", ["width", "first", "blank"])?;
    let first = first.is_some_and(|f| f.truth());
    let blank = blank.is_some_and(|b| b.truth());
    let pad = match width {
        Some(Value::Str(t)) => t,
        other => spaces(e, other.map_or(Some(4), |w| w.as_int()))?,
    };
    // A last line end counts as the start of an empty line.
    let mut lines = split_lines(text, false);
    if text.is_empty() || text.as_str().ends_with('\n') {
        lines.push(Text::template(""));
    }
    e.charge(lines.len() as u64)?;
    let mut out = Builder::default();
    for (i, line) in lines.iter().enumerate() {
        if i > 0 {
            out.push_str("\n");
        }
        if (i == 0 && first) || (i > 0 && (blank || !line.is_empty())) {
            out.push(&pad);
        }
        out.push(line);
    }
    out.finish()
}

fn spaces(e: &mut Evaluator, width: Option<i128>) -> Res<Text> {
    let width = width.ok_or_else(|| Fault::new("an indentation must be a number or a string"))?;
    let width = usize::try_from(width.max(0)).unwrap_or(usize::MAX);
    if width > MAX_TEXT {
        return Err(Fault::limit("an indentation wider than any text"));
    }
    e.charge(width as u64 / 16)?;
    Ok(Text::template(" ".repeat(width)))
}

fn truncate(e: &mut Evaluator, text: &Text, args: Args) -> Res<Text> {
    let [length, kill, end, leeway] = args.bind("truncate", ["length", "killwords", "end", "leeway"])?;
    let number =
        |v: Option<Value>, or| v.and_then(|v| v.as_int()).and_then(|i| usize::try_from(i).ok()).unwrap_or(or);
    let (length, leeway) = (number(length, 255), number(leeway, 5));
    let end = end.map_or(Ok(Text::template("...")), |v| e.text(&v))?;
    let offsets = text.offsets();
    if offsets.len() - 1 <= length.saturating_add(leeway) {
        return Ok(text.clone());
    }
    let Some(keep) = length.checked_sub(end.chars()) else {
        return Err(Fault::new("truncate() is shorter than what marks the end"));
    };
    let mut cut = text.slice(0..offsets[keep]);
    if !kill.is_some_and(|k| k.truth()) {
        let at = cut.as_str().rfind(' ').unwrap_or(cut.len());
        cut = cut.slice(0..at);
    }
    let mut out = Builder::default();
    out.push(&cut);
    out.push(&end);
    out.finish()
}

fn tojson(e: &mut Evaluator, input: &Value, args: Args) -> Res<Value> {
    let [ascii, indent, separators, sort] =
        args.bind("tojson", ["ensure_ascii", "indent", "separators", "sort_keys"])?;
    let indent = match indent {
        None | Some(Value::None) => None,
        Some(Value::Str(t)) => Some(t),
        Some(other) => Some(spaces(e, other.as_int())?),
    };
    let given = match separators {
        None | Some(Value::None) => None,
        Some(pair) => match &e.iterate(&pair)?[..] {
            [Value::Str(item), Value::Str(key)] => Some((item.clone(), key.clone())),
            _ => return Err(Fault::new("separators must be two strings")),
        },
    };
    let default_item = if indent.is_some() { "," } else { ", " };
    let (item_separator, key_separator) =
        given.unwrap_or_else(|| (Text::template(default_item), Text::template(": ")));
    let json = Json {
        ensure_ascii: ascii.is_some_and(|a| a.truth()),
        indent,
        item_separator,
        key_separator,
        sort_keys: sort.is_some_and(|s| s.truth()),
    };
    Ok(Value::Str(json.dump(input)?))
}

fn number_filter(name: &str, input: &Value, args: Args) -> Res<Value> {
    let parsed = |text: &str| text.trim().replace('_', "").parse::<f64>().ok();
    match name {
        "abs" => {
            let [] = args.bind(name, [])?;
            match input {
                Value::Float(f) => Ok(Value::Float(f.abs())),
                other => other.as_int().map(|i| Value::Int(i.saturating_abs())).ok_or_else(|| {
                    Fault::new(format!("bad operand type for abs(): '{}'", input.type_name()))
                }),
            }
        }
        "int" => {
            let [default, base] = args.bind(name, ["default", "base"])?;
            let base = base.and_then(|b| b.as_int()).and_then(|b| u32::try_from(b).ok()).unwrap_or(10);
            let value = match input {
                Value::Str(t) if (2..=36).contains(&base) => {
                    let digits = t.as_str().trim().replace('_', "");
                    let whole = i128::from_str_radix(&digits, base).ok();
                    whole.or_else(|| parsed(t.as_str()).filter(|f| f.is_finite()).map(|f| f as i128))
                }
                Value::Float(f) => f.is_finite().then_some(*f as i128),
                other => other.as_int(),
            };
            Ok(value.map(Value::Int).or(default).unwrap_or(Value::Int(0)))
        }
        "float" => {
            let [default] = args.bind(name, ["default"])?;
            let value = match input {
                Value::Str(t) => parsed(t.as_str()),
                other => other.as_float(),
            };
            Ok(value.map(Value::Float).or(default).unwrap_or(Value::Float(0.0)))
        }
        _ => {
            let [precision, method] = args.bind(name, ["precision", "method"])?;
            let digits = precision.and_then(|p| p.as_int()).unwrap_or(0).clamp(-300, 300);
            let Some(value) = input.as_float() else {
                return Err(Fault::new(format!("round() needs a number, not '{}'", input.type_name())));
            };
            let scale = 10f64.powi(i32::try_from(digits).unwrap_or(0));
            let method = method.as_ref().and_then(Value::as_text).map_or("common", Text::as_str);
            Ok(Value::Float(match method {
                "ceil" => (value * scale).ceil() / scale,
                "floor" => (value * scale).floor() / scale,
                // Printing rounds the exact binary value half to even, as Python's round does.
                _ if digits >= 0 => {
                    let digits = usize::try_from(digits).unwrap_or(0);
                    format!("{value:.digits$}").parse().unwrap_or(value)
                }
                _ => (value * scale).round_ties_even() / scale,
            }))
        }
    }
}

fn sequence_filter(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    match name {
        "join" => {
            let [sep, attribute] = args.bind(name, ["d", "attribute"])?;
            let sep = sep.map_or(Ok(Text::template("")), |s| e.text(&s))?;
            let mut out = Builder::default();
            for (i, item) in e.iterate(input)?.iter().enumerate() {
                if i > 0 {
                    out.push(&sep);
                }
                let item = by_attribute(e, item, attribute.as_ref())?;
                out.push(&e.text(&item)?);
            }
            Ok(Value::Str(out.finish()?))
        }
        "sum" => {
            let [attribute, start] = args.bind(name, ["attribute", "start"])?;
            let mut total = start.unwrap_or(Value::Int(0));
            for item in e.iterate(input)?.iter() {
                let item = by_attribute(e, item, attribute.as_ref())?;
                total = super::number::math(super::ast::Math::Add, &total, &item)?;
            }
            Ok(total)
        }
        "batch" | "slice" => grouped(e, name, input, args),
        _ => {
            let [] = args.bind(name, [])?;
            match (name, input) {
                ("length" | "count", _) => Ok(Value::int(input.length()?)),
                ("items", Value::Undefined(_)) => Ok(Value::generator(Vec::new())),
                ("items", Value::Dict(d)) => Ok(Value::generator(
                    d.iter().map(|(k, v)| Value::tuple(vec![k.clone(), v.clone()])).collect(),
                )),
                ("items", _) => Err(Fault::new("Can only get item pairs from a mapping.")),
                ("reverse", Value::Str(t)) => {
                    let mut out = Builder::default();
                    t.each_char().iter().rev().for_each(|c| out.push(c));
                    Ok(Value::Str(out.finish()?))
                }
                _ => {
                    let items = e.iterate(input)?;
                    let none = || Value::undefined(format!("No {name} item, sequence was empty."));
                    Ok(match name {
                        "first" => items.first().cloned().unwrap_or_else(none),
                        "last" => items.last().cloned().unwrap_or_else(none),
                        "reverse" => Value::generator(items.iter().rev().cloned().collect()),
                        _ => Value::list(items.to_vec()),
                    })
                }
            }
        }
    }
}

fn grouped(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    let [count, fill] = args.bind(name, ["linecount", "fill_with"])?;
    let count = count.and_then(|c| c.as_int()).and_then(|c| usize::try_from(c).ok()).unwrap_or(0);
    let items = e.iterate(input)?;
    if count == 0 || count > items.len().saturating_add(1 << 16) {
        return Err(Fault::new(format!("{name}() needs a sensible number of items")));
    }
    e.charge(count as u64)?;
    let mut rows: Vec<Vec<Value>> = if name == "batch" {
        items.chunks(count).map(<[Value]>::to_vec).collect()
    } else {
        let (each, longer) = (items.len() / count, items.len() % count);
        let start = |i: usize| i * each + i.min(longer);
        (0..count).map(|i| items[start(i)..start(i + 1)].to_vec()).collect()
    };
    if let Some(fill) = fill {
        let longest = if name == "batch" { count } else { rows.iter().map(Vec::len).max().unwrap_or(0) };
        rows.iter_mut().for_each(|row| row.resize(longest, fill.clone()));
    }
    Ok(Value::generator(rows.into_iter().map(Value::list).collect()))
}

/// `item.a.b` for the attribute "a.b", or the item itself.
fn by_attribute(e: &mut Evaluator, item: &Value, attribute: Option<&Value>) -> Res<Value> {
    let Some(attribute) = attribute.filter(|a| !matches!(a, Value::None)) else { return Ok(item.clone()) };
    let path = e.text(attribute)?;
    let mut value = item.clone();
    for part in path.as_str().split('.') {
        let key = part.parse::<i128>().map_or_else(|_| Value::template(part), Value::Int);
        value = e.item(&value, &key)?;
    }
    Ok(value)
}

fn per_item(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    // Anything false gives nothing, also what can't be iterated.
    let items = if input.truth() { e.iterate(input)? } else { std::rc::Rc::default() };
    let mut positional = args.positional.into_iter();
    if name == "map" {
        let attribute = args.keyword.iter().find(|(k, _)| &**k == "attribute").map(|(_, v)| v.clone());
        let default = args.keyword.iter().find(|(k, _)| &**k == "default").map(|(_, v)| v.clone());
        let filter = if attribute.is_some() { None } else { positional.next() };
        let filter = match (&filter, &attribute) {
            (None, None) => return Err(Fault::new("map requires a filter argument")),
            (f, _) => f.as_ref().map(|f| e.text(f)).transpose()?,
        };
        let rest: Vec<Value> = positional.collect();
        let mut out = Vec::with_capacity(items.len());
        for item in items.iter() {
            out.push(match &filter {
                Some(filter) => {
                    let args = Args { positional: rest.clone(), keyword: args.keyword.clone() };
                    e.nested(|e| apply(e, filter.as_str(), item, args))?
                }
                None => match by_attribute(e, item, attribute.as_ref())? {
                    Value::Undefined(why) => default.clone().unwrap_or(Value::Undefined(why)),
                    value => value,
                },
            });
        }
        return Ok(Value::generator(out));
    }
    let keep = name.starts_with("select");
    let attribute =
        if name.ends_with("attr") { Some(required(positional.next(), name, "attribute")?) } else { None };
    let test = positional.next().map(|t| e.text(&t)).transpose()?;
    let rest: Vec<Value> = positional.collect();
    let mut out = Vec::new();
    for item in items.iter() {
        let value = by_attribute(e, item, attribute.as_ref())?;
        let passes = match &test {
            None => value.truth(),
            Some(test) => {
                let args = Args { positional: rest.clone(), keyword: args.keyword.clone() };
                e.test(test.as_str(), &value, args)?
            }
        };
        if passes == keep {
            out.push(item.clone());
        }
    }
    Ok(Value::generator(out))
}

/// What is compared: strings without their case, unless asked otherwise.
fn fold(value: &Value, case_sensitive: bool) -> Res<Value> {
    match value {
        Value::Str(t) if !case_sensitive => Ok(Value::Str(case(t, "lower")?)),
        Value::Tuple(items) => {
            Ok(Value::tuple(items.iter().map(|v| fold(v, case_sensitive)).collect::<Res<_>>()?))
        }
        other => Ok(other.clone()),
    }
}

fn sort_pairs(pairs: &mut [(Value, Value)], reverse: bool) -> Res<()> {
    let mut failed = None;
    pairs.sort_by(|a, b| {
        let order = a.0.order(&b.0).unwrap_or_else(|fault| {
            failed.get_or_insert(fault);
            None
        });
        let order = order.unwrap_or(Ordering::Equal);
        if reverse { order.reverse() } else { order }
    });
    failed.map_or(Ok(()), Err)
}

fn ordering(e: &mut Evaluator, name: &str, input: &Value, args: Args) -> Res<Value> {
    if name == "dictsort" {
        return dictsort(e, input, args);
    }
    let (reverse, case_sensitive, attribute) = match name {
        "sort" => {
            let [reverse, case_sensitive, attribute] =
                args.bind(name, ["reverse", "case_sensitive", "attribute"])?;
            (reverse, case_sensitive, attribute)
        }
        "groupby" => {
            let [attribute, _default, case_sensitive] =
                args.bind(name, ["attribute", "default", "case_sensitive"])?;
            (None, case_sensitive, attribute)
        }
        _ => {
            let [case_sensitive, attribute] = args.bind(name, ["case_sensitive", "attribute"])?;
            (None, case_sensitive, attribute)
        }
    };
    let truth = |v: Option<Value>| v.is_some_and(|v| v.truth());
    let (reverse, case_sensitive) = (truth(reverse), truth(case_sensitive));
    let items = e.iterate(input)?;
    // n log n comparisons, or n² for unique, each as large as an item.
    let rounds =
        if name == "unique" { items.len() as u64 } else { u64::from(items.len().max(2).ilog2()) + 1 };
    e.charge(input.weight().saturating_mul(rounds))?;
    let mut pairs: Dict = Vec::with_capacity(items.len());
    for item in items.iter() {
        let key = fold(&by_attribute(e, item, attribute.as_ref())?, case_sensitive)?;
        pairs.push((key, item.clone()));
    }
    if name == "unique" {
        let mut seen: Dict = Vec::new();
        for (key, item) in pairs {
            if super::value::lookup(&seen, &key).is_none() {
                seen.push((key, item));
            }
        }
        return Ok(Value::generator(seen.into_iter().map(|(_, v)| v).collect()));
    }
    sort_pairs(&mut pairs, reverse)?;
    let empty = || Value::undefined("No aggregated item, sequence was empty.");
    Ok(match name {
        "min" => pairs.into_iter().next().map_or_else(empty, |(_, v)| v),
        "max" => {
            // Of equal items Python's max takes the first.
            let best = pairs.last().map(|(k, _)| k.clone());
            best.and_then(|best| pairs.iter().find(|(k, _)| k.equals(&best)).map(|(_, v)| v.clone()))
                .unwrap_or_else(empty)
        }
        "groupby" => {
            let mut groups: Vec<(Value, Vec<Value>)> = Vec::new();
            for (key, item) in pairs {
                match groups.last_mut() {
                    Some((k, members)) if k.equals(&key) => members.push(item),
                    _ => groups.push((key, vec![item])),
                }
            }
            Value::list(groups.into_iter().map(|(k, v)| Value::tuple(vec![k, Value::list(v)])).collect())
        }
        _ => Value::list(pairs.into_iter().map(|(_, v)| v).collect()),
    })
}

fn dictsort(e: &mut Evaluator, input: &Value, args: Args) -> Res<Value> {
    let [case_sensitive, by, reverse] = args.bind("dictsort", ["case_sensitive", "by", "reverse"])?;
    let Value::Dict(d) = input else {
        return Err(Fault::new(format!("dictsort needs a dict, not '{}'", input.type_name())));
    };
    e.charge(input.weight().saturating_mul(u64::from(d.len().max(2).ilog2()) + 1))?;
    let by_value = by.as_ref().and_then(Value::as_text).is_some_and(|t| t.as_str() == "value");
    let case_sensitive = case_sensitive.is_some_and(|c| c.truth());
    let mut pairs = Dict::new();
    for (key, value) in d.iter() {
        let sort_key = fold(if by_value { value } else { key }, case_sensitive)?;
        pairs.push((sort_key, Value::tuple(vec![key.clone(), value.clone()])));
    }
    sort_pairs(&mut pairs, reverse.is_some_and(|r| r.truth()))?;
    Ok(Value::list(pairs.into_iter().map(|(_, pair)| pair).collect()))
}
