//! The stage for text that is filled in.

use smelt_checkpoint::Checkpoint;
use smelt_engine::sampler::{Sampler, SamplerSettings, Stage};
use smelt_engine::tokenizer::{Special, Tokenizer};
use smelt_engine::tokenizer_of;

/// What the stage leaves of tokens with these probabilities; the others have none. An end is named `</s>`.
fn left(probabilities: &[(&str, f32)], settings: &SamplerSettings) -> Vec<(String, f32)> {
    let tokenizer = tokenizer();
    let id = |text: &str| match text {
        "</s>" => tokenizer.eos().unwrap(),
        text => *tokenizer.encode(text, Special::Text, false).last().unwrap(),
    };
    // The rest is as unlikely as can be without being banned.
    let mut logits = vec![-1000.0; tokenizer.vocab_size()];
    for (text, p) in probabilities {
        logits[id(text) as usize] = p.ln();
    }
    let settings = SamplerSettings { chain: vec![Stage::TopK, Stage::Infill], top_k: 40, ..settings.clone() };
    let mut sampler = Sampler::new(settings, logits.len(), &[]).unwrap().knowing(tokenizer.clone());
    let distribution = sampler.distribution(&mut logits).unwrap();
    let text = |id| if tokenizer.is_eog(id) { "</s>".to_owned() } else { tokenizer.decode(&[id], false) };
    distribution.into_iter().map(|(id, p)| (text(id), (p * 1000.0).round() / 1000.0)).collect()
}

fn tokenizer() -> Tokenizer {
    let file = smelt_testdata::data("tiny/llama/llama-f16.gguf");
    tokenizer_of(&Checkpoint::open(&file).unwrap(), false).unwrap()
}

#[test]
fn infills_end_early_and_take_words_that_begin_alike_for_one() {
    let neutral = SamplerSettings::neutral();
    let greedy = SamplerSettings::greedy();
    let whole = |list: &[(&str, f32)]| left(list, &neutral);
    let one = |text: &str| vec![(text.to_owned(), 1.0)];
    // 40 candidates: an end of a hundredth is as likely as the text, candidate by candidate.
    assert_eq!(whole(&[("a", 0.99), ("</s>", 0.01)]), one("</s>"));
    assert_eq!(left(&[("a", 0.99), ("</s>", 0.01)], &greedy), one("</s>"), "the likeliest does not win");
    // `t` begins `th` and `the`, and what is likelier of two has the probability of both.
    assert_eq!(whole(&[("the", 0.4), ("th", 0.1), ("t", 0.1), ("a", 0.2), ("b", 0.2)]), one("the"));
    // Two that stay alike.
    assert_eq!(whole(&[("a", 0.5), ("b", 0.5)]), [("a".to_owned(), 0.5), ("b".to_owned(), 0.5)]);
    assert_eq!(left(&[("a", 0.4), ("b", 0.6)], &greedy), one("b"));
    // No text is likely enough: the answer ends, unless it may not.
    let unsure: Vec<(String, f32)> = ('a'..='j').map(|c| (c.to_string(), 0.1)).collect();
    let unsure: Vec<(&str, f32)> = unsure.iter().map(|(c, p)| (c.as_str(), *p)).collect();
    assert_eq!(whole(&unsure), one("</s>"));
    let ends = tokenizer().eog_ids().iter().map(|id| (*id, f32::NEG_INFINITY)).collect();
    assert_eq!(left(&unsure, &SamplerSettings { logit_bias: ends, ..neutral }), one("a"));
}
