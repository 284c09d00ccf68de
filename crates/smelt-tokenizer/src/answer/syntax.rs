//! Calls out of text, by the notation of a format.

use serde_json::Value;

use super::cursor::{Cursor, Read, Stop, undecided};
use super::formats::{CallFormat, Syntax, Tags};
use super::loose::{Members, Notation, PYTHON};
use super::tools::{ToolCall, ToolSet, call};

/// Characters between a call's name and its arguments that are skipped, at most.
const MOST_SKIPPED: usize = 64;
/// Keys of a call's name, and of its arguments.
const NAMES: [&str; 2] = ["name", "tool_name"];
const ARGUMENTS: [&str; 2] = ["arguments", "parameters"];

/// Reads the calls at the beginning of a text.
pub(super) struct Scan<'a> {
    cursor: Cursor<'a>,
    format: &'static CallFormat,
    tools: &'a ToolSet,
    /// The calls that are complete.
    pub(super) calls: Vec<ToolCall>,
    /// A call whose arguments go on: what is certain of them.
    pub(super) open: Option<ToolCall>,
    /// Those arguments are written as they are told, up to the end of the text.
    pub(super) is_open_verbatim: bool,
}

impl<'a> Scan<'a> {
    pub(super) fn new(text: &'a str, ended: bool, format: &'static CallFormat, tools: &'a ToolSet) -> Self {
        Self {
            cursor: Cursor::new(text, ended),
            format,
            tools,
            calls: Vec::new(),
            open: None,
            is_open_verbatim: false,
        }
    }

    /// Reads a call, or a section of calls. How many bytes they are.
    pub(super) fn run(&mut self) -> Read<usize> {
        let (open, close) = self.format.section;
        if open.is_empty() {
            self.marked()?;
        } else {
            self.cursor.expect(open)?;
            loop {
                self.cursor.space();
                if self.cursor.is_end() || self.cursor.has(close)? {
                    break;
                }
                self.marked()?;
            }
        }
        if self.calls.is_empty() { Err(Stop::Wrong) } else { Ok(self.cursor.at) }
    }

    /// A call between its marks.
    fn marked(&mut self) -> Read<()> {
        let (open, close) = self.format.call;
        let is_marked = open.is_empty() || self.cursor.has(open)?;
        self.cursor.space();
        let begin = self.cursor.clone();
        let mut result = Err(Stop::Wrong);
        for syntax in self.format.syntaxes {
            self.cursor = begin.clone();
            result = self.calls(syntax);
            if result != Err(Stop::Wrong) {
                break;
            }
        }
        result?;
        if close.is_empty() {
            return Ok(());
        }
        let behind = self.cursor.at;
        self.cursor.space();
        if !self.cursor.is_end() && !self.cursor.has(close)? {
            if is_marked {
                return Err(Stop::Wrong);
            }
            self.cursor.at = behind;
        }
        Ok(())
    }

    fn calls(&mut self, syntax: &Syntax) -> Read<()> {
        match syntax {
            Syntax::Json { .. } => self.json(),
            Syntax::Named { before, id: _, between, after } => self.named(before, between, after),
            Syntax::Tagged(tags) => self.tagged(tags),
            Syntax::Python => self.python(),
            Syntax::Braces { quotes } => self.braces(Notation { quotes }),
        }
    }

    fn json(&mut self) -> Read<()> {
        if self.cursor.has("[")? {
            return self.list(Self::object);
        }
        self.object()?;
        // Where a mark tells the end, several may stand in a row.
        while !self.format.call.1.is_empty() {
            let behind = self.cursor.at;
            self.cursor.space();
            if self.cursor.is_end() || self.cursor.peek()? != '{' {
                self.cursor.at = behind;
                break;
            }
            self.object()?;
        }
        Ok(())
    }

    /// What stands up to `]`.
    fn list(&mut self, item: fn(&mut Self) -> Read<()>) -> Read<()> {
        loop {
            self.cursor.space();
            item(self)?;
            self.cursor.space();
            if !self.cursor.has(",")? {
                return self.cursor.expect("]");
            }
        }
    }

    fn object(&mut self) -> Read<()> {
        let (mut name, mut arguments) = (None, None);
        self.members(&mut name, &mut arguments)?;
        let name = name.filter(|name| self.tools.has(name)).ok_or(Stop::Wrong)?;
        self.push(call(&name, arguments)?);
        Ok(())
    }

    /// The members of an object that is a call; OpenAI's own form has them in an object within.
    fn members(&mut self, name: &mut Option<String>, arguments: &mut Option<&'a str>) -> Read<()> {
        self.cursor.expect("{")?;
        loop {
            self.cursor.space();
            if self.cursor.has("}")? {
                return Ok(());
            }
            let key: String = serde_json::from_str(self.cursor.json()?).map_err(|_| Stop::Wrong)?;
            self.cursor.space();
            self.cursor.expect(":")?;
            self.cursor.space();
            if key == "function" && self.cursor.peek()? == '{' {
                self.members(name, arguments)?;
            } else {
                let is_name = NAMES.contains(&key.as_str()) || key == "function";
                let is_arguments = ARGUMENTS.contains(&key.as_str());
                if !is_name && !is_arguments && self.tools.has(&key) {
                    *name = Some(key);
                    *arguments = Some(self.value(name.as_ref())?);
                } else if is_arguments {
                    *arguments = Some(self.value(name.as_ref())?);
                } else {
                    let value = self.cursor.json()?;
                    if is_name {
                        *name = Some(serde_json::from_str(value).map_err(|_| Stop::Wrong)?);
                    }
                }
            }
            self.cursor.space();
            if !self.cursor.has(",")? {
                return self.cursor.expect("}");
            }
        }
    }

