//! Sixteen float lanes: what the operations between the matmuls are written in.
//!
//! Code is generic over [`Wide`] and enters an instruction set through [`Vectors::run`], so nothing is written twice.
//! Every method is exact or correctly rounded and always sees sixteen lanes, whatever the width of the registers, so
//! results are the same bits on every instruction set.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod plain;

use crate::isa::Isa;
use smelt_quant::reduce16;

#[cfg(target_arch = "x86_64")]
use crate::isa::{Avx2, Avx512Vnni};
use plain::Plain;

/// Work that is generic over the instruction set.
pub(crate) trait WideOp {
    type Output;
    /// Does the work; implementations are `#[inline(always)]`.
    fn run<W: Wide>(self, w: W) -> Self::Output;
}

/// Vectors of sixteen floats. Values of implementing types prove that the CPU has the instructions.
pub(crate) trait Wide: Copy {
    type V: Copy;
    /// Sums that may be under way at once: the registers hold them and what is added. One where there is nothing to
    /// gain from more, which take long to compile.
    const SUMS: usize;

    fn splat(self, x: f32) -> Self::V;
    fn load(self, x: &[f32; 16]) -> Self::V;
    fn store(self, v: Self::V, out: &mut [f32; 16]);
    /// IEEE halves, widened.
    fn load_half(self, x: &[u16; 16]) -> Self::V;
    /// Rounded to IEEE halves, to nearest even.
    fn store_half(self, v: Self::V, out: &mut [u16; 16]);
    /// Signed bytes, exactly.
    fn load_bytes(self, x: &[i8; 16]) -> Self::V;
    /// The four bits of each byte that begin at bit `shift`, 0 or 4, minus 8.
    fn load_nibbles(self, x: &[u8; 16], shift: u32) -> Self::V;
    fn add(self, a: Self::V, b: Self::V) -> Self::V;
    fn sub(self, a: Self::V, b: Self::V) -> Self::V;
    fn mul(self, a: Self::V, b: Self::V) -> Self::V;
    fn div(self, a: Self::V, b: Self::V) -> Self::V;
    /// `a · b + c`, rounded once.
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V;
    /// `if a > b { a } else { b }`: `b` where either is NaN.
    fn max(self, a: Self::V, b: Self::V) -> Self::V;
    /// `if a < b { a } else { b }`: `b` where either is NaN.
    fn min(self, a: Self::V, b: Self::V) -> Self::V;
    /// `2ⁿ` where the low bits of `t`'s representation hold the integer `n` in −126..=127.
    fn exp2_of_low_bits(self, t: Self::V) -> Self::V;

    /// `x`, at most sixteen values, with zeros behind.
    #[inline(always)]
    fn load_part(self, x: &[f32]) -> Self::V {
        let mut all = [0f32; 16];
        all[..x.len()].copy_from_slice(x);
        self.load(&all)
    }

    /// As many lanes as `out` has room for, at most sixteen.
    #[inline(always)]
    fn store_part(self, v: Self::V, out: &mut [f32]) {
        let mut all = [0f32; 16];
        self.store(v, &mut all);
        let n = out.len();
        out.copy_from_slice(&all[..n]);
    }

    /// The lanes' sum, by the fixed tree of [`reduce16`].
    #[inline(always)]
    fn sum(self, v: Self::V) -> f32 {
        let mut all = [0f32; 16];
        self.store(v, &mut all);
        reduce16(all)
    }

