//! Running softmax.

use super::tile::{Queries, Weights};
use crate::wide::Wide;
use smelt_backend::PAGE_TOKENS;
use std::ops::Range;

/// What `n` queries have summed so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// `[n]`, and more behind that fill a vector: the largest score.
    pub(super) maximum: Vec<f32>,
    /// The same shape: a strip's largest score, then what the change of the maximum leaves of sum and output.
    keep: Vec<f32>,
    /// `[n]`: the sum of weights, in sixteen parts.
    pub(super) sum: Vec<[f32; 16]>,
    /// `[n][stride]`: the unnormalised output.
    pub(super) out: Vec<f32>,
}

impl State {
    pub(super) fn clear(&mut self, n: usize, stride: usize) {
        refill(&mut self.maximum, n.next_multiple_of(16), f32::NEG_INFINITY);
        self.keep.resize(self.maximum.len(), f32::NEG_INFINITY);
        refill(&mut self.sum, n, [0.0; 16]);
        refill(&mut self.out, n * stride, 0.0);
    }

    /// Turns all queries' scores of a strip, the pages `strip`, into weights `exp(score − maximum)` and adds them to the sums;
    /// sums and outputs shrink first where the maximum grows. Tokens that a query doesn't see get no weight, whatever
    /// their score; `whole` says that all see all.
    #[inline(always)]
    pub(super) fn weigh<W: Wide>(
        &mut self,
        w: W,
        queries: &Queries,
        strip: Range<usize>,
        whole: bool,
        p: &mut [Weights],
        stride: usize,
    ) {
        for row in 0..queries.rows {
            let seen = Seen::new(queries, row, &strip, whole);
            for query in row * queries.heads..(row + 1) * queries.heads {
                let p = &mut p[query][seen.lines.clone()];
                seen.mask(p, f32::NEG_INFINITY);
                let mut largest = w.splat(f32::NEG_INFINITY);
                for scores in p.as_chunks::<16>().0 {
                    largest = w.max(w.load(scores), largest);
                }
                self.keep[query] = w.largest(largest);
            }
        }
        let maxima = self.maximum.as_chunks_mut::<16>().0;
        for (maximum, keep) in maxima.iter_mut().zip(self.keep.as_chunks_mut::<16>().0) {
            let old = w.load(maximum);
            let new = w.max(w.load(keep), old);
            w.store(w.exp_up_to_87(w.sub(old, new)), keep);
            w.store(new, maximum);
        }
        for row in 0..queries.rows {
            let seen = Seen::new(queries, row, &strip, whole);
            if seen.lines.is_empty() {
                continue;
            }
            for query in row * queries.heads..(row + 1) * queries.heads {
                self.shrink(w, query, stride);
                let (p, maximum) = (&mut p[query][seen.lines.clone()], w.splat(self.maximum[query]));
                let (mut sum, full) = (w.load(&self.sum[query]), seen.visible == seen.lines);
                for scores in p.as_chunks_mut::<16>().0 {
                    let weights = w.exp_up_to_87(w.sub(w.load(scores), maximum));
                    w.store(weights, scores);
                    if full {
                        sum = w.add(sum, weights);
                    }
                }
                if !full {
                    seen.mask(p, 0.0);
                    for weights in p.as_chunks::<16>().0 {
                        sum = w.add(sum, w.load(weights));
                    }
                }
                w.store(sum, &mut self.sum[query]);
            }
        }
    }

    /// Multiplies a query's sum and output by what is to be kept, if that is not all.
    #[inline(always)]
    fn shrink<W: Wide>(&mut self, w: W, query: usize, stride: usize) {
        if self.keep[query] == 1.0 {
            return;
        }
        let (keep, sum) = (w.splat(self.keep[query]), &mut self.sum[query]);
        w.store(w.mul(w.load(sum), keep), sum);
        for out in self.out[query * stride..][..stride].as_chunks_mut::<16>().0 {
            w.store(w.mul(w.load(out), keep), out);
        }
    }
}

/// The tokens of a strip that a row sees, and the lines of sixteen that hold them: others would add zeros.
struct Seen {
    visible: Range<usize>,
    lines: Range<usize>,
}

impl Seen {
    #[inline(always)]
    fn new(queries: &Queries, row: usize, strip: &Range<usize>, whole: bool) -> Self {
        let tokens = strip.len() * PAGE_TOKENS;
        let visible = if whole { 0..tokens } else { queries.visible(row, strip.clone()) };
        let lines = visible.start / 16 * 16..visible.end.next_multiple_of(16);
        Self { visible, lines }
    }

    /// Fills what the row doesn't see of the lines.
    #[inline(always)]
    fn mask(&self, p: &mut [f32], value: f32) {
        if self.visible != self.lines {
            p[..self.visible.start - self.lines.start].fill(value);
            p[self.visible.end - self.lines.start..].fill(value);
        }
    }
}

fn refill<T: Copy>(v: &mut Vec<T>, n: usize, value: T) {
    v.clear();
    v.resize(n, value);
}

/// Merges the `n` queries of `split`, which follow `total`'s, into it.
#[inline(always)]
pub(super) fn merge<W: Wide>(w: W, total: &mut State, split: &State, n: usize, stride: usize) {
    for i in 0..n {
        // Whoever has seen a token has at least the weight 1 of the largest score, or NaN.
        if split.sum[i] == [0.0; 16] {
            continue;
        }
        let out = total.out[i * stride..][..stride].as_chunks_mut::<16>().0;
        let add = split.out[i * stride..][..stride].as_chunks::<16>().0;
        if total.sum[i] == [0.0; 16] {
            (total.maximum[i], total.sum[i]) = (split.maximum[i], split.sum[i]);
            out.copy_from_slice(add);
            continue;
        }
        let (old, new) = (total.maximum[i], split.maximum[i]);
        let maximum = if new > old { new } else { old };
        let [keep, take] = exps(w, [old - maximum, new - maximum]);
        let (keep, take) = (w.splat(keep), w.splat(take));
        total.maximum[i] = maximum;
        let pairs = out.iter_mut().zip(add).chain([(&mut total.sum[i], &split.sum[i])]);
        for (total, add) in pairs {
            w.store(w.fma(w.load(total), keep, w.mul(w.load(add), take)), total);
        }
    }
}

/// Two exponentials.
#[inline(always)]
pub(super) fn exps<W: Wide>(w: W, x: [f32; 2]) -> [f32; 2] {
    let mut result = [0.0; 16];
    w.store(w.exp(w.load_part(&x)), &mut result);
    [result[0], result[1]]
}

/// Divides `n` outputs by their sums, and by the sinks' weights: `sinks` are one score per query, if there are any.
#[inline(always)]
pub(super) fn finish<W: Wide>(w: W, state: &mut State, sinks: Option<&[f32]>, stride: usize) {
    for (i, out) in state.out.chunks_exact_mut(stride).enumerate() {
        let mut sum = w.sum(w.load(&state.sum[i]));
        let mut keep = 1.0;
        if let Some(sinks) = sinks {
            let (sink, own) = (sinks[i % sinks.len()], state.maximum[i]);
            let maximum = if sink > own { sink } else { own };
            let [own, sink] = exps(w, [own - maximum, sink - maximum]);
            (sum, keep) = (sum.mul_add(own, sink), own);
        }
        for x in out.as_chunks_mut::<16>().0 {
            w.store(w.div(w.mul(w.load(x), w.splat(keep)), w.splat(sum)), x);
        }
    }
}
