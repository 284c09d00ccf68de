//! Bias, penalties and DRY by hand values.

use std::sync::Arc;

use fastrand::Rng;
use smelt_engine::sampler::{SampleError, Sampler, SamplerSettings, breaker_sequences};

use super::distribution;

/// What the settings add to each of `logits`, found from the probabilities: relative to the last token, which the
/// cases leave alone.
#[track_caller]
fn changes(settings: SamplerSettings, logits: &[f32], prompt: &[u32]) -> Vec<f32> {
    let mut shifts = vec![f32::NEG_INFINITY; logits.len()];
    let probabilities = distribution(settings, logits, prompt).unwrap();
    for &(token, p) in &probabilities {
        shifts[token as usize] = p.ln() - logits[token as usize];
    }
    let base = shifts[logits.len() - 1];
    shifts.iter().map(|shift| shift - base).collect()
}

#[track_caller]
fn assert_close(got: &[f32], want: &[f32]) {
    let close = |(a, b): (&f32, &f32)| a == b || (a - b).abs() < 1e-4;
    assert!(got.len() == want.len() && got.iter().zip(want).all(close), "{got:?} instead of {want:?}");
}

#[test]
fn bias_adds_up_and_bans() {
    let settings = SamplerSettings {
        logit_bias: vec![(0, 1.5), (1, f32::NEG_INFINITY), (2, -1.0), (2, 3.0)],
        ..SamplerSettings::neutral()
    };
    assert_close(&changes(settings, &[0.5, 9.0, -2.0, 1.0], &[]), &[1.5, f32::NEG_INFINITY, 2.0, 0.0]);
}

#[test]
fn penalties_by_hand() {
    let logits = [2.0, -1.0, 0.0, 0.0];
    let prompt = [0, 0, 1, 2, 0];
    let neutral = SamplerSettings::neutral();
    // 2 / 1.25 = 1.6; −1 · 1.25 = −1.25
    let repeat = SamplerSettings { repeat_penalty: 1.25, ..neutral.clone() };
    assert_close(&changes(repeat, &logits, &prompt), &[-0.4, -0.25, 0.0, 0.0]);
    let presence = SamplerSettings { presence_penalty: 0.5, ..neutral.clone() };
    assert_close(&changes(presence, &logits, &prompt), &[-0.5, -0.5, -0.5, 0.0]);
    let frequency = SamplerSettings { frequency_penalty: 0.5, ..neutral.clone() };
    assert_close(&changes(frequency.clone(), &logits, &prompt), &[-1.5, -0.5, -0.5, 0.0]);
    // of the last two tokens only
    let short = SamplerSettings { penalty_last_n: Some(2), ..frequency.clone() };
    assert_close(&changes(short, &logits, &prompt), &[-0.5, 0.0, -0.5, 0.0]);
    let none = SamplerSettings { penalty_last_n: Some(0), ..frequency.clone() };
    assert_close(&changes(none, &logits, &prompt), &[0.0; 4]);
    let all = SamplerSettings { penalty_last_n: None, ..frequency };
    assert_close(&changes(all, &logits, &[0; 70]), &[-35.0, 0.0, 0.0, 0.0]);
    // 2/1.25 − 3·0.5 − 0.25 = −0.15
    let together =
        SamplerSettings { repeat_penalty: 1.25, frequency_penalty: 0.5, presence_penalty: 0.25, ..neutral };
    assert_close(&changes(together, &logits, &prompt), &[-2.15, -1.0, -0.75, 0.0]);
}

#[test]
fn accepted_tokens_count_like_the_prompt() {
    let mut rng = Rng::with_seed(1);
    for window in [Some(0), Some(1), Some(7), Some(64), None] {
        let settings = SamplerSettings {
            frequency_penalty: 0.3,
            dry_multiplier: 0.5,
            penalty_last_n: window,
            dry_last_n: Some(20),
            ..SamplerSettings::neutral()
        };
        let tokens: Vec<u32> = (0..150).map(|_| rng.u32(..9)).collect();
        let logits: Vec<f32> = (0..10).map(|_| rng.f32()).collect();
        let mut sampler = Sampler::new(settings.clone(), 10, &tokens[..10]).unwrap();
        for n in 10..tokens.len() {
            let fresh = distribution(settings.clone(), &logits, &tokens[..n]).unwrap();
            assert_eq!(sampler.distribution(&mut logits.clone()).unwrap(), fresh);
            sampler.accept(tokens[n]);
        }
    }
}

