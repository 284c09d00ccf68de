//! AVX2 with FMA and F16C: eight lanes, int8 dot products through 16-bit partials.

use super::{Codebook, Line, Op, Rows, Simd};
use core::arch::x86_64::*;

/// Proof that the CPU has AVX2, FMA and F16C.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx2(());

impl Avx2 {
    /// The token, where the CPU has the instructions.
    #[inline]
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

/// Intrinsics on values, whose only demand is the CPU.
macro_rules! avx2 {
    ($e:expr) => {
        // SAFETY: `self` is the proof that the CPU has AVX2, FMA and F16C.
        unsafe { $e }
    };
}

/// The address of `x[..N]`, checked.
#[inline(always)]
fn start<const N: usize, T>(x: &[T]) -> *const T {
    x[..N].as_ptr()
}

/// The lanes' halves, through memory: scalar loads from a vector's store are forwarded, and cheaper than extractions.
#[inline(always)]
fn halves(x: __m256i) -> [u16; 16] {
    // SAFETY: both are 32 bytes, of which every value is one of either.
    unsafe { core::mem::transmute::<__m256i, [u16; 16]>(x) }
}

/// An entry of four bytes as a lane.
#[inline(always)]
fn four<const N: usize>(book: &Codebook<4, N>, index: u16) -> i32 {
    let [a, b, c, d] = *book.entry(index);
    i32::from_le_bytes([a as u8, b as u8, c as u8, d as u8])
}

/// Eight bytes from each address side by side.
///
/// # Safety
/// Both addresses are of eight readable bytes.
#[inline(always)]
unsafe fn two_eights(a: *const u8, b: *const u8) -> __m128d {
    // SAFETY: SSE2 is part of x86-64; the caller's promise.
    unsafe { _mm_loadh_pd(_mm_castsi128_pd(_mm_loadl_epi64(a.cast())), b.cast()) }
}

/// The first four and the last four bytes of eight for each lane.
///
/// # Safety
/// The CPU has AVX2; every address is of eight readable bytes.
#[inline(always)]
unsafe fn eights(p: [*const u8; 8]) -> [__m256i; 2] {
    // SAFETY: the caller's promise.
    unsafe {
        // Lanes 0 and 1 beside lanes 4 and 5, so that shuffles inside the 128-bit halves end in lane order.
        let a = _mm256_castpd_ps(_mm256_set_m128d(two_eights(p[4], p[5]), two_eights(p[0], p[1])));
        let b = _mm256_castpd_ps(_mm256_set_m128d(two_eights(p[6], p[7]), two_eights(p[2], p[3])));
        let first = _mm256_shuffle_ps::<0b10_00_10_00>(a, b);
        let last = _mm256_shuffle_ps::<0b11_01_11_01>(a, b);
        [_mm256_castps_si256(first), _mm256_castps_si256(last)]
    }
}

/// Indices for `pshufb` of bytes `a` and `b` of each lane in the lower bytes of its halves, and of zeros in the upper ones.
#[inline(always)]
pub(super) fn low_bytes(a: i32, b: i32) -> __m128i {
    let lane = |d: i32| (d + a) | (d + b) << 16 | 0x8000_8000_u32 as i32;
    // SAFETY: SSE2 is part of x86-64.
    unsafe { _mm_setr_epi32(lane(0), lane(4), lane(8), lane(12)) }
}

#[inline(always)]
fn vector(line: &Line, v: usize) -> *const __m256i {
    line.0[v * 8..][..8].as_ptr().cast()
}

#[inline(always)]
fn vector_mut(line: &mut Line, v: usize) -> *mut __m256i {
    line.0[v * 8..][..8].as_mut_ptr().cast()
}

impl Avx2 {
    /// Four bytes for half `h` of each lane, one lane after the other.
    #[inline(always)]
    fn fours<const N: usize>(self, book: &Codebook<4, N>, at: &[u16; 16], h: usize) -> __m256i {
        avx2!(_mm256_setr_epi32(
            four(book, at[h]),
            four(book, at[2 + h]),
            four(book, at[4 + h]),
            four(book, at[6 + h]),
            four(book, at[8 + h]),
            four(book, at[10 + h]),
            four(book, at[12 + h]),
            four(book, at[14 + h]),
        ))
    }
    /// Eight bytes for half `h` of each lane, the first four and the last four.
    #[inline(always)]
    fn eights<const N: usize>(self, book: &Codebook<8, N>, at: &[u16; 16], h: usize) -> [__m256i; 2] {
        let mut entries = [core::ptr::null(); 8];
        for i in 0..8 {
            entries[i] = book.entry(at[2 * i + h]).as_ptr().cast();
        }
        // SAFETY: the CPU has AVX2 (`self`); entries are eight readable bytes.
        unsafe { eights(entries) }
    }
}

impl Simd for Avx2 {
    const LANES: usize = 8;
    const TOKENS: usize = 4;
    const SIGNED_WIDE: bool = true;
    const EXACT_PARTIAL: bool = false;

