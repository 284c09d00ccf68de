//! Template text to [`ast`](super::ast), through `minijinja`'s parser.
//!
//! Only this file knows that crate. Its parser is Jinja2's grammar with Hugging Face's whitespace settings; what is
//! added here is the `{% generation %}` tag and limits: its recursive descent must not be driven deep by a hostile
//! template, so the number of tokens that can nest is bounded before it runs.

use std::sync::Arc;

use minijinja::machinery::{ast as mj, parse as mj_parse};
use minijinja::syntax::SyntaxConfig;
use minijinja::value::ValueKind;

use super::ast::{Arg, Block, Compare, Expr, For, Macro, Math, Node, SliceExpr, Stmt, Target};
use super::error::TemplateError;

/// Longest template, in bytes. The longest in use are about 20 KB.
const MAX_SOURCE: usize = 1 << 20;
/// How many operators, brackets and keywords that nest one tag may hold.
const MAX_OPERATORS: usize = 4000;
/// How many `elif` a template may hold: each is one level of the parser's recursion.
const MAX_ELIF: usize = 2000;
/// How deep expressions and statements may nest.
const MAX_NESTING: usize = 600;
/// The parser counts lines in 16 bits.
const MAX_LINES: usize = 60_000;

pub(super) fn compile(source: &str) -> Result<Block, TemplateError> {
    let limit = |message: String| TemplateError::Limit { line: 1, message };
    if source.len() > MAX_SOURCE {
        return Err(limit(format!("{} bytes long, the limit is {MAX_SOURCE}", source.len())));
    }
    // Jinja2 reads every kind of line end as "\n".
    let source = source.replace("\r\n", "\n").replace('\r', "\n");
    if source.matches('\n').count() > MAX_LINES {
        return Err(limit(format!("more than {MAX_LINES} lines")));
    }
    let source = rewrite_tags(&source)?;
    let syntax = SyntaxConfig::builder()
        .trim_blocks(true)
        .lstrip_blocks(true)
        .build()
        .map_err(|e| TemplateError::Syntax { line: 1, message: e.to_string() })?;
    let tree = mj_parse(&source, "chat template", syntax).map_err(|e| TemplateError::Syntax {
        line: e.line().and_then(|l| u32::try_from(l).ok()).unwrap_or(1),
        message: e.detail().map_or_else(|| e.to_string(), str::to_owned),
    })?;
    let mut convert = Convert { depth: 0 };
    match &tree {
        mj::Stmt::Template(t) => convert.block(&t.children),
        other => convert.stmt(other).map(|n| vec![n]),
    }
}

/// Turns `{% generation %}` into a scope, with the same whitespace control, and applies the limits per tag.
///
/// Transformers implements the tag as a call block: its body prints in place and its assignments stay inside, which is
/// what `{% with %}` does.
fn rewrite_tags(source: &str) -> Result<String, TemplateError> {
    let mut out = String::with_capacity(source.len());
    let mut rest = source;
    let mut elifs = 0;
    let line_of = |rest: &str| {
        let done = &source[..source.len() - rest.len()];
        u32::try_from(done.matches('\n').count() + 1).unwrap_or(u32::MAX)
    };
    while let Some(open) = find_open(rest) {
        out.push_str(&rest[..open]);
        rest = &rest[open..];
        let length = tag_length(rest);
        let tag = &rest[..length];
        let word = tag_word(tag);
        if word == Some("raw") {
            let end = raw_length(rest);
            out.push_str(&rest[..end]);
            rest = &rest[end..];
            continue;
        }
        elifs += usize::from(word == Some("elif"));
        if elifs > MAX_ELIF || (!tag.starts_with("{#") && operators(tag) > MAX_OPERATORS) {
            let message = "a tag with too many operators, or too many elif".to_owned();
            return Err(TemplateError::Limit { line: line_of(rest), message });
        }
        match word {
            Some("generation") => out.push_str(&tag.replacen("generation", "with", 1)),
            Some("endgeneration") => out.push_str(&tag.replacen("endgeneration", "endwith", 1)),
            _ => out.push_str(tag),
        }
        rest = &rest[length..];
    }
    out.push_str(rest);
    Ok(out)
}