    /// The arguments of a call, which is [`Self::open`] until it is complete.
    fn value(&mut self, name: Option<&String>) -> Read<&'a str> {
        let begun = self.cursor.rest();
        let result = self.cursor.json();
        if let Some(name) = name.filter(|name| begun.starts_with('{') && self.tools.has(name)) {
            let so_far = match result {
                Ok(arguments) => Some(arguments),
                Err(Stop::More) => Some(begun),
                Err(Stop::Wrong) => None,
            };
            self.open = so_far.map(|text| ToolCall { name: name.clone(), arguments: text.to_owned() });
            self.is_open_verbatim = result.is_err();
        }
        result
    }

    fn push(&mut self, call: ToolCall) {
        self.calls.push(call);
        self.open = None;
    }

    fn named(&mut self, before: &str, between: &str, after: &str) -> Read<()> {
        self.cursor.has(before)?;
        let name = self.tools.name(&mut self.cursor)?.to_owned();
        let room = self.cursor.rest().len();
        match self.cursor.until(between) {
            Ok(skipped) if skipped.len() <= MOST_SKIPPED => {}
            Err(Stop::More) if room <= MOST_SKIPPED + between.len() => return Err(Stop::More),
            _ => return Err(Stop::Wrong),
        }
        self.cursor.space();
        let arguments = self.value(Some(&name))?;
        self.push(call(&name, Some(arguments))?);
        if !self.cursor.is_end() {
            self.cursor.expect(after)?;
        }
        Ok(())
    }

    fn tagged(&mut self, tags: &Tags) -> Read<()> {
        self.cursor.expect(tags.name.0)?;
        let name = self.tools.name(&mut self.cursor)?.to_owned();
        self.cursor.expect(tags.name.1)?;
        let mut members = Members::default();
        let result = self.tagged_members(tags, &name, &mut members);
        self.converted(name, members, result)
    }

    fn tagged_members(&mut self, tags: &Tags, name: &str, members: &mut Members) -> Read<()> {
        loop {
            self.cursor.space();
            if self.cursor.is_end() || !self.cursor.has(tags.key.0)? {
                break;
            }
            let key = self.cursor.until(tags.key.1)?;
            if !tags.value.0.is_empty() {
                self.cursor.until(tags.value.0)?;
            }
            let begun = self.cursor.rest();
            let text = self.tagged_value(tags).inspect_err(|_| {
                let text = certain(begun, tags.value.1).filter(|_| self.tools.is_text(name, key));
                members.open = text.map(|text| (key.to_owned(), text.to_owned()));
            })?;
            members.done.insert(key.to_owned(), self.tools.value(name, key, text));
        }
        if self.cursor.is_end() { Ok(()) } else { self.cursor.expect(tags.end) }
    }

    /// A call whose arguments are told in another notation than they are written in.
    fn converted(&mut self, name: String, members: Members, result: Read<()>) -> Read<()> {
        let mut arguments = Value::Object(members.done).to_string();
        if result == Err(Stop::More) {
            arguments.pop();
            if let Some((key, text)) = members.open {
                let between = if arguments.len() > 1 { "," } else { "" };
                let mut text = Value::from(text).to_string();
                text.pop();
                arguments = format!("{arguments}{between}{}:{text}", Value::from(key));
            }
            self.open = Some(ToolCall { name, arguments });
        } else if result.is_ok() {
            self.push(ToolCall { name, arguments });
        }
        result
    }

    /// A value up to a closing tag that another key, or the call's end, follows: text may contain such a tag.
    fn tagged_value(&mut self, tags: &Tags) -> Read<&'a str> {
        let text = self.cursor.rest();
        let follows = if tags.end.is_empty() { self.format.call.1 } else { tags.end };
        loop {
            self.cursor.until(tags.value.1)?;
            let length = text.len() - self.cursor.rest().len() - tags.value.1.len();
            let mut ahead = self.cursor.clone();
            ahead.space();
            if ahead.is_end() || ahead.clone().has(tags.key.0)? || ahead.has(follows)? {
                let value = &text[..length];
                let value = value.strip_prefix('\n').unwrap_or(value);
                let value = value.strip_suffix('\n').unwrap_or(value);
                let quoted = value.strip_prefix("<![CDATA[").and_then(|value| value.strip_suffix("]]>"));
                return Ok(quoted.unwrap_or(value));
            }
        }
    }

    fn python(&mut self) -> Read<()> {
        if self.cursor.has("[")? { self.list(Self::python_call) } else { self.python_call() }
    }

    fn python_call(&mut self) -> Read<()> {
        let name = self.tools.name(&mut self.cursor)?.to_owned();
        self.cursor.has(".call")?;
        self.cursor.expect("(")?;
        let mut members = Members::default();
        let result = PYTHON.members(&mut self.cursor, ("=", ")"), &mut members);
        self.converted(name, members, result)
    }

    fn braces(&mut self, notation: Notation) -> Read<()> {
        self.cursor.expect("call:")?;
        let name = self.tools.name(&mut self.cursor)?.to_owned();
        self.cursor.expect("{")?;
        let mut members = Members::default();
        let result = notation.members(&mut self.cursor, (":", "}"), &mut members);
        self.converted(name, members, result)
    }
}

/// What is certain of a value that is text and goes on up to `close`; `None` while nothing is.
fn certain<'a>(text: &'a str, close: &str) -> Option<&'a str> {
    let text = text.strip_prefix('\n').unwrap_or(text);
    let is_quoted = "<![CDATA[".starts_with(text) || text.starts_with("<![CDATA[");
    let end = text.find(close).unwrap_or(text.len());
    let length = undecided(&text[..end], [close]);
    (!is_quoted && length > 0).then(|| &text[..length])
}
