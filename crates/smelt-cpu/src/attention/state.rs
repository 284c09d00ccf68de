//! Running softmax.

use crate::wide::Wide;
use std::ops::Range;

/// What `n` queries have summed so far.
#[derive(Debug, Default)]
pub(crate) struct State {
    /// `[n]`: the largest score.
    pub(super) maximum: Vec<f32>,
    /// `[n]`: the sum of weights, in sixteen parts.
    pub(super) sum: Vec<[f32; 16]>,
    /// `[n][stride]`: the unnormalised output.
    pub(super) out: Vec<f32>,
}

impl State {
    pub(super) fn clear(&mut self, n: usize, stride: usize) {
        refill(&mut self.maximum, n, f32::NEG_INFINITY);
        refill(&mut self.sum, n, [0.0; 16]);
        refill(&mut self.out, n * stride, 0.0);
    }

    /// Turns a query's scores of a strip into weights `exp(score − maximum)` and adds them to the sum; sum and output
    /// shrink first where the maximum grows. Tokens outside `visible` get no weight, whatever their score.
    #[inline(always)]
    pub(super) fn weigh<W: Wide>(
        &mut self,
        w: W,
        query: usize,
        p: &mut [f32],
        visible: Range<usize>,
        stride: usize,
    ) {
        p[..visible.start].fill(f32::NEG_INFINITY);
        p[visible.end..].fill(f32::NEG_INFINITY);
        let (sum, maximum) = (&mut self.sum[query], &mut self.maximum[query]);
        let mut largest = w.splat(f32::NEG_INFINITY);
        for scores in p.as_chunks::<16>().0 {
            largest = w.max(w.load(scores), largest);
        }
        let largest = w.largest(largest);
        if largest > *maximum {
            let correction = w.exp(w.splat(*maximum - largest));
            *maximum = largest;
            w.store(w.mul(w.load(sum), correction), sum);
            for out in self.out[query * stride..][..stride].as_chunks_mut::<16>().0 {
                w.store(w.mul(w.load(out), correction), out);
            }
        }
        let maximum = w.splat(*maximum);
        for scores in p.as_chunks_mut::<16>().0 {
            w.store(w.exp(w.sub(w.load(scores), maximum)), scores);
        }
        p[..visible.start].fill(0.0);
        p[visible.end..].fill(0.0);
        let mut total = w.load(sum);
        for weights in p.as_chunks::<16>().0 {
            total = w.add(total, w.load(weights));
        }
        w.store(total, sum);
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
