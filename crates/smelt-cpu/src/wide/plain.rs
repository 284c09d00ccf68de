//! Sixteen lanes as an array.

use super::Wide;
use half::f16;
use std::array::from_fn;

/// Plain Rust, on any CPU.
#[derive(Debug, Clone, Copy)]
pub(super) struct Plain;

impl Wide for Plain {
    type V = [f32; 16];
    const SUMS: usize = 1;

    #[inline(always)]
    fn splat(self, x: f32) -> Self::V {
        [x; 16]
    }
    #[inline(always)]
    fn load(self, x: &[f32; 16]) -> Self::V {
        *x
    }
    #[inline(always)]
    fn store(self, v: Self::V, out: &mut [f32; 16]) {
        *out = v;
    }
    #[inline(always)]
    fn load_half(self, x: &[u16; 16]) -> Self::V {
        x.map(|h| f16::from_bits(h).to_f32())
    }
    #[inline(always)]
    fn store_half(self, v: Self::V, out: &mut [u16; 16]) {
        *out = v.map(|x| f16::from_f32(x).to_bits());
    }
    #[inline(always)]
    fn load_bytes(self, x: &[i8; 16]) -> Self::V {
        x.map(f32::from)
    }
    #[inline(always)]
    fn load_nibbles(self, x: &[u8; 16], shift: u32) -> Self::V {
        x.map(|b| f32::from((b >> shift & 15) as i8 - 8))
    }
    #[inline(always)]
    fn add(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] + b[i])
    }
    #[inline(always)]
    fn sub(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] - b[i])
    }
    #[inline(always)]
    fn mul(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(always)]
    fn div(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| a[i] / b[i])
    }
    #[inline(always)]
    fn fma(self, a: Self::V, b: Self::V, c: Self::V) -> Self::V {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(always)]
    fn max(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] > b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn min(self, a: Self::V, b: Self::V) -> Self::V {
        from_fn(|i| if a[i] < b[i] { a[i] } else { b[i] })
    }
    #[inline(always)]
    fn exp2_of_low_bits(self, t: Self::V) -> Self::V {
        t.map(|t| f32::from_bits((t.to_bits() << 23).wrapping_add(127 << 23)))
    }
}
