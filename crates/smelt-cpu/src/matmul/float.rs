//! Float weights with f32 activations, in the canonical order of `smelt_quant::dot_f32`: sixteen partial sums along
//! the row, then `reduce16`.
//!
//! Here vector lanes run along the row, not over rows, because that is the canonical order; a register tile of two
//! rows and three tokens loads less than it multiplies. A block of rows that fits the second-level cache is multiplied
//! with three tokens at a time, whose values stay in the first-level cache.

use super::OutView;
use super::acts::{QuantizedActs, Tokens};
use crate::isa::{Isa, Line, Op, Simd, prefetch};
use core::ops::Range;
use half::{bf16, f16};
use smelt_quant::reduce16;

/// Bytes of weights that are multiplied with all tokens before the next.
const ROW_BLOCK_BYTES: usize = 128 * 1024;

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
///
/// # Safety
/// As [`super::matmul_rows`].
pub(crate) unsafe fn matmul(
    isa: Isa,
    kind: FloatKind,
    weights: &[u8],
    rows: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    out: OutView<'_>,
) {
    let job = Job { weights, rows, acts, tokens, out };
    match kind {
        FloatKind::F32 => isa.run(Typed::<F32> { job, element: F32 }),
        FloatKind::F16 => isa.run(Typed::<F16> { job, element: F16 }),
        FloatKind::Bf16 => isa.run(Typed::<Bf16> { job, element: Bf16 }),
    }
}

/// The arguments of one call. Whoever makes one promises what [`super::matmul_rows`] asks.
struct Job<'a> {
    weights: &'a [u8],
    rows: Range<usize>,
    acts: &'a QuantizedActs,
    tokens: Tokens<'a>,
    out: OutView<'a>,
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
        if S::LANES == 16 { self.job.blocks::<S, E, 1>(s) } else { self.job.blocks::<S, E, 2>(s) }
    }
}

impl Job<'_> {
    /// `V` vectors make the sixteen partial sums.
    #[inline(always)]
    fn blocks<S: Simd, E: Element, const V: usize>(&self, s: S) {
        let row_bytes = self.acts.k() * E::BYTES;
        let step = (ROW_BLOCK_BYTES / row_bytes.max(1)).max(4) & !3;
        let n = self.tokens.len();
        for first in self.rows.clone().step_by(step) {
            let end = (first + step).min(self.rows.end);
            let mut t = 0;
            while t + 3 <= n {
                self.tiles::<S, E, V, 2, 3>(s, first..end, t);
                t += 3;
            }
            while t < n {
                self.tiles::<S, E, V, 4, 1>(s, first..end, t);
                t += 1;
            }
        }
    }

    /// `T` tokens with rows, `R` at a time and then one by one.
    #[inline(always)]
    fn tiles<S: Simd, E: Element, const V: usize, const R: usize, const T: usize>(
        &self,
        s: S,
        rows: Range<usize>,
        t: usize,
    ) {
        let mut r = rows.start;
        while r + R <= rows.end {
            self.tile::<S, E, V, R, T>(s, r, t);
            r += R;
        }
        while r < rows.end {
            self.tile::<S, E, V, 1, T>(s, r, t);
            r += 1;
        }
    }

    #[inline(always)]
    fn tile<S: Simd, E: Element, const V: usize, const R: usize, const T: usize>(
        &self,
        s: S,
        r0: usize,
        t0: usize,
    ) {
        let k = self.acts.k();
        let mut w: [&[u8]; R] = [&[]; R];
        let mut a: [&[f32]; T] = [&[]; T];
        for r in 0..R {
            w[r] = &self.weights[(r0 + r) * k * E::BYTES..][..k * E::BYTES];
        }
        for t in 0..T {
            a[t] = self.acts.float_row(self.tokens.row(t0 + t));
        }
        let mut acc = [[[s.splat_f(0.0); V]; T]; R];
        // A single token reads the weights once, from memory: the next rows' share is asked for in time.
        let next = self.weights[r0 * k * E::BYTES..].as_ptr().wrapping_add(R * k * E::BYTES);
        for i in 0..k / 16 {
            if T == 1 {
                for line in 0..R * E::BYTES / 4 {
                    prefetch(next.wrapping_add(16 * i * R * E::BYTES + 64 * line));
                }
            }
            for v in 0..V {
                let at = 16 * i + v * S::LANES;
                let mut x = [s.splat_f(0.0); T];
                for t in 0..T {
                    // SAFETY: `at` + LANES ≤ 16 · (k / 16) ≤ k, the length of the row.
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
        for r in 0..R {
            for t in 0..T {
                let mut line = Line::ZERO;
                for v in 0..V {
                    s.store_f(&mut line, v, acc[r][t][v]);
                }
                let mut lanes = line.floats();
                let rest = k / 16 * 16;
                for (lane, i) in (rest..k).enumerate() {
                    lanes[lane] = E::one(&w[r][i * E::BYTES..]).mul_add(a[t][i], lanes[lane]);
                }
                // SAFETY: whoever made the job promises that nobody else uses this value now.
                unsafe { self.out.write(self.tokens.out_row(t0 + t), r0 + r, &[reduce16(lanes)]) };
            }
        }
    }
}
