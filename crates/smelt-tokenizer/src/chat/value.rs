//! The evaluator's values, with Python's rules for truth, equality and order.

use std::cell::{Cell, RefCell};
use std::cmp::Ordering;
use std::rc::Rc;
use std::sync::Arc;

use super::ast::{For, Macro};
use super::error::{Fault, Res};
use super::eval::Scope;
use super::text::Text;

/// A value of a template. Lists and dicts can't be changed once made, as in Jinja2's immutable sandbox.
#[derive(Debug, Clone)]
pub(super) enum Value {
    /// A name, attribute or item that does not exist; holds what to say when it is used.
    Undefined(Rc<str>),
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Text),
    List(Rc<Seq>),
    Tuple(Rc<Seq>),
    Dict(Rc<Map>),
    /// What lazy filters such as `map` return: it can be gone through once, and has no length.
    Generator(Rc<Generator>),
    Namespace(Rc<RefCell<Dict>>),
    Loop(Rc<LoopState>),
    Callable(Rc<Callable>),
}

/// Pairs in insertion order. Look-up is linear: the dicts of chat templates have a handful of keys.
pub(super) type Dict = Vec<(Value, Value)>;

/// Contents with their nesting depth and their size when written out in full.
///
/// Sharing lets a template make a value of 2^n parts in n steps, and nesting one of any depth: comparing, printing and
/// dropping such values must be paid for by size and bounded by depth.
#[derive(Debug, Default)]
pub(super) struct Measured<T> {
    data: T,
    depth: u32,
    weight: u64,
}

impl<T> std::ops::Deref for Measured<T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.data
    }
}

/// The items of a list or tuple.
pub(super) type Seq = Measured<Vec<Value>>;
/// The pairs of a dict.
pub(super) type Map = Measured<Dict>;

impl Seq {
    pub(super) fn new(data: Vec<Value>) -> Self {
        let (depth, weight) = measure(data.iter());
        Self { data, depth, weight }
    }
}

impl Map {
    pub(super) fn new(data: Dict) -> Self {
        let (depth, weight) = measure(data.iter().flat_map(|(k, v)| [k, v]));
        Self { data, depth, weight }
    }
}

fn measure<'a>(values: impl Iterator<Item = &'a Value>) -> (u32, u64) {
    values.fold((1, 1), |(depth, weight), v| (depth.max(1 + v.depth()), weight.saturating_add(v.weight())))
}

#[derive(Debug)]
pub(super) enum Callable {
    /// A global function, by its name in the table of `functions.rs`.
    Function(&'static str),
    /// A method of a value, by its name in the tables of `methods.rs`.
    Method(Value, &'static str),
    Macro {
        def: Arc<Macro>,
        scope: Rc<Scope>,
    },
    /// `cycler(…)`: the items and the position.
    Cycler(Vec<Value>, Cell<usize>),
    /// `joiner(sep)`: empty at its first call.
    Joiner(Value, Cell<bool>),
}

/// Items that can be taken once.
#[derive(Debug)]
pub(super) struct Generator {
    pub(super) items: Rc<Seq>,
    spent: Cell<bool>,
}

/// What `loop` is in the body of a `for`.
#[derive(Debug)]
pub(super) struct LoopState {
    pub(super) items: Rc<Seq>,
    pub(super) index0: Cell<usize>,
    pub(super) depth0: usize,
    pub(super) changed: RefCell<Option<Vec<Value>>>,
    /// The loop to run again for `loop(items)`, with the scope around it.
    pub(super) recurse: Option<(Rc<Scope>, Arc<For>)>,
}

impl Value {
    pub(super) fn undefined(why: impl Into<String>) -> Self {
        Self::Undefined(why.into().into())
    }

    /// A string of the template's own.
    pub(super) fn template(text: impl Into<String>) -> Self {
        Self::Str(Text::template(text))
    }

    pub(super) fn int(n: usize) -> Self {
        // Lossless: usize has at most 64 bits.
        Self::Int(n as i128)
    }

    pub(super) fn list(items: Vec<Value>) -> Self {
        Self::List(Rc::new(Seq::new(items)))
    }

    pub(super) fn generator(items: Vec<Value>) -> Self {
        Self::Generator(Rc::new(Generator { items: Rc::new(Seq::new(items)), spent: Cell::new(false) }))
    }

    pub(super) fn tuple(items: Vec<Value>) -> Self {
        Self::Tuple(Rc::new(Seq::new(items)))
    }

    pub(super) fn dict(pairs: Dict) -> Self {
        Self::Dict(Rc::new(Map::new(pairs)))
    }

    /// JSON from outside: every string in it, keys included, is a user's.
    pub(super) fn from_json(json: &serde_json::Value) -> Self {
        match json {
            serde_json::Value::Null => Self::None,
            serde_json::Value::Bool(b) => Self::Bool(*b),
            serde_json::Value::Number(n) => match (n.as_i128(), n.as_f64()) {
                (Some(i), _) => Self::Int(i),
                (None, Some(f)) => Self::Float(f),
                (None, None) => Self::Str(Text::user(n.to_string())),
            },
            serde_json::Value::String(s) => Self::Str(Text::user(s.as_str())),
            serde_json::Value::Array(a) => Self::list(a.iter().map(Self::from_json).collect()),
            serde_json::Value::Object(o) => Self::dict(
                o.iter().map(|(k, v)| (Self::Str(Text::user(k.as_str())), Self::from_json(v))).collect(),
            ),
        }
    }

    /// Python's name of the type, for messages.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Undefined(_) => "Undefined",
            Self::None => "NoneType",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Float(_) => "float",
            Self::Str(_) => "str",
            Self::List(_) => "list",
            Self::Tuple(_) => "tuple",
            Self::Dict(_) => "dict",
            Self::Generator(_) => "generator",
            Self::Namespace(_) => "Namespace",
            Self::Loop(_) => "LoopContext",
            Self::Callable(_) => "function",
        }
    }

