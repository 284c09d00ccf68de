//! The two integer micro-kernels: a tile of sixteen unpacked rows times a few tokens, held in registers.
//!
//! Both follow the canonical float steps of `smelt-quant`, with lanes = rows, so one token or a thousand, on any
//! instruction set, give the same bits. Running sums live in one [`Line`] a token between the chunks of a long row.

use super::acts::{ActRow, QuantizedActs, Tokens};
use super::class::Class;
use super::tile::{PANEL, Tile, TilePart};
use crate::isa::{Line, Op, Simd};
use core::marker::PhantomData;

/// Multiplies `blocks` blocks of a tile, which begin at value `k0` of the row, with every token.
pub(crate) struct Micro<'a, C> {
    pub(crate) tile: &'a Tile,
    pub(crate) blocks: usize,
    pub(crate) acts: &'a QuantizedActs,
    pub(crate) tokens: Tokens<'a>,
    pub(crate) k0: usize,
    /// Sixteen running sums a token.
    pub(crate) sums: &'a mut [Line],
    pub(crate) class: PhantomData<C>,
}

impl<C: Class> Op for Micro<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        assert!(self.sums.len() >= self.tokens.len());
        assert!(self.k0 + self.blocks * C::VALUES <= self.acts.k());
        if S::LANES == PANEL { self.all::<S, 1>(s) } else { self.all::<S, 2>(s) }
    }
}

impl<C: Class> Micro<'_, C> {
    /// Tokens in tiles as large as the registers hold, then in smaller ones. `V` vectors make a panel.
    #[inline(always)]
    fn all<S: Simd, const V: usize>(&mut self, s: S) {
        let n = self.tokens.len();
        let mut t = 0;
        if S::TOKENS >= 8 {
            while t + 8 <= n {
                self.some::<S, V, 8>(s, t);
                t += 8;
            }
        }
        if S::TOKENS >= 4 {
            while t + 4 <= n {
                self.some::<S, V, 4>(s, t);
                t += 4;
            }
            if t + 2 <= n {
                self.some::<S, V, 2>(s, t);
                t += 2;
            }
        }
        while t < n {
            self.some::<S, V, 1>(s, t);
            t += 1;
        }
    }

    #[inline(always)]
    fn some<S: Simd, const V: usize, const T: usize>(&mut self, s: S, t0: usize) {
        let rows = self.rows::<T>(t0);
        let mut acc = self.load_sums::<S, V, T>(s, t0);
        for b in 0..self.blocks {
            let block = self.tile.part::<C>(b);
            // SAFETY: `run` asserts that the tile's values lie inside the rows.
            unsafe { add_block::<S, C, V, T>(s, block, &rows, self.k0 + b * C::VALUES, &mut acc) };
        }
        self.store_sums(s, t0, &acc);
    }

    /// The activations of tokens `t0..t0 + T`.
    #[inline(always)]
    fn rows<const T: usize>(&self, t0: usize) -> [ActRow<'_>; T] {
        let mut rows = [ActRow::EMPTY; T];
        for t in 0..T {
            rows[t] = self.acts.row(self.tokens.row(t0 + t), C::GROUP);
        }
        rows
    }

    #[inline(always)]
    fn load_sums<S: Simd, const V: usize, const T: usize>(&self, s: S, t0: usize) -> [[S::F; T]; V] {
        let mut acc = [[s.splat_f(0.0); T]; V];
        for t in 0..T {
            for v in 0..V {
                acc[v][t] = s.load_f(&self.sums[t0 + t], v);
            }
        }
        acc
    }

    #[inline(always)]
    fn store_sums<S: Simd, const V: usize, const T: usize>(&mut self, s: S, t0: usize, acc: &[[S::F; T]; V]) {
        for t in 0..T {
            for v in 0..V {
                s.store_f(&mut self.sums[t0 + t], v, acc[v][t]);
            }
        }
    }
}

/// Adds a tile block's products with `T` tokens, from their value `value` on, to `acc`: the first `V` vectors of rows.
///
/// # Safety
/// `value + C::VALUES` is at most the length of the activations' rows.
#[inline(always)]
pub(crate) unsafe fn add_block<S: Simd, C: Class, const V: usize, const T: usize>(
    s: S,
    block: TilePart<'_>,
    rows: &[ActRow<'_>; T],
    value: usize,
    acc: &mut [[S::F; T]; V],
) {
    let at = Place { block, rows, value };
    // SAFETY: the caller's promise.
    unsafe { if C::INTEGER_SCALES { at.scaled::<S, C, V>(s, acc) } else { at.floats::<S, C, V>(s, acc) } }
}

/// What is multiplied: a tile block and tokens' activations, from a value on.
struct Place<'a, const T: usize> {
    block: TilePart<'a>,
    rows: &'a [ActRow<'a>; T],
    value: usize,
}

