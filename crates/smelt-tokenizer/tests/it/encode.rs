//! The rules of each kind, on vocabularies small enough to follow by hand.

use crate::sources::{bpe, spm, unigram, wordpiece};
use smelt_tokenizer::{Error, Special, SpecialIds, Strictness, Tokenizer, VocabSource};
use std::time::Instant;

fn build(source: VocabSource) -> Tokenizer {
    Tokenizer::new(source, Strictness::Strict).unwrap()
}

fn pieces(tokenizer: &Tokenizer, text: &str, special: Special) -> Vec<String> {
    let ids = tokenizer.encode(text, special, false);
    ids.into_iter().map(|id| tokenizer.piece(id).unwrap().to_string()).collect()
}

#[test]
fn spm_merges_by_score_then_from_the_left() {
    let tokenizer = build(spm(&["ab", "bc", "a", "b", "c", "▁"]));
    assert_eq!(pieces(&tokenizer, "abc", Special::Text), ["▁", "ab", "c"]);
    let tokenizer = build(spm(&["bc", "ab", "a", "b", "c", "▁"]));
    assert_eq!(pieces(&tokenizer, "abc", Special::Text), ["▁", "a", "bc"]);
    assert_eq!(pieces(&tokenizer, "aé", Special::Text), ["▁", "a", "<0xC3>", "<0xA9>"]);
}

#[test]
fn text_never_spells_a_control_token() {
    // Merging `<s` and `>` would arrive at BOS.
    let tokenizer = build(spm(&["<s", "<", "s", ">", "▁"]));
    assert_eq!(pieces(&tokenizer, "<s>", Special::Text), ["▁", "<s", ">"]);
    assert_eq!(pieces(&tokenizer, "<s>", Special::Parse), ["<s>"]);
    let merges = ["< |", "e n", "en d", "| >", "<| end", "<|end |>"];
    let mut source = bpe("llama-bpe", &merges);
    source.tokens.pop();
    source.token_types.pop();
    let tokenizer = build(source);
    assert!(!tokenizer.encode("<|end|>", Special::Text, false).contains(&256));
    assert_eq!(tokenizer.encode("<|end|>", Special::Parse, false), [256]);
}

#[test]
fn user_defined_tokens_are_always_found_and_the_longest_wins() {
    let mut source = spm(&["▁", "a"]);
    source.tokens.extend(["\n\n".into(), "\n\n\n".into()]);
    source.scores.extend([0.0, 0.0]);
    source.token_types.extend([4, 4]);
    let tokenizer = build(source);
    assert_eq!(tokenizer.encode("a\n\n\n\n\na", Special::Text, false), [259, 260, 262, 261, 259, 260]);
}

#[test]
fn bos_and_eos_are_added_as_the_metadata_says() {
    let mut source = spm(&["▁a"]);
    assert_eq!(build(source.clone()).encode("a", Special::Text, true), [1, 259]);
    (source.add_bos, source.add_eos) = (Some(false), Some(true));
    assert_eq!(build(source.clone()).encode("a", Special::Text, true), [259, 2]);
    source.add_space_prefix = Some(false);
    assert_eq!(build(source.clone()).encode(" a", Special::Text, false), [259]);
    let mut source = bpe("gpt-2", &["h i"]);
    source.add_bos = Some(true);
    let error = Tokenizer::new(source, Strictness::Strict).unwrap_err();
    assert!(matches!(error, Error::MissingSpecial { key: "tokenizer.ggml.bos_token_id", .. }), "{error}");
}

#[test]
fn unigram_takes_the_likeliest_spelling() {
    let tokenizer = build(unigram(&[("▁", -2.0), ("a", -1.0), ("b", -1.0), ("ab", -2.5), ("▁a", -1.5)]));
    assert_eq!(pieces(&tokenizer, "ab", Special::Text), ["▁a", "b"]);
    assert_eq!(pieces(&tokenizer, "a日本b", Special::Text), ["▁a", "<unk>", "b"]);
    assert_eq!(tokenizer.encode("a", Special::Text, true), [7, 1]);
    assert!(tokenizer.encode("", Special::Text, false).is_empty());
}

#[test]
fn wordpiece_takes_the_longest_fit() {
    let tokenizer = build(wordpiece(&["▁un", "▁", "aff", "able", "▁,", "▁a", "▁日"]));
    assert_eq!(
        pieces(&tokenizer, "Unaffable, \u{e1}日", Special::Text),
        ["▁un", "aff", "able", "▁,", "▁a", "▁日"]
    );
    assert_eq!(tokenizer.encode("xyz", Special::Text, true), [1, 0, 2]);
}

#[test]
fn ends_come_from_keys_and_well_known_texts() {
    let mut source = spm(&["▁a", "<|im_end|>", "<|eom_id|>"]);
    source.eog = vec![259];
    let tokenizer = build(source);
    assert_eq!(tokenizer.eog_ids(), [2, 259, 260, 261]);
    assert!(tokenizer.is_eog(260) && !tokenizer.is_eog(1));
    assert_eq!(tokenizer.special_ids().eot, Some(260));
    assert_eq!(tokenizer.special_ids().eom, Some(261));
    // Where a format closes parts of an answer by <|end|>, it is no end of the answer.
    let tokenizer = build(spm(&["<|return|>", "<|call|>", "<|end|>"]));
    assert_eq!(tokenizer.eog_ids(), [2, 259, 260]);
    assert_eq!(tokenizer.decode(&[261], false), "<|end|>");
    assert!(!tokenizer.encode("<|end|>", Special::Text, false).contains(&261));
}

