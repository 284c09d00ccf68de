//! Sixteen lanes in one AVX-512 register.

use super::{Wide, WideOp};
use crate::isa::Avx512Vnni;
use core::arch::x86_64::*;

/// Runs `op` with AVX-512.
#[inline]
pub(super) fn enter<O: WideOp>(token: Avx512Vnni, op: O) -> O::Output {
    #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
    fn inside<O: WideOp>(token: Avx512Vnni, op: O) -> O::Output {
        op.run(token)
    }
    // SAFETY: the token is the proof that the CPU has all of these.
    unsafe { inside(token, op) }
}

/// Intrinsics on values, whose only demand is the CPU.
macro_rules! avx512 {
    ($e:expr) => {
        // SAFETY: `self` is the proof that the CPU has AVX-512 F, BW and VL.
        unsafe { $e }
    };
}

impl Wide for Avx512Vnni {
    type V = __m512;
    const SUMS: usize = 24;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        avx512!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::V {
        // SAFETY: the CPU has AVX-512 (`self`); `x` is 16 readable floats.
        unsafe { _mm512_loadu_ps(x.as_ptr()) }
    }
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; 16]) {
        // SAFETY: the CPU has AVX-512 (`self`); `out` is 16 writable floats.
        unsafe { _mm512_storeu_ps(out.as_mut_ptr(), v) }
    }
    #[inline(always)]
    fn load_half(self, x: &[u16; 16]) -> Self::V {
        // SAFETY: the CPU has AVX-512 (`self`); `x` is 32 readable bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn store_half(self, v: Self::V, out: &mut [u16; 16]) {
        // SAFETY: the CPU has AVX-512 (`self`); `out` is 32 writable bytes.
        unsafe {
            let halves = _mm512_cvtps_ph::<_MM_FROUND_TO_NEAREST_INT>(v);
            _mm256_storeu_si256(out.as_mut_ptr().cast(), halves);
        }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 16]) -> Self::V {
        // SAFETY: the CPU has AVX-512 (`self`); `x` is 16 readable bytes.
        unsafe { _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(_mm_loadu_si128(x.as_ptr().cast()))) }
    }
    #[inline(always)]
    fn load_nibbles(self, x: &[u8; 16], shift: u32) -> Self::V {
        // SAFETY: the CPU has AVX-512 (`self`); `x` is 16 readable bytes.
        unsafe {
            let values =
                _mm512_setr_ps(-8., -7., -6., -5., -4., -3., -2., -1., 0., 1., 2., 3., 4., 5., 6., 7.);
            let bytes = _mm512_cvtepu8_epi32(_mm_loadu_si128(x.as_ptr().cast()));
            // Only the low four bits of an index count.
            _mm512_permutexvar_ps(_mm512_srl_epi32(bytes, _mm_cvtsi32_si128(shift as i32)), values)
        }
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        // SAFETY: `self` is the proof that the CPU has AVX-512.
        unsafe {
            // The second operand is what comes out where either is NaN.
            let v = _mm512_max_ps(v, _mm512_set1_ps(f32::NEG_INFINITY));
            let high = _mm256_castpd_ps(_mm512_extractf64x4_pd::<1>(_mm512_castps_pd(v)));
            let eight = _mm256_max_ps(_mm512_castps512_ps256(v), high);
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        avx512!(_mm512_min_ps(a, b))
    }
    #[inline(always)]
    fn exp2_of_low_bits(self, t: Self::V) -> Self::V {
        avx512!({
            let shifted = _mm512_slli_epi32::<23>(_mm512_castps_si512(t));
            _mm512_castsi512_ps(_mm512_add_epi32(shifted, _mm512_set1_epi32(127 << 23)))
        })
    }
}
