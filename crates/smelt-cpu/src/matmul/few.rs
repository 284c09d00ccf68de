//! A few tokens: each block is multiplied as soon as it is unpacked.
//!
//! Unpacking a chunk of a panel and multiplying it after that would leave the memory idle during the second half, and a
//! few tokens have too little other work to hide that behind. Here blocks are unpacked one by one, so that the loads of
//! the next blocks overlap with the products of this one; and only as many rows run at once as a vector has lanes, because
//! the hardware follows few streams of addresses better than many.

use super::acts::{ActRow, QuantizedActs, Tokens};
use super::class::Class;
use super::micro::add_block;
use super::sink::{Multiply, Store};
use super::tile::{OneBlock, PANEL, Panel, Weights};
use super::unpack::Unpack;
use crate::isa::{Line, Op, Simd};
use core::marker::PhantomData;
use core::ops::Range;

/// Most tokens that this pays for.
pub(crate) const FEW: usize = 8;

/// Multiplies whole rows with at most [`FEW`] tokens.
pub(crate) struct Few<'a, U, const B: usize> {
    pub(crate) weights: Weights<'a>,
    pub(crate) rows: Range<usize>,
    /// Where the last rows are copied if they don't fill a panel.
    pub(crate) edge: &'a mut Vec<u8>,
    pub(crate) acts: &'a QuantizedActs,
    pub(crate) tokens: Tokens<'a>,
    /// Sixteen sums for each panel and token, those of one panel side by side.
    pub(crate) sums: &'a mut [Line],
    pub(crate) format: PhantomData<U>,
}

impl<U: Unpack<B>, const B: usize> Op for Few<'_, U, B> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        assert!(self.weights.row_bytes / B * U::BLOCK <= self.acts.k());
        assert!((1..=FEW).contains(&self.tokens.len()));
        match (S::TOKENS, self.tokens.len()) {
            (_, 1) => self.panels::<S, 1, 1>(s, 0),
            (1, n) => {
                for t in 0..n {
                    self.panels::<S, 1, 1>(s, t);
                }
            }
            (4, 2..=4) => self.panels::<S, 4, 1>(s, 0),
            (4, _) => self.panels::<S, 4, 2>(s, 0),
            _ => self.panels::<S, 8, 1>(s, 0),
        }
    }
}

impl<U: Unpack<B>, const B: usize> Few<'_, U, B> {
    /// `G` groups of `T` tokens from `t0` on; behind the last token it is repeated.
    #[inline(always)]
    fn panels<S: Simd, const T: usize, const G: usize>(&mut self, s: S, t0: usize) {
        let n = self.tokens.len();
        let mut rows = [[ActRow::EMPTY; T]; G];
        for g in 0..G {
            for t in 0..T {
                let token = self.tokens.row((t0 + g * T + t).min(n - 1));
                rows[g][t] = self.acts.row(token, U::Class::GROUP);
            }
        }
        let mut one = OneBlock::new();
        for (p, first) in self.rows.clone().step_by(PANEL).enumerate() {
            let panel = self.weights.panel(first, self.rows.end, self.edge);
            let sums = &mut self.sums[p * n..][..n];
            for v in 0..PANEL / S::LANES {
                let acc = half::<S, U, B, T, G>(s, panel, v, &rows, &mut one);
                for g in 0..G {
                    for t in 0..T.min(n - t0 - g * T) {
                        s.store_f(&mut sums[t0 + g * T + t], v, acc[g][t]);
                    }
                }
            }
        }
    }
}

/// The sums of the panel's vector `v` of rows.
#[inline(always)]
fn half<S: Simd, U: Unpack<B>, const B: usize, const T: usize, const G: usize>(
    s: S,
    panel: Panel<'_>,
    v: usize,
    rows: &[[ActRow<'_>; T]; G],
    one: &mut OneBlock,
) -> [[S::F; T]; G] {
    let (mut acc, mut scales) = ([[s.splat_f(0.0); T]; G], [s.splat(0); 16]);
    for b in 0..panel.row_bytes() / B {
        let blocks = panel.blocks::<B>(v * S::LANES, S::LANES, b);
        if G == 1 && Multiply::<S, U::Class, T>::PAYS {
            // SAFETY: the block's values lie inside the rows (`Few::run` asserts it).
            let mut block =
                unsafe { Multiply::<S, U::Class, T>::new(s, &rows[0], b * U::BLOCK, &mut scales) };
            U::unpack(s, blocks, 0, &mut block);
            block.add_to(s, &mut acc[0]);
            continue;
        }
        U::unpack(s, blocks, 0, &mut Store { block: one.block(U::SHAPE), v: 0 });
        for part in 0..U::BLOCK / U::Class::VALUES {
            let block = [one.part::<U::Class>(part)];
            let value = b * U::BLOCK + part * U::Class::VALUES;
            for g in 0..G {
                let acc = core::array::from_mut(&mut acc[g]);
                // SAFETY: as above.
                unsafe { add_block::<S, U::Class, 1, 1, T>(s, &block, &rows[g], value, acc) };
            }
        }
    }
    acc
}
