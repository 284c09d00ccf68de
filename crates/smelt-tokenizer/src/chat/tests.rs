//! Jinja's tests: what may stand after `is`.

use super::ast::Compare;
use super::error::{Fault, Res};
use super::eval::Evaluator;
use super::filters;
use super::value::{Args, Callable, Value};

pub(super) fn apply(e: &mut Evaluator, name: &str, value: &Value, args: Args) -> Res<bool> {
    if let Some(op) = comparison(name) {
        let [other] = args.bind(name, ["other"])?;
        let other = super::value::required(other, name, "other")?;
        return e.compare(op, value, &other);
    }
    match name {
        "divisibleby" => {
            let [num] = args.bind(name, ["num"])?;
            match (value.as_int(), num.and_then(|n| n.as_int())) {
                (Some(a), Some(b)) if b != 0 => Ok(a.checked_rem(b) == Some(0)),
                _ => Err(Fault::new("divisibleby needs two integers, the second not 0")),
            }
        }
        "sameas" => {
            let [other] = args.bind(name, ["other"])?;
            let other = super::value::required(other, name, "other")?;
            Ok(same(value, &other))
        }
        _ => {
            let [] = args.bind(name, [])?;
            unary(name, value)
        }
    }
}

fn comparison(name: &str) -> Option<Compare> {
    Some(match name {
        "==" | "eq" | "equalto" => Compare::Eq,
        "!=" | "ne" => Compare::Ne,
        "<" | "lt" | "lessthan" => Compare::Lt,
        "<=" | "le" => Compare::Le,
        ">" | "gt" | "greaterthan" => Compare::Gt,
        ">=" | "ge" => Compare::Ge,
        "in" => Compare::In,
        _ => return None,
    })
}

fn unary(name: &str, value: &Value) -> Res<bool> {
    use super::methods::{cased, is_all};
    Ok(match name {
        "defined" => !value.is_undefined(),
        "undefined" => value.is_undefined(),
        "none" => matches!(value, Value::None),
        "boolean" => matches!(value, Value::Bool(_)),
        "true" => matches!(value, Value::Bool(true)),
        "false" => matches!(value, Value::Bool(false)),
        "integer" => matches!(value, Value::Int(_)),
        "float" => matches!(value, Value::Float(_)),
        // Python's numbers include the booleans.
        "number" => matches!(value, Value::Int(_) | Value::Float(_) | Value::Bool(_)),
        "string" => matches!(value, Value::Str(_)),
        "mapping" => matches!(value, Value::Dict(_)),
        // Jinja2 calls a sequence what has a length and items.
        "sequence" => {
            matches!(
                value,
                Value::Str(_) | Value::List(_) | Value::Tuple(_) | Value::Dict(_) | Value::Undefined(_)
            )
        }
        "iterable" => matches!(
            value,
            Value::Str(_)
                | Value::List(_)
                | Value::Tuple(_)
                | Value::Dict(_)
                | Value::Undefined(_)
                | Value::Generator(_)
                | Value::Loop(_)
        ),
        "callable" => matches!(value, Value::Callable(_) | Value::Loop(_) | Value::Undefined(_)),
        "odd" | "even" => match value.as_int() {
            Some(i) => (i.rem_euclid(2) == 1) == (name == "odd"),
            None => {
                return Err(Fault::new(format!("'{name}' needs an integer, not '{}'", value.type_name())));
            }
        },
        "lower" | "upper" => {
            let text = super::format::to_text(value)?;
            is_all(text.as_str(), |c| if name == "lower" { !c.is_uppercase() } else { !c.is_lowercase() })
                && text.as_str().chars().any(cased)
        }
        "filter" => value.as_text().is_some_and(|t| filters::exists(t.as_str())),
        "escaped" => value.as_text().is_some_and(super::text::Text::is_markup),
        other => return Err(Fault::new(format!("No test named '{other}'"))),
    })
}

/// Python's `is`, for the values that have an identity a template can see.
fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::None, Value::None) => true,
        (Value::Bool(x), Value::Bool(y)) => x == y,
        (Value::Int(x), Value::Int(y)) => x == y,
        (Value::Str(x), Value::Str(y)) => x == y,
        (Value::List(x), Value::List(y)) | (Value::Tuple(x), Value::Tuple(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Dict(x), Value::Dict(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Namespace(x), Value::Namespace(y)) => std::rc::Rc::ptr_eq(x, y),
        (Value::Callable(x), Value::Callable(y)) => match (&**x, &**y) {
            (Callable::Function(f), Callable::Function(g)) => f == g,
            _ => std::rc::Rc::ptr_eq(x, y),
        },
        _ => false,
    }
}
