//! The two integer micro-kernels: tiles of sixteen or thirty-two unpacked rows times a few tokens, held in registers.
//!
//! Both follow the canonical float steps of `smelt-quant`, with lanes = rows, so one token or a thousand, on any
//! instruction set, give the same bits. Running sums live in one [`Line`] a token and tile between the chunks of a long row.

use super::acts::{ActRow, QuantizedActs, Tokens};
use super::class::Class;
use super::tile::{PANEL, Tile, TilePart};
use crate::isa::{Line, Op, Simd};
use core::marker::PhantomData;

/// Multiplies `blocks` blocks of one or two panels' tiles, which begin at value `k0` of the row, with every token.
pub(crate) struct Micro<'a, C> {
    /// At most as many as [`crate::isa::Isa::panels`] says.
    pub(crate) tiles: &'a [Tile],
    pub(crate) blocks: usize,
    pub(crate) acts: &'a QuantizedActs,
    pub(crate) tokens: Tokens<'a>,
    pub(crate) k0: usize,
    /// Sixteen running sums a token and tile, those of one token side by side.
    pub(crate) sums: &'a mut [Line],
    pub(crate) class: PhantomData<C>,
}

impl<C: Class> Op for Micro<'_, C> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(mut self, s: S) {
        assert!(self.sums.len() >= self.tokens.len() * self.tiles.len());
        assert!(self.k0 + self.blocks * C::VALUES <= self.acts.k());
        assert!(self.tiles.iter().all(|tile| tile.holds(C::SHAPE, self.blocks)));
        match (S::LANES, self.tiles.len()) {
            (PANEL, 2) => self.all::<S, 2, 2>(s),
            (PANEL, _) => self.all::<S, 1, 1>(s),
            _ => self.all::<S, 1, 2>(s),
        }
    }
}

impl<C: Class> Micro<'_, C> {
    /// Tokens in tiles as large as the registers hold, then in smaller ones. `V` vectors make `P` panels.
    #[inline(always)]
    fn all<S: Simd, const P: usize, const V: usize>(&mut self, s: S) {
        let n = self.tokens.len();
        let mut t = 0;
        if S::TOKENS >= 8 {
            while t + 6 <= n {
                self.some::<S, P, V, 6>(s, t);
                t += 6;
            }
        }
        if S::TOKENS >= 4 {
            while t + 4 <= n {
                self.some::<S, P, V, 4>(s, t);
                t += 4;
            }
        }
        while t < n {
            self.some::<S, P, V, 1>(s, t);
            t += 1;
        }
    }

    #[inline(always)]
    fn some<S: Simd, const P: usize, const V: usize, const T: usize>(&mut self, s: S, t0: usize) {
        let rows = self.rows::<T>(t0);
        let mut acc = [[s.splat_f(0.0); T]; V];
        for t in 0..T {
            for v in 0..V {
                acc[v][t] = s.load_f(&self.sums[(t0 + t) * P + v * P / V], v % (V / P));
            }
        }
        for b in 0..self.blocks {
            // SAFETY: `run` asserts that the tiles hold so many blocks.
            let mut parts = [unsafe { self.tiles[0].part::<C>(b) }; P];
            for p in 1..P {
                // SAFETY: as above.
                parts[p] = unsafe { self.tiles[p].part::<C>(b) };
            }
            // SAFETY: `run` asserts that the tiles' values lie inside the rows.
            unsafe { add_block::<S, C, P, V, T>(s, &parts, &rows, self.k0 + b * C::VALUES, &mut acc) };
        }
        for t in 0..T {
            for v in 0..V {
                s.store_f(&mut self.sums[(t0 + t) * P + v * P / V], v % (V / P), acc[v][t]);
            }
        }
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
}

/// Adds the products of `P` tiles' block with `T` tokens, from their value `value` on, to `acc`: the tiles' first `V` vectors
/// of rows.
///
/// # Safety
/// `value + C::VALUES` is at most the length of the activations' rows.
#[inline(always)]
pub(crate) unsafe fn add_block<S: Simd, C: Class, const P: usize, const V: usize, const T: usize>(
    s: S,
    blocks: &[TilePart<'_>; P],
    rows: &[ActRow<'_>; T],
    value: usize,
    acc: &mut [[S::F; T]; V],
) {
    let at = Place { blocks, rows, value };
    // SAFETY: the caller's promise.
    unsafe { if C::INTEGER_SCALES { at.scaled::<S, C, V>(s, acc) } else { at.floats::<S, C, V>(s, acc) } }
}

/// What is multiplied: the tiles' block and tokens' activations, from a value on.
struct Place<'a, const P: usize, const T: usize> {
    blocks: &'a [TilePart<'a>; P],
    rows: &'a [ActRow<'a>; T],
    value: usize,
}

