//! Runs a template: statements, scopes, macros, and what a hostile template may use of time and memory.

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;

use jiff::civil::DateTime;

use super::ast::{Block, Expr, For, Macro, Node, Stmt, Target};
use super::error::{Fault, Res};
use super::format::{to_text, write_str};
use super::text::{Builder, Text};
use super::value::{Args, Callable, Dict, LoopState, Seq, Value, insert};

/// How deep statements, expressions and macro calls may nest at run time.
const MAX_DEPTH: usize = 3000;
/// How deep lists and dicts may nest.
const MAX_VALUE_DEPTH: u32 = 256;

/// The variables of a block, and the blocks around it.
#[derive(Debug, Default)]
pub(super) struct Scope {
    vars: RefCell<Vec<(Arc<str>, Value)>>,
    parent: Option<Rc<Scope>>,
}

impl Scope {
    pub(super) fn root(vars: Vec<(Arc<str>, Value)>) -> Rc<Self> {
        Rc::new(Self { vars: RefCell::new(vars), parent: None })
    }

    /// Size of the variables, in units of fuel.
    pub(super) fn weight(&self) -> u64 {
        self.vars.borrow().iter().fold(0, |sum, (_, v)| sum.saturating_add(v.weight()))
    }

    fn child(self: &Rc<Self>) -> Rc<Self> {
        Rc::new(Self { vars: RefCell::default(), parent: Some(Rc::clone(self)) })
    }

    pub(super) fn get(&self, name: &str) -> Option<Value> {
        let mut scope = self;
        loop {
            if let Some((_, v)) = scope.vars.borrow().iter().find(|(n, _)| **n == *name) {
                return Some(v.clone());
            }
            scope = scope.parent.as_deref()?;
        }
    }

    pub(super) fn set(&self, name: &Arc<str>, value: Value) {
        let mut vars = self.vars.borrow_mut();
        // The old value is dropped after the borrow ends.
        let _old = match vars.iter_mut().find(|(n, _)| n == name) {
            Some((_, slot)) => Some(std::mem::replace(slot, value)),
            None => {
                vars.push((Arc::clone(name), value));
                None
            }
        };
        drop(vars);
    }
}

/// What a block asks of the loop around it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Flow {
    Next,
    Break,
    Continue,
}

/// One rendering.
#[derive(Debug)]
pub(super) struct Evaluator {
    fuel: u64,
    depth: usize,
    /// The line of the template that is being evaluated, for messages.
    pub(super) line: u32,
    pub(super) now: Option<DateTime>,
    /// Namespaces and the scopes of macros can hold themselves; they are emptied at the end.
    namespaces: Vec<Rc<RefCell<Dict>>>,
    captured: Vec<Rc<Scope>>,
}

impl Drop for Evaluator {
    fn drop(&mut self) {
        for namespace in &self.namespaces {
            namespace.take();
        }
        for scope in &self.captured {
            scope.vars.take();
        }
    }
}

impl Evaluator {
    pub(super) fn new(fuel: u64, now: Option<DateTime>) -> Self {
        Self { fuel, depth: 0, line: 1, now, namespaces: Vec::new(), captured: Vec::new() }
    }

    /// Renders the whole template.
    pub(super) fn run(&mut self, program: &Block, scope: &Rc<Scope>) -> Res<Text> {
        // The scope may hold macros, which hold the scope.
        self.captured.push(Rc::clone(scope));
        let mut out = Builder::default();
        self.block(program, scope, &mut out)?;
        out.finish()
    }

    /// Pays for `units` of work.
    pub(super) fn charge(&mut self, units: u64) -> Res<()> {
        match self.fuel.checked_sub(units) {
            Some(left) => {
                self.fuel = left;
                Ok(())
            }
            None => Err(Fault::limit("rendering takes too long")),
        }
    }

