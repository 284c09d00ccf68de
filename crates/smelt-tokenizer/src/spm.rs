//! SentencePiece byte-pair encoding (`tokenizer.ggml.model = llama`).
//!
//! Starts from characters; of all neighbours whose union is a token, the union with the best score merges first, the
//! leftmost first among equals. Characters that are no token fall back to their bytes' `<0xHH>` tokens.

use crate::merge::{Merger, NONE};
use crate::vocab::Vocab;

/// The escaped space of SentencePiece vocabularies.
pub(crate) const SPACE: &str = "\u{2581}";

#[derive(Debug)]
pub(crate) struct Spm {
    /// Merge priority by id: 0 is the best score.
    ranks: Vec<u32>,
    /// The byte fallback tokens, [`NONE`] where the vocabulary lacks one.
    bytes: Box<[u32; 256]>,
    /// Unused tokens take part in merges but are cut up again at the end, as SentencePiece does.
    has_unused: bool,
    has_space_runs: bool,
}

impl Spm {
    pub(crate) fn new(vocab: &Vocab, scores: &[f32]) -> Self {
        let mut order: Vec<u32> = (0..scores.len() as u32).collect();
        let score = |id: u32| scores[id as usize];
        order.sort_by(|&a, &b| score(b).total_cmp(&score(a)));
        let mut ranks = vec![0u32; vocab.len()];
        let mut rank = 0;
        for pair in order.windows(2) {
            // -0.0 and 0.0 are one score, though total_cmp orders them.
            rank += u32::from(score(pair[0]) != score(pair[1]));
            ranks[pair[1] as usize] = rank;
        }
        let has_unused = (0..vocab.len() as u32).any(|id| vocab.is_unused(id));
        Self { ranks, bytes: vocab.byte_tokens(), has_unused, has_space_runs: vocab.id_of("  ").is_some() }
    }

    /// Whether runs of spaces are tokens that are found before the text is escaped (Gemma).
    pub(crate) fn has_space_runs(&self) -> bool {
        self.has_space_runs
    }

    /// Appends the ids of `text`, whose spaces are escaped already.
    pub(crate) fn encode(&self, vocab: &Vocab, text: &str, merger: &mut Merger, out: &mut Vec<u32>) {
        merger.clear();
        for (start, c) in text.char_indices() {
            let len = c.len_utf8();
            merger.push(start as u32, len as u32, vocab.plain_id(&text[start..start + len]).unwrap_or(NONE));
        }
        let max = vocab.max_token_len() as u32;
        merger.run(|l, r| {
            let len = l.len + r.len;
            if len > max {
                return None;
            }
            let id = vocab.plain_id(&text[l.start as usize..(l.start + len) as usize])?;
            Some((self.ranks[id as usize], id))
        });
        for symbol in merger.symbols() {
            let piece = &text[symbol.start as usize..(symbol.start + symbol.len) as usize];
            if symbol.id == NONE {
                push_bytes(vocab, &self.bytes, piece, out);
            } else if self.has_unused && vocab.is_unused(symbol.id) {
                self.resegment(vocab, piece, out);
            } else {
                out.push(symbol.id);
            }
        }
    }

    /// Spells an unused token by tokens that are in use, by the same rule.
    fn resegment(&self, vocab: &Vocab, piece: &str, out: &mut Vec<u32>) {
        let in_use = |s: &str| vocab.plain_id(s).filter(|&id| !vocab.is_unused(id));
        let mut merger = Merger::default();
        for (start, c) in piece.char_indices() {
            let len = c.len_utf8();
            merger.push(start as u32, len as u32, in_use(&piece[start..start + len]).unwrap_or(NONE));
        }
        merger.run(|l, r| {
            let id = in_use(&piece[l.start as usize..(l.start + l.len + r.len) as usize])?;
            Some((self.ranks[id as usize], id))
        });
        for s in merger.symbols() {
            if s.id == NONE {
                push_bytes(vocab, &self.bytes, &piece[s.start as usize..(s.start + s.len) as usize], out);
            } else {
                out.push(s.id);
            }
        }
    }
}

/// Appends the byte tokens of `piece`; the unknown token once if the vocabulary lacks one of them.
pub(crate) fn push_bytes(vocab: &Vocab, bytes: &[u32; 256], piece: &str, out: &mut Vec<u32>) {
    let id = |b: u8| bytes[usize::from(b)];
    if piece.bytes().all(|b| id(b) != NONE) {
        out.extend(piece.bytes().map(id));
    } else {
        out.extend(vocab.special().unk);
    }
}
