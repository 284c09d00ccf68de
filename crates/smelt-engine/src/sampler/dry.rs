//! DRY ("don't repeat yourself"): penalises tokens that would extend a sequence that already occurred.
//!
//! If the context ends with `n` tokens that also occur earlier, the token that followed them there would repeat
//! `n + 1` tokens; its logit falls by `multiplier · base^(n − allowed_length)` when `n ≥ allowed_length`. No match is
//! followed back across a sequence breaker, and a breaker of one token is never penalised.
//!
//! The lengths come from the Z function of the reversed context, so a step costs O(window).

use super::edits::Edits;
use super::history::History;
use super::{SampleError, SamplerSettings};

/// The longest sequence breaker in tokens, which bounds the search for breakers.
pub const MAX_BREAKER_TOKENS: usize = 20;

/// What DRY keeps for a sampler: its prepared breakers and scratch.
#[derive(Debug, Clone)]
pub(super) struct Dry {
    multiplier: f64,
    base: f64,
    allowed_length: usize,
    window: usize,
    /// Each breaker from its last token to its first, sorted: those that end with a token are neighbours.
    breakers: Vec<Vec<u32>>,
    /// The window from the latest token to the oldest.
    reversed: Vec<u32>,
    /// Z function of `reversed`.
    lengths: Vec<usize>,
    /// (token that would extend a repetition, its length)
    repeats: Vec<(u32, usize)>,
}

impl Dry {
    pub(super) fn new(settings: &SamplerSettings) -> Self {
        let mut breakers: Vec<Vec<u32>> =
            settings.dry_breakers.iter().map(|breaker| breaker.iter().rev().copied().collect()).collect();
        breakers.sort_unstable();
        breakers.dedup();
        Self {
            multiplier: f64::from(settings.dry_multiplier),
            base: f64::from(settings.dry_base),
            allowed_length: settings.dry_allowed_length as usize,
            window: super::window(settings.dry_last_n),
            breakers,
            reversed: Vec::new(),
            lengths: Vec::new(),
            repeats: Vec::new(),
        }
    }

    pub(super) fn apply(&mut self, history: &History, edits: &mut Edits<'_>) {
        self.reversed.clear();
        self.reversed.extend(history.latest_first().take(self.window));
        if self.reversed.len() <= self.allowed_length {
            return;
        }
        let limit = self.tokens_since_breaker();
        if limit < self.allowed_length {
            return;
        }
        z_function(&self.reversed, &mut self.lengths);
        self.repeats.clear();
        for (at, &length) in self.lengths.iter().enumerate().skip(1) {
            let length = length.min(limit);
            let next = self.reversed[at - 1];
            if length >= self.allowed_length && !self.is_breaker(next) {
                self.repeats.push((next, length));
            }
        }
        // Per token the longest repetition counts: it is the first of the token's entries.
        self.repeats.sort_unstable_by(|a, b| a.0.cmp(&b.0).then(b.1.cmp(&a.1)));
        self.repeats.dedup_by_key(|&mut (token, _)| token);
        for &(token, length) in &self.repeats {
            let grown = self.base.powf((length - self.allowed_length) as f64);
            // However long the repetition is, the token is only penalised, never masked.
            let penalty = (self.multiplier * grown).min(f64::from(f32::MAX));
            edits.edit(token, |logit| logit - penalty);
        }
    }

    /// How many of the latest tokens come after the last breaker in the window.
    fn tokens_since_breaker(&self) -> usize {
        (0..self.reversed.len()).find(|&at| self.breaker_ends_at(at)).unwrap_or(self.reversed.len())
    }

    fn breaker_ends_at(&self, at: usize) -> bool {
        let rest = &self.reversed[at..];
        let first = self.breakers.partition_point(|breaker| breaker[0] < rest[0]);
        self.breakers[first..]
            .iter()
            .take_while(|breaker| breaker[0] == rest[0])
            .any(|breaker| rest.starts_with(breaker))
    }

    fn is_breaker(&self, token: u32) -> bool {
        self.breakers.binary_search_by(|breaker| breaker.as_slice().cmp(&[token])).is_ok()
    }
}

/// Writes to `lengths[i]` how many elements of `s[i..]` equal those of `s`; `lengths[0]` is the whole length.
fn z_function(s: &[u32], lengths: &mut Vec<usize>) {
    lengths.clear();
    lengths.resize(s.len(), 0);
    lengths[0] = s.len();
    // s[left..right] is the known match with a prefix of `s` that reaches furthest.
    let (mut left, mut right) = (0, 0);
    for i in 1..s.len() {
        let mut n = if i < right { lengths[i - left].min(right - i) } else { 0 };
        while i + n < s.len() && s[n] == s[i + n] {
            n += 1;
        }
        lengths[i] = n;
        if i + n > right {
            (left, right) = (i, i + n);
        }
    }
}

/// The token sequences that spell each of the breaker `strings`, for [`SamplerSettings::dry_breakers`].
///
/// `pieces` gives every token of the vocabulary with its bytes; `tokenize` gives the tokens of plain text. A string is
/// found in text however it was cut into tokens: as a token that contains it, or as a token that ends with the
/// string's beginning, followed by the tokens of the rest.
///
/// # Errors
/// [`SampleError::Breaker`] for an empty string, or one whose rest needs more than [`MAX_BREAKER_TOKENS`] − 1 tokens.
pub fn breaker_sequences<'p>(
    strings: &[String],
    pieces: impl Iterator<Item = (u32, &'p [u8])> + Clone,
    mut tokenize: impl FnMut(&str) -> Vec<u32>,
) -> Result<Vec<Vec<u32>>, SampleError> {
    let mut sequences = Vec::new();
    for string in strings {
        if string.is_empty() {
            return Err(SampleError::Breaker { len: 0, max: MAX_BREAKER_TOKENS });
        }
        let bytes = string.as_bytes();
        // Only cuts between characters can be tokenized; (cut, tokens of the rest), longest beginning first.
        let mut tails = Vec::new();
        for (cut, _) in string.char_indices().rev().filter(|&(cut, _)| cut > 0) {
            let tail = tokenize(&string[cut..]);
            if tail.len() >= MAX_BREAKER_TOKENS {
                return Err(SampleError::Breaker { len: tail.len() + 1, max: MAX_BREAKER_TOKENS });
            }
            tails.push((cut, tail));
        }
        for (token, piece) in pieces.clone() {
            if piece.windows(bytes.len()).any(|window| window == bytes) {
                sequences.push(vec![token]);
                continue;
            }
            for (cut, tail) in &tails {
                if piece.ends_with(&bytes[..*cut]) {
                    sequences.push([&[token], tail.as_slice()].concat());
                }
            }
        }
    }
    sequences.sort_unstable();
    sequences.dedup();
    Ok(sequences)
}