    /// How deep containers nest. A namespace counts as a leaf: the evaluator empties namespaces one by one.
    pub(super) fn depth(&self) -> u32 {
        match self {
            Self::List(l) | Self::Tuple(l) => l.depth,
            Self::Dict(d) => d.depth,
            Self::Loop(l) => 1 + l.items.depth,
            Self::Generator(g) => g.items.depth,
            Self::Callable(c) => match &**c {
                Callable::Method(of, _) | Callable::Joiner(of, _) => 1 + of.depth(),
                Callable::Cycler(items, _) => 1 + items.iter().map(Self::depth).max().unwrap_or(0),
                Callable::Function(_) | Callable::Macro { .. } => 1,
            },
            _ => 0,
        }
    }

    /// What it costs to look at all of it, in units of fuel.
    pub(super) fn weight(&self) -> u64 {
        match self {
            Self::Str(t) => 1 + t.len() as u64 / 16,
            Self::List(l) | Self::Tuple(l) => l.weight,
            Self::Dict(d) => d.weight,
            Self::Generator(g) => g.items.weight,
            _ => 1,
        }
    }

    pub(super) fn is_undefined(&self) -> bool {
        matches!(self, Self::Undefined(_))
    }

    pub(super) fn truth(&self) -> bool {
        match self {
            Self::Undefined(_) | Self::None => false,
            Self::Bool(b) => *b,
            Self::Int(i) => *i != 0,
            Self::Float(f) => *f != 0.0,
            Self::Str(t) => !t.is_empty(),
            Self::List(l) | Self::Tuple(l) => !l.is_empty(),
            Self::Dict(d) => !d.is_empty(),
            Self::Generator(_) | Self::Namespace(_) | Self::Loop(_) | Self::Callable(_) => true,
        }
    }

    pub(super) fn as_text(&self) -> Option<&Text> {
        match self {
            Self::Str(t) => Some(t),
            _ => None,
        }
    }

    /// Numbers, with booleans as 0 and 1.
    pub(super) fn as_int(&self) -> Option<i128> {
        match self {
            Self::Int(i) => Some(*i),
            Self::Bool(b) => Some(i128::from(*b)),
            _ => None,
        }
    }

    pub(super) fn as_float(&self) -> Option<f64> {
        match self {
            Self::Float(f) => Some(*f),
            other => other.as_int().map(|i| i as f64),
        }
    }

    /// The items that iterating gives: of a dict its keys, of a string its characters.
    pub(super) fn iterate(&self) -> Res<Rc<Seq>> {
        Ok(match self {
            Self::Undefined(_) => Rc::default(),
            Self::List(l) | Self::Tuple(l) => Rc::clone(l),
            Self::Generator(g) if g.spent.replace(true) => Rc::default(),
            Self::Generator(g) => Rc::clone(&g.items),
            Self::Dict(d) => Rc::new(Seq::new(d.iter().map(|(k, _)| k.clone()).collect())),
            Self::Str(t) => Rc::new(Seq::new(t.each_char().into_iter().map(Self::Str).collect())),
            other => return Err(Fault::new(format!("'{}' object is not iterable", other.type_name()))),
        })
    }

    /// Python's `len`.
    pub(super) fn length(&self) -> Res<usize> {
        Ok(match self {
            Self::Undefined(_) => 0,
            Self::Str(t) => t.chars(),
            Self::List(l) | Self::Tuple(l) => l.len(),
            Self::Dict(d) => d.len(),
            Self::Loop(l) => l.items.len(),
            other => return Err(Fault::new(format!("object of type '{}' has no len()", other.type_name()))),
        })
    }