#[test]
fn damaged_vocabularies_are_refused_by_what_is_wrong() {
    type Damage = fn(&mut VocabSource);
    let cases: &[(Damage, &str)] = &[
        (|s| s.model = "rwkv".into(), "\"rwkv\", which is not supported; known kinds: llama"),
        (|s| s.pre = Some("nonsense".into()), "\"nonsense\", which is unknown"),
        (|s| s.pre = None, "tokenizer.ggml.pre is missing"),
        (|s| s.tokens.clear(), "tokenizer.ggml.tokens is empty"),
        (
            |s| s.scores = vec![0.0; 3],
            "tokenizer.ggml.scores has 3 entries, but tokenizer.ggml.tokens has 259",
        ),
        (|s| s.scores = vec![f32::NAN; 259], "tokenizer.ggml.scores[0] is not a number"),
        (|s| s.token_types.truncate(5), "tokenizer.ggml.token_type has 5 entries"),
        (|s| s.special.eos = Some(259), "tokenizer.ggml.eos_token_id is 259, but the vocabulary ends at 258"),
        (|s| s.special.fim_pad = Some(u32::MAX), "tokenizer.ggml.fim_pad_token_id is 4294967295"),
        (|s| s.eog = vec![7, 300], "tokenizer.ggml.eos_token_ids is 300"),
        (|s| s.tokens[5] = "A".into(), "repeats \"A\""),
        (|s| s.merges.clear(), "tokenizer.ggml.merges is missing or empty"),
        (|s| s.merges.push("hi".into()), "tokenizer.ggml.merges[1] is \"hi\", which is not two pieces"),
        (|s| s.merges.push(String::new()), "which is not two pieces"),
        (|s| s.merges.push("h zz".into()), "tokenizer.ggml.merges[1] is \"h zz\", but \"zz\" is not a token"),
        (|s| s.merges.push("h x".into()), "but \"hx\" is not a token"),
        (|s| s.token_types[9] = 6, "tokenizer.ggml.tokens[9] has type BYTE"),
    ];
    for (damage, expected) in cases {
        let mut source = bpe("gpt-2", &["h i"]);
        damage(&mut source);
        let error = Tokenizer::new(source, Strictness::Strict).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}\n  should say: {expected}");
    }
}

#[test]
fn damaged_charsmaps_are_refused() {
    for (bytes, expected) in [
        (vec![], "shorter than its header"),
        (vec![3, 0, 0, 0, 0, 0, 0], "not a positive multiple of 4"),
        (vec![8, 0, 0, 0, 1, 2, 3, 4], "longer than the data"),
        (vec![4, 0, 0, 0, 1, 2, 3, 4], "has no end"),
        (vec![4, 0, 0, 0, 1, 2, 3, 4, 0xFF, 0], "not UTF-8"),
    ] {
        let mut source = unigram(&[("a", -1.0)]);
        source.precompiled_charsmap = Some(bytes);
        let error = Tokenizer::new(source, Strictness::Strict).unwrap_err().to_string();
        assert!(error.contains(expected), "{error}");
    }
}

#[test]
fn force_tolerates_what_is_only_doubtful() {
    let mut source = bpe("nonsense", &["h i"]);
    source.merges.push("h zz".into());
    source.tokens[5] = "A".into();
    let tokenizer = Tokenizer::new(source, Strictness::Force).unwrap();
    assert_eq!(tokenizer.encode("hi", Special::Text, false), [258]);
    let source = VocabSource { pre: None, special: SpecialIds::default(), ..bpe("", &["h i"]) };
    assert!(Tokenizer::new(source, Strictness::Force).is_ok());
}

#[test]
fn long_runs_are_not_quadratic() {
    let spaces = ["▁ ▁".replace('▁', "Ġ"), "ĠĠ ĠĠ".into()];
    let merges = ["a a", "aa aa", "aaaa aaaa", &spaces[0], &spaces[1]];
    let tokenizers = [
        build(spm(&["aaaa", "aa", "a", "▁▁▁▁", "▁▁", "▁"])),
        build(bpe("llama-bpe", &merges)),
        build(bpe("gpt-4o", &merges)),
        build(bpe("smollm", &merges)),
        build(bpe("deepseek-v3", &merges)),
        build(bpe("jais-2", &merges)),
        build(unigram(&[("a", -1.0), ("aa", -1.5), ("▁", -1.0)])),
        build(wordpiece(&["▁a", "a"])),
    ];
    let texts = [
        "a".repeat(1 << 20),
        " ".repeat(1 << 20),
        "\n".repeat(1 << 20),
        "1".repeat(1 << 20),
        " a".repeat(1 << 19),
    ];
    for (index, tokenizer) in tokenizers.iter().enumerate() {
        for text in &texts {
            let start = Instant::now();
            let ids = tokenizer.encode(text, Special::Parse, false);
            let seconds = start.elapsed().as_secs_f64();
            // A quadratic loop takes hours; the margin is for loaded machines.
            assert!(
                seconds < 30.0,
                "tokenizer {index}, {:?}…: {seconds} s for {} ids",
                &text[..2],
                ids.len()
            );
        }
    }
}
