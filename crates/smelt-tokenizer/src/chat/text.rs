//! Strings that remember which of their bytes came from a user.
//!
//! Every string of the evaluator is a [`Text`]. Comparison looks at the characters only, so a template behaves as it
//! would on plain strings; every operation that makes a new string copies the marks along with the bytes. Provenance
//! therefore survives trimming, slicing, splitting, joining, case mapping and `tojson` by construction, and no
//! character of the user's can imitate it, because it is not written in characters.

use std::ops::Range;
use std::rc::Rc;

use super::error::{Fault, Res};

/// Longest string a template may build, in bytes. The longest context windows are a few MB of text.
pub(super) const MAX_TEXT: usize = 64 << 20;

/// An immutable string and the byte ranges of it that came from a user (sorted, disjoint, not touching, not empty).
#[derive(Debug, Clone)]
pub(super) struct Text(Rc<Inner>);

#[derive(Debug, Default)]
struct Inner {
    text: String,
    user: Vec<Range<usize>>,
    /// Marked by `safe`: what is added to it is escaped for HTML, as Python's `Markup` does.
    markup: bool,
}

impl PartialEq for Text {
    fn eq(&self, other: &Self) -> bool {
        self.as_str() == other.as_str()
    }
}

impl Text {
    /// Text of the template's own.
    pub(super) fn template(text: impl Into<String>) -> Self {
        Self(Rc::new(Inner { text: text.into(), ..Inner::default() }))
    }

    /// Text that came from a user.
    pub(super) fn user(text: impl Into<String>) -> Self {
        let text: String = text.into();
        let user = std::iter::once(0..text.len()).filter(|r| !r.is_empty()).collect();
        Self(Rc::new(Inner { text, user, markup: false }))
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0.text
    }

    pub(super) fn len(&self) -> usize {
        self.0.text.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.text.is_empty()
    }

    pub(super) fn is_markup(&self) -> bool {
        self.0.markup
    }

    pub(super) fn as_markup(&self, markup: bool) -> Self {
        let (text, user) = self.clone().into_parts();
        Self(Rc::new(Inner { text, user, markup }))
    }

    /// Escapes for HTML, unless it is markup already.
    pub(super) fn escaped(&self) -> Res<Self> {
        if self.0.markup {
            return Ok(self.clone());
        }
        let escaped = self.map(|_, c, out| match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '\'' => out.push_str("&#39;"),
            '"' => out.push_str("&#34;"),
            c => out.push(c),
        })?;
        Ok(escaped.as_markup(true))
    }

    /// Python's `self + other`.
    pub(super) fn plus(&self, other: &Self) -> Res<Self> {
        let mut out = Builder::default();
        if self.0.markup || other.0.markup {
            out.push(&self.escaped()?);
            out.push(&other.escaped()?);
            return Ok(out.finish()?.as_markup(true));
        }
        out.push(self);
        out.push(other);
        out.finish()
    }

    /// Number of characters, which is what Python calls the length.
    pub(super) fn chars(&self) -> usize {
        if self.as_str().is_ascii() { self.len() } else { self.as_str().chars().count() }
    }

    pub(super) fn any_user(&self) -> bool {
        !self.0.user.is_empty()
    }

    /// The user's ranges that meet `bytes`, clipped to it.
    fn user_within(&self, bytes: Range<usize>) -> impl Iterator<Item = Range<usize>> {
        let first = self.0.user.partition_point(|r| r.end <= bytes.start);
        self.0.user[first..]
            .iter()
            .take_while(move |r| r.start < bytes.end)
            .map(move |r| r.start.max(bytes.start)..r.end.min(bytes.end))
    }

    /// The substring of these bytes, which must lie on character boundaries.
    pub(super) fn slice(&self, bytes: Range<usize>) -> Self {
        if bytes == (0..self.len()) {
            return self.clone();
        }
        let user =
            self.user_within(bytes.clone()).map(|r| r.start - bytes.start..r.end - bytes.start).collect();
        Self(Rc::new(Inner { text: self.as_str()[bytes].to_owned(), user, markup: self.0.markup }))
    }

    /// `part` must be a subslice of `self.as_str()`, as the methods of `str` return them.
    pub(super) fn subslice(&self, part: &str) -> Self {
        let start = (part.as_ptr() as usize).wrapping_sub(self.as_str().as_ptr() as usize);
        if start > self.len() || start + part.len() > self.len() {
            // Only a literal empty string may come from elsewhere.
            return Self::template("");
        }
        self.slice(start..start + part.len())
    }

    /// Byte offset of every character, and the length at the end.
    pub(super) fn offsets(&self) -> Vec<usize> {
        self.as_str().char_indices().map(|(i, _)| i).chain([self.len()]).collect()
    }

    /// Characters one by one, each keeping its mark.
    pub(super) fn each_char(&self) -> Vec<Self> {
        self.as_str().char_indices().map(|(i, c)| self.slice(i..i + c.len_utf8())).collect()
    }

    /// Maps characters to strings (case mapping, escaping); each output keeps the mark of its input.
    pub(super) fn map(&self, mut f: impl FnMut(usize, char, &mut String)) -> Res<Self> {
        let mut out = Builder::default();
        let mut piece = String::new();
        for (i, c) in self.as_str().char_indices() {
            piece.clear();
            f(i, c, &mut piece);
            out.push_marked(&piece, self.is_user_at(i));
        }
        out.finish()
    }

    pub(super) fn is_user_at(&self, byte: usize) -> bool {
        self.user_within(byte..byte + 1).next().is_some()
    }

    pub(super) fn replace(&self, from: &str, to: &Self, limit: Option<usize>) -> Res<Self> {
        let mut out = Builder::default();
        let mut at = 0;
        for (i, m) in self.as_str().match_indices(from).take(limit.unwrap_or(usize::MAX)) {
            out.push_range(self, at..i);
            out.push(to);
            at = i + m.len();
        }
        out.push_range(self, at..self.len());
        out.finish()
    }

    pub(super) fn into_parts(self) -> (String, Vec<Range<usize>>) {
        match Rc::try_unwrap(self.0) {
            Ok(inner) => (inner.text, inner.user),
            Err(shared) => (shared.text.clone(), shared.user.clone()),
        }
    }
}

