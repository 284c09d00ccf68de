//! Vectors as plain arrays: the portable instruction set, and with sixteen lanes the model of AVX-512 that tests
//! run where the CPU has none.
//!
//! Most operations are calls, not inlined: unrolled into every kernel they would be megabytes of code, and a call of
//! a loop over lanes, which the compiler vectorises, is what a fallback needs.

use super::{Codebook, Line, Op, Rows, Simd};
use core::array::from_fn;
use half::{bf16, f16};

/// `L` lanes (8 or 16) in an array.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Plain<const L: usize>;

/// Applies `f` to the four bytes of two lanes.
#[inline(always)]
fn bytes(a: u32, b: u32, f: impl Fn(u8, u8) -> u8) -> u32 {
    let (a, b) = (a.to_le_bytes(), b.to_le_bytes());
    u32::from_le_bytes(from_fn(|i| f(a[i], b[i])))
}

/// What `vpdpbusd` adds to a lane: unsigned bytes of `w` times signed bytes of `a`, no saturation.
#[inline(always)]
fn dot4(w: u32, a: u32) -> i32 {
    let (w, a) = (w.to_le_bytes(), a.to_le_bytes());
    (0..4).map(|i| i32::from(w[i]) * i32::from(a[i] as i8)).sum()
}

/// The two signed halves of a lane.
#[inline(always)]
fn halves(x: u32) -> [i32; 2] {
    [i32::from(x as i16), i32::from((x >> 16) as i16)]
}

#[inline(always)]
fn half_at(x: &[u8], i: usize) -> [u8; 2] {
    [x[2 * i], x[2 * i + 1]]
}

impl<const L: usize> Simd for Plain<L> {
    const LANES: usize = L;
    const TOKENS: usize = if L == 16 { 8 } else { 1 };
    const SIGNED_WIDE: bool = false;
    const EXACT_PARTIAL: bool = true;

