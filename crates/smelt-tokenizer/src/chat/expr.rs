//! Evaluates expressions.

use std::rc::Rc;

use super::ast::{Arg, Compare, Expr, Math, SliceExpr};
use super::error::{Fault, Res};
use super::eval::{Evaluator, Scope};
use super::functions;
use super::methods;
use super::text::{Builder, Text};
use super::value::{Args, Callable, LoopState, Value, insert, lookup, lookup_str};
use super::{filters, tests};

impl Evaluator {
    pub(super) fn expr(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        self.charge(1)?;
        self.nested(|e| e.expr_inner(expr, scope))
    }

    fn expr_inner(&mut self, expr: &Expr, scope: &Rc<Scope>) -> Res<Value> {
        match expr {
            Expr::None => Ok(Value::None),
            Expr::Bool(b) => Ok(Value::Bool(*b)),
            Expr::Int(i) => Ok(Value::Int(*i)),
            Expr::Float(f) => Ok(Value::Float(*f)),
            Expr::Str(s) => self.made(Value::template(&**s)),
            Expr::Var(name) => Ok(scope
                .get(name)
                .or_else(|| functions::global(name))
                .unwrap_or_else(|| Value::undefined(format!("'{name}' is undefined")))),
            Expr::Not(e) => Ok(Value::Bool(!self.expr(e, scope)?.truth())),
            Expr::Neg(e) => negate(&self.expr(e, scope)?),
            Expr::And(pair) => match self.expr(&pair.0, scope)? {
                left if left.truth() => self.expr(&pair.1, scope),
                left => Ok(left),
            },
            Expr::Or(pair) => match self.expr(&pair.0, scope)? {
                left if left.truth() => Ok(left),
                _ => self.expr(&pair.1, scope),
            },
            Expr::Concat(pair) => {
                let (left, right) = (self.expr(&pair.0, scope)?, self.expr(&pair.1, scope)?);
                let mut out = Builder::default();
                super::format::write_str(&mut out, &left)?;
                super::format::write_str(&mut out, &right)?;
                self.made(Value::Str(out.finish()?))
            }
            Expr::Math(op, pair) => {
                let (left, right) = (self.expr(&pair.0, scope)?, self.expr(&pair.1, scope)?);
                let value = self.math(*op, &left, &right)?;
                self.made(value)
            }
            Expr::Compare(first, rest) => self.comparison(first, rest, scope),
            Expr::If { test, then, otherwise } => {
                if self.expr(test, scope)?.truth() {
                    return self.expr(then, scope);
                }
                match otherwise {
                    Some(e) => self.expr(e, scope),
                    None => Ok(Value::undefined("the inline if has no else and its condition is false")),
                }
            }
            Expr::Slice(s) => self.slice(s, scope),
            Expr::Attr { of, name, line } => {
                let of = self.expr(of, scope)?;
                self.line = *line;
                self.attribute(&of, name)
            }
            Expr::Item { of, key, line } => {
                let (of, key) = (self.expr(of, scope)?, self.expr(key, scope)?);
                self.line = *line;
                self.item(&of, &key)
            }
            Expr::Call { .. } => self.call_expr(expr, scope, None),
            Expr::Filter { .. } => self.filter_expr(expr, None, scope),
            Expr::Test { name, input, args, line } => {
                let input = self.expr(input, scope)?;
                let args = self.args(args, scope)?;
                self.line = *line;
                Ok(Value::Bool(self.test(name, &input, args)?))
            }
            Expr::List(items) => {
                let items = self.exprs(items, scope)?;
                self.made(Value::list(items))
            }
            Expr::Tuple(items) => {
                let items = self.exprs(items, scope)?;
                self.made(Value::tuple(items))
            }
            Expr::Dict(pairs) => self.dict(pairs, scope),
        }
    }

    fn dict(&mut self, pairs: &[(Expr, Expr)], scope: &Rc<Scope>) -> Res<Value> {
        let mut dict = Vec::with_capacity(pairs.len());
        for (key, value) in pairs {
            let key = self.expr(key, scope)?;
            key.check_key()?;
            let value = self.expr(value, scope)?;
            self.charge(dict.len() as u64 / 8)?;
            insert(&mut dict, key, value);
        }
        self.made(Value::dict(dict))
    }

    fn exprs(&mut self, exprs: &[Expr], scope: &Rc<Scope>) -> Res<Vec<Value>> {
        exprs.iter().map(|e| self.expr(e, scope)).collect()
    }

