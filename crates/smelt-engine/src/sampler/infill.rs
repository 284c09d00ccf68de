//! The stage for text that is filled in between other text: llama.cpp's `infill`.
//!
//! What is filled in should end early rather than run on, and tokens that begin alike (`re`, `ret`, `return`) are one choice and
//! not several. So an end that is likely beside so many candidates is taken; the probability of tokens that begin another one
//! is joined with it; and what is unlikely then is dropped.

use smelt_tokenizer::Tokenizer;

use super::candidates::{Candidate, Candidates, by_logit};

/// The share of all candidates' probability that a token must have, together with those that it is joined with.
const LEAST_SHARE: f64 = 0.2;
/// The text must be so many times as likely as the end, per candidate.
const TEXT_TO_END: f64 = 3.0;

/// Candidates that are looked at, the likeliest ones: each is compared with each.
const MOST: usize = 256;

/// A candidate on its way through the stage.
#[derive(Debug, Clone, Copy)]
struct Choice {
    id: u32,
    /// 0 once it is joined with another.
    probability: f64,
    is_end: bool,
}

/// Runs the stage; `logits` are those of all tokens, edited. The logits of what stays are the logarithms of probabilities.
pub(super) fn run(tokenizer: &Tokenizer, logits: &[f32], candidates: &mut Candidates) {
    candidates.keep_top(MOST);
    let softmax = candidates.softmax();
    let choice = |candidate: &Candidate| Choice {
        id: candidate.id,
        probability: softmax.probability(f64::from(candidate.logit)),
        is_end: tokenizer.is_eog(candidate.id),
    };
    let mut choices: Vec<Choice> = candidates.items().iter().map(choice).collect();
    let end: f64 = choices.iter().filter(|choice| choice.is_end).map(|choice| choice.probability).sum();
    if TEXT_TO_END * end * choices.len() as f64 > 1.0 - end {
        choices.retain(|choice| choice.is_end);
        return keep(&choices, candidates);
    }
    join(tokenizer, &mut choices);
    choices.retain(|choice| choice.is_end || choice.probability >= LEAST_SHARE);
    let texts = choices.iter().filter(|choice| !choice.is_end).count();
    if texts == 0 {
        // Nothing is likely enough to be said, which ends the answer where it may end.
        return match likeliest_end(tokenizer, logits) {
            Some(end) => candidates.replace(&[(end, 0.0)]),
            None => candidates.keep_top(1),
        };
    }
    let total: f64 = choices.iter().map(|choice| choice.probability).sum();
    let least = total / (texts as f64 + 1.0);
    choices.retain(|choice| choice.is_end || choice.probability >= least);
    keep(&choices, candidates);
}

/// The likeliest token that ends an answer, if one may be chosen.
fn likeliest_end(tokenizer: &Tokenizer, logits: &[f32]) -> Option<u32> {
    let ends = tokenizer.eog_ids().iter();
    let logit = |&id: &u32| logits.get(id as usize).map(|&logit| Candidate { logit, id });
    let may_come = ends.filter_map(logit).filter(|candidate| candidate.logit > f32::NEG_INFINITY);
    may_come.min_by(by_logit).map(|candidate| candidate.id)
}

/// Joins tokens of which one begins another, with the likelier one of both.
fn join(tokenizer: &Tokenizer, choices: &mut [Choice]) {
    for i in 0..choices.len() {
        for j in 0..choices.len() {
            let (short, long) = (choices[i], choices[j]);
            if short.probability == 0.0 {
                break;
            }
            let bytes = |choice: Choice| tokenizer.token_bytes(choice.id, false).unwrap_or_default();
            let begins = !bytes(short).is_empty() && bytes(long).starts_with(bytes(short));
            if i == j || long.probability == 0.0 || !begins {
                continue;
            }
            let (winner, loser) = if long.probability > short.probability { (j, i) } else { (i, j) };
            choices[winner].probability += choices[loser].probability;
            choices[loser].probability = 0.0;
        }
    }
}

/// Leaves these choices among the candidates, as likely as they are; where there is none, the likeliest candidate.
fn keep(choices: &[Choice], candidates: &mut Candidates) {
    let choices: Vec<(u32, f64)> = choices
        .iter()
        .filter(|choice| choice.probability > 0.0)
        .map(|c| (c.id, c.probability.ln()))
        .collect();
    match choices.as_slice() {
        [] => candidates.keep_top(1),
        choices => candidates.replace(choices),
    }
}