    type I = __m256i;
    type F = __m256;
    /// Sixteen `i16`.
    type P = __m256i;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        #[target_feature(enable = "avx2,fma,f16c")]
        fn enter<O: Op>(s: Avx2, op: O) -> O::Output {
            op.run(s)
        }
        avx2!(enter(self, op))
    }

    #[inline(always)]
    fn splat(self, x: i32) -> Self::I {
        avx2!(_mm256_set1_epi32(x))
    }
    #[inline(always)]
    fn load(self, line: &Line, v: usize) -> Self::I {
        // SAFETY: the CPU has AVX2 (`self`); `vector` is 32 bytes inside a line, aligned to 32.
        unsafe { _mm256_load_si256(vector(line, v)) }
    }
    #[inline(always)]
    fn store(self, line: &mut Line, v: usize, x: Self::I) {
        // SAFETY: the CPU has AVX2 (`self`); `vector_mut` is 32 bytes inside a line, aligned to 32.
        unsafe { _mm256_store_si256(vector_mut(line, v), x) }
    }
    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_and_si256(a, b))
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_or_si256(a, b))
    }
    #[inline(always)]
    fn xor(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_xor_si256(a, b))
    }
    #[inline(always)]
    fn shl(self, a: Self::I, n: u32) -> Self::I {
        avx2!(_mm256_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: Self::I, n: u32) -> Self::I {
        avx2!(_mm256_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar(self, a: Self::I, n: u32) -> Self::I {
        avx2!(_mm256_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn max(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_max_epi32(a, b))
    }
    #[inline(always)]
    fn eq_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_cmpeq_epi8(a, b))
    }
    #[inline(always)]
    fn sub_where(self, a: Self::I, b: Self::I, flags: Self::I, bit: Self::I) -> Self::I {
        avx2!({
            let set = _mm256_cmpeq_epi8(_mm256_and_si256(flags, bit), bit);
            _mm256_sub_epi8(a, _mm256_and_si256(b, set))
        })
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Self::I) -> Self::I {
        // SAFETY: the CPU has AVX2 (`self`); the table is 16 readable bytes.
        unsafe {
            let table = _mm256_broadcastsi128_si256(_mm_loadu_si128(table.as_ptr().cast()));
            _mm256_shuffle_epi8(table, index)
        }
    }
    #[inline(always)]
    fn lookup4<const N: usize>(self, book: &Codebook<4, N>, index: Self::I) -> [Self::I; 2] {
        let at = halves(index);
        [self.fours(book, &at, 0), self.fours(book, &at, 1)]
    }
    #[inline(always)]
    fn lookup8<const N: usize>(self, book: &Codebook<8, N>, index: Self::I) -> [[Self::I; 2]; 2] {
        let at = halves(index);
        [self.eights(book, &at, 0), self.eights(book, &at, 1)]
    }
    #[inline(always)]
    fn spread_byte<const N: u32>(self, a: Self::I) -> Self::I {
        let lane = |d: i32| (d + N as i32) * 0x0101_0101;
        avx2!({
            let index = _mm_setr_epi32(lane(0), lane(4), lane(8), lane(12));
            _mm256_shuffle_epi8(a, _mm256_broadcastsi128_si256(index))
        })
    }
    #[inline(always)]
    fn halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        avx2!(_mm256_shuffle_epi8(x, _mm256_broadcastsi128_si256(low_bytes(A, B))))
    }
    #[inline(always)]
    fn signed_halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        avx2!({
            let high = _mm_slli_epi16::<8>(low_bytes(A, B));
            let clear = _mm_set1_epi16(0x80);
            let index = _mm256_broadcastsi128_si256(_mm_or_si128(high, clear));
            _mm256_srai_epi16::<8>(_mm256_shuffle_epi8(x, index))
        })
    }
    #[inline(always)]
    fn mul_halves(self, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_mullo_epi16(a, b))
    }
    #[inline(always)]
    fn quads<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 4] {
        rows.ask_ahead(Self::LANES, v, offset, 16);
        let r = v * 8;
        // SAFETY: the CPU has AVX2 (`self`); a row's part is 16 readable bytes.
        unsafe {
            // Rows r and r + 4 side by side, so that unpacking inside the 128-bit halves ends in lane order.
            let a = _mm256_loadu2_m128i(
                rows.quad(r + 4, offset).as_ptr().cast(),
                rows.quad(r, offset).as_ptr().cast(),
            );
            let b = _mm256_loadu2_m128i(
                rows.quad(r + 5, offset).as_ptr().cast(),
                rows.quad(r + 1, offset).as_ptr().cast(),
            );
            let c = _mm256_loadu2_m128i(
                rows.quad(r + 6, offset).as_ptr().cast(),
                rows.quad(r + 2, offset).as_ptr().cast(),
            );
            let d = _mm256_loadu2_m128i(
                rows.quad(r + 7, offset).as_ptr().cast(),
                rows.quad(r + 3, offset).as_ptr().cast(),
            );
            let (ab0, ab1) = (_mm256_unpacklo_epi32(a, b), _mm256_unpackhi_epi32(a, b));
            let (cd0, cd1) = (_mm256_unpacklo_epi32(c, d), _mm256_unpackhi_epi32(c, d));
            [
                _mm256_unpacklo_epi64(ab0, cd0),
                _mm256_unpackhi_epi64(ab0, cd0),
                _mm256_unpacklo_epi64(ab1, cd1),
                _mm256_unpackhi_epi64(ab1, cd1),
            ]
        }
    }
    #[inline(always)]
    fn dwords<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::I {
        rows.ask_ahead(Self::LANES, v, offset, 4);
        let r = v * 8;
        avx2!(_mm256_setr_epi32(
            rows.dword(r, offset),
            rows.dword(r + 1, offset),
            rows.dword(r + 2, offset),
            rows.dword(r + 3, offset),
            rows.dword(r + 4, offset),
            rows.dword(r + 5, offset),
            rows.dword(r + 6, offset),
            rows.dword(r + 7, offset),
        ))
    }
    #[inline(always)]
    fn dword_pairs<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 2] {
        rows.ask_ahead(Self::LANES, v, offset, 8);
        let mut parts = [core::ptr::null(); 8];
        for i in 0..8 {
            parts[i] = rows.eight(v * 8 + i, offset).as_ptr();
        }
        // SAFETY: the CPU has AVX2 (`self`); a row's part is eight readable bytes.
        unsafe { eights(parts) }
    }

    #[inline(always)]
    fn begin(self, _: Self::I) -> Self::P {
        avx2!(_mm256_setzero_si256())
    }
    #[inline(always)]
    fn mac(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        avx2!(_mm256_add_epi16(partial, _mm256_maddubs_epi16(w, a)))
    }
    #[inline(always)]
    fn mac_wide(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        avx2!({
            // |w| · (a with w's sign): a pair is at most 2 · 128 · 127 = 32,512.
            let product = _mm256_maddubs_epi16(_mm256_abs_epi8(w), _mm256_sign_epi8(a, w));
            _mm256_add_epi16(partial, product)
        })
    }
    #[inline(always)]
    fn dots<const B: usize>(self, rows: Rows<'_, B>, offset: usize, acts: &[i8]) -> Self::I {
        rows.ask_ahead(Self::LANES, 0, offset, 32);
        let acts = start::<256, _>(acts);
        let mut x = [self.splat(0); 8];
        // SAFETY: the CPU has AVX2 (`self`); a row's part is 32 readable bytes, and `start` is 256.
        unsafe {
            for r in 0..8 {
                let w = _mm256_loadu_si256(rows.half_line(r, offset).as_ptr().cast());
                let a = _mm256_loadu_si256(acts.add(32 * r).cast());
                x[r] = self.end(x[r], self.mac_wide(self.begin(x[r]), w, a));
            }
            let low = _mm256_hadd_epi32(_mm256_hadd_epi32(x[0], x[1]), _mm256_hadd_epi32(x[2], x[3]));
            let high = _mm256_hadd_epi32(_mm256_hadd_epi32(x[4], x[5]), _mm256_hadd_epi32(x[6], x[7]));
            let first = _mm256_permute2x128_si256::<0x20>(low, high);
            _mm256_add_epi32(first, _mm256_permute2x128_si256::<0x31>(low, high))
        }
    }
    #[inline(always)]
    fn end(self, sum: Self::I, partial: Self::P) -> Self::I {
        avx2!(_mm256_add_epi32(sum, _mm256_madd_epi16(partial, _mm256_set1_epi16(1))))
    }
    #[inline(always)]
    fn end_scaled(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I {
        avx2!(_mm256_add_epi32(sum, _mm256_madd_epi16(partial, scale)))
    }
    #[inline(always)]
    fn madd(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        avx2!(_mm256_add_epi32(sum, _mm256_madd_epi16(a, b)))
    }

    #[inline(always)]
    fn splat_f(self, x: f32) -> Self::F {
        avx2!(_mm256_set1_ps(x))
    }
    #[inline(always)]
    fn load_f(self, line: &Line, v: usize) -> Self::F {
        avx2!(_mm256_castsi256_ps(self.load(line, v)))
    }
    #[inline(always)]
    fn store_f(self, line: &mut Line, v: usize, x: Self::F) {
        self.store(line, v, self.bits(x));
    }
    #[inline(always)]
    fn reduce_lines(self, lines: &[Line; 16]) -> Line {
        // Each step adds the halves of what is left of a line, for two times as many lines in a vector.
        let mut fours = [self.splat_f(0.0); 8];
        for i in 0..8 {
            let (a, b) = (&lines[2 * i], &lines[2 * i + 1]);
            fours[i] = avx2!({
                let a = _mm256_add_ps(self.load_f(a, 0), self.load_f(a, 1));
                let b = _mm256_add_ps(self.load_f(b, 0), self.load_f(b, 1));
                _mm256_add_ps(_mm256_permute2f128_ps::<0x20>(a, b), _mm256_permute2f128_ps::<0x31>(a, b))
            });
        }
        let mut twos = [self.splat_f(0.0); 4];
        for i in 0..4 {
            let (a, b) = (fours[2 * i], fours[2 * i + 1]);
            twos[i] = avx2!(_mm256_add_ps(_mm256_shuffle_ps::<0x44>(a, b), _mm256_shuffle_ps::<0xEE>(a, b)));
        }
        let mut sums = Line::ZERO;
        for v in 0..2 {
            let (a, b) = (twos[2 * v], twos[2 * v + 1]);
            let ones = avx2!({
                let ones = _mm256_add_ps(_mm256_shuffle_ps::<0x88>(a, b), _mm256_shuffle_ps::<0xDD>(a, b));
                // Of eight lines the even ones are in the lower half.
                _mm256_permutevar8x32_ps(ones, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7))
            });
            self.store_f(&mut sums, v, ones);
        }
        sums
    }
    #[inline(always)]
    fn load_slice(self, x: &[f32]) -> Self::F {
        // SAFETY: the CPU has AVX2 (`self`); `start` is 8 readable floats.
        unsafe { _mm256_loadu_ps(start::<8, _>(x)) }
    }
    #[inline(always)]
    fn load_f32_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has AVX2 (`self`); `start` is 32 readable bytes.
        unsafe { _mm256_loadu_ps(start::<32, _>(x).cast()) }
    }
    #[inline(always)]
    fn load_f16_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has F16C (`self`); `start` is 16 readable bytes.
        unsafe { _mm256_cvtph_ps(_mm_loadu_si128(start::<16, _>(x).cast())) }
    }
    #[inline(always)]
    fn load_bf16_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has AVX2 (`self`); `start` is 16 readable bytes.
        unsafe {
            let wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(start::<16, _>(x).cast()));
            _mm256_castsi256_ps(_mm256_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F {
        avx2!(_mm256_mul_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        avx2!(_mm256_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        avx2!(_mm256_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        avx2!(_mm256_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn to_i(self, a: Self::F) -> Self::I {
        avx2!(_mm256_cvtps_epi32(a))
    }
    #[inline(always)]
    fn with_bits(self, a: Self::I) -> Self::F {
        avx2!(_mm256_castsi256_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        avx2!(_mm256_castps_si256(a))
    }
    #[inline(always)]
    fn f16_low(self, a: Self::I) -> Self::F {
        avx2!({
            let low = _mm256_setr_epi8(
                0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1, //
                0, 1, 4, 5, 8, 9, 12, 13, -1, -1, -1, -1, -1, -1, -1, -1,
            );
            let packed = _mm256_permute4x64_epi64::<0b1000>(_mm256_shuffle_epi8(a, low));
            _mm256_cvtph_ps(_mm256_castsi256_si128(packed))
        })
    }
    #[inline(always)]
    fn f16_high(self, a: Self::I) -> Self::F {
        self.f16_low(self.shr(a, 16))
    }
    #[inline(always)]
    fn f16s<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::F {
        rows.ask_ahead(Self::LANES, v, offset, 2);
        let r = v * 8;
        avx2!(_mm256_cvtph_ps(_mm_setr_epi16(
            rows.word(r, offset),
            rows.word(r + 1, offset),
            rows.word(r + 2, offset),
            rows.word(r + 3, offset),
            rows.word(r + 4, offset),
            rows.word(r + 5, offset),
            rows.word(r + 6, offset),
            rows.word(r + 7, offset),
        )))
    }
}
