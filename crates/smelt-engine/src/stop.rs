//! Stop strings in text that arrives in pieces.
//!
//! The matcher works as if the text came byte by byte, so how it was cut into pieces never matters: **the stop string
//! that is complete first wins, and of several that are complete at the same byte, the longest**, which began first.
//! The text up to where the winner begins is released. What is held back meanwhile is exactly the longest end of the
//! text that is also the beginning of some stop string.

/// A stop string that can't be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum StopError {
    /// An empty string would stop before the first token.
    #[error("stop string {index} is empty; leave it out, or give at least one character")]
    Empty {
        /// Its place in the list, from 0.
        index: usize,
    },
}

/// What [`StopMatcher::push`] lets out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Emit<'a> {
    /// Text that is certain to stand before any stop string.
    pub text: &'a str,
    /// Which stop string was found, by its place in the list; then nothing more will come.
    pub stopped: Option<usize>,
}

/// Finds stop strings in text as it arrives. Time is proportional to the text times the number of stop strings.
#[derive(Debug, Clone)]
pub struct StopMatcher {
    patterns: Vec<Pattern>,
    /// Text handed out by the last push (`released` bytes), then the text held back.
    text: String,
    released: usize,
    stopped: Option<usize>,
}

impl StopMatcher {
    /// A matcher for these strings; with none, all text passes at once.
    ///
    /// # Errors
    /// [`StopError::Empty`] if a string is empty.
    pub fn new(stops: &[String]) -> Result<Self, StopError> {
        if let Some(index) = stops.iter().position(String::is_empty) {
            return Err(StopError::Empty { index });
        }
        let patterns = stops.iter().map(|stop| Pattern::new(stop)).collect();
        Ok(Self { patterns, text: String::new(), released: 0, stopped: None })
    }

    /// Takes more text and lets out what can't belong to a stop string. After a stop, text is ignored.
    pub fn push(&mut self, text: &str) -> Emit<'_> {
        self.text.drain(..self.released);
        self.released = 0;
        if self.stopped.is_some() {
            return Emit { text: "", stopped: self.stopped };
        }
        let known = self.text.len();
        self.text.push_str(text);
        for at in known..self.text.len() {
            if let Some((index, length)) = self.step(self.text.as_bytes()[at]) {
                self.stopped = Some(index);
                self.text.truncate(at + 1 - length);
                self.released = self.text.len();
                return Emit { text: &self.text, stopped: self.stopped };
            }
        }
        self.released = self.text.len() - self.held_len();
        Emit { text: &self.text[..self.released], stopped: None }
    }

    /// The text that is held back: the beginning of some stop string, or nothing.
    pub fn held(&self) -> &str {
        &self.text[self.released..]
    }

    /// Lets out the held text, since no more is coming. After a stop there is none.
    pub fn finish(mut self) -> String {
        self.text.split_off(self.released)
    }

    /// Feeds a byte to every pattern; if some are complete, the longest with its length.
    fn step(&mut self, byte: u8) -> Option<(usize, usize)> {
        let mut found: Option<(usize, usize)> = None;
        for (index, pattern) in self.patterns.iter_mut().enumerate() {
            let length = pattern.bytes.len();
            if pattern.step(byte) && found.is_none_or(|(_, longest)| length > longest) {
                found = Some((index, length));
            }
        }
        found
    }

    fn held_len(&self) -> usize {
        self.patterns.iter().map(|pattern| pattern.matched).max().unwrap_or(0)
    }
}

/// One stop string and how much of it the text ends with (Knuth, Morris, Pratt 1977).
#[derive(Debug, Clone)]
struct Pattern {
    bytes: Vec<u8>,
    /// `borders[i]`: the length of the longest proper beginning of `bytes[..=i]` that is also its end.
    borders: Vec<usize>,
    /// The longest beginning of `bytes` that the text ends with; never the whole but in the step that completes it.
    matched: usize,
}

impl Pattern {
    fn new(stop: &str) -> Self {
        let bytes = stop.as_bytes().to_vec();
        let mut borders = vec![0; bytes.len()];
        let mut matched = 0;
        for i in 1..bytes.len() {
            while matched > 0 && bytes[i] != bytes[matched] {
                matched = borders[matched - 1];
            }
            matched += usize::from(bytes[i] == bytes[matched]);
            borders[i] = matched;
        }
        Self { bytes, borders, matched: 0 }
    }

    /// Whether this byte completes the pattern. The matcher takes no byte after that.
    fn step(&mut self, byte: u8) -> bool {
        while self.matched > 0 && byte != self.bytes[self.matched] {
            self.matched = self.borders[self.matched - 1];
        }
        self.matched += usize::from(byte == self.bytes[self.matched]);
        self.matched == self.bytes.len()
    }
}