impl<const P: usize, const T: usize> Place<'_, P, T> {
    /// The block that vector `v` of `V` comes from, and which vector of it it is.
    #[inline(always)]
    fn of<const V: usize>(&self, v: usize) -> (&TilePart<'_>, usize) {
        (&self.blocks[v * P / V], v % (V / P))
    }

    /// One float scale a group.
    ///
    /// # Safety
    /// As [`add_block`].
    #[inline(always)]
    unsafe fn floats<S: Simd, C: Class, const V: usize>(&self, s: S, acc: &mut [[S::F; T]; V]) {
        let Self { rows, value, .. } = *self;
        let mut sum = [[s.splat(0); T]; V];
        if C::ZERO != 0 && !(C::WIDE && S::SIGNED_WIDE) {
            // The pair's second sum meets a zero.
            let zero = s.splat(-C::ZERO & 0xFFFF);
            for t in 0..T {
                // SAFETY: the caller's promise.
                let sum_a = s.splat(unsafe { rows[t].sum_pair(value / C::GROUP) });
                let correction = s.madd(s.splat(0), zero, sum_a);
                for v in 0..V {
                    sum[v][t] = correction;
                }
            }
        }
        // SAFETY: the caller's promise.
        unsafe { self.dot_group::<S, C, V>(s, 0, &mut sum, false) };
        for t in 0..T {
            // SAFETY: the caller's promise.
            let d_a = s.splat_f(unsafe { rows[t].scale(value / 32) });
            for v in 0..V {
                let (block, i) = self.of::<V>(v);
                let d = s.mul_f(s.load_f(&block.d[0], i), d_a);
                acc[v][t] = s.fma(d, s.to_f(sum[v][t]), acc[v][t]);
            }
            if C::MINS {
                // SAFETY: the caller's promise.
                let a = s.splat_f(unsafe { rows[t].scaled_sum(value / 32) });
                for v in 0..V {
                    let (block, i) = self.of::<V>(v);
                    acc[v][t] = s.fma(s.load_f(&block.m[0], i), a, acc[v][t]);
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
        let Self { rows, value, .. } = *self;
        let corrects = !(C::MINS || C::WIDE && S::SIGNED_WIDE);
        let mut weighted = [[s.splat(0); T]; V];
        if C::MINS || corrects {
            for p in 0..C::SHAPE.pairs {
                for t in 0..T {
                    // SAFETY: the caller's promise.
                    let a = s.splat(unsafe { rows[t].sum_pair(value / C::GROUP + 2 * p) });
                    for v in 0..V {
                        let (block, i) = self.of::<V>(v);
                        weighted[v][t] = s.madd(weighted[v][t], s.load(&block.pairs[p], i), a);
                    }
                }
            }
        }
        let mut sum = if corrects { weighted } else { [[s.splat(0); T]; V] };
        for g in 0..C::SHAPE.scales {
            // SAFETY: the caller's promise.
            unsafe { self.dot_group::<S, C, V>(s, g, &mut sum, true) };
        }
        for t in 0..T {
            // SAFETY: the caller's promise.
            let d_a = s.splat_f(unsafe { rows[t].scale(value / 256) });
            for v in 0..V {
                let (block, i) = self.of::<V>(v);
                let d = s.mul_f(s.load_f(&block.d[0], i), d_a);
                acc[v][t] = s.fma(d, s.to_f(sum[v][t]), acc[v][t]);
            }
            if C::MINS {
                for v in 0..V {
                    let (block, i) = self.of::<V>(v);
                    let m = s.mul_f(s.load_f(&block.m[0], i), d_a);
                    acc[v][t] = s.fnma(m, s.to_f(weighted[v][t]), acc[v][t]);
                }
            }
        }
    }

    /// Adds group `g`'s integer dot products, times its scale if groups have one, to `sum`.
    ///
    /// # Safety
    /// As [`add_block`].
    #[inline(always)]
    unsafe fn dot_group<S: Simd, C: Class, const V: usize>(
        &self,
        s: S,
        g: usize,
        sum: &mut [[S::I; T]; V],
        scaled: bool,
    ) {
        let Self { rows, value, .. } = *self;
        let (first, value) = (g * C::GROUP / 4, value + g * C::GROUP);
        let depth = if S::EXACT_PARTIAL { C::GROUP / 4 } else { C::DEPTH };
        for c in 0..C::GROUP / 4 / depth {
            let mut partial = [[s.begin(s.splat(0)); T]; V];
            if !scaled {
                for v in 0..V {
                    for t in 0..T {
                        partial[v][t] = s.begin(sum[v][t]);
                    }
                }
            }
            for k in c * depth..(c + 1) * depth {
                let mut w = [s.splat(0); V];
                for v in 0..V {
                    let (block, i) = self.of::<V>(v);
                    w[v] = s.load(&block.codes[first + k], i);
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
                let (block, i) = self.of::<V>(v);
                for t in 0..T {
                    sum[v][t] = if scaled && C::NARROW {
                        s.end_scaled_narrow(sum[v][t], partial[v][t], s.load(&block.scales[g], i))
                    } else if scaled {
                        s.end_scaled(sum[v][t], partial[v][t], s.load(&block.scales[g], i))
                    } else {
                        s.end(sum[v][t], partial[v][t])
                    };
                }
            }
        }
    }
}
