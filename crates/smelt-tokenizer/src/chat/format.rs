//! Values as Python prints them: `str`, `repr` and `json.dumps`.

use super::error::{Fault, Res};
use super::text::{Builder, Text};
use super::value::{Callable, Dict, Value};

/// How deep `repr` and `json.dumps` follow nested values.
const MAX_DEPTH: usize = 200;

/// Python's `str(value)`; the marks of strings inside are kept.
pub(super) fn to_text(value: &Value) -> Res<Text> {
    if let Value::Str(t) = value {
        return Ok(t.clone());
    }
    let mut out = Builder::default();
    write_str(&mut out, value)?;
    out.finish()
}

/// Appends `str(value)`.
pub(super) fn write_str(out: &mut Builder, value: &Value) -> Res<()> {
    match value {
        Value::Undefined(_) => Ok(()),
        Value::Str(t) => {
            out.push(t);
            out.check()
        }
        other => write_repr(out, other, 0),
    }
}

/// Appends Python's `repr(value)`.
fn write_repr(out: &mut Builder, value: &Value, depth: usize) -> Res<()> {
    if depth > MAX_DEPTH {
        return Err(Fault::limit(format!("printing a value nested more than {MAX_DEPTH} deep")));
    }
    match value {
        Value::Undefined(_) => out.push_str("Undefined"),
        Value::None => out.push_str("None"),
        Value::Bool(b) => out.push_str(if *b { "True" } else { "False" }),
        Value::Int(i) => out.push_str(&i.to_string()),
        Value::Float(f) => out.push_str(&float(*f)),
        Value::Str(t) => repr_string(out, t),
        Value::List(items) => {
            out.push_str("[");
            write_items(out, items, depth)?;
            out.push_str("]");
        }
        Value::Tuple(items) => {
            out.push_str("(");
            write_items(out, items, depth)?;
            out.push_str(if items.len() == 1 { ",)" } else { ")" });
        }
        Value::Dict(d) => write_pairs(out, d, depth)?,
        Value::Generator(_) => out.push_str("<generator object>"),
        Value::Namespace(n) => {
            out.push_str("<Namespace ");
            write_pairs(out, &n.borrow(), depth)?;
            out.push_str(">");
        }
        Value::Loop(l) => {
            out.push_str(&format!("<LoopContext {}/{}>", l.index0.get() + 1, l.items.len()));
        }
        Value::Callable(c) => out.push_str(&match &**c {
            Callable::Function(name) | Callable::Method(_, name) => format!("<function {name}>"),
            Callable::Macro { def, .. } => format!("<Macro '{}'>", def.name),
            Callable::Cycler(..) => "<Cycler>".to_owned(),
            Callable::Joiner(..) => "<Joiner>".to_owned(),
        }),
    }
    out.check()
}

fn write_items(out: &mut Builder, items: &[Value], depth: usize) -> Res<()> {
    for (i, item) in items.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        write_repr(out, item, depth + 1)?;
    }
    Ok(())
}

fn write_pairs(out: &mut Builder, pairs: &Dict, depth: usize) -> Res<()> {
    out.push_str("{");
    for (i, (key, value)) in pairs.iter().enumerate() {
        out.push_str(if i == 0 { "" } else { ", " });
        write_repr(out, key, depth + 1)?;
        out.push_str(": ");
        write_repr(out, value, depth + 1)?;
    }
    out.push_str("}");
    Ok(())
}

fn repr_string(out: &mut Builder, text: &Text) {
    let s = text.as_str();
    let quote = if s.contains('\'') && !s.contains('"') { '"' } else { '\'' };
    let mut buf = [0; 4];
    out.push_str(quote.encode_utf8(&mut buf));
    for (i, c) in s.char_indices() {
        let user = text.is_user_at(i);
        match c {
            '\n' => out.push_marked("\\n", user),
            '\r' => out.push_marked("\\r", user),
            '\t' => out.push_marked("\\t", user),
            '\\' => out.push_marked("\\\\", user),
            c if c == quote => out.push_marked(&format!("\\{c}"), user),
            c if printable(c) => out.push_marked(c.encode_utf8(&mut buf), user),
            c => out.push_marked(
                &match u32::from(c) {
                    n @ ..=0xff => format!("\\x{n:02x}"),
                    n @ 0x100..=0xffff => format!("\\u{n:04x}"),
                    n => format!("\\U{n:08x}"),
                },
                user,
            ),
        }
    }
    out.push_str(quote.encode_utf8(&mut buf));
}

