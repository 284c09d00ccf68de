//! GBNF, llama.cpp's notation of grammars, as llguidance's dialect of Lark.
//!
//! GBNF's rules go character by character, Lark's by the longest token. So a grammar whose rules don't come back to
//! themselves becomes one token as a whole, and in any other each character is a token: both allow exactly what GBNF does.

use super::{GrammarError, MOST_NESTING};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

/// Repetitions that may be asked for.
const MOST_REPEATS: u32 = 100_000;

/// A text as a string of Lark.
pub(super) fn quote(text: &str) -> String {
    let mut out = String::from("\"");
    for c in text.chars() {
        match c {
            '"' | '\\' => out.extend(['\\', c]),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if c.is_control() => drop(write!(out, "\\u{:04x}", u32::from(c))),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

/// A grammar of Lark that allows what `text` does.
///
/// # Errors
/// The line that is not well-formed, or the rule that is missing.
pub(super) fn to_lark(text: &str) -> Result<String, GrammarError> {
    let rules = Parser::new(text).rules()?;
    if !rules.contains_key("root") {
        return Err(GrammarError::Invalid("it has no rule `root`".into()));
    }
    for (name, rule) in &rules {
        let mut used = BTreeSet::new();
        rule.uses(&mut used);
        if let Some(missing) = used.iter().find(|used| !rules.contains_key(**used)) {
            return Err(GrammarError::Invalid(format!(
                "the rule `{name}` uses `{missing}`, which is not defined"
            )));
        }
    }
    let is_regular = regular(&rules).contains("root");
    let names: Vec<&String> = rules.keys().collect();
    let prefix = if is_regular { 'R' } else { 'r' };
    let name = |rule: &str| {
        let index = names.binary_search_by(|name| name.as_str().cmp(rule)).unwrap_or_default();
        format!("{prefix}{index}")
    };
    let mut out = format!("start: {}\n", name("root"));
    for (rule, body) in &rules {
        let _ = writeln!(out, "{}: {}", name(rule), body.to_lark(!is_regular, &name));
    }
    Ok(out)
}

/// The right side of a rule, or a part of it.
#[derive(Debug, Clone, PartialEq)]
enum Node {
    Text(String),
    /// A class of characters, as a regular expression.
    Class(String),
    Rule(String),
    Sequence(Vec<Node>),
    Choice(Vec<Node>),
    /// At least, and at most.
    Repeat(Box<Node>, u32, Option<u32>),
}

impl Node {
    fn uses<'a>(&'a self, out: &mut BTreeSet<&'a str>) {
        match self {
            Self::Text(_) | Self::Class(_) => {}
            Self::Rule(name) => drop(out.insert(name)),
            Self::Sequence(nodes) | Self::Choice(nodes) => nodes.iter().for_each(|node| node.uses(out)),
            Self::Repeat(node, ..) => node.uses(out),
        }
    }

    /// The same in Lark, `by_character` or as a part of a token.
    fn to_lark(&self, by_character: bool, name: &dyn Fn(&str) -> String) -> String {
        let join = |nodes: &[Self], by: &str| {
            nodes.iter().map(|node| node.to_lark(by_character, name)).collect::<Vec<_>>().join(by)
        };
        match self {
            Self::Text(text) if by_character && !text.is_empty() => {
                text.chars().map(|c| quote(c.encode_utf8(&mut [0; 4]))).collect::<Vec<_>>().join(" ")
            }
            Self::Text(text) => quote(text),
            Self::Class(class) => format!("/{}/", class.replace('/', "\\/")),
            Self::Rule(rule) => name(rule),
            Self::Sequence(nodes) if nodes.is_empty() => "\"\"".into(),
            Self::Sequence(nodes) => format!("({})", join(nodes, " ")),
            Self::Choice(nodes) => format!("({})", join(nodes, " | ")),
            Self::Repeat(node, least, most) => repeat(&node.to_lark(by_character, name), *least, *most),
        }
    }
}

/// The rules that don't come back to themselves, by way of whatever rules they use.
fn regular(rules: &BTreeMap<String, Node>) -> BTreeSet<&str> {
    // Of each rule, how many rules it waits for, and which rules wait for it.
    let mut waits: BTreeMap<&str, usize> = BTreeMap::new();
    let mut users: BTreeMap<&str, Vec<&str>> = BTreeMap::new();
    for (name, rule) in rules {
        let mut used = BTreeSet::new();
        rule.uses(&mut used);
        waits.insert(name, used.len());
        used.into_iter().for_each(|used| users.entry(used).or_default().push(name));
    }
    // Those are regular whose parts are.
    let mut regular: Vec<&str> =
        waits.iter().filter(|(_, waits)| **waits == 0).map(|(name, _)| *name).collect();
    let mut next = 0;
    while let Some(name) = regular.get(next).copied() {
        next += 1;
        for user in users.remove(name).unwrap_or_default() {
            let Some(waits) = waits.get_mut(user) else { continue };
            *waits -= 1;
            if *waits == 0 {
                regular.push(user);
            }
        }
    }
    regular.into_iter().collect()
}

fn repeat(part: &str, least: u32, most: Option<u32>) -> String {
    match (least, most) {
        (0, None) => format!("({part})*"),
        (1, None) => format!("({part})+"),
        (0, Some(1)) => format!("({part})?"),
        (least, None) => format!("({part}){{{least},}}"),
        (least, Some(most)) => format!("({part}){{{least},{most}}}"),
    }
}

struct Parser<'a> {
    text: &'a str,
    rest: &'a str,
}

impl<'a> Parser<'a> {
    fn new(text: &'a str) -> Self {
        Self { text, rest: text }
    }

    fn error(&self, problem: impl std::fmt::Display) -> GrammarError {
        let line = self.text[..self.text.len() - self.rest.len()].matches('\n').count() + 1;
        GrammarError::Invalid(format!("line {line}: {problem}"))
    }

    fn rules(mut self) -> Result<BTreeMap<String, Node>, GrammarError> {
        let mut rules = BTreeMap::new();
        self.skip(true);
        while !self.rest.is_empty() {
            let name = self.name()?;
            self.skip(false);
            if !self.take("::=") {
                return Err(self.error(format!("`::=` is missing behind `{name}`")));
            }
            let body = self.choice(0)?;
            self.skip(true);
            if rules.insert(name.clone(), body).is_some() {
                return Err(self.error(format!("the rule `{name}` is defined twice")));
            }
        }
        Ok(rules)
    }

    /// Skips spaces and comments, and line breaks where a rule may go on behind them.
    fn skip(&mut self, lines: bool) {
        loop {
            let is_space = |c: char| matches!(c, ' ' | '\t') || lines && matches!(c, '\n' | '\r');
            self.rest = self.rest.trim_start_matches(is_space);
            if !self.rest.starts_with('#') {
                return;
            }
            self.rest = &self.rest[self.rest.find('\n').unwrap_or(self.rest.len())..];
        }
    }

    fn take(&mut self, text: &str) -> bool {
        let rest = self.rest.strip_prefix(text);
        self.rest = rest.unwrap_or(self.rest);
        rest.is_some()
    }

    fn name(&mut self) -> Result<String, GrammarError> {
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '_');
        let end = self.rest.find(|c| !is_name(c)).unwrap_or(self.rest.len());
        if end == 0 {
            return Err(self.error("a name of a rule is missing"));
        }
        let (name, rest) = self.rest.split_at(end);
        self.rest = rest;
        Ok(name.to_owned())
    }

    /// Alternatives, up to the end of the line or, within parentheses, to the closing one.
    fn choice(&mut self, depth: usize) -> Result<Node, GrammarError> {
        if depth > MOST_NESTING {
            return Err(GrammarError::TooLarge {
                what: "parentheses within parentheses",
                limit: MOST_NESTING,
            });
        }
        let mut options = vec![self.sequence(depth)?];
        while self.take("|") {
            options.push(self.sequence(depth)?);
        }
        Ok(if options.len() == 1 { options.remove(0) } else { Node::Choice(options) })
    }

    fn sequence(&mut self, depth: usize) -> Result<Node, GrammarError> {
        // Behind `::=`, `|` and `(` a rule goes on in the next line.
        self.skip(true);
        let mut nodes = Vec::new();
        while let Some(c) = self.rest.chars().next() {
            let node = match c {
                '"' => self.string()?,
                '[' => self.class()?,
                '.' => {
                    self.take(".");
                    Node::Class("(?s:.)".into())
                }
                '(' => {
                    self.take("(");
                    let inner = self.choice(depth + 1)?;
                    self.skip(true);
                    if !self.take(")") {
                        return Err(self.error("`)` is missing"));
                    }
                    inner
                }
                c if c.is_ascii_alphanumeric() || matches!(c, '-' | '_') => {
                    // The next rule begins where a name has `::=` behind it.
                    Node::Rule(self.name()?)
                }
                _ => break,
            };
            let node = self.repetition(node)?;
            nodes.push(node);
            self.skip(depth > 0);
        }
        Ok(if nodes.len() == 1 { nodes.remove(0) } else { Node::Sequence(nodes) })
    }

    fn repetition(&mut self, mut node: Node) -> Result<Node, GrammarError> {
        for _ in 0..MOST_NESTING {
            let (least, most) = match self.rest.chars().next() {
                Some('*') => (0, None),
                Some('+') => (1, None),
                Some('?') => (0, Some(1)),
                Some('{') => self.bounds()?,
                _ => return Ok(node),
            };
            self.rest = &self.rest[1..];
            node = Node::Repeat(Box::new(node), least, most);
        }
        Err(GrammarError::TooLarge { what: "repetitions of repetitions", limit: MOST_NESTING })
    }

    /// The bounds of `{m,n}`, up to its closing brace.
    fn bounds(&mut self) -> Result<(u32, Option<u32>), GrammarError> {
        let end = self.rest.find('}').ok_or_else(|| self.error("`}` is missing"))?;
        let inside = &self.rest[1..end];
        let number = |text: &str| text.trim().parse::<u32>().ok().filter(|n| *n <= MOST_REPEATS);
        let bounds = match inside.split_once(',') {
            None => number(inside).map(|n| (n, Some(n))),
            Some((least, most)) if most.trim().is_empty() => number(least).map(|least| (least, None)),
            Some((least, most)) => {
                let least = if least.trim().is_empty() { Some(0) } else { number(least) };
                least.zip(number(most).map(Some))
            }
        };
        let in_order = |(least, most): &(u32, Option<u32>)| most.is_none_or(|most| *least <= most);
        let bounds = bounds.filter(in_order);
        let bounds = bounds.ok_or_else(|| {
            self.error(format!("`{{{inside}}}` is no repetition of {MOST_REPEATS} at most"))
        })?;
        self.rest = &self.rest[end..];
        Ok(bounds)
    }

    fn string(&mut self) -> Result<Node, GrammarError> {
        self.take("\"");
        let mut text = String::new();
        loop {
            match self.character()? {
                (true, '"') => return Ok(Node::Text(text)),
                (_, c) => text.push(c),
            }
        }
    }

    fn class(&mut self) -> Result<Node, GrammarError> {
        self.take("[");
        let mut class = String::from(if self.take("^") { "[^" } else { "[" });
        let mut is_empty = true;
        loop {
            let (is_plain, c) = self.character()?;
            match (is_plain, c) {
                (true, ']') => break,
                // Between two characters it makes a range, at an end it stands for itself.
                (true, '-') if !is_empty && !self.rest.starts_with(']') => class.push('-'),
                _ => drop(write!(class, "\\x{{{:x}}}", u32::from(c))),
            }
            is_empty = false;
        }
        match is_empty {
            true => Err(self.error("a class is empty")),
            false => Ok(Node::Class(class + "]")),
        }
    }

    /// A character of a string or a class, and whether it stands there without a backslash.
    fn character(&mut self) -> Result<(bool, char), GrammarError> {
        let mut chars = self.rest.chars();
        let c = chars.next().ok_or_else(|| self.error("a string or a class has no end"))?;
        if c != '\\' {
            self.rest = chars.as_str();
            return Ok((true, c));
        }
        let escape = chars.next().ok_or_else(|| self.error("the grammar ends with a backslash"))?;
        let digits = match escape {
            'x' => 2,
            'u' => 4,
            'U' => 8,
            _ => 0,
        };
        let c = match escape {
            'n' => '\n',
            'r' => '\r',
            't' => '\t',
            '"' | '\\' | '[' | ']' | '-' | '^' | '/' => escape,
            'x' | 'u' | 'U' => {
                let text =
                    chars.as_str().get(..digits).filter(|text| text.bytes().all(|b| b.is_ascii_hexdigit()));
                let code = text.and_then(|text| u32::from_str_radix(text, 16).ok()).and_then(char::from_u32);
                code.ok_or_else(|| self.error(format!("`\\{escape}` needs {digits} digits of a character")))?
            }
            other => return Err(self.error(format!("`\\{other}` is no escape"))),
        };
        self.rest = &chars.as_str()[digits..];
        Ok((false, c))
    }
}