fn find_open(text: &str) -> Option<usize> {
    let b = text.as_bytes();
    (0..b.len().saturating_sub(1)).find(|&i| b[i] == b'{' && matches!(b[i + 1], b'%' | b'{' | b'#'))
}

/// Bytes of the tag at the start of `text`, up to its end marker outside of strings and brackets.
fn tag_length(text: &str) -> usize {
    let b = text.as_bytes();
    if text.starts_with("{#") {
        return text.find("#}").map_or(text.len(), |i| i + 2);
    }
    let close: &[u8] = if text.starts_with("{%") { b"%}" } else { b"}}" };
    let (mut i, mut braces) = (2, 0usize);
    while i < b.len() {
        match b[i] {
            quote @ (b'"' | b'\'') => {
                i += 1;
                while i < b.len() && b[i] != quote {
                    i += 1 + usize::from(b[i] == b'\\');
                }
            }
            b'{' => braces += 1,
            b'}' if braces > 0 => braces -= 1,
            _ if b[i..].starts_with(close) => return i + 2,
            _ => {}
        }
        i += 1;
    }
    text.len()
}

/// The keyword of a `{% … %}` tag.
fn tag_word(tag: &str) -> Option<&str> {
    let inner = tag.strip_prefix("{%")?.trim_start_matches(['-', '+']).trim_start();
    let end = inner.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(inner.len());
    Some(&inner[..end])
}

/// Bytes up to the end of the `{% endraw %}` that closes the raw block at the start of `text`.
fn raw_length(text: &str) -> usize {
    let mut at = tag_length(text);
    while let Some(open) = text[at..].find("{%") {
        at += open;
        let word = tag_word(&text[at..]);
        if word == Some("endraw") {
            return at + text[at..].find("%}").map_or(text.len() - at, |i| i + 2);
        }
        at += 2;
    }
    text.len()
}

/// An upper bound on how deep the parser can recurse on this tag.
fn operators(tag: &str) -> usize {
    let symbols = tag.bytes().filter(|b| b"+-*/%~|.([{=<>:".contains(b)).count();
    let words =
        tag.split_whitespace().filter(|w| matches!(*w, "not" | "and" | "or" | "if" | "else" | "is" | "in"));
    symbols + words.count()
}

struct Convert {
    depth: usize,
}

type Parsed<T> = Result<T, TemplateError>;

impl Convert {
    fn nest<T>(&mut self, line: u32, f: impl FnOnce(&mut Self) -> Parsed<T>) -> Parsed<T> {
        if self.depth >= MAX_NESTING {
            let message = format!("nested more than {MAX_NESTING} deep");
            return Err(TemplateError::Limit { line, message });
        }
        self.depth += 1;
        let out = f(self);
        self.depth -= 1;
        out
    }

