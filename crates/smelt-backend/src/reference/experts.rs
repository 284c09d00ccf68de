//! Mixture of experts.

use super::attention::softmax;
use super::{Reference, activate, dot};
use crate::{Gating, Moe, StepInputs};

/// The experts of one row with their weights, best first; of equal logits the lower index wins.
#[must_use]
pub(super) fn route(logits: &[f32], n_used: usize, gating: Gating, scale: f32) -> Vec<(usize, f32)> {
    let probabilities = softmax(logits, None);
    let mut order: Vec<usize> = (0..logits.len()).collect();
    order.sort_by(|a, b| logits[*b].total_cmp(&logits[*a]).then(a.cmp(b)));
    order.truncate(n_used);
    let sum: f32 = match gating {
        Gating::Softmax => 1.0,
        Gating::SoftmaxNormalized => order.iter().map(|e| probabilities[*e]).sum(),
    };
    order.into_iter().map(|e| (e, probabilities[e] / sum * scale)).collect()
}

impl Reference {
    pub(super) fn moe(&mut self, x: &Moe, inputs: &StepInputs<'_>) {
        let ffn_dim = self.program.weights[x.experts.gate.index()].n_out;
        for row in 0..inputs.tokens.len() {
            let input = self.row(x.input, row).to_vec();
            let mut sum = vec![0f64; input.len()];
            for (expert, weight) in route(self.row(x.router, row), x.n_used, x.gating, x.scale) {
                let inner: Vec<f32> = (0..ffn_dim)
                    .map(|i| {
                        let gate = dot(&self.weight_row(x.experts.gate, expert, i), &input);
                        activate(x.activation, gate) * dot(&self.weight_row(x.experts.up, expert, i), &input)
                    })
                    .collect();
                for (i, s) in sum.iter_mut().enumerate() {
                    *s += f64::from(weight * dot(&self.weight_row(x.experts.down, expert, i), &inner));
                }
            }
            for (o, s) in self.row_mut(x.out, row).iter_mut().zip(sum) {
                *o = s as f32;
            }
        }
    }
}
