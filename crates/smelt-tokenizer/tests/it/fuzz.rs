//! Random vocabularies and random text: whatever comes, an error or ids, never a panic.

use crate::sources::Random;
use smelt_tokenizer::{Special, SpecialIds, Strictness, Tokenizer, VocabSource, known_pre_names};

const PARTS: &[&str] = &[
    "a",
    "b",
    "ab",
    "<",
    ">",
    "<s>",
    "<0x0A>",
    "<0xZZ>",
    "▁",
    " ",
    "Ġ",
    "Ċ",
    "é",
    "e\u{301}",
    "日",
    "🙂",
    "\n",
    "\r",
    "\0",
    "1",
    "²",
    "'s",
    "<|im_end|>",
    "</s>",
    "##",
    "\u{FFFD}",
    "\u{85}",
    "ſ",
    "",
];

fn text(random: &mut Random, most: usize) -> String {
    (0..random.below(most + 1)).map(|_| *random.pick(PARTS)).collect()
}

fn maybe_id(random: &mut Random, count: usize) -> Option<u32> {
    (random.below(3) == 0).then(|| u32::try_from(random.below(count + 2)).unwrap())
}

fn maybe_flag(random: &mut Random) -> Option<bool> {
    *random.pick(&[None, Some(false), Some(true)])
}

fn source(random: &mut Random) -> VocabSource {
    let model = *random.pick(&["llama", "gpt2", "gemma4", "t5", "bert", "none"]);
    let mut tokens: Vec<String> = (0..random.below(40)).map(|_| text(random, 3)).collect();
    if random.below(4) > 0 {
        tokens.extend((0..=255).map(|b| format!("<0x{b:02X}>")));
        tokens.extend((0x21..0x180).filter_map(char::from_u32).map(String::from));
    }
    let count = tokens.len();
    let off = if random.below(20) == 0 { 1 } else { 0 };
    let number = |random: &mut Random| f32::from(u8::try_from(random.below(256)).unwrap()) - 128.0;
    let scores = match random.below(3) {
        0 => vec![],
        _ => (0..count + off)
            .map(|_| if random.below(5000) == 0 { f32::NAN } else { number(random) })
            .collect(),
    };
    let token_types = match random.below(3) {
        0 => vec![],
        _ => (0..count).map(|_| *random.pick(&[1, 1, 1, 1, 1, 1, 2, 3, 4, 5, 0, -7])).collect(),
    };
    let mut merges = vec![];
    for _ in 0..random.below(20) {
        let pair = [text(random, 1), text(random, 1)];
        tokens.push(pair.concat());
        merges.push(pair.join(" "));
    }
    let resized = |mut v: Vec<i32>| {
        v.resize(if v.is_empty() { 0 } else { tokens.len() }, 1);
        v
    };
    let mut special = SpecialIds::default();
    (special.bos, special.eos, special.unk) =
        (maybe_id(random, count), maybe_id(random, count), maybe_id(random, count));
    let charsmap = (random.below(4) == 0).then(|| {
        let mut bytes = vec![64, 0, 0, 0];
        bytes.extend((0..64).map(|_| random.next().to_le_bytes()[0]));
        bytes.extend(b"x\0yz\0");
        bytes
    });
    VocabSource {
        model: model.into(),
        pre: Some((*random.pick(&known_pre_names())).into()),
        architecture: "phi3".into(),
        name: Some((*random.pick(&["Phi-3", "x"])).into()),
        token_types: resized(token_types),
        scores: if scores.len() == count {
            [scores, vec![0.0; tokens.len() - count]].concat()
        } else {
            scores
        },
        tokens,
        merges,
        special,
        eog: maybe_id(random, count).into_iter().collect(),
        add_bos: maybe_flag(random),
        add_eos: maybe_flag(random),
        add_sep: maybe_flag(random),
        add_space_prefix: maybe_flag(random),
        remove_extra_whitespaces: maybe_flag(random),
        escape_whitespaces: maybe_flag(random),
        treat_whitespace_as_suffix: maybe_flag(random),
        lowercase: maybe_flag(random),
        strip_accents: maybe_flag(random),
        precompiled_charsmap: charsmap,
    }
}

#[test]
fn random_vocabularies_never_panic() {
    let mut random = Random(2026);
    let mut built = 0;
    for _ in 0..600 {
        let strict =
            *random.pick(&[Strictness::Strict, Strictness::Force, Strictness::Force, Strictness::Force]);
        let Ok(tokenizer) = Tokenizer::new(source(&mut random), strict) else { continue };
        built += 1;
        let last = u32::try_from(tokenizer.vocab_size()).unwrap() - 1;
        for _ in 0..20 {
            let text = text(&mut random, 12);
            for special in [Special::Parse, Special::Text] {
                let ids = tokenizer.encode(&text, special, true);
                assert!(ids.iter().all(|&id| id <= last));
                let shown = tokenizer.decode(&ids, true);
                let mut stream = tokenizer.stream();
                let streamed: String = ids.iter().map(|&id| stream.push(id)).collect();
                assert_eq!(streamed + &stream.finish(), tokenizer.decode(&ids, false), "{text:?} {shown:?}");
            }
        }
    }
    assert!(built > 100, "only {built} vocabularies were usable");
}
