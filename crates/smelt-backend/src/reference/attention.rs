//! Attention over the paged cache.

use super::{Reference, dot};
use crate::{Attention, Buffer, KvFormat, PAGE_TOKENS, StepInputs};
use half::f16;

impl Reference {
    pub(super) fn kv_write(&mut self, k: Buffer, v: Buffer, cache: usize, inputs: &StepInputs<'_>) {
        let format = self.program.caches[cache].format;
        let hold = |x: f32| if format == KvFormat::F16 { f16::from_f32(x).to_f32() } else { x };
        for row in 0..inputs.tokens.len() {
            let slot = slot(inputs, row, inputs.positions[row] as usize);
            let (k, v) = (self.row(k, row).to_vec(), self.row(v, row).to_vec());
            let cache = &mut self.caches[cache];
            for (to, from) in [(&mut cache.k, k), (&mut cache.v, v)] {
                let width = from.len();
                for (t, f) in to[slot * width..][..width].iter_mut().zip(from) {
                    *t = hold(f);
                }
            }
        }
    }

    pub(super) fn attention(&mut self, x: &Attention, inputs: &StepInputs<'_>) {
        let spec = self.program.caches[x.cache.index()];
        let per_kv_head = x.n_heads / spec.n_kv_heads;
        for (row, position) in inputs.positions.iter().enumerate() {
            let end = *position as usize + 1;
            let start = x.window.map_or(0, |w| end.saturating_sub(w));
            for head in 0..x.n_heads {
                let kv_head = head / per_kv_head;
                let q = self.row(x.q, row)[head * spec.k_head_dim..][..spec.k_head_dim].to_vec();
                let cache = &self.caches[x.cache.index()];
                let key = |p| {
                    &cache.k[(slot(inputs, row, p) * spec.n_kv_heads + kv_head) * spec.k_head_dim..]
                        [..spec.k_head_dim]
                };
                let value = |p| {
                    &cache.v[(slot(inputs, row, p) * spec.n_kv_heads + kv_head) * spec.v_head_dim..]
                        [..spec.v_head_dim]
                };
                let score = |p| {
                    let s = dot(&q, key(p)) * x.scale;
                    x.softcap.map_or(s, |cap| cap * (s / cap).tanh())
                };
                let scores: Vec<f32> = (start..end).map(score).collect();
                let weights = softmax(&scores);
                let mut sum = vec![0f64; spec.v_head_dim];
                for (p, weight) in (start..end).zip(&weights) {
                    for (s, v) in sum.iter_mut().zip(value(p)) {
                        *s += f64::from(*weight) * f64::from(*v);
                    }
                }
                let out = &mut self.row_mut(x.out, row)[head * spec.v_head_dim..][..spec.v_head_dim];
                for (o, s) in out.iter_mut().zip(sum) {
                    *o = s as f32;
                }
            }
        }
    }
}

/// Where the cache holds `position` of the sequence of `row`.
fn slot(inputs: &StepInputs<'_>, row: usize, position: usize) -> usize {
    let pages = inputs.sequences[inputs.sequence[row] as usize].pages;
    pages[position / PAGE_TOKENS] as usize * PAGE_TOKENS + position % PAGE_TOKENS
}

/// Softmax, summed in f64.
pub(super) fn softmax(scores: &[f32]) -> Vec<f32> {
    let max = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = scores.iter().map(|s| f64::from(s - max).exp()).collect();
    let sum: f64 = exps.iter().sum();
    exps.iter().map(|e| (e / sum) as f32).collect()
}