/// A DRY of multiplier 1, base 2 and allowed length 2, over letters, where `z` is never penalised.
fn dry(breakers: &[&str]) -> SamplerSettings {
    SamplerSettings {
        dry_multiplier: 1.0,
        dry_base: 2.0,
        dry_allowed_length: 2,
        dry_breakers: breakers.iter().map(|b| letters(b)).collect::<Vec<_>>().into(),
        ..SamplerSettings::neutral()
    }
}

fn letters(text: &str) -> Vec<u32> {
    text.bytes().map(|b| u32::from(b - b'a')).collect()
}

/// Penalised letters with their penalties, in order.
#[track_caller]
fn check_dry(settings: SamplerSettings, context: &str, want: &[(char, f32)]) {
    let mut changed = vec![0.0; 26];
    for &(letter, penalty) in want {
        changed[letter as usize - 'a' as usize] = -penalty;
    }
    assert_close(&changes(settings, &[0.0; 26], &letters(context)), &changed);
}

#[test]
fn dry_by_hand() {
    // "abc" came before, then c: 3 tokens repeat, 2^(3−2). "bc" came before y: 2^(2−2). "c" alone is too short.
    check_dry(dry(&[]), "abccbcyabc", &[('c', 2.0), ('y', 1.0)]);
    // Several repetitions that one token would extend: the longest counts. abcd before e (2^2), cd before e.
    check_dry(dry(&[]), "cdeyabcdexabcd", &[('e', 4.0)]);
    // Overlapping: aaaa ends with aaa at a distance of 1, so a fourth would be repeated.
    check_dry(dry(&[]), "aaaa", &[('a', 2.0)]);
    check_dry(dry(&[]), "abcdefg", &[]);
    check_dry(dry(&[]), "ab", &[]);
    check_dry(dry(&[]), "", &[]);
    // Only the last 6 tokens: "yabc" hides all but nothing repeats in "bcyabc" but bc → y.
    check_dry(SamplerSettings { dry_last_n: Some(6), ..dry(&[]) }, "abccbcyabc", &[('y', 1.0)]);
    check_dry(SamplerSettings { dry_last_n: Some(0), ..dry(&[]) }, "abccbcyabc", &[]);
    check_dry(SamplerSettings { dry_allowed_length: 3, ..dry(&[]) }, "abccbcyabc", &[('c', 1.0)]);
    check_dry(
        SamplerSettings { dry_allowed_length: 1, ..dry(&[]) },
        "abccbcyabc",
        &[('c', 4.0), ('y', 2.0), ('b', 1.0)],
    );
}

#[test]
fn dry_breakers_by_hand() {
    // After the breaker only "bc" counts, so the match of abc is 2 long.
    check_dry(dry(&["a"]), "abccbcyabc", &[('c', 1.0), ('y', 1.0)]);
    // One token after the breaker is under the allowed length.
    check_dry(dry(&["b"]), "abccbcyabc", &[]);
    // A sequence of two tokens; its tokens apart are no breaker.
    check_dry(dry(&["ya"]), "abccbcyabc", &[('c', 1.0), ('y', 1.0)]);
    check_dry(dry(&["ay"]), "abccbcyabc", &[('c', 2.0), ('y', 1.0)]);
    // A token that is itself a breaker is never penalised; here y is, and stands before the repetition.
    check_dry(dry(&["y"]), "abccbcyabc", &[('c', 2.0)]);
    // A breaker inside a longer one that is closer to the end counts.
    check_dry(dry(&["xabq", "b"]), "abcdeabcde", &[('a', 2.0)]);
}

