//! Measures how fast the threads multiply and add, with everything in registers.
//!
//! This is what the matrix kernels are held against: no kernel comes near it by loading less or by waiting less, only
//! by having nothing else to do.

use crate::isa::{Isa, Line, Op, Simd};
use crate::pool::Pool;
use std::hint::black_box;
use std::time::Instant;

/// Multiply-adds per second, all threads together.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Peaks {
    /// 10⁹ products of unsigned with signed bytes a second, each summed in 32 bits: `vpdpbusd` on AVX-512 VNNI;
    /// `vpmaddubsw`, `vpmaddwd` and `vpaddd` on AVX2. A kernel for narrow weights can add some products in 16 bits
    /// first, which AVX2 does faster than this.
    pub int8_gmac_per_s: f64,
    /// 10⁹ fused `f32` multiply-adds a second.
    pub f32_gmac_per_s: f64,
}

/// Sums that don't depend on each other: about the latency of a step times the steps that start in a cycle, and few
/// enough for sixteen registers.
const SUMS: usize = 12;
/// Steps of all sums between two looks at the clock: below a millisecond.
const STEPS: usize = 20_000;
/// Chunks for each thread in one pass.
const CHUNKS: usize = 16;
/// The best pass counts; the first ones bring the cores up to speed.
const PASSES: usize = 4;

/// Both peaks. Takes a few tenths of a second.
pub(crate) fn measure(pool: &Pool, isa: Isa) -> Peaks {
    let int8 = best(pool, || isa.run(Bytes));
    let f32 = best(pool, || isa.run(Floats));
    Peaks { int8_gmac_per_s: int8, f32_gmac_per_s: f32 }
}

/// 10⁹ multiply-adds a second of `work`, which says how many it did.
fn best(pool: &Pool, work: impl Fn() -> usize + Sync) -> f64 {
    let macs = work() * CHUNKS * pool.threads();
    let mut best = f64::INFINITY;
    for _ in 0..PASSES {
        let start = Instant::now();
        pool.chunks(CHUNKS * pool.threads(), |_, _| {
            black_box(work());
        });
        best = best.min(start.elapsed().as_secs_f64());
    }
    macs as f64 / best / 1e9
}

/// Sums products of bytes; gives their number.
struct Bytes;

impl Op for Bytes {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        // Unknown to the compiler, which would otherwise compute the result beforehand; and every product has a sum
        // as a factor, or they would all be the same one.
        let factor = s.splat(black_box(0x0302_0103));
        let mut sums: [S::I; SUMS] = std::array::from_fn(|i| s.splat(black_box(i as i32)));
        for _ in 0..STEPS {
            for sum in &mut sums {
                let partial = s.mac(s.begin(*sum), *sum, factor);
                *sum = s.end(*sum, partial);
            }
        }
        for sum in sums {
            let mut line = Line::ZERO;
            s.store(&mut line, 0, sum);
            black_box(line);
        }
        STEPS * SUMS * S::LANES * 4
    }
}

/// Sums products of floats; gives their number.
struct Floats;

impl Op for Floats {
    type Output = usize;

    #[inline(always)]
    fn run<S: Simd>(self, s: S) -> usize {
        // Every sum tends to 2, far from the slow denormal and infinite numbers.
        let (half, one) = (s.splat_f(black_box(0.5)), s.splat_f(black_box(1.0)));
        let mut sums: [S::F; SUMS] = std::array::from_fn(|i| s.splat_f(black_box(i as f32)));
        for _ in 0..STEPS {
            for sum in &mut sums {
                *sum = s.fma(*sum, half, one);
            }
        }
        for sum in sums {
            let mut line = Line::ZERO;
            s.store_f(&mut line, 0, sum);
            black_box(line);
        }
        STEPS * SUMS * S::LANES
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn peaks_are_positive_and_finite() {
        let pool = Pool::new(1, false).expect("a pool of the caller's thread");
        for isa in Isa::ALL.into_iter().filter(|isa| isa.available()) {
            let peaks = measure(&pool, isa);
            for peak in [peaks.int8_gmac_per_s, peaks.f32_gmac_per_s] {
                assert!(peak.is_finite() && peak > 0.0, "{}: {peak}", isa.name());
            }
        }
    }
}
