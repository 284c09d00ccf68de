//! The tokens that may still be chosen, and the operations on them that the stages share.

use std::cmp::Ordering;

/// A token and its logit, which is a number or −inf, never NaN, +inf or −0.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) struct Candidate {
    pub(super) logit: f32,
    pub(super) id: u32,
}

/// Greatest logit first, then lowest id: a total order, so no selection depends on how the standard library sorts.
pub(super) fn by_logit(a: &Candidate, b: &Candidate) -> Ordering {
    b.logit.partial_cmp(&a.logit).unwrap_or(Ordering::Equal).then(a.id.cmp(&b.id))
}

/// How the candidates lie.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Order {
    ById,
    ByLogit,
    None,
}

/// The tokens that may still be chosen. Never empty between [`Candidates::fill`] and the draw.
#[derive(Debug, Clone)]
pub(super) struct Candidates {
    items: Vec<Candidate>,
    order: Order,
    scratch: Vec<Candidate>,
}

/// Logits scanned together: enough for the compiler to compare them with vector instructions.
const SCAN: usize = 32;

/// Logits further below the greatest than this have under 5e-18 of its weight: even a vocabulary of millions of them
/// is lost in the rounding of an `f64` sum, so their exponentials are not computed.
const NEGLIGIBLE: f64 = -40.0;

/// How finely [`Candidates::keep_mass`] divides ranks, up to [`NEGLIGIBLE`] ones.
const INTERVALS_PER_NAT: f64 = 8.0;
const INTERVALS: usize = 320;

impl Candidates {
    pub(super) fn new() -> Self {
        Self { items: Vec::new(), order: Order::None, scratch: Vec::new() }
    }

    /// Takes every token of `logits` (vocab_size) that is not masked. False if there is none.
    pub(super) fn fill(&mut self, logits: &[f32]) -> bool {
        self.items.clear();
        self.items.extend(unmasked(logits, 0));
        self.order = Order::ById;
        !self.items.is_empty()
    }

    /// The same as [`Candidates::fill`] and [`Candidates::keep_top`], without holding the whole vocabulary.
    pub(super) fn fill_top(&mut self, logits: &[f32], k: usize) -> bool {
        // Selecting is amortised over at least as many tokens as are kept.
        let room = k.saturating_mul(2).max(256);
        if room >= logits.len() {
            let any = self.fill(logits);
            self.keep_top(k);
            return any;
        }
        self.items.clear();
        // Of equal logits the lower ids win, and ids come in rising order: only a greater logit can enter.
        let mut threshold = f32::NEG_INFINITY;
        for (i, chunk) in logits.chunks(SCAN).enumerate() {
            if !chunk.iter().fold(false, |any, &logit| any | (logit > threshold)) {
                continue;
            }
            let base = i * SCAN;
            self.items.extend(unmasked(chunk, base).filter(|candidate| candidate.logit > threshold));
            if self.items.len() >= room {
                self.items.select_nth_unstable_by(k - 1, by_logit);
                self.items.truncate(k);
                threshold = self.items[k - 1].logit;
            }
        }
        self.order = Order::None;
        self.keep_top(k);
        !self.items.is_empty()
    }

    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn items(&self) -> &[Candidate] {
        &self.items
    }

    pub(super) fn sort(&mut self) {
        if self.order != Order::ByLogit {
            self.items.sort_unstable_by(by_logit);
            self.order = Order::ByLogit;
        }
    }

    /// Keeps the `k` greatest.
    pub(super) fn keep_top(&mut self, k: usize) {
        if k < self.items.len() {
            if self.order != Order::ByLogit {
                self.items.select_nth_unstable_by(k - 1, by_logit);
                self.order = Order::None;
            }
            self.items.truncate(k);
        }
        self.sort();
    }

    /// Drops the `n` first of the sorted candidates.
    pub(super) fn drop_first(&mut self, n: usize) {
        self.sort();
        self.items.drain(..n);
    }

    /// Keeps the candidates whose logit passes; if none does, the best one.
    pub(super) fn retain(&mut self, keep: impl Fn(f64) -> bool) {
        let best = self.items.iter().copied().min_by(by_logit);
        self.items.retain(|candidate| keep(f64::from(candidate.logit)));
        if self.items.is_empty() {
            self.items.extend(best);
        }
    }

    /// Takes these tokens and logits in place of all that there are.
    pub(super) fn replace(&mut self, items: &[(u32, f64)]) {
        self.items.clear();
        self.items.extend(items.iter().map(|&(id, logit)| Candidate { logit: logit as f32 + 0.0, id }));
        self.order = Order::None;
        self.sort();
    }

    pub(super) fn max(&self) -> f64 {
        f64::from(self.items.iter().fold(f32::NEG_INFINITY, |max, candidate| max.max(candidate.logit)))
    }