    fn args(&mut self, args: &[Arg], scope: &Rc<Scope>) -> Res<Args> {
        let mut out = Args::default();
        for arg in args {
            match arg {
                Arg::Positional(e) => out.positional.push(self.expr(e, scope)?),
                Arg::Keyword(name, e) => {
                    let value = self.expr(e, scope)?;
                    out.keyword.push((name.clone(), value));
                }
                Arg::Splat(e) => {
                    let value = self.expr(e, scope)?;
                    out.positional.extend(self.iterate(&value)?.iter().cloned());
                }
                Arg::KeywordSplat(e) => match self.expr(e, scope)? {
                    Value::Dict(d) => {
                        self.charge(d.len() as u64)?;
                        for (key, value) in d.iter() {
                            let Some(key) = key.as_text() else {
                                return Err(Fault::new("keywords must be strings"));
                            };
                            out.keyword.push((key.as_str().into(), value.clone()));
                        }
                    }
                    other => {
                        let name = other.type_name();
                        return Err(Fault::new(format!("argument after ** must be a mapping, not {name}")));
                    }
                },
            }
        }
        Ok(out)
    }

    /// `input` is the text of a filter block, for the innermost filter of the chain.
    pub(super) fn filter_expr(&mut self, expr: &Expr, block: Option<Value>, scope: &Rc<Scope>) -> Res<Value> {
        let Expr::Filter { name, input, args, line } = expr else {
            return self.expr(expr, scope);
        };
        let input = match (input, block) {
            (Some(inner), Some(block)) => self.nested(|e| e.filter_expr(inner, Some(block), scope))?,
            (Some(inner), None) => self.expr(inner, scope)?,
            (None, Some(block)) => block,
            (None, None) => return Err(Fault::new(format!("the filter '{name}' has no input"))),
        };
        let args = self.args(args, scope)?;
        self.line = *line;
        let value = filters::apply(self, name, &input, args)?;
        self.made(value)
    }

    pub(super) fn test(&mut self, name: &str, input: &Value, args: Args) -> Res<bool> {
        tests::apply(self, name, input, args)
    }

    /// A call; `caller` is the body of the `{% call %}` around it.
    pub(super) fn call_expr(&mut self, expr: &Expr, scope: &Rc<Scope>, caller: Option<Value>) -> Res<Value> {
        let Expr::Call { callee, args, line } = expr else {
            return Err(Fault::new("not a call"));
        };
        let callee = self.expr(callee, scope)?;
        let args = self.args(args, scope)?;
        self.line = *line;
        let value = self.call(&callee, args, caller)?;
        self.made(value)
    }

    pub(super) fn call(&mut self, callee: &Value, args: Args, caller: Option<Value>) -> Res<Value> {
        match callee {
            Value::Callable(c) => match &**c {
                Callable::Function(name) => functions::call(self, name, args),
                Callable::Method(of, name) => methods::call(self, of, name, args),
                Callable::Macro { def, scope } => self.call_macro(def, scope, args, caller),
                Callable::Cycler(..) => Err(Fault::new("'Cycler' object is not callable, use its next()")),
                Callable::Joiner(separator, used) => {
                    Ok(if used.replace(true) { separator.clone() } else { Value::template("") })
                }
            },
            Value::Loop(state) => {
                let [items] = args.bind("loop", ["items"])?;
                self.recurse_loop(state, super::value::required(items, "loop", "items")?)
            }
            Value::Undefined(why) => Err(Fault::new(&**why)),
            other => Err(Fault::new(format!("'{}' object is not callable", other.type_name()))),
        }
    }

    fn comparison(&mut self, first: &Expr, rest: &[(Compare, Expr)], scope: &Rc<Scope>) -> Res<Value> {
        let mut left = self.expr(first, scope)?;
        for (op, right) in rest {
            let right = self.expr(right, scope)?;
            if !self.compare(*op, &left, &right)? {
                return Ok(Value::Bool(false));
            }
            left = right;
        }
        Ok(Value::Bool(true))
    }

    pub(super) fn compare(&mut self, op: Compare, left: &Value, right: &Value) -> Res<bool> {
        use std::cmp::Ordering::{Equal, Greater, Less};
        self.charge(match op {
            Compare::In | Compare::NotIn => right.weight(),
            _ => left.weight().min(right.weight()),
        })?;
        Ok(match op {
            Compare::Eq => left.equals(right),
            Compare::Ne => !left.equals(right),
            Compare::In => right.contains(left)?,
            Compare::NotIn => !right.contains(left)?,
            Compare::Lt => left.order(right)? == Some(Less),
            Compare::Le => matches!(left.order(right)?, Some(Less | Equal)),
            Compare::Gt => left.order(right)? == Some(Greater),
            Compare::Ge => matches!(left.order(right)?, Some(Greater | Equal)),
        })
    }