    type I = [u32; L];
    type F = [f32; L];
    type P = [u32; L];

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        op.run(self)
    }

    #[inline(never)]
    fn splat(self, x: i32) -> Self::I {
        [x as u32; L]
    }
    #[inline(never)]
    fn load(self, line: &Line, v: usize) -> Self::I {
        from_fn(|i| line.0[v * L + i])
    }
    #[inline(never)]
    fn store(self, line: &mut Line, v: usize, x: Self::I) {
        line.0[v * L..][..L].copy_from_slice(&x);
    }
    #[inline(never)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] & b[i])
    }
    #[inline(never)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] | b[i])
    }
    #[inline(never)]
    fn xor(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i] ^ b[i])
    }
    #[inline(never)]
    fn shl(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| x << n)
    }
    #[inline(never)]
    fn shr(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| x >> n)
    }
    #[inline(never)]
    fn sar(self, a: Self::I, n: u32) -> Self::I {
        a.map(|x| (x as i32 >> n) as u32)
    }
    #[inline(never)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i].wrapping_add(b[i]))
    }
    #[inline(never)]
    fn mul(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| a[i].wrapping_mul(b[i]))
    }
    #[inline(never)]
    fn max(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| (a[i] as i32).max(b[i] as i32) as u32)
    }
    #[inline(never)]
    fn eq_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| bytes(a[i], b[i], |x, y| if x == y { 0xFF } else { 0 }))
    }
    #[inline(never)]
    fn sub_where(self, a: Self::I, b: Self::I, flags: Self::I, bit: Self::I) -> Self::I {
        from_fn(|i| {
            let set = bytes(flags[i], bit[i], |flags, bit| if flags & bit == bit { 0xFF } else { 0 });
            bytes(a[i], b[i] & set, u8::wrapping_sub)
        })
    }
    #[inline(never)]
    fn lookup(self, table: &[u8; 16], index: Self::I) -> Self::I {
        index.map(|x| bytes(x, 0, |b, _| table[usize::from(b & 15)]))
    }
    #[inline(never)]
    fn lookup4<const N: usize>(self, book: &Codebook<4, N>, index: Self::I) -> [Self::I; 2] {
        [0, 16].map(|half| index.map(|i| u32::from_le_bytes(book.entry((i >> half) as u16).map(|x| x as u8))))
    }
    #[inline(never)]
    fn lookup8<const N: usize>(self, book: &Codebook<8, N>, index: Self::I) -> [[Self::I; 2]; 2] {
        [0, 16].map(|half| {
            let eight = |i: u32| u64::from_le_bytes(book.entry((i >> half) as u16).map(|x| x as u8));
            let eights = index.map(eight);
            [eights.map(|x| x as u32), eights.map(|x| (x >> 32) as u32)]
        })
    }
    #[inline(never)]
    fn spread_byte<const N: u32>(self, a: Self::I) -> Self::I {
        a.map(|x| (x >> (8 * N) & 0xFF) * 0x0101_0101)
    }
    #[inline(never)]
    fn halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        x.map(|x| (x >> (8 * A) & 0xFF) | (x >> (8 * B) & 0xFF) << 16)
    }
    #[inline(never)]
    fn signed_halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        let half = |x: u32, n: i32| u32::from(i16::from((x >> (8 * n)) as i8) as u16);
        x.map(|x| half(x, A) | half(x, B) << 16)
    }
    #[inline(never)]
    fn mul_halves(self, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| {
            let low = (a[i] as u16).wrapping_mul(b[i] as u16);
            let high = ((a[i] >> 16) as u16).wrapping_mul((b[i] >> 16) as u16);
            u32::from(low) | u32::from(high) << 16
        })
    }
    #[inline(never)]
    fn quads<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 4] {
        from_fn(|j| self.dwords(rows, v, offset + 4 * j))
    }
    #[inline(never)]
    fn dwords<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::I {
        from_fn(|r| {
            let b = &rows.row(v * L + r)[offset..][..4];
            u32::from_le_bytes([b[0], b[1], b[2], b[3]])
        })
    }

    #[inline(always)]
    fn begin(self, sum: Self::I) -> Self::P {
        sum
    }
    #[inline(never)]
    fn mac(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        from_fn(|i| partial[i].wrapping_add(dot4(w[i], a[i]) as u32))
    }
    #[inline(always)]
    fn mac_wide(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        self.mac(partial, w, a)
    }
    #[inline(never)]
    fn dots<const B: usize>(self, rows: Rows<'_, B>, offset: usize, acts: &[i8]) -> Self::I {
        from_fn(|r| {
            let product = |(w, a): (&u8, &i8)| (i32::from(*w as i8) + 128) * i32::from(*a);
            let (w, a) = (rows.half_line(r, offset), &acts[32 * r..][..32]);
            w.iter().zip(a).map(product).sum::<i32>() as u32
        })
    }
    #[inline(always)]
    fn end(self, _: Self::I, partial: Self::P) -> Self::I {
        partial
    }
    #[inline(never)]
    fn end_scaled(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I {
        self.add(sum, self.mul(partial, self.sar(scale, 16)))
    }
    #[inline(never)]
    fn madd(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        from_fn(|i| {
            let ([a0, a1], [b0, b1]) = (halves(a[i]), halves(b[i]));
            sum[i].wrapping_add((a0 * b0).wrapping_add(a1 * b1) as u32)
        })
    }

    #[inline(never)]
    fn splat_f(self, x: f32) -> Self::F {
        [x; L]
    }
    #[inline(always)]
    fn load_f(self, line: &Line, v: usize) -> Self::F {
        self.load(line, v).map(f32::from_bits)
    }
    #[inline(always)]
    fn store_f(self, line: &mut Line, v: usize, x: Self::F) {
        self.store(line, v, x.map(f32::to_bits));
    }
    #[inline(never)]
    fn load_slice(self, x: &[f32]) -> Self::F {
        from_fn(|i| x[i])
    }
    #[inline(never)]
    fn load_f32_bytes(self, x: &[u8]) -> Self::F {
        from_fn(|i| f32::from_le_bytes([x[4 * i], x[4 * i + 1], x[4 * i + 2], x[4 * i + 3]]))
    }
    #[inline(never)]
    fn load_f16_bytes(self, x: &[u8]) -> Self::F {
        from_fn(|i| f16::from_le_bytes(half_at(x, i)).to_f32())
    }
    #[inline(never)]
    fn load_bf16_bytes(self, x: &[u8]) -> Self::F {
        from_fn(|i| bf16::from_le_bytes(half_at(x, i)).to_f32())
    }
    #[inline(never)]
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F {
        from_fn(|i| a[i] * b[i])
    }
    #[inline(never)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| a[i].mul_add(b[i], c[i]))
    }
    #[inline(never)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        from_fn(|i| (-a[i]).mul_add(b[i], c[i]))
    }
    #[inline(never)]
    fn to_f(self, a: Self::I) -> Self::F {
        a.map(|x| x as i32 as f32)
    }
    #[inline(never)]
    fn to_i(self, a: Self::F) -> Self::I {
        a.map(|x| x.round_ties_even() as i32 as u32)
    }
    #[inline(never)]
    fn with_bits(self, a: Self::I) -> Self::F {
        a.map(f32::from_bits)
    }
    #[inline(never)]
    fn bits(self, a: Self::F) -> Self::I {
        a.map(f32::to_bits)
    }
    #[inline(never)]
    fn f16_low(self, a: Self::I) -> Self::F {
        a.map(|x| f16::from_bits(x as u16).to_f32())
    }
    #[inline(never)]
    fn f16_high(self, a: Self::I) -> Self::F {
        a.map(|x| f16::from_bits((x >> 16) as u16).to_f32())
    }
    #[inline(never)]
    fn f16s<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::F {
        from_fn(|r| f16::from_le_bytes(half_at(&rows.row(v * L + r)[offset..], 0)).to_f32())
    }
}
