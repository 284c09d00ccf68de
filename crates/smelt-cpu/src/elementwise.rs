//! The arithmetic of rows: norms, activations, additions.

use crate::wide::{Wide, WideOp};
use smelt_backend::Activation;

/// `x *= weight / sqrt(mean(x²) + eps)`.
pub(crate) struct RmsNorm<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) eps: f32,
}

impl WideOp for RmsNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let mut squares = w.splat(0.0);
        let (chunks, rest) = self.x.as_chunks::<16>();
        for x in chunks {
            let x = w.load(x);
            squares = w.fma(x, x, squares);
        }
        let x = w.load_part(rest);
        let sum = w.sum(w.fma(x, x, squares));
        let factor = w.splat(1.0 / (sum / self.x.len() as f32 + self.eps).sqrt());
        let (weights, weights_rest) = self.weight.as_chunks::<16>();
        let (chunks, rest) = self.x.as_chunks_mut::<16>();
        for (x, weight) in chunks.iter_mut().zip(weights) {
            w.store(w.mul(w.mul(w.load(x), factor), w.load(weight)), x);
        }
        let x = w.mul(w.mul(w.load_part(rest), factor), w.load_part(weights_rest));
        w.store_part(x, rest);
    }
}

/// `x = (x − mean(x)) / sqrt(var(x) + eps) · weight + bias`.
pub(crate) struct LayerNorm<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) weight: &'a [f32],
    pub(crate) bias: Option<&'a [f32]>,
    pub(crate) eps: f32,
}

impl WideOp for LayerNorm<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let n = self.x.len() as f32;
        let sum = fold(w, self.x, |w, sum, x| w.add(sum, x));
        let mean = w.splat(sum / n);
        // Written back before they are squared, so that lanes beyond the end count as zeros.
        map(w, self.x, |w, x| w.sub(x, mean));
        let squares = fold(w, self.x, |w, sum, x| w.fma(x, x, sum));
        let factor = w.splat(1.0 / (squares / n + self.eps).sqrt());
        let (chunks, rest) = self.x.as_chunks_mut::<16>();
        let (weights, weights_rest) = self.weight.as_chunks::<16>();
        let (biases, biases_rest) = self.bias.unwrap_or_default().as_chunks::<16>();
        let norm = |x, weight, bias| w.fma(w.mul(x, factor), weight, bias);
        for (i, (x, weight)) in chunks.iter_mut().zip(weights).enumerate() {
            let bias = biases.get(i).map_or(w.splat(0.0), |bias| w.load(bias));
            w.store(norm(w.load(x), w.load(weight), bias), x);
        }
        let last = norm(w.load_part(rest), w.load_part(weights_rest), w.load_part(biases_rest));
        w.store_part(last, rest);
    }
}

/// Sixteen sums over the values, then their sum.
#[inline(always)]
fn fold<W: Wide>(w: W, x: &[f32], f: impl Fn(W, W::V, W::V) -> W::V) -> f32 {
    let (chunks, rest) = x.as_chunks::<16>();
    let sums = chunks.iter().fold(w.splat(0.0), |sums, x| f(w, sums, w.load(x)));
    w.sum(f(w, sums, w.load_part(rest)))
}

/// `activation(x)`, lane by lane.
#[inline(always)]
fn activate<W: Wide>(w: W, activation: Activation, x: W::V) -> W::V {
    match activation {
        Activation::Silu => w.mul(x, w.sigmoid(x)),
        Activation::GeluTanh => {
            // 0.5 · (1 + tanh y) is sigmoid 2y.
            const SQRT_8_OVER_PI: f32 = 1.595_769;
            let cubic = w.fma(w.mul(x, x), w.splat(0.044_715), w.splat(1.0));
            w.mul(x, w.sigmoid(w.mul(w.mul(x, w.splat(SQRT_8_OVER_PI)), cubic)))
        }
        // x · Φ(x) is max(x, 0) − |x| · erfc(|x| / √2) / 2. Where one is NaN, the second operand passes.
        Activation::Gelu => {
            let zero = w.splat(0.0);
            let size = w.max(w.sub(zero, x), x);
            w.sub(w.max(zero, x), w.mul(size, half_erfc(w, size)))
        }
    }
}