/// The definition, by trying every earlier position.
#[test]
fn dry_equals_its_definition() {
    let mut rng = Rng::with_seed(2);
    for _ in 0..1500 {
        let letters_used = rng.u32(1..5);
        let context: Vec<u32> = (0..rng.usize(..60)).map(|_| rng.u32(..letters_used)).collect();
        let breakers: Vec<Vec<u32>> = (0..rng.usize(..3))
            .map(|_| (0..rng.usize(1..3)).map(|_| rng.u32(..letters_used + 2)).collect())
            .collect();
        let allowed = rng.usize(1..4);
        let window = rng.usize(..70);
        let seen = &context[context.len().saturating_sub(window)..];
        let limit = (0..seen.len())
            .find(|&after| breakers.iter().any(|b| seen[..seen.len() - after].ends_with(b)))
            .unwrap_or(seen.len());
        let mut want = vec![0.0; 8];
        for end in 1..seen.len() {
            // How many tokens before `end` equal the last ones.
            let length =
                (0..end).take_while(|i| seen[end - 1 - i] == seen[seen.len() - 1 - i]).count().min(limit);
            let next = seen[end];
            if length >= allowed && !breakers.contains(&vec![next]) {
                let penalty = 0.5 * 1.5f32.powi((length - allowed) as i32);
                want[next as usize] = f32::min(want[next as usize], -penalty);
            }
        }
        let settings = SamplerSettings {
            dry_multiplier: 0.5,
            dry_base: 1.5,
            dry_allowed_length: allowed as u32,
            dry_last_n: Some(window as u32),
            dry_breakers: breakers.clone().into(),
            ..SamplerSettings::neutral()
        };
        // A token 40 below the greatest has no probability left.
        let floor = |values: Vec<f32>| -> Vec<f32> { values.into_iter().map(|v| v.max(-30.0)).collect() };
        let got = floor(changes(settings, &[0.0; 8], &context));
        assert!(
            got.iter().zip(floor(want.clone())).all(|(a, b)| (a - b).abs() < 1e-3),
            "{got:?} instead of {want:?}: {seen:?}, breakers {breakers:?}, allowed {allowed}"
        );
    }
}

#[test]
fn a_long_repetition_is_penalised_but_not_masked() {
    let settings = SamplerSettings { dry_base: 100.0, dry_multiplier: 100.0, ..dry(&[]) };
    let mut sampler = Sampler::new(settings, 1, &[0; 3000]).unwrap();
    assert_eq!(sampler.sample(&mut [1.0]), Ok(0));
}

#[test]
fn breaker_strings_become_token_sequences() {
    let pieces = ["a", "\n", "a\n", "\nb", ":", "x:", ":\n", "\n:", "b"];
    let vocab = || pieces.iter().zip(0..).map(|(piece, id)| (id, piece.as_bytes()));
    let tokenize = |text: &str| {
        text.chars().map(|c| pieces.iter().position(|p| *p == c.to_string()).unwrap() as u32).collect()
    };
    let sequences = |strings: &[&str]| {
        let strings: Vec<String> = strings.iter().map(ToString::to_string).collect();
        breaker_sequences(&strings, vocab(), tokenize)
    };
    assert_eq!(sequences(&["\n"]).unwrap(), [[1], [2], [3], [6], [7]]);
    let expected: [&[u32]; 4] = [&[4, 1], &[5, 1], &[6], &[7, 1]];
    assert_eq!(sequences(&[":\n"]).unwrap(), expected);
    assert_eq!(sequences(&[":\n", ":\n"]).unwrap(), expected);
    assert!(matches!(sequences(&[""]), Err(SampleError::Breaker { len: 0, .. })));
    let long = "b".repeat(60);
    assert!(matches!(sequences(&[&long]), Err(SampleError::Breaker { .. })));
    let settings = SamplerSettings { dry_breakers: Arc::new([vec![]]), ..SamplerSettings::neutral() };
    assert!(matches!(settings.validate(), Err(SampleError::Breaker { len: 0, .. })));
}