    /// `of.name`: a method or field first, then an item, as Jinja2's sandbox looks them up.
    pub(super) fn attribute(&mut self, of: &Value, name: &str) -> Res<Value> {
        match of {
            Value::Undefined(why) => return Err(Fault::new(&**why)),
            Value::Namespace(fields) => {
                let fields = fields.borrow();
                return Ok(lookup_str(&fields, name).cloned().unwrap_or_else(|| missing(of, name)));
            }
            Value::Loop(state) => {
                return Ok(loop_attribute(state, name).unwrap_or_else(|| missing(of, name)));
            }
            Value::Callable(c) => {
                return Ok(match (&**c, name) {
                    (Callable::Macro { def, .. }, "name") => Value::template(&*def.name),
                    (Callable::Cycler(items, at), "current") => items[at.get() % items.len()].clone(),
                    (Callable::Cycler(..), "next") => {
                        Value::Callable(Rc::new(Callable::Method(of.clone(), "next")))
                    }
                    _ => missing(of, name),
                });
            }
            _ => {}
        }
        if let Some(method) = methods::find(of, name)? {
            return Ok(Value::Callable(Rc::new(Callable::Method(of.clone(), method))));
        }
        if let Value::Dict(d) = of {
            self.charge(d.len() as u64 / 8)?;
            if let Some(value) = lookup_str(d, name) {
                return Ok(value.clone());
            }
        }
        Ok(missing(of, name))
    }

    /// `of[key]`: an item first, then an attribute of that name.
    pub(super) fn item(&mut self, of: &Value, key: &Value) -> Res<Value> {
        let found = match of {
            Value::Undefined(why) => return Err(Fault::new(&**why)),
            Value::Dict(d) => {
                self.charge(d.len() as u64 / 8)?;
                key.check_key()?;
                lookup(d, key).cloned()
            }
            Value::List(l) | Value::Tuple(l) => index(key, l.len()).map(|i| l[i].clone()),
            Value::Str(t) if key.as_int().is_some() => {
                self.charge(t.len() as u64 / 16)?;
                char_at(t, key).map(Value::Str)
            }
            _ => None,
        };
        match (found, key) {
            (Some(value), _) => Ok(value),
            (None, Value::Str(name)) => self.attribute(of, name.as_str()),
            (None, Value::Undefined(why)) if !matches!(of, Value::Dict(_)) => Ok(Value::undefined(&**why)),
            (None, other) => {
                let key = self.text(other)?;
                Ok(missing(of, key.as_str()))
            }
        }
    }

    fn slice(&mut self, s: &SliceExpr, scope: &Rc<Scope>) -> Res<Value> {
        let of = self.expr(&s.of, scope)?;
        let mut bounds = [None; 3];
        for (bound, expr) in bounds.iter_mut().zip([&s.start, &s.stop, &s.step]) {
            if let Some(expr) = expr {
                *bound = match self.expr(expr, scope)? {
                    Value::None => None,
                    other => Some(other.as_int().ok_or_else(|| {
                        Fault::new(format!("slice indices must be integers, not {}", other.type_name()))
                    })?),
                };
            }
        }
        let value = match &of {
            Value::Str(t) => {
                self.charge(t.len() as u64 / 8)?;
                Value::Str(slice_text(t, bounds)?)
            }
            Value::List(l) => Value::list(indices(bounds, l.len())?.map(|i| l[i].clone()).collect()),
            Value::Tuple(l) => Value::tuple(indices(bounds, l.len())?.map(|i| l[i].clone()).collect()),
            Value::Undefined(why) => return Err(Fault::new(&**why)),
            other => missing(other, "slice"),
        };
        self.made(value)
    }

    fn math(&mut self, op: Math, left: &Value, right: &Value) -> Res<Value> {
        match (op, left, right) {
            (_, Value::Undefined(why), _) | (_, _, Value::Undefined(why)) => Err(Fault::new(&**why)),
            (Math::Add, Value::Str(a), Value::Str(b)) => Ok(Value::Str(a.plus(b)?)),
            (Math::Add, Value::List(a), Value::List(b)) => {
                Ok(Value::list(a.iter().chain(b.iter()).cloned().collect()))
            }
            (Math::Add, Value::Tuple(a), Value::Tuple(b)) => {
                Ok(Value::tuple(a.iter().chain(b.iter()).cloned().collect()))
            }
            (Math::Mul, seq @ (Value::Str(_) | Value::List(_) | Value::Tuple(_)), n)
            | (Math::Mul, n, seq @ (Value::Str(_) | Value::List(_) | Value::Tuple(_))) => {
                let Some(n) = n.as_int() else {
                    let name = n.type_name();
                    return Err(Fault::new(format!("can't multiply sequence by non-int of type '{name}'")));
                };
                self.repeat(seq, n)
            }
            (Math::Rem, Value::Str(format), args) => functions::percent_format(self, format, args),
            _ => super::number::math(op, left, right),
        }
    }