    /// The largest lane; NaNs are passed over. Of zeros with different signs it may be either.
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        let mut all = [0f32; 16];
        // Once NaNs are gone, the order of comparisons doesn't matter.
        self.store(self.max(v, self.splat(f32::NEG_INFINITY)), &mut all);
        let mut width = 8;
        while width > 0 {
            for i in 0..width {
                all[i] = if all[i] > all[i + width] { all[i] } else { all[i + width] };
            }
            width /= 2;
        }
        all[0]
    }

    /// `eˣ` to 2 ulp; arguments beyond ±87 count as ±87, NaN stays.
    ///
    /// `x = n·ln 2 + r` with `|r| ≤ ln 2 / 2`, then the Taylor polynomial of degree 7 (error 2⁻²⁷) times `2ⁿ`.
    #[inline(always)]
    fn exp(self, x: Self::V) -> Self::V {
        // The argument stands second, where NaN passes.
        self.exp_up_to_87(self.min(self.splat(87.0), x))
    }

    /// [`Wide::exp`] of arguments that are at most 87, or NaN.
    #[inline(always)]
    fn exp_up_to_87(self, x: Self::V) -> Self::V {
        /// Adding 1.5 · 2²³ leaves the nearest integer in the low bits of a float.
        const ROUND: f32 = 12_582_912.0;
        /// `ln 2` in two parts, the first with trailing zeros so that `n · LN2_HIGH` is exact.
        const LN2_HIGH: f32 = 0.693_359_4;
        const LN2_LOW: f32 = -2.121_944_4e-4;
        const TAYLOR: [f32; 8] =
            [1.0 / 5040.0, 1.0 / 720.0, 1.0 / 120.0, 1.0 / 24.0, 1.0 / 6.0, 0.5, 1.0, 1.0];
        let x = self.max(self.splat(-87.0), x);
        let t = self.fma(x, self.splat(std::f32::consts::LOG2_E), self.splat(ROUND));
        let n = self.sub(t, self.splat(ROUND));
        let r = self.fma(n, self.splat(-LN2_HIGH), x);
        let r = self.fma(n, self.splat(-LN2_LOW), r);
        let mut p = self.splat(TAYLOR[0]);
        for c in &TAYLOR[1..] {
            p = self.fma(p, r, self.splat(*c));
        }
        self.mul(p, self.exp2_of_low_bits(t))
    }

    /// `1 / (1 + e⁻ˣ)`.
    #[inline(always)]
    fn sigmoid(self, x: Self::V) -> Self::V {
        let one = self.splat(1.0);
        self.div(one, self.add(one, self.exp(self.sub(self.splat(0.0), x))))
    }

    /// `tanh x = 1 − 2 / (e²ˣ + 1)`, to 2e-7 absolutely.
    #[inline(always)]
    fn tanh(self, x: Self::V) -> Self::V {
        let e = self.exp(self.add(x, x));
        let one = self.splat(1.0);
        self.sub(one, self.div(self.splat(2.0), self.add(e, one)))
    }
}

/// The instruction set that [`Wide`] code runs in.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Vectors {
    Plain,
    #[cfg(target_arch = "x86_64")]
    Avx2(Avx2),
    #[cfg(target_arch = "x86_64")]
    Avx512(Avx512Vnni),
}

impl Vectors {
    /// The vectors of `isa`.
    ///
    /// # Panics
    /// If the CPU lacks it; [`Isa::resolve`] never gives such a value.
    pub(crate) fn new(isa: Isa) -> Self {
        match isa {
            Isa::Scalar => Self::Plain,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Self::Avx2(Avx2::new().expect("the CPU has AVX2")),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Self::Avx512(Avx512Vnni::new().expect("the CPU has AVX-512 VNNI")),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512Vnni => unreachable!("not an instruction set of this CPU"),
            #[cfg(test)]
            Isa::Model512 => Self::Plain,
        }
    }

    /// Runs `op` inside the instruction set's `#[target_feature]` function.
    #[inline]
    pub(crate) fn run<O: WideOp>(self, op: O) -> O::Output {
        match self {
            Self::Plain => op.run(Plain),
            #[cfg(target_arch = "x86_64")]
            Self::Avx2(token) => avx2::enter(token, op),
            #[cfg(target_arch = "x86_64")]
            Self::Avx512(token) => avx512::enter(token, op),
        }
    }
}

#[cfg(test)]
mod tests;