    fn block(&mut self, stmts: &[mj::Stmt<'_>]) -> Parsed<Block> {
        stmts.iter().map(|s| self.stmt(s)).collect()
    }

    fn stmt(&mut self, stmt: &mj::Stmt<'_>) -> Parsed<Node> {
        let line = stmt_line(stmt);
        let stmt = self.nest(line, |c| c.stmt_inner(stmt))?;
        Ok(Node { line, stmt })
    }

    fn stmt_inner(&mut self, stmt: &mj::Stmt<'_>) -> Parsed<Stmt> {
        Ok(match stmt {
            mj::Stmt::Template(t) => Stmt::Scope(self.block(&t.children)?),
            mj::Stmt::EmitRaw(r) => Stmt::Raw(r.raw.to_owned()),
            mj::Stmt::EmitExpr(e) => Stmt::Emit(self.expr(&e.expr)?),
            mj::Stmt::ForLoop(f) => Stmt::For(Arc::new(For {
                target: self.target(&f.target)?,
                iter: self.expr(&f.iter)?,
                filter: f.filter_expr.as_ref().map(|e| self.expr(e)).transpose()?,
                recursive: f.recursive,
                body: self.block(&f.body)?,
                otherwise: self.block(&f.else_body)?,
            })),
            mj::Stmt::IfCond(i) => Stmt::If {
                test: self.expr(&i.expr)?,
                then: self.block(&i.true_body)?,
                otherwise: self.block(&i.false_body)?,
            },
            mj::Stmt::WithBlock(w) => {
                let mut assignments = Vec::with_capacity(w.assignments.len());
                for (target, value) in &w.assignments {
                    assignments.push((self.target(target)?, self.expr(value)?));
                }
                Stmt::With { assignments, body: self.block(&w.body)? }
            }
            mj::Stmt::Set(s) => Stmt::Set { target: self.target(&s.target)?, value: self.expr(&s.expr)? },
            mj::Stmt::SetBlock(s) => Stmt::SetBlock {
                target: self.target(&s.target)?,
                filter: s.filter.as_ref().map(|e| self.expr(e)).transpose()?,
                body: self.block(&s.body)?,
            },
            mj::Stmt::FilterBlock(f) => {
                Stmt::FilterBlock { filter: self.expr(&f.filter)?, body: self.block(&f.body)? }
            }
            mj::Stmt::Block(b) => Stmt::Scope(self.block(&b.body)?),
            mj::Stmt::Macro(m) => Stmt::Macro(self.macro_(m)?),
            mj::Stmt::CallBlock(c) => {
                Stmt::CallBlock { call: self.call(&c.call)?, caller: self.macro_(&c.macro_decl)? }
            }
            mj::Stmt::Do(d) => Stmt::Do(self.call(&d.call)?),
            mj::Stmt::Break(_) => Stmt::Break,
            mj::Stmt::Continue(_) => Stmt::Continue,
            mj::Stmt::AutoEscape(_) => Stmt::NeedsLoader("autoescape"),
            mj::Stmt::Import(_) => Stmt::NeedsLoader("import"),
            mj::Stmt::FromImport(_) => Stmt::NeedsLoader("from"),
            mj::Stmt::Extends(_) => Stmt::NeedsLoader("extends"),
            mj::Stmt::Include(_) => Stmt::NeedsLoader("include"),
        })
    }

    fn macro_(&mut self, m: &mj::Spanned<mj::Macro<'_>>) -> Parsed<Arc<Macro>> {
        let mut params = Vec::with_capacity(m.args.len());
        for arg in &m.args {
            match arg {
                mj::Expr::Var(v) => params.push(Arc::from(v.id)),
                other => return Err(bad_target(other)),
            }
        }
        let defaults = m.defaults.iter().map(|e| self.expr(e)).collect::<Parsed<_>>()?;
        Ok(Arc::new(Macro { name: m.name.into(), params, defaults, body: self.block(&m.body)? }))
    }

    fn target(&mut self, target: &mj::Expr<'_>) -> Parsed<Target> {
        self.nest(line(target.span()), |c| match target {
            mj::Expr::Var(v) => Ok(Target::Name(v.id.into())),
            mj::Expr::GetAttr(a) => match &a.expr {
                mj::Expr::Var(v) => Ok(Target::Field(v.id.into(), a.name.into())),
                other => Err(bad_target(other)),
            },
            mj::Expr::List(l) => {
                Ok(Target::Unpack(l.items.iter().map(|t| c.target(t)).collect::<Parsed<_>>()?))
            }
            other => Err(bad_target(other)),
        })
    }

    fn expr(&mut self, expr: &mj::Expr<'_>) -> Parsed<Expr> {
        self.nest(line(expr.span()), |c| c.expr_inner(expr))
    }

    fn boxed(&mut self, expr: &mj::Expr<'_>) -> Parsed<Box<Expr>> {
        self.expr(expr).map(Box::new)
    }

    fn optional(&mut self, expr: Option<&mj::Expr<'_>>) -> Parsed<Option<Expr>> {
        expr.map(|e| self.expr(e)).transpose()
    }

    fn list(&mut self, exprs: &[mj::Expr<'_>]) -> Parsed<Vec<Expr>> {
        exprs.iter().map(|e| self.expr(e)).collect()
    }

    fn expr_inner(&mut self, expr: &mj::Expr<'_>) -> Parsed<Expr> {
        let line = line(expr.span());
        Ok(match expr {
            mj::Expr::Var(v) => Expr::Var(v.id.into()),
            mj::Expr::Const(c) => constant(&c.value, line)?,
            mj::Expr::Slice(s) => Expr::Slice(Box::new(SliceExpr {
                of: self.expr(&s.expr)?,
                start: self.optional(s.start.as_ref())?,
                stop: self.optional(s.stop.as_ref())?,
                step: self.optional(s.step.as_ref())?,
            })),
            mj::Expr::UnaryOp(u) => match u.op {
                mj::UnaryOpKind::Not => Expr::Not(self.boxed(&u.expr)?),
                mj::UnaryOpKind::Neg => Expr::Neg(self.boxed(&u.expr)?),
            },
            mj::Expr::BinOp(b) => binary(b.op, self.expr(&b.left)?, self.expr(&b.right)?),
            mj::Expr::Compare(c) => {
                let first = self.boxed(&c.expr)?;
                let mut rest = Vec::with_capacity(c.ops.len());
                for op in &c.ops {
                    rest.push((comparison(op.op), self.expr(&op.expr)?));
                }
                Expr::Compare(first, rest)
            }
            mj::Expr::IfExpr(i) => Expr::If {
                test: self.boxed(&i.test_expr)?,
                then: self.boxed(&i.true_expr)?,
                otherwise: self.optional(i.false_expr.as_ref())?.map(Box::new),
            },
            mj::Expr::Filter(f) => Expr::Filter {
                name: f.name.into(),
                input: self.optional(f.expr.as_ref())?.map(Box::new),
                args: self.args(&f.args)?,
                line,
            },
            mj::Expr::Test(t) => Expr::Test {
                name: t.name.into(),
                input: self.boxed(&t.expr)?,
                args: self.args(&t.args)?,
                line,
            },
            mj::Expr::GetAttr(a) => Expr::Attr { of: self.boxed(&a.expr)?, name: a.name.into(), line },
            mj::Expr::GetItem(i) => {
                Expr::Item { of: self.boxed(&i.expr)?, key: self.boxed(&i.subscript_expr)?, line }
            }
            mj::Expr::Call(c) => self.call(c)?,
            mj::Expr::List(l) => Expr::List(self.list(&l.items)?),
            mj::Expr::Tuple(t) => Expr::Tuple(self.list(&t.items)?),
            mj::Expr::Map(m) => {
                Expr::Dict(self.list(&m.keys)?.into_iter().zip(self.list(&m.values)?).collect())
            }
        })
    }

    fn call(&mut self, c: &mj::Spanned<mj::Call<'_>>) -> Parsed<Expr> {
        Ok(Expr::Call { callee: self.boxed(&c.expr)?, args: self.args(&c.args)?, line: line(c.span()) })
    }

    fn args(&mut self, args: &[mj::CallArg<'_>]) -> Parsed<Vec<Arg>> {
        args.iter()
            .map(|arg| {
                Ok(match arg {
                    mj::CallArg::Pos(e) => Arg::Positional(self.expr(e)?),
                    mj::CallArg::Kwarg(name, e) => Arg::Keyword((*name).into(), self.expr(e)?),
                    mj::CallArg::PosSplat(e) => Arg::Splat(self.expr(e)?),
                    mj::CallArg::KwargSplat(e) => Arg::KeywordSplat(self.expr(e)?),
                })
            })
            .collect()
    }
}

fn line(span: minijinja::machinery::Span) -> u32 {
    u32::from(span.start_line)
}

fn stmt_line(stmt: &mj::Stmt<'_>) -> u32 {
    line(match stmt {
        mj::Stmt::Template(s) => s.span(),
        mj::Stmt::EmitExpr(s) => s.span(),
        mj::Stmt::EmitRaw(s) => s.span(),
        mj::Stmt::ForLoop(s) => s.span(),
        mj::Stmt::IfCond(s) => s.span(),
        mj::Stmt::WithBlock(s) => s.span(),
        mj::Stmt::Set(s) => s.span(),
        mj::Stmt::SetBlock(s) => s.span(),
        mj::Stmt::AutoEscape(s) => s.span(),
        mj::Stmt::FilterBlock(s) => s.span(),
        mj::Stmt::Block(s) => s.span(),
        mj::Stmt::Import(s) => s.span(),
        mj::Stmt::FromImport(s) => s.span(),
        mj::Stmt::Extends(s) => s.span(),
        mj::Stmt::Include(s) => s.span(),
        mj::Stmt::Macro(s) => s.span(),
        mj::Stmt::CallBlock(s) => s.span(),
        mj::Stmt::Continue(s) => s.span(),
        mj::Stmt::Break(s) => s.span(),
        mj::Stmt::Do(s) => s.span(),
    })
}

fn bad_target(expr: &mj::Expr<'_>) -> TemplateError {
    let message = format!("cannot assign to a {}", expr.description());
    TemplateError::Syntax { line: line(expr.span()), message }
}

fn constant(value: &minijinja::Value, line: u32) -> Parsed<Expr> {
    Ok(match value.kind() {
        ValueKind::None => Expr::None,
        ValueKind::Bool => Expr::Bool(value.is_true()),
        ValueKind::String => Expr::Str(value.as_str().unwrap_or_default().into()),
        ValueKind::Number if value.is_integer() => match i128::try_from(value.clone()) {
            Ok(i) => Expr::Int(i),
            Err(e) => return Err(TemplateError::Syntax { line, message: e.to_string() }),
        },
        ValueKind::Number => match f64::try_from(value.clone()) {
            Ok(f) => Expr::Float(f),
            Err(e) => return Err(TemplateError::Syntax { line, message: e.to_string() }),
        },
        kind => return Err(TemplateError::Syntax { line, message: format!("a {kind} constant") }),
    })
}

fn comparison(op: mj::CompareOpKind) -> Compare {
    match op {
        mj::CompareOpKind::Eq => Compare::Eq,
        mj::CompareOpKind::Ne => Compare::Ne,
        mj::CompareOpKind::Lt => Compare::Lt,
        mj::CompareOpKind::Lte => Compare::Le,
        mj::CompareOpKind::Gt => Compare::Gt,
        mj::CompareOpKind::Gte => Compare::Ge,
        mj::CompareOpKind::In => Compare::In,
        mj::CompareOpKind::NotIn => Compare::NotIn,
    }
}

fn binary(op: mj::BinOpKind, left: Expr, right: Expr) -> Expr {
    use mj::BinOpKind as B;
    let math = match op {
        B::ScAnd => return Expr::And(Box::new((left, right))),
        B::ScOr => return Expr::Or(Box::new((left, right))),
        B::Concat => return Expr::Concat(Box::new((left, right))),
        B::Eq => return Expr::Compare(Box::new(left), vec![(Compare::Eq, right)]),
        B::Ne => return Expr::Compare(Box::new(left), vec![(Compare::Ne, right)]),
        B::Lt => return Expr::Compare(Box::new(left), vec![(Compare::Lt, right)]),
        B::Lte => return Expr::Compare(Box::new(left), vec![(Compare::Le, right)]),
        B::Gt => return Expr::Compare(Box::new(left), vec![(Compare::Gt, right)]),
        B::Gte => return Expr::Compare(Box::new(left), vec![(Compare::Ge, right)]),
        B::In => return Expr::Compare(Box::new(left), vec![(Compare::In, right)]),
        B::Add => Math::Add,
        B::Sub => Math::Sub,
        B::Mul => Math::Mul,
        B::Div => Math::Div,
        B::FloorDiv => Math::FloorDiv,
        B::Rem => Math::Rem,
        B::Pow => Math::Pow,
    };
    Expr::Math(math, Box::new((left, right)))
}