/// Python's `str.isprintable` for one character.
fn printable(c: char) -> bool {
    if c.is_ascii() {
        return !c.is_ascii_control();
    }
    // The standard library knows the same classes (no Cc, Cf, Co, Cn, Zl, Zp, nor Zs but the space), but shows them
    // only through escaping; a letter before keeps combining marks from being escaped as the first character.
    !['a', c].iter().collect::<String>().escape_debug().any(|e| e == '\\')
}

/// Python's `repr(float)`: shortest digits that read back, an exponent below 1e-4 and from 1e16.
pub(super) fn float(f: f64) -> String {
    if f.is_nan() {
        return "nan".to_owned();
    }
    if f.is_infinite() {
        return if f > 0.0 { "inf" } else { "-inf" }.to_owned();
    }
    let scientific = format!("{f:e}");
    let exponent: i32 = scientific.split_once('e').and_then(|(_, e)| e.parse().ok()).unwrap_or(0);
    if f != 0.0 && !(-4..16).contains(&exponent) {
        let digits = scientific.split_once('e').map_or("", |(d, _)| d);
        let sign = if exponent < 0 { '-' } else { '+' };
        return format!("{digits}e{sign}{:02}", exponent.abs());
    }
    let plain = f.to_string();
    if plain.contains('.') { plain } else { format!("{plain}.0") }
}

/// Options of `tojson`, which are those of Python's `json.dumps`.
#[derive(Debug)]
pub(super) struct Json {
    pub(super) ensure_ascii: bool,
    /// The white space of one level; `None` prints on one line.
    pub(super) indent: Option<Text>,
    pub(super) item_separator: Text,
    pub(super) key_separator: Text,
    pub(super) sort_keys: bool,
}

impl Json {
    pub(super) fn dump(&self, value: &Value) -> Res<Text> {
        let mut out = Builder::default();
        self.write(&mut out, value, 0)?;
        out.finish()
    }

    fn write(&self, out: &mut Builder, value: &Value, depth: usize) -> Res<()> {
        if depth > MAX_DEPTH {
            return Err(Fault::limit(format!("tojson of a value nested more than {MAX_DEPTH} deep")));
        }
        match value {
            Value::Str(t) => self.string(out, t),
            Value::List(items) | Value::Tuple(items) => {
                out.push_str("[");
                for (i, item) in items.iter().enumerate() {
                    self.separate(out, i, depth + 1);
                    self.write(out, item, depth + 1)?;
                }
                self.close(out, items.is_empty(), depth);
                out.push_str("]");
            }
            Value::Dict(d) => self.object(out, d, depth)?,
            // Python refuses; templates written for other engines (llama.cpp's own) mean the list.
            Value::Generator(_) => {
                let items = Value::List(value.iterate()?);
                return self.write(out, &items, depth);
            }
            scalar => match json_scalar(scalar) {
                Some(s) => out.push_str(&s),
                None => {
                    let name = scalar.type_name();
                    return Err(Fault::new(format!("Object of type {name} is not JSON serializable")));
                }
            },
        }
        out.check()
    }

