//! The template as data: owned, so that a compiled template borrows nothing and knows no parser's types.

use std::sync::Arc;

/// A statement and its line.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) line: u32,
    pub(super) stmt: Stmt,
}

pub(super) type Block = Vec<Node>;

#[derive(Debug)]
pub(super) enum Stmt {
    Raw(String),
    Emit(Expr),
    For(Arc<For>),
    If {
        test: Expr,
        then: Block,
        otherwise: Block,
    },
    With {
        assignments: Vec<(Target, Expr)>,
        body: Block,
    },
    Set {
        target: Target,
        value: Expr,
    },
    SetBlock {
        target: Target,
        filter: Option<Expr>,
        body: Block,
    },
    FilterBlock {
        filter: Expr,
        body: Block,
    },
    /// `{% block %}`, which without inheritance is only a scope.
    Scope(Block),
    Macro(Arc<Macro>),
    CallBlock {
        call: Expr,
        caller: Arc<Macro>,
    },
    Do(Expr),
    Break,
    Continue,
    /// Tags that need other templates. Jinja2 fails on them only when it reaches them, so they are kept.
    NeedsLoader(&'static str),
}

#[derive(Debug)]
pub(super) struct For {
    pub(super) target: Target,
    pub(super) iter: Expr,
    pub(super) filter: Option<Expr>,
    pub(super) recursive: bool,
    pub(super) body: Block,
    pub(super) otherwise: Block,
}

#[derive(Debug)]
pub(super) struct Macro {
    pub(super) name: Arc<str>,
    pub(super) params: Vec<Arc<str>>,
    /// Defaults of the last `defaults.len()` parameters.
    pub(super) defaults: Vec<Expr>,
    pub(super) body: Block,
}

/// The left side of an assignment.
#[derive(Debug)]
pub(super) enum Target {
    Name(Arc<str>),
    /// `ns.field`, for namespaces only.
    Field(Arc<str>, Arc<str>),
    Unpack(Vec<Target>),
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Compare {
    Eq,
    Ne,
    Lt,
    Le,
    Gt,
    Ge,
    In,
    NotIn,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Math {
    Add,
    Sub,
    Mul,
    Div,
    FloorDiv,
    Rem,
    Pow,
}

#[derive(Debug)]
pub(super) enum Expr {
    None,
    Bool(bool),
    Int(i128),
    Float(f64),
    Str(Arc<str>),
    Var(Arc<str>),
    Not(Box<Expr>),
    Neg(Box<Expr>),
    And(Box<(Expr, Expr)>),
    Or(Box<(Expr, Expr)>),
    /// `a ~ b`.
    Concat(Box<(Expr, Expr)>),
    Math(Math, Box<(Expr, Expr)>),
    /// `first op a op b …`, each operand evaluated once.
    Compare(Box<Expr>, Vec<(Compare, Expr)>),
    If {
        test: Box<Expr>,
        then: Box<Expr>,
        otherwise: Option<Box<Expr>>,
    },
    Slice(Box<SliceExpr>),
    Attr {
        of: Box<Expr>,
        name: Arc<str>,
        line: u32,
    },
    Item {
        of: Box<Expr>,
        key: Box<Expr>,
        line: u32,
    },
    Call {
        callee: Box<Expr>,
        args: Vec<Arg>,
        line: u32,
    },
    Filter {
        name: Arc<str>,
        /// Absent in `{% filter %}` and `{% set x | f %}`, where the block's text is the input.
        input: Option<Box<Expr>>,
        args: Vec<Arg>,
        line: u32,
    },
    Test {
        name: Arc<str>,
        input: Box<Expr>,
        args: Vec<Arg>,
        line: u32,
    },
    List(Vec<Expr>),
    Tuple(Vec<Expr>),
    Dict(Vec<(Expr, Expr)>),
}

#[derive(Debug)]
pub(super) struct SliceExpr {
    pub(super) of: Expr,
    pub(super) start: Option<Expr>,
    pub(super) stop: Option<Expr>,
    pub(super) step: Option<Expr>,
}

#[derive(Debug)]
pub(super) enum Arg {
    Positional(Expr),
    Keyword(Arc<str>, Expr),
    Splat(Expr),
    KeywordSplat(Expr),
}