    pub(super) fn equals(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Undefined(_), Self::Undefined(_)) | (Self::None, Self::None) => true,
            (Self::Str(a), Self::Str(b)) => a == b,
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                a.len() == b.len() && a.iter().zip(b.iter()).all(|(x, y)| x.equals(y))
            }
            (Self::Dict(a), Self::Dict(b)) => {
                a.len() == b.len() && a.iter().all(|(k, v)| lookup(b, k).is_some_and(|w| v.equals(w)))
            }
            (Self::Generator(a), Self::Generator(b)) => Rc::ptr_eq(a, b),
            (Self::Namespace(a), Self::Namespace(b)) => Rc::ptr_eq(a, b),
            (Self::Loop(a), Self::Loop(b)) => Rc::ptr_eq(a, b),
            (Self::Callable(a), Self::Callable(b)) => Rc::ptr_eq(a, b),
            (a, b) => match (a.as_int(), b.as_int()) {
                (Some(x), Some(y)) => x == y,
                _ => a.as_float().zip(b.as_float()).is_some_and(|(x, y)| x == y),
            },
        }
    }

    /// Python's `<` and its kin. `None` when a NaN takes part.
    pub(super) fn order(&self, other: &Self) -> Res<Option<Ordering>> {
        match (self, other) {
            (Self::Str(a), Self::Str(b)) => Ok(Some(a.as_str().cmp(b.as_str()))),
            (Self::List(a), Self::List(b)) | (Self::Tuple(a), Self::Tuple(b)) => {
                for (x, y) in a.iter().zip(b.iter()) {
                    if !x.equals(y) {
                        return x.order(y);
                    }
                }
                Ok(Some(a.len().cmp(&b.len())))
            }
            (Self::Undefined(why), _) | (_, Self::Undefined(why)) => Err(Fault::new(&**why)),
            (a, b) => match (a.as_int(), b.as_int(), a.as_float(), b.as_float()) {
                (Some(x), Some(y), ..) => Ok(Some(x.cmp(&y))),
                (_, _, Some(x), Some(y)) => Ok(x.partial_cmp(&y)),
                _ => Err(Fault::new(format!(
                    "'<' not supported between instances of '{}' and '{}'",
                    a.type_name(),
                    b.type_name()
                ))),
            },
        }
    }

    /// Python's `item in self`.
    pub(super) fn contains(&self, item: &Self) -> Res<bool> {
        match (self, item) {
            (Self::Str(t), Self::Str(i)) => Ok(t.as_str().contains(i.as_str())),
            (Self::Str(_), other) => Err(Fault::new(format!(
                "'in <string>' requires string as left operand, not {}",
                other.type_name()
            ))),
            (Self::Undefined(_), _) => Ok(false),
            (Self::List(l) | Self::Tuple(l), _) => Ok(l.iter().any(|v| v.equals(item))),
            (Self::Generator(_), _) => Ok(self.iterate()?.iter().any(|v| v.equals(item))),
            (Self::Dict(d), _) => {
                item.check_key()?;
                Ok(lookup(d, item).is_some())
            }
            (other, _) => {
                Err(Fault::new(format!("argument of type '{}' is not iterable", other.type_name())))
            }
        }
    }

    /// Refuses what Python can't hash.
    pub(super) fn check_key(&self) -> Res<()> {
        match self {
            Self::List(_) | Self::Dict(_) => {
                Err(Fault::new(format!("unhashable type: '{}'", self.type_name())))
            }
            Self::Tuple(items) => items.iter().try_for_each(Self::check_key),
            _ => Ok(()),
        }
    }
}

pub(super) fn lookup<'a>(dict: &'a Dict, key: &Value) -> Option<&'a Value> {
    dict.iter().find(|(k, _)| k.equals(key)).map(|(_, v)| v)
}

pub(super) fn lookup_str<'a>(dict: &'a Dict, key: &str) -> Option<&'a Value> {
    dict.iter().find(|(k, _)| k.as_text().is_some_and(|t| t.as_str() == key)).map(|(_, v)| v)
}

/// Sets `key`, keeping its place if it has one.
pub(super) fn insert(dict: &mut Dict, key: Value, value: Value) {
    match dict.iter_mut().find(|(k, _)| k.equals(&key)) {
        Some((_, slot)) => *slot = value,
        None => dict.push((key, value)),
    }
}

/// Arguments of a call after evaluation.
#[derive(Debug, Default)]
pub(super) struct Args {
    pub(super) positional: Vec<Value>,
    pub(super) keyword: Vec<(Arc<str>, Value)>,
}

impl Args {
    /// Binds to parameter names, as Python does for a function whose parameters all have defaults.
    pub(super) fn bind<const N: usize>(self, function: &str, names: [&str; N]) -> Res<[Option<Value>; N]> {
        let mut slots = [const { None }; N];
        if self.positional.len() > N {
            let given = self.positional.len();
            return Err(Fault::new(format!("{function}() takes at most {N} arguments, {given} were given")));
        }
        for (slot, value) in slots.iter_mut().zip(self.positional) {
            *slot = Some(value);
        }
        for (name, value) in self.keyword {
            let Some(at) = names.iter().position(|n| **n == *name) else {
                return Err(Fault::new(format!("{function}() has no parameter '{name}'")));
            };
            if slots[at].replace(value).is_some() {
                return Err(Fault::new(format!("{function}() got '{name}' twice")));
            }
        }
        Ok(slots)
    }
}

/// The value of a required parameter.
pub(super) fn required(slot: Option<Value>, function: &str, name: &str) -> Res<Value> {
    slot.ok_or_else(|| Fault::new(format!("{function}() needs the argument '{name}'")))
}
