//! Float weights with f32 activations, in the canonical order of `smelt_quant::dot_f32`: sixteen partial sums along
//! the row, then `reduce16`.
//!
//! Here vector lanes run along the row, not over rows, because that is the canonical order. A token or two read the rows
//! once, from memory. More are multiplied block by block: a part of some rows and of some tokens stays in the caches, a register
//! tile of a few of both loads less than it multiplies, and the partial sums wait in memory between two parts.

use super::OutView;
use super::acts::{QuantizedActs, Tokens};
use crate::isa::{Isa, Line, Op, Simd, prefetch};
use core::ops::Range;
use half::{bf16, f16};
use smelt_quant::reduce16;

/// Rows whose weights are multiplied with all tokens before the next.
const ROWS: usize = 32;
/// Tokens whose sums, 64 bytes for each of the rows, stay in the second-level cache.
const TOKENS: usize = 96;
/// Values of a row that are multiplied before the next: those of a register tile's tokens fit the first-level cache.
const VALUES: usize = 512;

/// Longest row that one token reads two rows of at a time: that is nearly one stream of addresses. Of longer ones the activations
/// leave no room in the first-level cache, and are better loaded once for four rows.
const SHORT: usize = 4096;

/// How the weights are stored.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum FloatKind {
    F32,
    F16,
    Bf16,
}

/// A storage type of floats.
trait Element {
    /// Bytes a value.
    const BYTES: usize;
    /// `LANES` values.
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F;
    /// One value.
    fn one(bytes: &[u8]) -> f32;
}

struct F32;
struct F16;
struct Bf16;

impl Element for F32 {
    const BYTES: usize = 4;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_f32_bytes(bytes)
    }
    fn one(b: &[u8]) -> f32 {
        f32::from_le_bytes([b[0], b[1], b[2], b[3]])
    }
}

impl Element for F16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_f16_bytes(bytes)
    }
    fn one(b: &[u8]) -> f32 {
        f16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

impl Element for Bf16 {
    const BYTES: usize = 2;
    #[inline(always)]
    fn load<S: Simd>(s: S, bytes: &[u8]) -> S::F {
        s.load_bf16_bytes(bytes)
    }
    fn one(b: &[u8]) -> f32 {
        bf16::from_le_bytes([b[0], b[1]]).to_f32()
    }
}

/// The product for `rows` of `weights`, which ends with the last of them.
pub(super) struct Job<'a> {
    pub(super) weights: &'a [u8],
    pub(super) rows: Range<usize>,
    pub(super) acts: &'a QuantizedActs,
    pub(super) tokens: Tokens<'a>,
    pub(super) out: OutView<'a>,
    /// Sixteen partial sums for each row and token of a block.
    pub(super) sums: &'a mut Vec<Line>,
}

impl Job<'_> {
    /// Computes it.
    ///
    /// # Safety
    /// As [`super::matmul_rows`].
    pub(super) unsafe fn run(self, isa: Isa, kind: FloatKind) {
        match kind {
            FloatKind::F32 => isa.run(Typed::<F32> { job: self, element: F32 }),
            FloatKind::F16 => isa.run(Typed::<F16> { job: self, element: F16 }),
            FloatKind::Bf16 => isa.run(Typed::<Bf16> { job: self, element: Bf16 }),
        }
    }
}

struct Typed<'a, E> {
    job: Job<'a>,
    #[expect(dead_code, reason = "names the storage type")]
    element: E,
}

impl<E: Element> Op for Typed<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        if S::LANES == 16 { self.job.product::<S, E, 1>(s) } else { self.job.product::<S, E, 2>(s) }
    }
}

