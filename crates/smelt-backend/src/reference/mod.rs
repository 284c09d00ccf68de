//! The reference backend: every operation written for reading, without SIMD and without threads.
//!
//! Values are f32; sums are taken in f64, so that what a faster backend differs by is that backend's own error. Weights
//! are dequantised a row at a time and activations are never quantised.

mod attention;
mod experts;

use crate::{
    Activation, Backend, Buffer, Error, Op, Output, PAGE_TOKENS, Program, Projection, Rope, RopeStyle,
    StepInputs, Weight, WeightBytes,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The scalar f32 backend.
#[derive(Debug, Default)]
pub struct Reference {
    program: Program,
    weights: Vec<WeightBytes>,
    /// `buffers[i]`: `[rows, width]`, sized for the largest step.
    buffers: Vec<Vec<f32>>,
    /// `caches[i]`: keys `[pages · PAGE_TOKENS, n_kv_heads · k_head_dim]` and values alike.
    caches: Vec<Cache>,
    pages: usize,
    /// What the last step gave.
    output: Output,
    interrupt: Arc<AtomicBool>,
}

#[derive(Debug, Default)]
struct Cache {
    k: Vec<f32>,
    v: Vec<f32>,
}

/// `activation(x)`.
pub(crate) fn activate(activation: Activation, x: f32) -> f32 {
    match activation {
        Activation::Silu => x / (1.0 + (-x).exp()),
        Activation::GeluTanh => {
            const SQRT_2_OVER_PI: f32 = 0.797_884_6;
            0.5 * x * (1.0 + (SQRT_2_OVER_PI * (x + 0.044_715 * x * x * x)).tanh())
        }
        Activation::Gelu => (f64::from(x) * normal_cdf(x)) as f32,
    }
}

impl Reference {
    /// A backend with nothing prepared.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Row `index` of a weight (of expert `expert`), dequantised: `[n_in]`.
    fn weight_row(&self, weight: Weight, expert: usize, index: usize) -> Vec<f32> {
        let spec = &self.program.weights[weight.index()];
        let bytes = spec.format.row_bytes(spec.n_in).expect("validated by prepare");
        let start = (expert * spec.n_out + index) * bytes;
        let mut row = vec![0.0; spec.n_in];
        (spec.format.dequantize)(&self.weights[weight.index()][start..start + bytes], &mut row);
        row
    }

    fn width(&self, buffer: Buffer) -> usize {
        self.program.buffers[buffer.index()].width
    }

    /// Rows of a buffer in this step.
    fn rows(&self, buffer: Buffer, inputs: &StepInputs<'_>) -> usize {
        if self.program.buffers[buffer.index()].logit_rows {
            inputs.logit_rows.len()
        } else {
            inputs.tokens.len()
        }
    }

    fn row(&self, buffer: Buffer, row: usize) -> &[f32] {
        let width = self.width(buffer);
        &self.buffers[buffer.index()][row * width..][..width]
    }

    fn row_mut(&mut self, buffer: Buffer, row: usize) -> &mut [f32] {
        let width = self.width(buffer);
        &mut self.buffers[buffer.index()][row * width..][..width]
    }

    fn execute(&mut self, op: &Op, inputs: &StepInputs<'_>) {
        match op {
            Op::Embed { table, index, out, scale } => {
                for row in 0..inputs.tokens.len() {
                    let values = self.weight_row(*table, 0, inputs.index(*index, row));
                    for (o, v) in self.row_mut(*out, row).iter_mut().zip(values) {
                        *o = v * scale;
                    }
                }
            }
            Op::RmsNorm { input, weight, out, eps } => self.rms_norm(*input, *weight, *out, *eps, inputs),
            Op::LayerNorm { input, weight, bias, out, eps } => {
                self.layer_norm((*input, *out), *weight, *bias, *eps, inputs);
            }
            Op::MatMul { input, projections } => {
                projections.iter().for_each(|p| self.matmul(*input, p, inputs));
            }
            Op::Rope(x) => self.rope(x, inputs),
            Op::KvWrite { k, v, cache } => self.kv_write(*k, *v, cache.index(), inputs),
            Op::Attention(x) => self.attention(x, inputs),
            Op::GatedActivation { gate, up, out, activation } => {
                for row in 0..self.rows(*gate, inputs) {
                    let (gate, up) = (self.row(*gate, row).to_vec(), self.row(*up, row).to_vec());
                    for (o, (g, u)) in self.row_mut(*out, row).iter_mut().zip(gate.into_iter().zip(up)) {
                        *o = activate(*activation, g) * u;
                    }
                }
            }
            Op::Activate { buffer, activation } => self.map(*buffer, inputs, |v| activate(*activation, v)),
            Op::Moe(x) => self.moe(x, inputs),
            Op::ExpertGate(x) => {
                for row in 0..self.rows(x.buffer, inputs) {
                    let factor = 1.0 / (1.0 + (-self.row(x.gate, row)[0]).exp());
                    self.row_mut(x.buffer, row).iter_mut().for_each(|v| *v *= factor);
                }
            }
            Op::Add { input, out, scale } => {
                for row in 0..self.rows(*input, inputs) {
                    let input = self.row(*input, row).to_vec();
                    for (o, v) in self.row_mut(*out, row).iter_mut().zip(input) {
                        *o += scale * v;
                    }
                }
            }
            Op::Scale { buffer, factor } => self.map(*buffer, inputs, |v| v * factor),
            Op::SoftCap { buffer, cap } => self.map(*buffer, inputs, |v| cap * (v / cap).tanh()),
            Op::GatherLogitRows { input, out } => {
                for (to, from) in inputs.logit_rows.iter().enumerate() {
                    let values = self.row(*input, *from as usize).to_vec();
                    self.row_mut(*out, to).copy_from_slice(&values);
                }
            }
        }
    }

    fn map(&mut self, buffer: Buffer, inputs: &StepInputs<'_>, f: impl Fn(f32) -> f32) {
        for row in 0..self.rows(buffer, inputs) {
            self.row_mut(buffer, row).iter_mut().for_each(|v| *v = f(*v));
        }
    }

    fn rms_norm(&mut self, input: Buffer, weight: Weight, out: Buffer, eps: f32, inputs: &StepInputs<'_>) {
        let weight = self.weight_row(weight, 0, 0);
        for row in 0..self.rows(input, inputs) {
            let x = self.row(input, row).to_vec();
            let groups =
                self.row_mut(out, row).chunks_exact_mut(weight.len()).zip(x.chunks_exact(weight.len()));
            for (out, x) in groups {
                let squares: f64 = x.iter().map(|v| f64::from(*v) * f64::from(*v)).sum();
                let factor = (1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt()) as f32;
                for ((o, x), w) in out.iter_mut().zip(x).zip(&weight) {
                    *o = x * factor * w;
                }
            }
        }
    }

    fn layer_norm(
        &mut self,
        (input, out): (Buffer, Buffer),
        weight: Weight,
        bias: Option<Weight>,
        eps: f32,
        inputs: &StepInputs<'_>,
    ) {
        let weight = self.weight_row(weight, 0, 0);
        let bias = bias.map_or_else(|| vec![0.0; weight.len()], |bias| self.weight_row(bias, 0, 0));
        for row in 0..self.rows(input, inputs) {
            let x = self.row(input, row).to_vec();
            let groups =
                self.row_mut(out, row).chunks_exact_mut(weight.len()).zip(x.chunks_exact(weight.len()));
            for (out, x) in groups {
                let mean = x.iter().map(|v| f64::from(*v)).sum::<f64>() / x.len() as f64;
                let squares: f64 = x.iter().map(|v| (f64::from(*v) - mean).powi(2)).sum();
                let factor = 1.0 / (squares / x.len() as f64 + f64::from(eps)).sqrt();
                for ((o, x), (w, b)) in out.iter_mut().zip(x).zip(weight.iter().zip(&bias)) {
                    *o = ((f64::from(*x) - mean) * factor) as f32 * w + b;
                }
            }
        }
    }

    fn matmul(&mut self, input: Buffer, p: &Projection, inputs: &StepInputs<'_>) {
        let n_out = self.program.weights[p.weight.index()].n_out;
        let bias = p.bias.map(|b| self.weight_row(b, 0, 0));
        for i in 0..n_out {
            let weight = self.weight_row(p.weight, 0, i);
            for row in 0..self.rows(input, inputs) {
                let y = dot(&weight, self.row(input, row)) + bias.as_ref().map_or(0.0, |b| b[i]);
                self.row_mut(p.out, row)[i] = y;
            }
        }
    }

    fn rope(&mut self, x: &Rope, inputs: &StepInputs<'_>) {
        let table = self.program.ropes[x.table.index()].clone();
        for (row, position) in inputs.positions.iter().enumerate() {
            for head in self.row_mut(x.buffer, row).chunks_exact_mut(x.head_dim) {
                for (i, inv_freq) in table.iter().enumerate() {
                    let angle = f64::from(*position) * f64::from(*inv_freq);
                    let (sin, cos) = (angle.sin() as f32 * x.magnitude, angle.cos() as f32 * x.magnitude);
                    let (a, b) = match x.style {
                        RopeStyle::Interleaved => (2 * i, 2 * i + 1),
                        RopeStyle::Halves => (i, i + table.len()),
                    };
                    (head[a], head[b]) = (head[a] * cos - head[b] * sin, head[a] * sin + head[b] * cos);
                }
            }
        }
    }
}

/// The normal distribution's Φ, by the sum `φ(x) · (x + x³/3 + x⁵/(3·5) + …)` in f64, whose terms all have one sign
/// (Marsaglia 2004, "Evaluating the normal distribution").
fn normal_cdf(x: f32) -> f64 {
    const SQRT_TAU: f64 = 2.506_628_274_631_000_5;
    // Beyond it Φ is 0 or 1 as far as f64 can tell, and the sum would take long.
    let x = f64::from(x).clamp(-13.0, 13.0);
    let (mut term, mut sum, mut i) = (x, x, 1.0);
    while (sum + term).to_bits() != sum.to_bits() {
        i += 2.0;
        term *= x * x / i;
        sum += term;
    }
    0.5 + sum * (-0.5 * x * x).exp() / SQRT_TAU
}

/// Sum of products, in f64.
fn dot(a: &[f32], b: &[f32]) -> f32 {
    a.iter().zip(b).map(|(x, y)| f64::from(*x) * f64::from(*y)).sum::<f64>() as f32
}

impl Backend for Reference {
    fn describe(&self) -> String {
        "reference (scalar f32)".into()
    }

    fn prepare(&mut self, program: Program, weights: Vec<WeightBytes>) -> Result<(), Error> {
        program.validate(&weights.iter().map(|w| w.len()).collect::<Vec<_>>())?;
        let rows = |logit: bool| if logit { program.limits.logit_rows } else { program.limits.rows };
        self.buffers = program.buffers.iter().map(|b| vec![0.0; b.width * rows(b.logit_rows)]).collect();
        self.caches = program.caches.iter().map(|_| Cache::default()).collect();
        self.pages = 0;
        self.program = program;
        self.weights = weights;
        Ok(())
    }

    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error> {
        for (cache, spec) in self.caches.iter_mut().zip(&self.program.caches) {
            cache.k.resize(pages * PAGE_TOKENS * spec.n_kv_heads * spec.k_head_dim, 0.0);
            cache.v.resize(pages * PAGE_TOKENS * spec.n_kv_heads * spec.v_head_dim, 0.0);
        }
        self.pages = pages;
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32, tokens: usize) {
        for (cache, spec) in self.caches.iter_mut().zip(&self.program.caches) {
            let (k, v) = (spec.n_kv_heads * spec.k_head_dim, spec.n_kv_heads * spec.v_head_dim);
            let (from, to) = (from as usize * PAGE_TOKENS, to as usize * PAGE_TOKENS);
            cache.k.copy_within(from * k..(from + tokens) * k, to * k);
            cache.v.copy_within(from * v..(from + tokens) * v, to * v);
        }
    }

    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        inputs.validate(&self.program, self.pages)?;
        let ops: Vec<Op> = self.program.ops_for(inputs.output).into_iter().flatten().cloned().collect();
        self.output = inputs.output;
        let interrupted = ops.iter().any(|op| {
            let interrupted = self.interrupt.load(Ordering::Relaxed);
            if !interrupted {
                self.execute(op, inputs);
            }
            interrupted
        });
        if interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn interrupt_on(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = flag;
    }

    fn read_output(&mut self, out: &mut [f32]) -> Result<(), Error> {
        out.copy_from_slice(&self.buffers[self.program.output_for(self.output).index()][..out.len()]);
        Ok(())
    }
}
