//! A place in text that may go on.

use serde::de::IgnoredAny;

/// Why reading stopped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// More text decides.
    More,
    /// It is no call, whatever follows.
    Wrong,
}

pub(super) type Read<T> = Result<T, Stop>;

/// A place in a text. Everything read is decided for good: with more text behind, it is read the same.
#[derive(Debug, Clone)]
pub(super) struct Cursor<'a> {
    text: &'a str,
    pub(super) at: usize,
    /// Whether no more text comes.
    ended: bool,
}

impl<'a> Cursor<'a> {
    pub(super) fn new(text: &'a str, ended: bool) -> Self {
        Self { text, at: 0, ended }
    }

    pub(super) fn rest(&self) -> &'a str {
        &self.text[self.at..]
    }

    /// Whether the text ends here for good.
    pub(super) fn is_end(&self) -> bool {
        self.ended && self.rest().is_empty()
    }

    /// What it means that the text ends here.
    pub(super) fn short<T>(&self) -> Read<T> {
        Err(if self.ended { Stop::Wrong } else { Stop::More })
    }

    pub(super) fn peek(&self) -> Read<char> {
        self.rest().chars().next().map_or_else(|| self.short(), Ok)
    }

    pub(super) fn space(&mut self) {
        self.at = self.text.len() - self.rest().trim_start().len();
    }

    /// Takes `text` if it is there.
    pub(super) fn has(&mut self, text: &str) -> Read<bool> {
        let rest = self.rest();
        if rest.starts_with(text) {
            self.at += text.len();
            return Ok(true);
        }
        if !self.ended && text.starts_with(rest) { Err(Stop::More) } else { Ok(false) }
    }

    /// Takes `text`, which must be there.
    pub(super) fn expect(&mut self, text: &str) -> Read<()> {
        if self.has(text)? { Ok(()) } else { Err(Stop::Wrong) }
    }

    /// Takes what stands in front of `text`, and `text`.
    pub(super) fn until(&mut self, text: &str) -> Read<&'a str> {
        let rest = self.rest();
        let Some(length) = rest.find(text) else { return self.short() };
        self.at += length + text.len();
        Ok(&rest[..length])
    }

    /// Takes characters as long as they are so; another one must follow.
    pub(super) fn run(&mut self, is_so: impl Fn(char) -> bool) -> Read<&'a str> {
        let rest = self.rest();
        let Some(length) = rest.find(|c| !is_so(c)) else { return self.short() };
        self.at += length;
        Ok(&rest[..length])
    }

    /// Takes a JSON value that knows its own end: an object, a list, a string.
    pub(super) fn json(&mut self) -> Read<&'a str> {
        let rest = self.rest();
        let mut values = serde_json::Deserializer::from_str(rest).into_iter::<IgnoredAny>();
        match values.next() {
            Some(Ok(_)) if values.byte_offset() == rest.len() && !rest.ends_with(['}', ']', '"']) => {
                // A number or a word may go on.
                if self.ended { Ok(self.take(rest.len())) } else { Err(Stop::More) }
            }
            Some(Ok(_)) => Ok(self.take(values.byte_offset())),
            // Of a number that ends here for now, a parser that keeps none says that it is malformed.
            Some(Err(e)) if e.is_eof() || rest.ends_with(['.', 'e', 'E', '-', '+']) => self.short(),
            None => self.short(),
            Some(Err(_)) => Err(Stop::Wrong),
        }
    }

    fn take(&mut self, length: usize) -> &'a str {
        let taken = &self.rest()[..length];
        self.at += length;
        taken
    }
}

/// How much of a text surely stands in front of all marks, and is not the white space in front of one.
pub(super) fn undecided<'a>(text: &str, marks: impl IntoIterator<Item = &'a str>) -> usize {
    let partial = |mark: &str| {
        let most = text.len().min(mark.len() - 1);
        (text.len() - most..=text.len())
            .filter(|at| text.is_char_boundary(*at))
            .find(|at| mark.starts_with(&text[*at..]))
            .unwrap_or(text.len())
    };
    let certain = marks.into_iter().map(partial).min().unwrap_or(text.len());
    text[..certain].trim_end().len()
}