impl Job<'_> {
    /// `V` vectors make the sixteen partial sums.
    #[inline(always)]
    fn product<S: Simd, E: Element, const V: usize>(mut self, s: S) {
        let (rows, n) = (self.rows.clone(), self.tokens.len());
        if n <= 2 {
            for t in 0..n {
                if self.acts.k() <= SHORT {
                    self.one_token::<S, E, V, 2>(s, t);
                } else {
                    self.one_token::<S, E, V, 4>(s, t);
                }
            }
            return;
        }
        for first in rows.clone().step_by(ROWS) {
            let rows = first..(first + ROWS).min(rows.end);
            for t in (0..n).step_by(TOKENS) {
                let tokens = t..(t + TOKENS).min(n);
                match V {
                    1 => self.block::<S, E, V, 4, 6>(s, rows.clone(), tokens),
                    _ => self.block::<S, E, V, 2, 3>(s, rows.clone(), tokens),
                }
            }
        }
    }

    /// One token with all rows, `R` at a time and then one by one.
    #[inline(always)]
    fn one_token<S: Simd, E: Element, const V: usize, const R: usize>(&mut self, s: S, t: usize) {
        let (rows, k) = (self.rows.clone(), self.acts.k());
        let mut r = rows.start;
        while r < rows.end {
            if r + R <= rows.end {
                // The next rows' share is asked for in time.
                let ahead = self.weights.as_ptr().wrapping_add((r + R) * k * E::BYTES);
                let acc =
                    self.part::<S, E, V, R, 1, true>(s, (r, t), 0..k, [[[s.splat_f(0.0); V]; 1]; R], ahead);
                for (i, [sum]) in acc.into_iter().enumerate() {
                    self.finish::<S, E, V>(s, r + i, t, sum);
                }
                r += R;
            } else {
                let zero = [[[s.splat_f(0.0); V]; 1]; 1];
                let [[sum]] = self.part::<S, E, V, 1, 1, false>(s, (r, t), 0..k, zero, core::ptr::null());
                self.finish::<S, E, V>(s, r, t, sum);
                r += 1;
            }
        }
    }

    /// A block of rows and tokens in register tiles of `R` and `T`.
    #[inline(always)]
    fn block<S: Simd, E: Element, const V: usize, const R: usize, const T: usize>(
        &mut self,
        s: S,
        rows: Range<usize>,
        tokens: Range<usize>,
    ) {
        let k = self.acts.k();
        // The first values' products begin the sums, whatever was there; they do so without any values, too.
        let sums = rows.len() * tokens.len();
        if self.sums.len() < sums {
            self.sums.resize(sums, Line::ZERO);
        }
        for k0 in (0..k.max(1)).step_by(VALUES) {
            let values = k0..(k0 + VALUES).min(k);
            let mut t = tokens.start;
            while t < tokens.end {
                let first = (t - tokens.start) * rows.len();
                if t + T <= tokens.end {
                    self.tiles::<S, E, V, R, T>(s, rows.clone(), t, values.clone(), first);
                    t += T;
                } else {
                    self.tiles::<S, E, V, R, 1>(s, rows.clone(), t, values.clone(), first);
                    t += 1;
                }
            }
        }
        for t in tokens.clone() {
            let sums = &self.sums[(t - tokens.start) * rows.len()..][..rows.len()];
            let (sixteens, rest) = if k.is_multiple_of(16) { sums.as_chunks() } else { (&[][..], sums) };
            for (i, lines) in sixteens.iter().enumerate() {
                let dots = s.reduce_lines(lines).floats();
                // SAFETY: whoever ran the job promised that nobody else uses these values now.
                unsafe { self.out.write(self.tokens.out_row(t), rows.start + 16 * i, &dots) };
            }
            for (i, line) in rest.iter().enumerate() {
                let mut sum = [s.splat_f(0.0); V];
                for v in 0..V {
                    sum[v] = s.load_f(line, v);
                }
                self.finish::<S, E, V>(s, rows.end - rest.len() + i, t, sum);
            }
        }
    }

    /// Adds some values' products of `T` tokens from `t` on with rows, `R` at a time and then one by one; token `t`'s sums
    /// begin at `first`.
    #[inline(always)]
    fn tiles<S: Simd, E: Element, const V: usize, const R: usize, const T: usize>(
        &mut self,
        s: S,
        rows: Range<usize>,
        t: usize,
        values: Range<usize>,
        first: usize,
    ) {
        let mut r = rows.start;
        while r < rows.end {
            let at = first + r - rows.start;
            if r + R <= rows.end {
                self.tile::<S, E, V, R, T>(s, (r, t), values.clone(), at, rows.len());
                r += R;
            } else {
                self.tile::<S, E, V, 1, T>(s, (r, t), values.clone(), at, rows.len());
                r += 1;
            }
        }
    }

    /// One register tile. The sums of its first row and token lie at `at`, those of the next token `stride` further.
    #[inline(always)]
    fn tile<S: Simd, E: Element, const V: usize, const R: usize, const T: usize>(
        &mut self,
        s: S,
        tile: (usize, usize),
        values: Range<usize>,
        at: usize,
        stride: usize,
    ) {
        let mut acc = [[[s.splat_f(0.0); V]; T]; R];
        if values.start > 0 {
            for t in 0..T {
                let sums = &self.sums[at + t * stride..][..R];
                for r in 0..R {
                    for v in 0..V {
                        acc[r][t][v] = s.load_f(&sums[r], v);
                    }
                }
            }
        }
        let acc = self.part::<S, E, V, R, T, false>(s, tile, values, acc, core::ptr::null());
        for t in 0..T {
            let sums = &mut self.sums[at + t * stride..][..R];
            for r in 0..R {
                for v in 0..V {
                    s.store_f(&mut sums[r], v, acc[r][t][v]);
                }
            }
        }
    }

    /// `acc` and the products of some values of `R` rows from `r0` on and `T` tokens from `t0` on, without what is left of
    /// a row behind its last sixteen. With `AHEAD` it prefetches the bytes there, as many as it reads.
    #[inline(always)]
    fn part<S: Simd, E: Element, const V: usize, const R: usize, const T: usize, const AHEAD: bool>(
        &self,
        s: S,
        (r0, t0): (usize, usize),
        values: Range<usize>,
        mut acc: [[[S::F; V]; T]; R],
        ahead: *const u8,
    ) -> [[[S::F; V]; T]; R] {
        let k = self.acts.k();
        let mut w: [&[u8]; R] = [&[]; R];
        let mut a: [&[f32]; T] = [&[]; T];
        for r in 0..R {
            w[r] = &self.weights[((r0 + r) * k + values.start) * E::BYTES..][..values.len() * E::BYTES];
        }
        for t in 0..T {
            a[t] = &self.acts.float_row(self.tokens.row(t0 + t))[values.clone()];
        }
        for i in 0..values.len() / 16 {
            if AHEAD {
                for line in 0..R * E::BYTES / 4 {
                    prefetch(ahead.wrapping_add(16 * i * R * E::BYTES + 64 * line));
                }
            }
            for v in 0..V {
                let at = 16 * i + v * S::LANES;
                let mut x = [s.splat_f(0.0); T];
                for t in 0..T {
                    // SAFETY: `at` + LANES ≤ 16 · (len / 16) ≤ len, the length of the slices.
                    x[t] = s.load_slice(unsafe { a[t].get_unchecked(at..at + S::LANES) });
                }
                for r in 0..R {
                    // SAFETY: the same, in bytes.
                    let bytes = unsafe { w[r].get_unchecked(at * E::BYTES..(at + S::LANES) * E::BYTES) };
                    let y = E::load(s, bytes);
                    for t in 0..T {
                        acc[r][t][v] = s.fma(y, x[t], acc[r][t][v]);
                    }
                }
            }
        }
        acc
    }

    /// Adds the values behind a row's last sixteen, reduces the sums and writes the result.
    #[inline(always)]
    fn finish<S: Simd, E: Element, const V: usize>(&self, s: S, r: usize, t: usize, sum: [S::F; V]) {
        let k = self.acts.k();
        let mut line = Line::ZERO;
        for v in 0..V {
            s.store_f(&mut line, v, sum[v]);
        }
        let mut lanes = line.floats();
        let rest = k / 16 * 16;
        if rest < k {
            let (w, a) = (&self.weights[r * k * E::BYTES..], self.acts.float_row(self.tokens.row(t)));
            for (lane, i) in (rest..k).enumerate() {
                lanes[lane] = E::one(&w[i * E::BYTES..]).mul_add(a[i], lanes[lane]);
            }
        }
        // SAFETY: whoever ran the job promised that nobody else uses this value now.
        unsafe { self.out.write(self.tokens.out_row(t), r, &[reduce16(lanes)]) };
    }
}