    fn repeat(&mut self, seq: &Value, n: i128) -> Res<Value> {
        let n = usize::try_from(n.max(0)).unwrap_or(usize::MAX);
        let size = seq.length()?.saturating_mul(n);
        self.charge(size as u64)?;
        Ok(match seq {
            Value::Str(t) => {
                let mut out = Builder::default();
                if !t.is_empty() {
                    (0..n).for_each(|_| out.push(t));
                }
                Value::Str(out.finish()?)
            }
            Value::List(l) => Value::list(l.iter().cycle().take(size).cloned().collect()),
            Value::Tuple(l) => Value::tuple(l.iter().cycle().take(size).cloned().collect()),
            other => other.clone(),
        })
    }
}

fn negate(value: &Value) -> Res<Value> {
    match value {
        Value::Float(f) => Ok(Value::Float(-f)),
        Value::Undefined(why) => Err(Fault::new(&**why)),
        other => match other.as_int().and_then(i128::checked_neg) {
            Some(i) => Ok(Value::Int(i)),
            None => Err(Fault::new(format!("bad operand type for -: '{}'", other.type_name()))),
        },
    }
}

pub(super) fn missing(of: &Value, name: &str) -> Value {
    Value::undefined(format!("'{} object' has no attribute '{name}'", of.type_name()))
}

fn loop_attribute(state: &Rc<LoopState>, name: &str) -> Option<Value> {
    let (i, n) = (state.index0.get(), state.items.len());
    let neighbour = |at: Option<usize>| {
        at.and_then(|at| state.items.get(at).cloned())
            .unwrap_or_else(|| Value::undefined("there is no such loop item"))
    };
    Some(match name {
        "index" => Value::int(i + 1),
        "index0" => Value::int(i),
        "revindex" => Value::int(n - i),
        "revindex0" => Value::int(n - i - 1),
        "first" => Value::Bool(i == 0),
        "last" => Value::Bool(i + 1 == n),
        "length" => Value::int(n),
        "depth" => Value::int(state.depth0 + 1),
        "depth0" => Value::int(state.depth0),
        "previtem" => neighbour(i.checked_sub(1)),
        "nextitem" => neighbour(i.checked_add(1)),
        "cycle" => Value::Callable(Rc::new(Callable::Method(Value::Loop(Rc::clone(state)), "cycle"))),
        "changed" => Value::Callable(Rc::new(Callable::Method(Value::Loop(Rc::clone(state)), "changed"))),
        _ => return None,
    })
}

/// A Python index, counted from the end when negative.
fn index(key: &Value, len: usize) -> Option<usize> {
    let i = key.as_int()?;
    // Lossless: lengths have at most 64 bits.
    let from_start = if i < 0 { i + len as i128 } else { i };
    usize::try_from(from_start).ok().filter(|i| *i < len)
}

fn char_at(text: &Text, key: &Value) -> Option<Text> {
    let i = index(key, text.chars())?;
    let (start, c) = text.as_str().char_indices().nth(i)?;
    Some(text.slice(start..start + c.len_utf8()))
}

/// The indices that a Python slice picks from a sequence of `len`.
fn indices(bounds: [Option<i128>; 3], len: usize) -> Res<impl Iterator<Item = usize>> {
    let step = bounds[2].unwrap_or(1);
    if step == 0 {
        return Err(Fault::new("slice step cannot be zero"));
    }
    let len = len as i128;
    let (low, high) = if step > 0 { (0, len) } else { (-1, len - 1) };
    let clamp = |bound: i128| (if bound < 0 { bound.saturating_add(len) } else { bound }).clamp(low, high);
    let start = bounds[0].map_or(if step > 0 { low } else { high }, clamp);
    let stop = bounds[1].map_or(if step > 0 { high } else { low }, clamp);
    let mut at = start;
    Ok(std::iter::from_fn(move || {
        if (step > 0 && at >= stop) || (step < 0 && at <= stop) {
            return None;
        }
        let here = usize::try_from(at).ok()?;
        at = at.saturating_add(step);
        Some(here)
    }))
}

fn slice_text(text: &Text, bounds: [Option<i128>; 3]) -> Res<Text> {
    let offsets = text.offsets();
    let len = offsets.len() - 1;
    let mut picked = indices(bounds, len)?;
    if bounds[2].unwrap_or(1) == 1 {
        let first = picked.next();
        return Ok(match first {
            None => Text::template(""),
            Some(first) => text.slice(offsets[first]..offsets[first + 1 + picked.count()]),
        });
    }
    let mut out = Builder::default();
    picked.for_each(|i| out.push_range(text, offsets[i]..offsets[i + 1]));
    out.finish()
}