    /// Replaces each logit, keeping their order (`change` must be monotonic).
    pub(super) fn map(&mut self, change: impl Fn(f64) -> f64) {
        for candidate in &mut self.items {
            // Adding 0 turns −0 into 0.
            candidate.logit = change(f64::from(candidate.logit)) as f32 + 0.0;
        }
        // A scaling may round two logits to one, whose order is then by id.
        if self.order == Order::ByLogit {
            self.order = Order::None;
            self.sort();
        }
    }

    /// The softmax of the candidates.
    pub(super) fn softmax(&self) -> Softmax {
        let max = self.max();
        let total: f64 = self.items.iter().map(|candidate| weight(f64::from(candidate.logit) - max)).sum();
        Softmax { max, total, log_sum: max + total.ln() }
    }

    /// Keeps the first candidates in the order of `rank` (at least 0, lowest first) until their probabilities reach
    /// `mass`: at least one. The order in which they lie stays.
    ///
    /// Sorting a vocabulary would take far longer than all else here. So the probability is first summed per interval
    /// of ranks, which tells in which one the last candidate lies, and only that interval is sorted.
    pub(super) fn keep_mass(&mut self, mass: f64, softmax: Softmax, rank: impl Fn(f64) -> f64) {
        let interval = |candidate: &Candidate| {
            ((rank(f64::from(candidate.logit)) * INTERVALS_PER_NAT) as usize).min(INTERVALS - 1)
        };
        let order = |a: &Candidate, b: &Candidate| {
            let ranks = (rank(f64::from(a.logit)), rank(f64::from(b.logit)));
            ranks.0.partial_cmp(&ranks.1).unwrap_or(Ordering::Equal).then_with(|| by_logit(a, b))
        };
        let mut sums = [0.0; INTERVALS];
        for candidate in &self.items {
            sums[interval(candidate)] += softmax.probability(f64::from(candidate.logit));
        }
        let mut before = 0.0;
        let reaches = |sum: &f64| {
            let reached = before + sum >= mass;
            if !reached {
                before += sum;
            }
            reached
        };
        // If rounding keeps the whole sum under the mass, all of them are meant.
        let Some(last) = sums.iter().position(reaches) else { return };
        self.scratch.clear();
        self.scratch.extend(self.items.iter().filter(|candidate| interval(candidate) == last));
        self.scratch.sort_unstable_by(order);
        let end = self.scratch.iter().find(|candidate| {
            before += softmax.probability(f64::from(candidate.logit));
            before >= mass
        });
        let Some(end) = end.or(self.scratch.last()) else { return };
        self.items.retain(|candidate| match interval(candidate).cmp(&last) {
            Ordering::Equal => order(candidate, end).is_le(),
            side => side.is_lt(),
        });
    }

    /// The candidate at `point` of the probabilities laid end to end; `point` is at least 0 and under 1.
    pub(super) fn pick(&mut self, point: f64) -> Option<(u32, f64)> {
        if self.order == Order::None {
            self.sort();
        }
        let softmax = self.softmax();
        let mut left = point * softmax.total;
        let mut last = None;
        for candidate in &self.items {
            let weight = weight(f64::from(candidate.logit) - softmax.max);
            if weight > 0.0 {
                last = Some((candidate.id, weight / softmax.total));
                left -= weight;
                if left < 0.0 {
                    break;
                }
            }
        }
        // Rounding can leave a remainder after the last candidate: then that one is meant.
        last
    }
}

/// The normaliser of a softmax, shifted by the greatest logit.
#[derive(Debug, Clone, Copy)]
pub(super) struct Softmax {
    pub(super) max: f64,
    /// Σ exp(logit − max)
    total: f64,
    /// ln Σ exp(logit)
    log_sum: f64,
}

impl Softmax {
    pub(super) fn probability(self, logit: f64) -> f64 {
        weight(logit - self.max) / self.total
    }

    /// −ln p: how surprising a token with this logit is, in nats.
    pub(super) fn surprise(self, logit: f64) -> f64 {
        self.log_sum - logit
    }

    /// The entropy of `candidates` in nats.
    pub(super) fn entropy(self, candidates: &Candidates) -> f64 {
        let terms = candidates.items.iter().map(|candidate| {
            let logit = f64::from(candidate.logit);
            let p = self.probability(logit);
            // The limit of p·ln p at 0 is 0.
            if p > 0.0 { p * self.surprise(logit) } else { 0.0 }
        });
        terms.sum()
    }
}

/// exp of a logit's distance from the greatest, 0 where that is [`NEGLIGIBLE`].
pub(super) fn weight(below_max: f64) -> f64 {
    if below_max < NEGLIGIBLE { 0.0 } else { below_max.exp() }
}

fn unmasked(logits: &[f32], base: usize) -> impl Iterator<Item = Candidate> {
    logits
        .iter()
        .enumerate()
        .filter(|&(_, &logit)| logit > f32::NEG_INFINITY)
        // Adding 0 turns −0 into 0.
        .map(move |(i, &logit)| Candidate { logit: logit + 0.0, id: (base + i) as u32 })
}
