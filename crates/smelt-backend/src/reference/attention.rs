//! Attention over the paged cache.

use super::{Reference, dot};
use crate::{Attention, Buffer, KvFormat, Mask, PAGE_TOKENS, StepInputs};

impl Reference {
    pub(super) fn kv_write(&mut self, k: Buffer, v: Buffer, cache: usize, inputs: &StepInputs<'_>) {
        let spec = self.program.caches[cache];
        for row in 0..inputs.tokens.len() {
            let slot = slot(inputs, row, inputs.positions[row] as usize);
            let (k, v) = (self.row(k, row).to_vec(), self.row(v, row).to_vec());
            let cache = &mut self.caches[cache];
            for (to, from, format) in [(&mut cache.k, k, spec.formats.k), (&mut cache.v, v, spec.formats.v)] {
                let (width, head_dim) = (from.len(), from.len() / spec.n_kv_heads);
                let to = &mut to[slot * width..][..width];
                for (t, f) in to.chunks_exact_mut(head_dim).zip(from.chunks_exact(head_dim)) {
                    hold(format, f, t);
                }
            }
        }
    }

    pub(super) fn attention(&mut self, x: &Attention, inputs: &StepInputs<'_>) {
        let spec = self.program.caches[x.cache.index()];
        let per_kv_head = x.n_heads / spec.n_kv_heads;
        let sinks = x.sinks.map(|weight| self.weight_row(weight, 0, 0));
        for (row, position) in inputs.positions.iter().enumerate() {
            let end = match x.mask {
                Mask::Causal => *position as usize + 1,
                Mask::Full => inputs.end_of(inputs.sequence[row]),
            };
            let start = x.window.map_or(0, |w| (*position as usize + 1).saturating_sub(w));
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
                let weights = softmax(&scores, sinks.as_ref().map(|s| s[head]));
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

/// What a cache of `format` keeps of a head's values.
fn hold(format: KvFormat, values: &[f32], kept: &mut [f32]) {
    let blocks = format.blocks();
    let quantize = blocks.quantize.expect("formats of caches can be written");
    let mut padded = values.to_vec();
    padded.resize(values.len().next_multiple_of(blocks.block_len), 0.0);
    let mut bytes = vec![0; format.head_bytes(values.len())];
    quantize(&padded, &mut bytes);
    (blocks.dequantize)(&bytes, &mut padded);
    kept.copy_from_slice(&padded[..values.len()]);
}

/// Softmax, summed in f64; a sink is one more score, whose weight goes to nothing.
pub(super) fn softmax(scores: &[f32], sink: Option<f32>) -> Vec<f32> {
    let max = scores.iter().copied().chain(sink).fold(f32::NEG_INFINITY, f32::max);
    let exps: Vec<f64> = scores.iter().map(|s| f64::from(s - max).exp()).collect();
    let sum: f64 = exps.iter().sum::<f64>() + sink.map_or(0.0, |s| f64::from(s - max).exp());
    exps.iter().map(|e| (e / sum) as f32).collect()
}