/// `erfc(x / √2) / 2` for `x ≥ 0`, to 8e-8 absolutely: Abramowitz and Stegun 7.1.26.
#[inline(always)]
fn half_erfc<W: Wide>(w: W, x: W::V) -> W::V {
    const P: f32 = 0.327_591_1 * std::f32::consts::FRAC_1_SQRT_2;
    const A: [f32; 5] = [1.061_405_4, -1.453_152, 1.421_413_7, -0.284_496_74, 0.254_829_6];
    let one = w.splat(1.0);
    let t = w.div(one, w.fma(x, w.splat(P), one));
    let mut p = w.splat(0.5 * A[0]);
    for a in &A[1..] {
        p = w.fma(p, t, w.splat(0.5 * a));
    }
    w.mul(w.mul(p, t), w.exp(w.mul(x, w.mul(x, w.splat(-0.5)))))
}

/// `x = activation(x)`.
pub(crate) struct Activate<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) activation: Activation,
}

impl WideOp for Activate<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        map(w, self.x, |w, x| activate(w, self.activation, x));
    }
}

/// `gate = activation(gate) · up`.
pub(crate) struct Gated<'a> {
    pub(crate) gate: &'a mut [f32],
    pub(crate) up: &'a [f32],
    pub(crate) activation: Activation,
}

impl WideOp for Gated<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let (ups, ups_rest) = self.up.as_chunks::<16>();
        let (gates, rest) = self.gate.as_chunks_mut::<16>();
        for (gate, up) in gates.iter_mut().zip(ups) {
            w.store(w.mul(activate(w, self.activation, w.load(gate)), w.load(up)), gate);
        }
        let last = w.mul(activate(w, self.activation, w.load_part(rest)), w.load_part(ups_rest));
        w.store_part(last, rest);
    }
}

/// `out += scale · x`.
pub(crate) struct Add<'a> {
    pub(crate) out: &'a mut [f32],
    pub(crate) x: &'a [f32],
    pub(crate) scale: f32,
}

impl WideOp for Add<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let scale = w.splat(self.scale);
        let (xs, xs_rest) = self.x.as_chunks::<16>();
        let (outs, rest) = self.out.as_chunks_mut::<16>();
        for (out, x) in outs.iter_mut().zip(xs) {
            w.store(w.fma(scale, w.load(x), w.load(out)), out);
        }
        w.store_part(w.fma(scale, w.load_part(xs_rest), w.load_part(rest)), rest);
    }
}

/// `x *= factor`.
pub(crate) struct Scale<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) factor: f32,
}

impl WideOp for Scale<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        map(w, self.x, |w, x| w.mul(x, w.splat(self.factor)));
    }
}

/// `x = cap · tanh(x / cap)`.
pub(crate) struct SoftCap<'a> {
    pub(crate) x: &'a mut [f32],
    pub(crate) cap: f32,
}

impl WideOp for SoftCap<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        map(w, self.x, |w, x| soft_cap(w, x, self.cap));
    }
}

#[inline(always)]
pub(crate) fn soft_cap<W: Wide>(w: W, x: W::V, cap: f32) -> W::V {
    let cap = w.splat(cap);
    w.mul(cap, w.tanh(w.div(x, cap)))
}

#[inline(always)]
fn map<W: Wide>(w: W, x: &mut [f32], f: impl Fn(W, W::V) -> W::V) {
    let (chunks, rest) = x.as_chunks_mut::<16>();
    for x in chunks {
        w.store(f(w, w.load(x)), x);
    }
    w.store_part(f(w, w.load_part(rest)), rest);
}

/// `1 / (1 + e⁻ˣ)` of one value.
pub(crate) struct Sigmoid(pub(crate) f32);

impl WideOp for Sigmoid {
    type Output = f32;

    #[inline(always)]
    fn run<W: Wide>(self, w: W) -> f32 {
        let mut out = [0.0; 16];
        w.store(w.sigmoid(w.splat(self.0)), &mut out);
        out[0]
    }
}
