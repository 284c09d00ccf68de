//! Which rows a step has.

use super::job::{Answer, Key};
use smelt_backend::StepLimits;
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
    /// The last so many of them have their logits taken.
    pub(super) wanted: usize,
}

/// Chooses a step's rows. Who was served least recently comes first. Answers that lack one token get it; prompts share
/// the other rows evenly, so that a short one need not wait for a long one. While something answers, a step has no more
/// than `budget` rows, because a long step is a pause in all answers.
pub(super) fn plan(running: &BTreeMap<Key, Answer>, limits: StepLimits, budget: usize) -> Vec<Part> {
    let mut order: Vec<(u64, Key, usize, bool)> =
        running.iter().map(|(key, a)| (a.served, *key, a.missing(), a.prompt.is_some())).collect();
    order.sort_unstable();
    let mut prompts = order.iter().filter(|item| item.2 > 1).count();
    let singles = order.len() - prompts;
    let budget = if singles > 0 { budget.min(limits.rows) } else { limits.rows };
    let least = if prompts > 0 { LEAST_CHUNK.min(budget / 2) } else { 0 };
    let mut single_rows = singles.min(budget - least);
    let mut prompt_rows = budget - single_rows;
    let mut logits = limits.logit_rows;
    let mut parts = Vec::new();
    for (_, key, missing, all_wanted) in order {
        if missing == 1 {
            if single_rows > 0 && logits > 0 {
                single_rows -= 1;
                logits -= 1;
                parts.push(Part { key, rows: 1, wanted: 1 });
            }
            continue;
        }
        let share = (prompt_rows / prompts).max(LEAST_CHUNK).min(prompt_rows);
        prompts -= 1;
        let mut rows = missing.min(share);
        if all_wanted {
            rows = rows.min(logits);
        } else if rows == missing && logits == 0 {
            rows -= 1;
        }
        let wanted = if all_wanted { rows } else { usize::from(rows == missing) };
        prompt_rows -= rows;
        logits -= wanted;
        if rows > 0 {
            parts.push(Part { key, rows, wanted });
        }
    }
    parts.sort_unstable_by_key(|part| part.key);
    parts
}
