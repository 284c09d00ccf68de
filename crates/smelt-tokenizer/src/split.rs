//! Splits text into the words that byte-pair encoding works on.
//!
//! The patterns of Hugging Face pre-tokenizers need one look-ahead, `\s+(?!\S)`: a run of white space leaves its last
//! character to the word behind it. That is done here by hand ([`Spaces`]), so that the patterns run on a linear-time
//! engine and no text, however long its runs, is slow.

use crate::error::Error;
use crate::spm::SPACE;
use regex_automata::meta::Regex;
use std::ops::Range;

/// One pass over the words that the passes before it made.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// Matches of the pattern become words, and so does what lies between them.
    Match(&'static str, Spaces),
    /// Runs of digits (the first pattern) are cut into threes from the right. With `bounded`, only runs that no other
    /// word character follows.
    Thousands { run: &'static str, bounded: bool },
    /// Each escaped space starts a word. The caller puts one in front of each line.
    Metaspace,
}

/// What a pattern does with white space that its alternatives leave.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Spaces {
    /// Nothing.
    Plain,
    /// `\s+(?!\S)|\s+`.
    KeepLast,
    /// `\s{n}(?!\S)` for each `n`, then `\s{1,2}(?!\S)|\s`.
    Cascade(&'static [usize]),
}

#[derive(Debug)]
enum Compiled {
    Match(Regex, Spaces),
    Thousands(Regex, bool),
    Metaspace,
}

/// The passes of one pre-tokenizer, compiled.
#[derive(Debug)]
pub(crate) struct Splitter {
    steps: Vec<Compiled>,
    word_char: Regex,
}

fn compile(patterns: &[&str]) -> Result<Regex, Error> {
    Regex::new_many(patterns)
        .map_err(|e| Error::Automaton { what: "a pre-tokenizer pattern", reason: e.to_string() })
}

impl Splitter {
    pub(crate) fn new(steps: &[Step]) -> Result<Self, Error> {
        let steps = steps
            .iter()
            .map(|step| {
                Ok(match *step {
                    Step::Match(pattern, Spaces::Plain) => {
                        Compiled::Match(compile(&[pattern])?, Spaces::Plain)
                    }
                    Step::Match(pattern, spaces) => {
                        Compiled::Match(compile(&[pattern, &spaces.pattern()])?, spaces)
                    }
                    Step::Thousands { run, bounded } => Compiled::Thousands(compile(&[run])?, bounded),
                    Step::Metaspace => Compiled::Metaspace,
                })
            })
            .collect::<Result<_, Error>>()?;
        Ok(Self { steps, word_char: compile(&[r"\A\w"])? })
    }

    /// Whether lines need an escaped space in front ([`Step::Metaspace`]).
    pub(crate) fn has_metaspace(&self) -> bool {
        self.steps.iter().any(|s| matches!(s, Compiled::Metaspace))
    }

    /// The words of `text`, as byte ranges that cover it without gaps.
    pub(crate) fn split(&self, text: &str, words: &mut Vec<Range<usize>>, scratch: &mut Vec<Range<usize>>) {
        words.clear();
        if !text.is_empty() {
            words.push(0..text.len());
        }
        for step in &self.steps {
            std::mem::swap(words, scratch);
            words.clear();
            for word in scratch.drain(..) {
                self.apply(step, text, word, words);
            }
        }
    }

    fn apply(&self, step: &Compiled, text: &str, word: Range<usize>, out: &mut Vec<Range<usize>>) {
        let base = word.start;
        let part = &text[word];
        // `last` is where the words made so far end.
        let mut last = 0;
        let mut emit = |start: usize, end: usize| {
            if last < start {
                out.push(base + last..base + start);
            }
            if start < end {
                out.push(base + start..base + end);
            }
            last = end;
        };
        match step {
            Compiled::Match(regex, spaces) => {
                let mut at = 0;
                while let Some(m) = regex.search(&regex_automata::Input::new(part).range(at..)) {
                    let end = if m.pattern().as_usize() == 1 {
                        spaces.end(part, m.start(), m.end())
                    } else {
                        m.end()
                    };
                    emit(m.start(), end);
                    // Patterns match at least one character; the step by one is for those that a reader may add.
                    at = if end > m.start() { end } else { next_char(part, end) };
                    if at > part.len() {
                        break;
                    }
                }
            }
            Compiled::Thousands(regex, bounded) => {
                for m in regex.find_iter(part) {
                    if *bounded && self.word_char.is_match(&part[m.end()..]) {
                        continue;
                    }
                    let chars: Vec<usize> =
                        part[m.range()].char_indices().map(|(i, _)| m.start() + i).collect();
                    let mut group = m.start();
                    let cuts = chars.iter().rev().skip(2).step_by(3).rev().filter(|&&cut| cut > m.start());
                    for &cut in cuts {
                        emit(group, cut);
                        group = cut;
                    }
                    emit(group, m.end());
                }
            }
            Compiled::Metaspace => {
                for (i, _) in part.match_indices(SPACE) {
                    emit(i, i);
                }
            }
        }
        emit(part.len(), part.len());
    }
}

impl Spaces {
    /// The run of white space to look at; no longer than the longest cut, so that a long run isn't read over and over.
    fn pattern(self) -> String {
        match self {
            Self::Plain | Self::KeepLast => r"\s+".into(),
            Self::Cascade(sizes) => format!(r"\s{{1,{}}}", sizes.iter().max().unwrap_or(&2) + 1),
        }
    }

    /// Where the word ends that starts with the run of white space `start..end`.
    fn end(self, text: &str, start: usize, end: usize) -> usize {
        let at_end = end == text.len();
        let run = &text[start..end];
        match self {
            Self::Plain => end,
            Self::KeepLast if at_end => end,
            Self::KeepLast => match run.char_indices().next_back() {
                Some((0, _)) | None => end,
                Some((i, _)) => start + i,
            },
            Self::Cascade(sizes) => {
                let count = run.chars().count();
                let fits = |n: usize| count > n || (count == n && at_end);
                let size = sizes.iter().copied().chain([2]).find(|&n| fits(n)).unwrap_or(1);
                run.char_indices().nth(size).map_or(end, |(i, _)| start + i)
            }
        }
    }
}

fn next_char(text: &str, at: usize) -> usize {
    at + text[at..].chars().next().map_or(1, char::len_utf8)
}
