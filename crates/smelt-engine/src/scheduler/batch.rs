//! Which rows a step has.

use super::job::{Answer, Key};
use smelt_backend::{Output, StepLimits};
use std::collections::BTreeMap;

/// Prompts that share a step get at least so many rows each, as long as there are any: smaller ones waste the weights'
/// way through the caches.
const LEAST_CHUNK: usize = 32;

/// An answer's part in a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) key: Key,
    /// Rows from the first token on that is not computed.
    pub(super) rows: usize,
    /// So many of them have their logits taken.
    pub(super) wanted: usize,
    /// The first of these.
    pub(super) first_wanted: usize,
}

/// A step's rows, and what it is to give.
#[derive(Debug, Default)]
pub(super) struct Plan {
    pub(super) parts: Vec<Part>,
    pub(super) output: Output,
}

/// Chooses a step's rows. Who was served least recently comes first, and has his way as to what the step gives. Answers
/// that lack one token get it; prompts share the other rows evenly, so that a short one need not wait for a long one.
/// While something answers, a step has no more than `budget` rows, because a long step is a pause in all answers.
pub(super) fn plan(running: &BTreeMap<Key, Answer>, limits: StepLimits, budget: usize) -> Plan {
    let mut order: Vec<(u64, Key, &Answer)> = running.iter().map(|(key, a)| (a.served, *key, a)).collect();
    order.sort_unstable_by_key(|(served, key, _)| (*served, *key));
    let Some((_, _, first)) = order.first() else { return Plan::default() };
    let output = first.output();
    let answering = order.iter().any(|(_, _, answer)| answer.is_writing());
    let budget = if answering { budget.min(limits.rows) } else { limits.rows };
    order.retain(|(_, _, answer)| answer.output() == output);
    let mut prompts = order.iter().filter(|(_, _, answer)| !answer.is_writing()).count();
    let singles = order.len() - prompts;
    let least = if prompts > 0 { LEAST_CHUNK.min(budget / 2) } else { 0 };
    let mut single_rows = singles.min(budget - least);
    let mut prompt_rows = budget - single_rows;
    let mut logits = limits.logit_rows;
    let mut parts = Vec::new();
    for (_, key, answer) in order {
        let missing = answer.missing();
        if answer.is_writing() {
            if single_rows > 0 && logits > 0 {
                single_rows -= 1;
                logits -= 1;
                parts.push(Part { key, rows: 1, wanted: 1, first_wanted: 0 });
            }
            continue;
        }
        let share = (prompt_rows / prompts).max(LEAST_CHUNK).min(prompt_rows);
        prompts -= 1;
        let rows = match answer.is_whole() {
            // One that is longer than a step has a step for itself.
            true if missing <= prompt_rows || parts.is_empty() => missing,
            true => 0,
            false => missing.min(share),
        };
        let part = part(key, answer, rows, if output == Output::Logits { logits } else { 0 });
        prompt_rows = prompt_rows.saturating_sub(part.rows);
        logits -= part.wanted;
        if part.rows > 0 {
            parts.push(part);
        }
    }
    parts.sort_unstable_by_key(|part| part.key);
    Plan { parts, output }
}

/// A prompt's part of at most `rows` rows, of which `logits` can have theirs taken.
fn part(key: Key, answer: &Answer, mut rows: usize, logits: usize) -> Part {
    let missing = answer.missing();
    let of_output = |rows, wanted, first_wanted| Part { key, rows, wanted, first_wanted };
    if answer.output() == Output::States {
        return of_output(rows, 0, 0);
    }
    if answer.prompt.is_some() {
        rows = rows.min(logits);
        return of_output(rows, rows, 0);
    }
    if answer.is_whole() {
        // Where all tokens see each other, the first is the one that is scored.
        return if logits > 0 { of_output(rows, usize::from(rows > 0), 0) } else { of_output(0, 0, 0) };
    }
    if rows == missing && logits == 0 {
        rows -= 1;
    }
    let wanted = usize::from(rows == missing);
    of_output(rows, wanted, rows - wanted)
}
