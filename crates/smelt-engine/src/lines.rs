//! Answers that end at a line: what an editor inserts is whole lines of one block.

use std::time::Duration;

use serde::{Deserialize, Serialize};

/// Where an answer ends at a line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LineLimits {
    /// Spaces and tabs that every line behind the first begins with. In front of one with fewer the answer ends; an empty line
    /// has none. 0 is off.
    pub indent: usize,
    /// The first line that ends so long after the first token, or later, ends the answer.
    pub time: Option<Duration>,
}

/// Holds text that arrives in pieces to [`LineLimits`]. How it was cut never matters, but for the time.
#[derive(Debug, Clone)]
pub(crate) struct Lines {
    limits: LineLimits,
    /// The indentation of a line that has begun, until it is enough.
    margin: Option<String>,
}

impl Lines {
    pub(crate) fn new(limits: LineLimits) -> Self {
        Self { limits, margin: None }
    }

    /// Takes more text, which came so long after the first token, and appends to `out` what may be shown of it. True if the
    /// answer ends with that.
    pub(crate) fn push(&mut self, text: &str, elapsed: Duration, out: &mut String) -> bool {
        if self.limits == LineLimits::default() {
            out.push_str(text);
            return false;
        }
        for c in text.chars() {
            match &mut self.margin {
                Some(margin) if matches!(c, ' ' | '\t') => {
                    margin.push(c);
                    if margin.len() >= self.limits.indent {
                        out.push_str(self.held());
                        self.margin = None;
                    }
                }
                Some(_) => return true,
                None => out.push(c),
            }
            if c == '\n' {
                if self.limits.time.is_some_and(|time| elapsed >= time) {
                    return true;
                }
                self.margin = (self.limits.indent > 0).then(String::new);
            }
        }
        false
    }

    /// What is held back: the beginning of a line that nothing stands in yet.
    pub(crate) fn held(&self) -> &str {
        self.margin.as_deref().unwrap_or("")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is shown of pieces, with what is held at the end, and whether the answer ended.
    fn shown(limits: LineLimits, pieces: &[&str]) -> (String, bool) {
        let (mut lines, mut out) = (Lines::new(limits), String::new());
        for piece in pieces {
            if lines.push(piece, Duration::from_millis(20), &mut out) {
                return (out, true);
            }
        }
        out.push_str(lines.held());
        (out, false)
    }

    #[test]
    fn a_line_with_less_indentation_ends_the_answer_in_front_of_it() {
        let cases = [
            (0, "a\nb\n\nc", "a\nb\n\nc", false),
            (2, "a\n  b\n \tc\n   d", "a\n  b\n \tc\n   d", false),
            (2, "no matter\n  b\n c", "no matter\n  b\n", true),
            (1, "a\n\n b", "a\n", true),
            (4, "}\n", "}\n", false),
            (4, "}\n  ", "}\n  ", false),
        ];
        for (indent, text, wanted, ends) in cases {
            let limits = LineLimits { indent, time: None };
            let wanted = (wanted.to_owned(), ends);
            assert_eq!(shown(limits, &[text]), wanted, "{text:?}");
            let letters: Vec<String> = text.chars().map(String::from).collect();
            let letters: Vec<&str> = letters.iter().map(String::as_str).collect();
            assert_eq!(shown(limits, &letters), wanted, "{text:?}, letter by letter");
        }
    }

    #[test]
    fn the_first_line_that_ends_late_is_the_last() {
        let limits = |ms| LineLimits { indent: 0, time: Some(Duration::from_millis(ms)) };
        assert_eq!(shown(limits(20), &["a", "b\nc\n"]), ("ab\n".to_owned(), true));
        assert_eq!(shown(limits(21), &["a", "b\nc\n"]), ("ab\nc\n".to_owned(), false));
        assert_eq!(shown(limits(0), &["no end"]), ("no end".to_owned(), false));
    }
}