    fn object(&self, out: &mut Builder, pairs: &Dict, depth: usize) -> Res<()> {
        let mut order: Vec<usize> = (0..pairs.len()).collect();
        if self.sort_keys {
            let mut failed = None;
            order.sort_by(|&a, &b| match pairs[a].0.order(&pairs[b].0) {
                Ok(o) => o.unwrap_or(std::cmp::Ordering::Equal),
                Err(e) => {
                    failed = Some(e);
                    std::cmp::Ordering::Equal
                }
            });
            if let Some(e) = failed {
                return Err(e);
            }
        }
        out.push_str("{");
        for (i, &at) in order.iter().enumerate() {
            self.separate(out, i, depth + 1);
            let (key, value) = &pairs[at];
            match (key, json_scalar(key)) {
                (Value::Str(t), _) => self.string(out, t),
                (_, Some(s)) => out.push_str(&format!("\"{s}\"")),
                (other, None) => {
                    let name = other.type_name();
                    return Err(Fault::new(format!(
                        "keys must be str, int, float, bool or None, not {name}"
                    )));
                }
            }
            out.push(&self.key_separator);
            self.write(out, value, depth + 1)?;
        }
        self.close(out, pairs.is_empty(), depth);
        out.push_str("}");
        Ok(())
    }

    fn separate(&self, out: &mut Builder, index: usize, depth: usize) {
        if index > 0 {
            out.push(&self.item_separator);
        }
        self.newline(out, depth);
    }

    fn close(&self, out: &mut Builder, empty: bool, depth: usize) {
        if !empty {
            self.newline(out, depth);
        }
    }

    fn newline(&self, out: &mut Builder, depth: usize) {
        if let Some(indent) = &self.indent {
            out.push_str("\n");
            (0..depth).for_each(|_| out.push(indent));
        }
    }

    fn string(&self, out: &mut Builder, text: &Text) {
        out.push_str("\"");
        let mut units = [0; 2];
        let mut buf = [0; 4];
        for (i, c) in text.as_str().char_indices() {
            let user = text.is_user_at(i);
            match c {
                '"' => out.push_marked("\\\"", user),
                '\\' => out.push_marked("\\\\", user),
                '\n' => out.push_marked("\\n", user),
                '\r' => out.push_marked("\\r", user),
                '\t' => out.push_marked("\\t", user),
                '\u{8}' => out.push_marked("\\b", user),
                '\u{c}' => out.push_marked("\\f", user),
                c if c < ' ' || (self.ensure_ascii && !(' '..='~').contains(&c)) => {
                    for unit in c.encode_utf16(&mut units) {
                        out.push_marked(&format!("\\u{unit:04x}"), user);
                    }
                }
                c => out.push_marked(c.encode_utf8(&mut buf), user),
            }
        }
        out.push_str("\"");
    }
}

fn json_scalar(value: &Value) -> Option<String> {
    Some(match value {
        Value::None => "null".to_owned(),
        Value::Bool(b) => b.to_string(),
        Value::Int(i) => i.to_string(),
        Value::Float(f) if f.is_nan() => "NaN".to_owned(),
        Value::Float(f) if f.is_infinite() => if *f > 0.0 { "Infinity" } else { "-Infinity" }.to_owned(),
        Value::Float(f) => float(*f),
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn floats_print_as_in_python() {
        let cases = [
            (0.0, "0.0"),
            (-0.0, "-0.0"),
            (1.0, "1.0"),
            (0.1, "0.1"),
            (1e15, "1000000000000000.0"),
            (1e16, "1e+16"),
            (1.5e-5, "1.5e-05"),
            (0.0001, "0.0001"),
            (123_456.789, "123456.789"),
            (1e100, "1e+100"),
            (5e-324, "5e-324"),
        ];
        for (value, expected) in cases {
            assert_eq!(float(value), expected);
        }
    }

    #[test]
    fn strings_print_as_in_python() {
        let cases = [
            ("a", "'a'"),
            ("it's", "\"it's\""),
            ("'\"", "'\\'\"'"),
            (
                "\n\u{7f}\u{85}\u{200b}\u{e000}é\u{301}🔥\u{a0}",
                "'\\n\\x7f\\x85\\u200b\\ue000é\u{301}🔥\\xa0'",
            ),
        ];
        for (value, expected) in cases {
            let list = Value::list(vec![Value::template(value)]);
            assert_eq!(to_text(&list).unwrap().as_str(), format!("[{expected}]"));
        }
    }
}
