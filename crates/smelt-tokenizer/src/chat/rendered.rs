//! The result of rendering: text, and which of it came from a user.

use std::ops::Range;

/// A rendered conversation. Special tokens may be recognised in the template's own text only.
///
/// ```
/// use smelt_tokenizer::chat::{Rendered, Segment};
/// let r = Rendered { text: "<|user|>hi".into(), user: vec![8..10] };
/// assert_eq!(r.segments().collect::<Vec<_>>(), [Segment::Template("<|user|>"), Segment::User("hi")]);
/// ```
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Rendered {
    /// The whole text, exactly as Jinja2 renders it.
    pub text: String,
    /// Byte ranges of `text` that came from a user: sorted, disjoint, not empty, on character boundaries. Ranges
    /// that touch are merged.
    pub user: Vec<Range<usize>>,
}

/// A stretch of [`Rendered::text`] of one origin.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Segment<'a> {
    /// Written by the template: special tokens in it are meant.
    Template(&'a str),
    /// Written by a user: whatever it looks like, it is text.
    User(&'a str),
}

impl<'a> Segment<'a> {
    /// The characters, whoever wrote them.
    pub fn as_str(&self) -> &'a str {
        match self {
            Self::Template(s) | Self::User(s) => s,
        }
    }
}

impl Rendered {
    /// Text without a user's part.
    pub fn template(text: impl Into<String>) -> Self {
        Self { text: text.into(), user: Vec::new() }
    }

    /// Text that is a user's entirely: a raw prompt.
    pub fn user(text: impl Into<String>) -> Self {
        let text: String = text.into();
        let user = std::iter::once(0..text.len()).filter(|r| !r.is_empty()).collect();
        Self { text, user }
    }

    /// The text in order, cut where its origin changes. Joined, the pieces are [`text`](Self::text).
    pub fn segments(&self) -> impl Iterator<Item = Segment<'_>> {
        let mut at = 0;
        let mut user = self.user.iter().peekable();
        std::iter::from_fn(move || {
            if at >= self.text.len() {
                return None;
            }
            match user.peek() {
                Some(r) if r.start == at => {
                    at = r.end;
                    user.next().map(|r| Segment::User(&self.text[r.clone()]))
                }
                next => {
                    let end = next.map_or(self.text.len(), |r| r.start);
                    let piece = &self.text[at..end];
                    at = end;
                    Some(Segment::Template(piece))
                }
            }
        })
    }

    /// Where special tokens may be matched: the byte ranges that the template wrote. A match must lie inside of one
    /// of them; ordinary pre-tokenization and merging run over the text between two matches as one piece, whatever
    /// its origin, so that ordinary text gets the ids it would get without marks.
    pub fn template_ranges(&self) -> impl Iterator<Item = Range<usize>> {
        let mut at = 0;
        let ends = self.user.iter().cloned().chain(std::iter::once(self.text.len()..self.text.len()));
        ends.filter_map(move |r| {
            let gap = at..r.start;
            at = r.end;
            (!gap.is_empty()).then_some(gap)
        })
    }

    /// Does the template itself begin the text with this token? Then a tokenizer must not add its BOS.
    pub fn begins_with(&self, token: &str) -> bool {
        !token.is_empty()
            && self.text.starts_with(token)
            && self.user.first().is_none_or(|r| r.start >= token.len())
    }
}
