//! Sixteen lanes in two AVX registers.

use super::{Wide, WideOp};
use crate::isa::Avx2;
use core::arch::x86_64::*;

/// Runs `op` with AVX2, FMA and F16C.
#[inline]
pub(super) fn enter<O: WideOp>(token: Avx2, op: O) -> O::Output {
    #[target_feature(enable = "avx2,fma,f16c")]
    fn inside<O: WideOp>(token: Avx2, op: O) -> O::Output {
        op.run(token)
    }
    // SAFETY: the token is the proof that the CPU has AVX2, FMA and F16C.
    unsafe { inside(token, op) }
}

/// One intrinsic on both registers.
macro_rules! both {
    ($intrinsic:ident($($v:expr),*)) => {
        // SAFETY: `self` is the proof that the CPU has AVX2, FMA and F16C; the intrinsic only computes.
        unsafe { [$intrinsic($($v[0]),*), $intrinsic($($v[1]),*)] }
    };
}

/// Signed bytes as floats.
///
/// # Safety
/// The CPU has AVX2.
#[inline(always)]
unsafe fn floats(bytes: __m128i) -> [__m256; 2] {
    // SAFETY: the caller's promise; the intrinsics only compute.
    unsafe {
        [
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes)),
            _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_srli_si128::<8>(bytes))),
        ]
    }
}

impl Wide for Avx2 {
    type V = [__m256; 2];
    const SUMS: usize = 6;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        // SAFETY: `self` is the proof that the CPU has AVX2.
        let v = unsafe { _mm256_set1_ps(x) };
        [v, v]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::V {
        // SAFETY: the CPU has AVX2 (`self`); `x` is two times 8 readable floats.
        unsafe { [_mm256_loadu_ps(x.as_ptr()), _mm256_loadu_ps(x.as_ptr().add(8))] }
    }
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; 16]) {
        // SAFETY: the CPU has AVX2 (`self`); `out` is two times 8 writable floats.
        unsafe {
            _mm256_storeu_ps(out.as_mut_ptr(), v[0]);
            _mm256_storeu_ps(out.as_mut_ptr().add(8), v[1]);
        }
    }
    #[inline(always)]
    fn load_half(self, x: &[u16; 16]) -> Self::V {
        // SAFETY: the CPU has F16C (`self`); `x` is two times 16 readable bytes.
        unsafe {
            let (low, high) = (x.as_ptr().cast(), x.as_ptr().add(8).cast());
            [_mm256_cvtph_ps(_mm_loadu_si128(low)), _mm256_cvtph_ps(_mm_loadu_si128(high))]
        }
    }
    #[inline(always)]
    fn store_half(self, v: Self::V, out: &mut [u16; 16]) {
        // SAFETY: the CPU has F16C (`self`); `out` is two times 16 writable bytes.
        unsafe {
            const NEAREST: i32 = _MM_FROUND_TO_NEAREST_INT;
            _mm_storeu_si128(out.as_mut_ptr().cast(), _mm256_cvtps_ph::<NEAREST>(v[0]));
            _mm_storeu_si128(out.as_mut_ptr().add(8).cast(), _mm256_cvtps_ph::<NEAREST>(v[1]));
        }
    }
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 16]) -> Self::V {
        // SAFETY: the CPU has AVX2 (`self`); `x` is 16 readable bytes.
        unsafe { floats(_mm_loadu_si128(x.as_ptr().cast())) }
    }
    #[inline(always)]
    fn load_nibbles(self, x: &[u8; 16], shift: u32) -> Self::V {
        // SAFETY: the CPU has AVX2 (`self`); `x` is 16 readable bytes.
        unsafe {
            let bytes = _mm_loadu_si128(x.as_ptr().cast());
            let nibbles = _mm_srl_epi16(bytes, _mm_cvtsi32_si128(shift as i32));
            floats(_mm_sub_epi8(_mm_and_si128(nibbles, _mm_set1_epi8(15)), _mm_set1_epi8(8)))
        }
    }
    #[inline(always)]
    fn largest(self, v: Self::V) -> f32 {
        // SAFETY: `self` is the proof that the CPU has AVX2.
        unsafe {
            // The second operand is what comes out where either is NaN.
            let least = _mm256_set1_ps(f32::NEG_INFINITY);
            let eight = _mm256_max_ps(_mm256_max_ps(v[0], least), _mm256_max_ps(v[1], least));
            let four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps::<1>(eight));
            let two = _mm_max_ps(four, _mm_movehl_ps(four, four));
            _mm_cvtss_f32(_mm_max_ss(two, _mm_movehdup_ps(two)))
        }
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_add_ps(a, b))
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_sub_ps(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_div_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        both!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_max_ps(a, b))
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        both!(_mm256_min_ps(a, b))
    }
    #[inline(always)]
    fn exp2_of_low_bits(self, t: Self::V) -> Self::V {
        // SAFETY: `self` is the proof that the CPU has AVX2.
        unsafe {
            let bias = _mm256_set1_epi32(127 << 23);
            let low = _mm256_slli_epi32::<23>(_mm256_castps_si256(t[0]));
            let high = _mm256_slli_epi32::<23>(_mm256_castps_si256(t[1]));
            [
                _mm256_castsi256_ps(_mm256_add_epi32(low, bias)),
                _mm256_castsi256_ps(_mm256_add_epi32(high, bias)),
            ]
        }
    }
}
