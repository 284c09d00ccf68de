//! Streaming text: complete characters only, and the same text however the ids were cut.

use crate::sources::{Random, bpe, spm};
use smelt_tokenizer::{Special, Strictness, Tokenizer};

fn build(source: smelt_tokenizer::VocabSource) -> Tokenizer {
    Tokenizer::new(source, Strictness::Strict).unwrap()
}

/// Ids of the byte tokens of `spm`.
fn byte_ids(bytes: &[u8]) -> Vec<u32> {
    bytes.iter().map(|&b| 3 + u32::from(b)).collect()
}

#[test]
fn bytes_give_what_lossy_decoding_gives() {
    let tokenizer = build(spm(&["x"]));
    let mut random = Random(1);
    // Bytes that begin, continue, break and overrun sequences, so that all ill-formed kinds come up.
    let interesting = [
        b'a', b' ', 0x80, 0x8F, 0x90, 0x9F, 0xA0, 0xBF, 0xC0, 0xC2, 0xDF, 0xE0, 0xE2, 0xED, 0xEF, 0xF0, 0xF1,
        0xF4, 0xF5, 0xFF,
    ];
    for _ in 0..20_000 {
        let bytes: Vec<u8> = (0..random.below(12)).map(|_| *random.pick(&interesting)).collect();
        let mut stream = tokenizer.stream_after(Some(4), false);
        let mut text = String::new();
        for id in byte_ids(&bytes) {
            text.push_str(&stream.push(id));
        }
        text.push_str(&stream.finish());
        assert_eq!(text, String::from_utf8_lossy(&bytes), "{bytes:02X?}");
    }
}

#[test]
fn a_character_comes_whole_and_as_soon_as_it_can() {
    let tokenizer = build(spm(&["x"]));
    let mut stream = tokenizer.stream();
    let given: Vec<String> = byte_ids("é🙂!".as_bytes()).into_iter().map(|id| stream.push(id)).collect();
    assert_eq!(given, ["", "é", "", "", "", "🙂", "!"]);
    assert_eq!(stream.finish(), "");
}

#[test]
fn what_is_unfinished_comes_at_the_end() {
    let tokenizer = build(spm(&["x"]));
    let mut stream = tokenizer.stream();
    let given: Vec<String> = byte_ids(b"a\xF0\x9F\x99").into_iter().map(|id| stream.push(id)).collect();
    assert_eq!(given, ["a", "", "", ""]);
    assert_eq!(stream.finish(), "\u{FFFD}");
    assert_eq!(stream.finish(), "");
}

#[test]
fn the_leading_space_goes_only_where_encoding_put_it() {
    let tokenizer = build(spm(&["▁", "a", "b", "▁a", "▁b"]));
    let ids = tokenizer.encode("a b", Special::Text, true);
    assert_eq!(ids, [1, 262, 263]);
    assert_eq!(tokenizer.decode(&ids, false), "a b");
    assert_eq!(tokenizer.decode(&ids, true), "<s>a b");
    // Going on behind text, the space is the model's own; behind a control token it isn't.
    assert_eq!(tokenizer.stream_after(Some(262), false).push(263), " b");
    assert_eq!(tokenizer.stream_after(Some(1), false).push(263), "b");
    assert_eq!(tokenizer.stream().push(263), "b");
}

#[test]
fn control_tokens_are_hidden_unless_asked_for() {
    let tokenizer = build(bpe("gpt-2", &["h i"]));
    let ids = tokenizer.encode("hi<|end|><tool>", Special::Parse, false);
    assert_eq!(ids, [258, 256, 257]);
    assert_eq!(tokenizer.decode(&ids, false), "hi<tool>");
    assert_eq!(tokenizer.decode(&ids, true), "hi<|end|><tool>");
    assert_eq!(tokenizer.token_bytes(256, false), Some(&b""[..]));
    assert_eq!(tokenizer.token_bytes(9999, true), None);
    assert_eq!(tokenizer.stream().push(9999), "");
}

#[test]
fn decoding_inverts_encoding() {
    let tokenizers = [build(spm(&["▁", "a", "▁a", "é"])), build(bpe("llama-bpe", &["a a", "Ġ a", "Ã ©"]))];
    let mut random = Random(7);
    let parts = [
        "a", " ", "  ", "é", "日", "🙂", "\n", "\r\n", "\u{0}", "<s>", "<|end|>", "<tool>", "▁", "Ġ",
        "\u{301}",
    ];
    for tokenizer in &tokenizers {
        for _ in 0..2_000 {
            let text: String = (0..random.below(10)).map(|_| *random.pick(&parts)).collect();
            let ids = tokenizer.encode(&text, Special::Text, false);
            // SentencePiece can't tell its own escape from a space.
            let expected = if tokenizer.bos().is_some() { text.replace('▁', " ") } else { text.clone() };
            assert_eq!(tokenizer.decode(&ids, false), expected, "{text:?} {ids:?}");
        }
    }
}
