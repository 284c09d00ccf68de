//! One token, with weights read in the order of their bytes.
//!
//! Lanes are blocks that follow each other in memory, whichever rows of the panel they belong to; a block's dot product is
//! summed inside its lane, and the sums of a panel are transposed at its end. So memory is read as one stream, not as one
//! for each row, and is kept busier: 34-byte blocks from large pages at 37 to 39 GB/s by one thread of a Zen 5 where
//! lanes = rows read 34 to 36 and plain loads 41. The float steps of a row are those of [`super::micro`], in its order.

use super::acts::ActRow;
use super::class::Class;
use super::few::Few;
use super::tile::PANEL;
use super::unpack::Dots;
use crate::isa::{Line, Op, Rows, Simd};

/// Bytes between what is multiplied and what is prefetched. From 8 KiB on, that a first-level cache holds, more is no better.
const AHEAD: usize = 16 * 1024;

/// What a thread reads weights in order with.
#[derive(Debug, Default)]
pub(crate) struct Order {
    /// The activations of a row, and behind them so many of them once more that blocks may begin anywhere in it.
    codes: Vec<i8>,
    scales: Vec<f32>,
    /// Sums of 32 codes, which floats hold exactly.
    sums: Vec<f32>,
    /// Dot products of a panel's blocks.
    dots: Vec<Line>,
    /// What they are to be multiplied with.
    factors: Vec<Line>,
}

impl Order {
    /// Takes the `n` blocks of a row of activations, for so many lanes.
    fn repeat(&mut self, row: ActRow<'_>, n: usize, lanes: usize) {
        self.codes.clear();
        self.scales.clear();
        self.sums.clear();
        while self.scales.len() < n + lanes {
            let blocks = n.min(n + lanes - self.scales.len());
            let (codes, scales, sums) = row.blocks(blocks);
            self.codes.extend_from_slice(codes);
            self.scales.extend_from_slice(scales);
            self.sums.extend(sums.iter().map(|sum| f32::from(*sum)));
        }
        // One more line, because a row's last blocks are read as four.
        self.dots.resize(n + 1, Line::ZERO);
        self.factors.resize(n + 1, Line::ZERO);
    }
}

/// A product with few tokens, of which one alone reads in order.
pub(crate) struct InOrder<'a, U, const B: usize> {
    pub(crate) few: Few<'a, U, B>,
    pub(crate) order: &'a mut Order,
}

impl<U: Dots<B>, const B: usize> Op for InOrder<'_, U, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if self.few.tokens.len() == 1 { self.one_token(s) } else { self.few.run(s) }
    }
}

impl<U: Dots<B>, const B: usize> InOrder<'_, U, B> {
    #[inline(always)]
    fn one_token<S: Simd>(self, s: S) {
        let Self { few, order } = self;
        let n = few.weights.row_bytes / B;
        order.repeat(few.acts.row(few.tokens.row(0), U::Class::GROUP), n, S::LANES);
        let offset = s.splat_f(128.0);
        for (p, first) in few.rows.clone().step_by(PANEL).enumerate() {
            let panel = few.weights.panel(first, few.rows.end, few.edge);
            let mut at = 0;
            for i in (0..PANEL * n).step_by(S::LANES) {
                let (d, dots) = U::dots(s, panel.in_order(i, S::LANES, AHEAD), &order.codes[32 * at..]);
                let mut dots = s.to_f(dots);
                if !S::SIGNED_WIDE {
                    // Exact, as are all integers below 2²⁴.
                    dots = s.fnma(offset, s.load_slice(&order.sums[at..]), dots);
                }
                let factors = s.mul_f(d, s.load_slice(&order.scales[at..]));
                s.store_f(&mut order.dots[i / 16], i % 16 / S::LANES, dots);
                s.store_f(&mut order.factors[i / 16], i % 16 / S::LANES, factors);
                at += S::LANES;
                while at >= n {
                    at -= n;
                }
            }
            for v in 0..PANEL / S::LANES {
                let acc = row_sums(s, order, n, v);
                s.store_f(&mut few.sums[p], v, acc);
            }
        }
    }
}

/// Each row's sum of `n` dot products times their factors, for vector `v` of rows.
#[inline(always)]
fn row_sums<S: Simd>(s: S, order: &Order, n: usize, v: usize) -> S::F {
    let (dots, factors) = (Line::bytes(&order.dots), Line::bytes(&order.factors));
    let mut acc = s.splat_f(0.0);
    for b in (0..n).step_by(4) {
        let x = s.quads(Rows::<16>::new(dots, 4 * n, 4 * b, PANEL, dots.as_ptr()), v, 0);
        let y = s.quads(Rows::<16>::new(factors, 4 * n, 4 * b, PANEL, factors.as_ptr()), v, 0);
        for j in 0..4.min(n - b) {
            acc = s.fma(s.with_bits(y[j]), s.with_bits(x[j]), acc);
        }
    }
    acc
}