    /// Accounts for one level of nesting while `f` runs.
    pub(super) fn nested<T>(&mut self, f: impl FnOnce(&mut Self) -> Res<T>) -> Res<T> {
        if self.depth >= MAX_DEPTH {
            return Err(Fault::limit("macros or loops call themselves too deeply"));
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }

    /// Pays for a value that was made, and refuses one that nests too deep.
    pub(super) fn made(&mut self, value: Value) -> Res<Value> {
        if value.depth() > MAX_VALUE_DEPTH {
            return Err(Fault::limit(format!("a value nested more than {MAX_VALUE_DEPTH} deep")));
        }
        let own = match &value {
            Value::Str(t) => 1 + t.len() as u64 / 16,
            Value::List(l) | Value::Tuple(l) => 1 + l.len() as u64,
            Value::Dict(d) => 1 + d.len() as u64,
            _ => 1,
        };
        self.charge(own)?;
        Ok(value)
    }

    /// The items of `value`, paid for.
    pub(super) fn iterate(&mut self, value: &Value) -> Res<Rc<Seq>> {
        if let Value::Undefined(_) = value {
            return Ok(Rc::default());
        }
        match value {
            Value::Generator(g) => self.charge(g.items.len() as u64)?,
            other => self.charge(other.length().unwrap_or(0) as u64)?,
        }
        value.iterate()
    }

    pub(super) fn namespace(&mut self, fields: Dict) -> Value {
        let fields = Rc::new(RefCell::new(fields));
        self.namespaces.push(Rc::clone(&fields));
        Value::Namespace(fields)
    }

    fn block(&mut self, block: &Block, scope: &Rc<Scope>, out: &mut Builder) -> Res<Flow> {
        for node in block {
            match self.nested(|e| e.stmt(node, scope, out))? {
                Flow::Next => {}
                flow => return Ok(flow),
            }
        }
        Ok(Flow::Next)
    }

    /// Renders a block to a text of its own.
    fn capture(&mut self, block: &Block, scope: &Rc<Scope>) -> Res<Text> {
        let mut out = Builder::default();
        self.block(block, scope, &mut out)?;
        out.finish()
    }

    fn stmt(&mut self, node: &Node, scope: &Rc<Scope>, out: &mut Builder) -> Res<Flow> {
        self.line = node.line;
        self.charge(1)?;
        match &node.stmt {
            Stmt::Raw(text) => {
                self.charge(text.len() as u64 / 16)?;
                out.push_str(text);
                out.check()?;
            }
            Stmt::Emit(expr) => {
                let value = self.expr(expr, scope)?;
                let before = out.len();
                write_str(out, &value)?;
                self.charge((out.len() - before) as u64 / 16)?;
            }
            Stmt::For(f) => self.for_loop(f, scope, out)?,
            Stmt::If { test, then, otherwise } => {
                let branch = if self.expr(test, scope)?.truth() { then } else { otherwise };
                return self.block(branch, scope, out);
            }
            Stmt::With { assignments, body } => {
                let inner = scope.child();
                for (target, value) in assignments {
                    let value = self.expr(value, scope)?;
                    self.assign(target, value, &inner)?;
                }
                return self.block(body, &inner, out);
            }
            Stmt::Set { target, value } => {
                let value = self.expr(value, scope)?;
                self.assign(target, value, scope)?;
            }
            Stmt::SetBlock { target, filter, body } => {
                let text = Value::Str(self.capture(body, &scope.child())?);
                let value = self.filtered(filter.as_ref(), text, scope)?;
                self.assign(target, value, scope)?;
            }
            Stmt::FilterBlock { filter, body } => {
                let text = Value::Str(self.capture(body, &scope.child())?);
                let value = self.filtered(Some(filter), text, scope)?;
                write_str(out, &value)?;
            }
            Stmt::Scope(body) => return self.block(body, &scope.child(), out),
            Stmt::Macro(def) => {
                let value = self.macro_value(def, scope);
                scope.set(&def.name, value);
            }
            Stmt::CallBlock { call, caller } => {
                let caller = self.macro_value(caller, scope);
                let value = self.call_expr(call, scope, Some(caller))?;
                write_str(out, &value)?;
            }
            Stmt::Do(expr) => {
                self.expr(expr, scope)?;
            }
            Stmt::Break => return Ok(Flow::Break),
            Stmt::Continue => return Ok(Flow::Continue),
            Stmt::NeedsLoader(tag) => {
                return Err(Fault::new(format!("chat templates can't use the tag '{tag}'")));
            }
        }
        Ok(Flow::Next)
    }

    fn filtered(&mut self, filter: Option<&Expr>, text: Value, scope: &Rc<Scope>) -> Res<Value> {
        match filter {
            None => Ok(text),
            Some(f) => self.filter_expr(f, Some(text), scope),
        }
    }

    fn macro_value(&mut self, def: &Arc<Macro>, scope: &Rc<Scope>) -> Value {
        self.captured.push(Rc::clone(scope));
        Value::Callable(Rc::new(Callable::Macro { def: Arc::clone(def), scope: Rc::clone(scope) }))
    }

    fn assign(&mut self, target: &Target, value: Value, scope: &Rc<Scope>) -> Res<()> {
        match target {
            Target::Name(name) => scope.set(name, value),
            Target::Field(name, field) => match scope.get(name) {
                Some(Value::Namespace(fields)) => {
                    self.charge(fields.borrow().len() as u64 / 8)?;
                    let key = Value::template(&**field);
                    insert(&mut fields.borrow_mut(), key, value);
                }
                _ => return Err(Fault::new("cannot assign attribute on non-namespace object")),
            },
            Target::Unpack(targets) => {
                let items = self.iterate(&value)?;
                if items.len() != targets.len() {
                    let (want, got) = (targets.len(), items.len());
                    return Err(Fault::new(format!("cannot unpack {got} values into {want} names")));
                }
                for (target, item) in targets.iter().zip(items.iter()) {
                    self.assign(target, item.clone(), scope)?;
                }
            }
        }
        Ok(())
    }

    fn for_loop(&mut self, f: &Arc<For>, scope: &Rc<Scope>, out: &mut Builder) -> Res<()> {
        let items = self.expr(&f.iter, scope)?;
        self.run_loop(f, items, scope, 0, out)
    }

    fn run_loop(
        &mut self,
        f: &Arc<For>,
        items: Value,
        scope: &Rc<Scope>,
        depth0: usize,
        out: &mut Builder,
    ) -> Res<()> {
        let mut items = self.iterate(&items)?;
        if let Some(filter) = &f.filter {
            let mut kept = Vec::new();
            for item in items.iter() {
                let inner = scope.child();
                self.assign(&f.target, item.clone(), &inner)?;
                if self.expr(filter, &inner)?.truth() {
                    kept.push(item.clone());
                }
            }
            items = Rc::new(Seq::new(kept));
        }
        if items.is_empty() {
            self.block(&f.otherwise, &scope.child(), out)?;
            return Ok(());
        }
        let state = Rc::new(LoopState {
            items: Rc::clone(&items),
            index0: Cell::new(0),
            depth0,
            changed: RefCell::default(),
            recurse: f.recursive.then(|| (Rc::clone(scope), Arc::clone(f))),
        });
        let loop_name = Arc::from("loop");
        for (i, item) in items.iter().enumerate() {
            state.index0.set(i);
            let inner = scope.child();
            inner.set(&loop_name, Value::Loop(Rc::clone(&state)));
            self.assign(&f.target, item.clone(), &inner)?;
            if self.block(&f.body, &inner, out)? == Flow::Break {
                break;
            }
        }
        Ok(())
    }

    /// `loop(items)` inside of a recursive loop.
    pub(super) fn recurse_loop(&mut self, state: &LoopState, items: Value) -> Res<Value> {
        let Some((scope, f)) = &state.recurse else {
            return Err(Fault::new("the loop is called but not marked 'recursive'"));
        };
        let mut out = Builder::default();
        self.nested(|e| e.run_loop(f, items, scope, state.depth0 + 1, &mut out))?;
        Ok(Value::Str(out.finish()?))
    }

    /// Calls a macro. Its result is the text that its body prints.
    pub(super) fn call_macro(
        &mut self,
        def: &Macro,
        scope: &Rc<Scope>,
        args: Args,
        caller: Option<Value>,
    ) -> Res<Value> {
        let inner = scope.child();
        let line = self.line;
        let Args { mut positional, mut keyword } = args;
        let extra = positional.split_off(positional.len().min(def.params.len()));
        let mut given = positional.into_iter();
        let first_default = def.params.len().saturating_sub(def.defaults.len());
        for (i, name) in def.params.iter().enumerate() {
            let by_name = keyword.iter().position(|(k, _)| k == name).map(|at| keyword.remove(at).1);
            let value = match (given.next(), by_name) {
                (Some(_), Some(_)) => {
                    return Err(Fault::new(format!("macro '{}' got '{name}' twice", def.name)));
                }
                (Some(v), None) | (None, Some(v)) => v,
                (None, None) if i >= first_default => self.expr(&def.defaults[i - first_default], &inner)?,
                (None, None) => Value::undefined(format!("parameter '{name}' was not provided")),
            };
            inner.set(name, value);
        }
        if let Some(at) = keyword.iter().position(|(k, _)| &**k == "caller") {
            inner.set(&Arc::from("caller"), keyword.remove(at).1);
        } else if let Some(caller) = caller {
            inner.set(&Arc::from("caller"), caller);
        }
        inner.set(&Arc::from("varargs"), Value::tuple(extra));
        let pairs = keyword.into_iter().map(|(k, v)| (Value::template(&*k), v)).collect();
        inner.set(&Arc::from("kwargs"), Value::dict(pairs));
        let text = self.nested(|e| e.capture(&def.body, &inner))?;
        self.line = line;
        Ok(Value::Str(text))
    }

    /// Python's `str(value)`.
    pub(super) fn text(&mut self, value: &Value) -> Res<Text> {
        let text = to_text(value)?;
        self.charge(text.len() as u64 / 16)?;
        Ok(text)
    }
}
