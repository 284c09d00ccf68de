//! Small vocabularies that tests build by hand, and a seeded generator.

use smelt_tokenizer::{SpecialIds, VocabSource};

/// SplitMix64: enough randomness for tests, and the same everywhere.
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Below `n`, which is not 0.
    pub(crate) fn below(&mut self, n: usize) -> usize {
        usize::try_from(self.next() % n as u64).unwrap()
    }

    pub(crate) fn pick<'a, T>(&mut self, items: &'a [T]) -> &'a T {
        &items[self.below(items.len())]
    }
}

/// `llama`: unknown, BOS, EOS, 256 bytes, then `pieces` with falling scores.
pub(crate) fn spm(pieces: &[&str]) -> VocabSource {
    let mut source = VocabSource { model: "llama".into(), ..VocabSource::default() };
    let mut add = |text: String, score: f32, kind: i32| {
        source.tokens.push(text);
        source.scores.push(score);
        source.token_types.push(kind);
    };
    add("<unk>".into(), 0.0, 2);
    add("<s>".into(), 0.0, 3);
    add("</s>".into(), 0.0, 3);
    (0..=255).for_each(|b| add(format!("<0x{b:02X}>"), 0.0, 6));
    for (rank, piece) in (0i16..).zip(pieces) {
        add(piece.to_string(), -f32::from(rank), 1);
    }
    source
}

/// `gpt2`: the 256 stand-ins for bytes, `<|end|>` as a control token, `<tool>` as a user-defined one, and what `merges`
/// make.
pub(crate) fn bpe(pre: &str, merges: &[&str]) -> VocabSource {
    let mut source = VocabSource { model: "gpt2".into(), pre: Some(pre.into()), ..VocabSource::default() };
    for byte in 0..=255u8 {
        let code = match byte {
            b'!'..=b'~' | 0xA1..=0xAC | 0xAE..=0xFF => u32::from(byte),
            0..=0x20 => 0x100 + u32::from(byte),
            0x7F..=0xA0 => 0x121 + u32::from(byte) - 0x7F,
            0xAD => 0x143,
        };
        source.tokens.push(char::from_u32(code).unwrap().into());
    }
    source.tokens.extend(["<|end|>".to_string(), "<tool>".to_string()]);
    source.tokens.extend(merges.iter().map(|m| m.replace(' ', "")));
    source.token_types = vec![1; source.tokens.len()];
    (source.token_types[256], source.token_types[257]) = (3, 4);
    source.merges = merges.iter().map(ToString::to_string).collect();
    source.special = SpecialIds { eos: Some(256), ..SpecialIds::default() };
    source
}

/// `t5`: padding, EOS, unknown, then `pieces` with their log-probabilities.
pub(crate) fn unigram(pieces: &[(&str, f32)]) -> VocabSource {
    let mut source =
        VocabSource { model: "t5".into(), add_space_prefix: Some(true), ..VocabSource::default() };
    let head = [("<pad>", 0.0, 3), ("</s>", 0.0, 3), ("<unk>", 0.0, 2)];
    for (text, score, kind) in head.into_iter().chain(pieces.iter().map(|&(text, score)| (text, score, 1))) {
        source.tokens.push(text.into());
        source.scores.push(score);
        source.token_types.push(kind);
    }
    source
}

/// `bert`: `[UNK]`, `[CLS]`, `[SEP]`, then `pieces`.
pub(crate) fn wordpiece(pieces: &[&str]) -> VocabSource {
    let mut source = VocabSource { model: "bert".into(), ..VocabSource::default() };
    source.tokens = ["[UNK]", "[CLS]", "[SEP]"].iter().chain(pieces).map(ToString::to_string).collect();
    source.token_types = vec![1; source.tokens.len()];
    source.token_types[..3].copy_from_slice(&[2, 3, 3]);
    source.special = SpecialIds { unk: Some(0), bos: Some(1), sep: Some(2), ..SpecialIds::default() };
    source
}