impl<const T: usize> Place<'_, T> {
    /// One float scale a group.
    ///
    /// # Safety
    /// As [`add_block`].
    #[inline(always)]
    unsafe fn floats<S: Simd, C: Class, const V: usize>(&self, s: S, acc: &mut [[S::F; T]; V]) {
        let Self { block, rows, value } = *self;
        let mut sum = [[s.splat(0); T]; V];
        if C::ZERO != 0 && !(C::WIDE && S::SIGNED_WIDE) {
            let zero = s.splat(-C::ZERO & 0xFFFF);
            for t in 0..T {
                // SAFETY: the caller's promise.
                let sum_a = s.splat(i32::from(unsafe { rows[t].sum(value / C::GROUP) }));
                let correction = s.madd(s.splat(0), sum_a, zero);
                for v in 0..V {
                    sum[v][t] = correction;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.dot_group::<S, C, V>(s, 0, &mut sum, None) };
        let (d_line, m_line) = (&block.d[0], &block.m[0]);
        for t in 0..T {
            // SAFETY: the caller's promise.
            let d_a = s.splat_f(unsafe { rows[t].scale(value / 32) });
            for v in 0..V {
                let d = s.mul_f(s.load_f(d_line, v), d_a);
                acc[v][t] = s.fma(d, s.to_f(sum[v][t]), acc[v][t]);
            }
            if C::MINS {
                // SAFETY: the caller's promise.
                let a = s.splat_f(unsafe { rows[t].scaled_sum(value / 32) });
                for v in 0..V {
                    acc[v][t] = s.fma(s.load_f(m_line, v), a, acc[v][t]);
                }
            }
        }
    }

    /// Integer scales inside super-blocks.
    ///
    /// # Safety
    /// As [`add_block`].
    #[inline(always)]
    unsafe fn scaled<S: Simd, C: Class, const V: usize>(&self, s: S, acc: &mut [[S::F; T]; V]) {
        let Self { block, rows, value } = *self;
        let corrects = !(C::MINS || C::WIDE && S::SIGNED_WIDE);
        let mut weighted = [[s.splat(0); T]; V];
        if C::MINS || corrects {
            for (p, line) in block.pairs.iter().enumerate() {
                for t in 0..T {
                    // SAFETY: the caller's promise.
                    let a = s.splat(unsafe { rows[t].sum_pair(value / C::GROUP + 2 * p) });
                    for v in 0..V {
                        weighted[v][t] = s.madd(weighted[v][t], s.load(line, v), a);
                    }
                }
            }
        }
        let mut sum = if corrects { weighted } else { [[s.splat(0); T]; V] };
        for (g, scale) in block.scales.iter().enumerate() {
            // SAFETY: the caller's promise.
            unsafe { self.dot_group::<S, C, V>(s, g, &mut sum, Some(scale)) };
        }
        let (d_line, m_line) = (&block.d[0], &block.m[0]);
        for t in 0..T {
            // SAFETY: the caller's promise.
            let d_a = s.splat_f(unsafe { rows[t].scale(value / 256) });
            for v in 0..V {
                let d = s.mul_f(s.load_f(d_line, v), d_a);
                acc[v][t] = s.fma(d, s.to_f(sum[v][t]), acc[v][t]);
            }
            if C::MINS {
                for v in 0..V {
                    let m = s.mul_f(s.load_f(m_line, v), d_a);
                    acc[v][t] = s.fnma(m, s.to_f(weighted[v][t]), acc[v][t]);
                }
            }
        }
    }

    /// Adds group `g`'s integer dot products, times its scale if it has one, to `sum`.
    ///
    /// # Safety
    /// As [`add_block`].
    #[inline(always)]
    unsafe fn dot_group<S: Simd, C: Class, const V: usize>(
        &self,
        s: S,
        g: usize,
        sum: &mut [[S::I; T]; V],
        scale: Option<&Line>,
    ) {
        let Self { block, rows, value } = *self;
        let (codes, value) = (&block.codes[g * C::GROUP / 4..][..C::GROUP / 4], value + g * C::GROUP);
        let depth = if S::EXACT_PARTIAL { C::GROUP / 4 } else { C::DEPTH };
        for c in 0..C::GROUP / 4 / depth {
            let mut partial = [[s.begin(s.splat(0)); T]; V];
            if scale.is_none() {
                for v in 0..V {
                    for t in 0..T {
                        partial[v][t] = s.begin(sum[v][t]);
                    }
                }
            }
            for k in c * depth..(c + 1) * depth {
                let mut w = [s.splat(0); V];
                for v in 0..V {
                    w[v] = s.load(&codes[k], v);
                }
                for t in 0..T {
                    // SAFETY: the caller's promise.
                    let a = s.splat(unsafe { rows[t].four_codes(value + 4 * k) });
                    for v in 0..V {
                        let mac = if C::WIDE { S::mac_wide } else { S::mac };
                        partial[v][t] = mac(s, partial[v][t], w[v], a);
                    }
                }
            }
            for v in 0..V {
                for t in 0..T {
                    sum[v][t] = match scale {
                        None => s.end(sum[v][t], partial[v][t]),
                        Some(line) => s.end_scaled(sum[v][t], partial[v][t], s.load(line, v)),
                    };
                }
            }
        }
    }
}