/// Builds a [`Text`] from pieces. Growth past [`MAX_TEXT`] is dropped at once and reported by [`Builder::finish`].
#[derive(Debug, Default)]
pub(super) struct Builder {
    inner: Inner,
    overflow: bool,
}

impl Builder {
    pub(super) fn len(&self) -> usize {
        self.inner.text.len()
    }

    fn room(&mut self, more: usize) -> bool {
        self.overflow |= self.inner.text.len() + more > MAX_TEXT;
        !self.overflow
    }

    fn mark(&mut self, range: Range<usize>) {
        if range.is_empty() {
            return;
        }
        match self.inner.user.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.inner.user.push(range),
        }
    }

    /// Appends text of the template's own.
    pub(super) fn push_str(&mut self, text: &str) {
        if self.room(text.len()) {
            self.inner.text.push_str(text);
        }
    }

    pub(super) fn push_marked(&mut self, text: &str, user: bool) {
        let start = self.len();
        self.push_str(text);
        if user {
            self.mark(start..self.len());
        }
    }

    pub(super) fn push(&mut self, text: &Text) {
        self.push_range(text, 0..text.len());
    }

    pub(super) fn push_range(&mut self, text: &Text, bytes: Range<usize>) {
        if !self.room(bytes.len()) {
            return;
        }
        let shift = self.len();
        self.inner.text.push_str(&text.as_str()[bytes.clone()]);
        for r in text.user_within(bytes.clone()) {
            self.mark(r.start - bytes.start + shift..r.end - bytes.start + shift);
        }
    }

    pub(super) fn check(&self) -> Res<()> {
        if self.overflow {
            return Err(Fault::limit(format!("the text grows past {} MiB", MAX_TEXT >> 20)));
        }
        Ok(())
    }

    pub(super) fn finish(self) -> Res<Text> {
        self.check()?;
        Ok(Text(Rc::new(self.inner)))
    }
}

/// What Python's `str.isspace` calls white space: Unicode's, and the four ASCII separators.
pub(super) fn is_space(c: char) -> bool {
    c.is_whitespace() || ('\u{1c}'..='\u{1f}').contains(&c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans(t: &Text) -> Vec<(usize, usize)> {
        t.0.user.iter().map(|r| (r.start, r.end)).collect()
    }

    #[test]
    fn marks_follow_slices_and_joins() {
        let mut b = Builder::default();
        b.push_str("ab");
        b.push(&Text::user("cdé"));
        b.push(&Text::user("f"));
        b.push_str("g");
        let t = b.finish().unwrap();
        assert_eq!((t.as_str(), spans(&t)), ("abcdéfg", vec![(2, 7)]));
        assert_eq!(spans(&t.slice(1..3)), [(1, 2)]);
        assert_eq!(spans(&t.slice(7..8)), []);
        let r = t.replace("d", &Text::template("--"), None).unwrap();
        assert_eq!((r.as_str(), spans(&r)), ("abc--éfg", vec![(2, 3), (5, 8)]));
    }

    #[test]
    fn growth_is_bounded() {
        let big = Text::template("x".repeat(1 << 20));
        let r = Text::template("y".repeat(100)).replace("y", &big, None);
        assert_eq!(r.unwrap_err().kind, super::super::error::FaultKind::Limit);
    }
}
