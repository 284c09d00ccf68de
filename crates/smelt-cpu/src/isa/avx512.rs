//! AVX-512 with VNNI: sixteen lanes, int8 dot products straight into 32 bits.

use super::avx2::low_bytes;
use super::{Codebook, Line, Op, Rows, Simd};
use core::arch::x86_64::*;

/// Proof that the CPU has AVX-512 F, BW, VL and VNNI, and AVX2, FMA and F16C, which all such have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Avx512Vnni(());

impl Avx512Vnni {
    /// The token, where the CPU has the instructions.
    #[inline]
    pub(crate) fn new() -> Option<Self> {
        (is_x86_feature_detected!("avx512f")
            && is_x86_feature_detected!("avx512bw")
            && is_x86_feature_detected!("avx512vl")
            && is_x86_feature_detected!("avx512vnni")
            && is_x86_feature_detected!("avx2")
            && is_x86_feature_detected!("fma")
            && is_x86_feature_detected!("f16c"))
        .then_some(Self(()))
    }
}

/// Entries of the largest codebook, that of IQ1.
const LARGEST_BOOK: usize = 2048;

/// Intrinsics on values, whose only demand is the CPU.
macro_rules! avx512 {
    ($e:expr) => {
        // SAFETY: `self` is the proof that the CPU has AVX-512 F, BW, VL, VNNI, AVX2, FMA and F16C.
        unsafe { $e }
    };
}

/// The address of `x[..N]`, checked.
#[inline(always)]
fn start<const N: usize, T>(x: &[T]) -> *const T {
    x[..N].as_ptr()
}

/// Thirty-two bytes from each address side by side.
///
/// # Safety
/// The CPU has AVX-512; both addresses are of 32 readable bytes.
#[inline(always)]
unsafe fn both(a: *const u8, b: *const u8) -> __m512i {
    // SAFETY: the caller's promise.
    unsafe {
        let low = _mm512_castsi256_si512(_mm256_loadu_si256(a.cast()));
        _mm512_inserti64x4::<1>(low, _mm256_loadu_si256(b.cast()))
    }
}

impl Avx512Vnni {
    /// Sixteen bytes of rows `i`, `i + 4`, `i + 8` and `i + 12`.
    #[inline(always)]
    fn four<const B: usize>(self, rows: Rows<'_, B>, i: usize, offset: usize) -> __m512i {
        // SAFETY: the CPU has AVX-512 (`self`); a row's part is 16 readable bytes.
        unsafe {
            let low = _mm256_loadu2_m128i(
                rows.quad(i + 4, offset).as_ptr().cast(),
                rows.quad(i, offset).as_ptr().cast(),
            );
            let high = _mm256_loadu2_m128i(
                rows.quad(i + 12, offset).as_ptr().cast(),
                rows.quad(i + 8, offset).as_ptr().cast(),
            );
            _mm512_inserti64x4::<1>(_mm512_castsi256_si512(low), high)
        }
    }

    /// A codebook's fields for the indices in each half of the lanes.
    #[inline(always)]
    fn fields<const N: usize>(self, table: &[u16; N], index: __m512i) -> __m512i {
        const { assert!(N.is_multiple_of(64) && N <= LARGEST_BOOK) };
        // SAFETY: the CPU has AVX-512 (`self`); the table has N words, of which 64 are read at a time.
        unsafe {
            let mut parts = [index; LARGEST_BOOK / 64];
            for i in 0..N / 64 {
                let low = _mm512_loadu_si512(table[64 * i..][..32].as_ptr().cast());
                let high = _mm512_loadu_si512(table[64 * i + 32..][..32].as_ptr().cast());
                parts[i] = _mm512_permutex2var_epi16(low, index, high);
            }
            // Each further bit of the index halves what is left.
            for bit in 0..(N / 64).ilog2() {
                let upper = _mm512_test_epi16_mask(index, _mm512_set1_epi16(64 << bit));
                for i in 0..(N / 128) >> bit {
                    parts[i] = _mm512_mask_blend_epi16(upper, parts[2 * i], parts[2 * i + 1]);
                }
            }
            parts[0]
        }
    }

    /// Bytes `B` and `B + 1` of each lane in both of its halves.
    #[inline(always)]
    fn twice<const B: i32>(self, x: __m512i) -> __m512i {
        let lane = |d: i32| (d + B) * 0x0101_0101 + 0x0100_0100;
        avx512!({
            let index = _mm_setr_epi32(lane(0), lane(4), lane(8), lane(12));
            _mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(index))
        })
    }

    /// The levels of four fields of `BITS` bits: in each byte of the low half from bit `FIRST` on, and of the high half behind
    /// that.
    #[inline(always)]
    fn values<const BITS: i32, const FIRST: i32>(self, words: __m512i, levels: &[u8; 16]) -> __m512i {
        avx512!({
            let shifts = _mm512_set1_epi32(FIRST | (FIRST + BITS) << 16);
            let mask = _mm512_set1_epi8((1 << BITS) - 1);
            self.lookup(levels, _mm512_and_si512(_mm512_srlv_epi16(words, shifts), mask))
        })
    }

    /// Two bytes each of rows `i..i + 8`.
    #[inline(always)]
    fn eight_words<const B: usize>(self, rows: Rows<'_, B>, i: usize, offset: usize) -> __m128i {
        avx512!(_mm_setr_epi16(
            rows.word(i, offset),
            rows.word(i + 1, offset),
            rows.word(i + 2, offset),
            rows.word(i + 3, offset),
            rows.word(i + 4, offset),
            rows.word(i + 5, offset),
            rows.word(i + 6, offset),
            rows.word(i + 7, offset),
        ))
    }
}

impl Simd for Avx512Vnni {
    const LANES: usize = 16;
    const TOKENS: usize = 8;
    const SIGNED_WIDE: bool = false;
    const EXACT_PARTIAL: bool = true;

    type I = __m512i;
    type F = __m512;
    type P = __m512i;

    #[inline(always)]
    fn vectorize<O: Op>(self, op: O) -> O::Output {
        #[target_feature(enable = "avx512f,avx512bw,avx512vl,avx512vnni,avx2,fma,f16c")]
        fn enter<O: Op>(s: Avx512Vnni, op: O) -> O::Output {
            op.run(s)
        }
        avx512!(enter(self, op))
    }

    #[inline(always)]
    fn splat(self, x: i32) -> Self::I {
        avx512!(_mm512_set1_epi32(x))
    }
    #[inline(always)]
    fn load(self, line: &Line, v: usize) -> Self::I {
        debug_assert_eq!(v, 0);
        // SAFETY: the CPU has AVX-512 (`self`); a line is 64 bytes, aligned.
        unsafe { _mm512_load_si512(line.0.as_ptr().cast()) }
    }
    #[inline(always)]
    fn store(self, line: &mut Line, v: usize, x: Self::I) {
        debug_assert_eq!(v, 0);
        // SAFETY: the CPU has AVX-512 (`self`); a line is 64 bytes, aligned.
        unsafe { _mm512_store_si512(line.0.as_mut_ptr().cast(), x) }
    }
    #[inline(always)]
    fn and(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_and_si512(a, b))
    }
    #[inline(always)]
    fn or(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_or_si512(a, b))
    }
    #[inline(always)]
    fn xor(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_xor_si512(a, b))
    }
    #[inline(always)]
    fn shl(self, a: Self::I, n: u32) -> Self::I {
        avx512!(_mm512_sll_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn shr(self, a: Self::I, n: u32) -> Self::I {
        avx512!(_mm512_srl_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn sar(self, a: Self::I, n: u32) -> Self::I {
        avx512!(_mm512_sra_epi32(a, _mm_cvtsi32_si128(n as i32)))
    }
    #[inline(always)]
    fn add(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_add_epi32(a, b))
    }
    #[inline(always)]
    fn mul(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_mullo_epi32(a, b))
    }
    #[inline(always)]
    fn max(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_max_epi32(a, b))
    }
    #[inline(always)]
    fn eq_bytes(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_maskz_set1_epi8(_mm512_cmpeq_epi8_mask(a, b), -1))
    }
    #[inline(always)]
    fn sub_where(self, a: Self::I, b: Self::I, flags: Self::I, bit: Self::I) -> Self::I {
        avx512!(_mm512_mask_sub_epi8(a, _mm512_test_epi8_mask(flags, bit), a, b))
    }
    #[inline(always)]
    fn lookup(self, table: &[u8; 16], index: Self::I) -> Self::I {
        // SAFETY: the CPU has AVX-512 (`self`); the table is 16 readable bytes.
        unsafe {
            let table = _mm512_broadcast_i32x4(_mm_loadu_si128(table.as_ptr().cast()));
            _mm512_shuffle_epi8(table, index)
        }
    }
    #[inline(always)]
    fn lookup4<const N: usize>(self, book: &Codebook<4, N>, index: Self::I) -> [Self::I; 2] {
        let fields = self.fields(&book.fields, index);
        let values = |words| self.values::<4, 0>(words, &book.levels);
        [values(self.twice::<0>(fields)), values(self.twice::<2>(fields))]
    }
    #[inline(always)]
    fn lookup8<const N: usize>(self, book: &Codebook<8, N>, index: Self::I) -> [[Self::I; 2]; 2] {
        let fields = self.fields(&book.fields, index);
        let values =
            |words| [self.values::<2, 0>(words, &book.levels), self.values::<2, 4>(words, &book.levels)];
        [values(self.twice::<0>(fields)), values(self.twice::<2>(fields))]
    }
    #[inline(always)]
    fn spread_byte<const N: u32>(self, a: Self::I) -> Self::I {
        let lane = |d: i32| (d + N as i32) * 0x0101_0101;
        avx512!({
            let index = _mm_setr_epi32(lane(0), lane(4), lane(8), lane(12));
            _mm512_shuffle_epi8(a, _mm512_broadcast_i32x4(index))
        })
    }
    #[inline(always)]
    fn halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        avx512!(_mm512_shuffle_epi8(x, _mm512_broadcast_i32x4(low_bytes(A, B))))
    }
    #[inline(always)]
    fn signed_halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I {
        avx512!({
            let high = _mm_slli_epi16::<8>(low_bytes(A, B));
            let clear = _mm_set1_epi16(0x80);
            let index = _mm512_broadcast_i32x4(_mm_or_si128(high, clear));
            _mm512_srai_epi16::<8>(_mm512_shuffle_epi8(x, index))
        })
    }
    #[inline(always)]
    fn mul_halves(self, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_mullo_epi16(a, b))
    }
    #[inline(always)]
    fn quads<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 4] {
        rows.ask_ahead(Self::LANES, v, offset, 16);
        debug_assert_eq!(v, 0);
        // Rows i, i + 4, i + 8 and i + 12 side by side, so that unpacking inside the 128-bit quarters ends in
        // lane order.
        let a = self.four(rows, 0, offset);
        let b = self.four(rows, 1, offset);
        let c = self.four(rows, 2, offset);
        let d = self.four(rows, 3, offset);
        avx512!({
            let (ab0, ab1) = (_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            let (cd0, cd1) = (_mm512_unpacklo_epi32(c, d), _mm512_unpackhi_epi32(c, d));
            [
                _mm512_unpacklo_epi64(ab0, cd0),
                _mm512_unpackhi_epi64(ab0, cd0),
                _mm512_unpacklo_epi64(ab1, cd1),
                _mm512_unpackhi_epi64(ab1, cd1),
            ]
        })
    }
    #[inline(always)]
    fn dwords<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::I {
        rows.ask_ahead(Self::LANES, v, offset, 4);
        debug_assert_eq!(v, 0);
        avx512!(_mm512_setr_epi32(
            rows.dword(0, offset),
            rows.dword(1, offset),
            rows.dword(2, offset),
            rows.dword(3, offset),
            rows.dword(4, offset),
            rows.dword(5, offset),
            rows.dword(6, offset),
            rows.dword(7, offset),
            rows.dword(8, offset),
            rows.dword(9, offset),
            rows.dword(10, offset),
            rows.dword(11, offset),
            rows.dword(12, offset),
            rows.dword(13, offset),
            rows.dword(14, offset),
            rows.dword(15, offset),
        ))
    }

    #[inline(always)]
    fn begin(self, sum: Self::I) -> Self::P {
        sum
    }
    #[inline(always)]
    fn mac(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        avx512!(_mm512_dpbusd_epi32(partial, w, a))
    }
    #[inline(always)]
    fn mac_wide(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P {
        self.mac(partial, w, a)
    }
    #[inline(always)]
    fn dots<const B: usize>(self, rows: Rows<'_, B>, offset: usize, acts: &[i8]) -> Self::I {
        rows.ask_ahead(Self::LANES, 0, offset, 32);
        let acts: *const i8 = start::<512, _>(acts);
        let mut x = [self.splat(0); 8];
        // SAFETY: the CPU has AVX-512 (`self`); a row's part is 32 readable bytes, and `start` is 512.
        unsafe {
            for i in 0..8 {
                // The order in which the additions below leave the sums.
                let r = i % 4 + i / 4 * 8;
                let w = both(rows.half_line(r, offset).as_ptr(), rows.half_line(r + 4, offset).as_ptr());
                let a = both(acts.add(32 * r).cast(), acts.add(32 * (r + 4)).cast());
                x[i] = _mm512_dpbusd_epi32(x[i], _mm512_xor_si512(w, _mm512_set1_epi8(i8::MIN)), a);
            }
            for i in [0, 2, 4, 6] {
                let (a, b) = (x[i], x[i + 1]);
                x[i] = _mm512_add_epi32(_mm512_unpacklo_epi32(a, b), _mm512_unpackhi_epi32(a, b));
            }
            for i in [0, 4] {
                let (a, b) = (x[i], x[i + 2]);
                x[i] = _mm512_add_epi32(_mm512_unpacklo_epi64(a, b), _mm512_unpackhi_epi64(a, b));
            }
            let first = _mm512_shuffle_i64x2::<0b10_00_10_00>(x[0], x[4]);
            _mm512_add_epi32(first, _mm512_shuffle_i64x2::<0b11_01_11_01>(x[0], x[4]))
        }
    }
    #[inline(always)]
    fn end(self, _: Self::I, partial: Self::P) -> Self::I {
        partial
    }
    #[inline(always)]
    fn end_scaled(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I {
        self.add(sum, self.mul(partial, self.sar(scale, 16)))
    }
    #[inline(always)]
    fn end_scaled_narrow(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I {
        // The partial's high half is its sign, and meets a zero.
        self.madd(sum, partial, self.and(scale, self.splat(0xFFFF)))
    }
    #[inline(always)]
    fn madd(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I {
        avx512!(_mm512_dpwssd_epi32(sum, a, b))
    }

    #[inline(always)]
    fn splat_f(self, x: f32) -> Self::F {
        avx512!(_mm512_set1_ps(x))
    }
    #[inline(always)]
    fn load_f(self, line: &Line, v: usize) -> Self::F {
        avx512!(_mm512_castsi512_ps(self.load(line, v)))
    }
    #[inline(always)]
    fn store_f(self, line: &mut Line, v: usize, x: Self::F) {
        self.store(line, v, self.bits(x));
    }
    #[inline(always)]
    fn reduce_lines(self, lines: &[Line; 16]) -> Line {
        // Each step adds the halves of what is left of a line, for two times as many lines in a vector.
        let mut eights = [self.splat_f(0.0); 8];
        for i in 0..8 {
            let (a, b) = (self.load_f(&lines[2 * i], 0), self.load_f(&lines[2 * i + 1], 0));
            eights[i] = avx512!({
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x44>(a, b), _mm512_shuffle_f32x4::<0xEE>(a, b))
            });
        }
        let mut fours = [self.splat_f(0.0); 4];
        for i in 0..4 {
            let (a, b) = (eights[2 * i], eights[2 * i + 1]);
            fours[i] = avx512!({
                _mm512_add_ps(_mm512_shuffle_f32x4::<0x88>(a, b), _mm512_shuffle_f32x4::<0xDD>(a, b))
            });
        }
        let mut twos = [self.splat_f(0.0); 2];
        for i in 0..2 {
            let (a, b) = (fours[2 * i], fours[2 * i + 1]);
            twos[i] =
                avx512!(_mm512_add_ps(_mm512_shuffle_ps::<0x44>(a, b), _mm512_shuffle_ps::<0xEE>(a, b)));
        }
        let [a, b] = twos;
        let mut sums = Line::ZERO;
        let ones = avx512!({
            let ones = _mm512_add_ps(_mm512_shuffle_ps::<0x88>(a, b), _mm512_shuffle_ps::<0xDD>(a, b));
            // Line 4·j + q is in lane 4·q + j.
            let order = _mm512_setr_epi32(0, 4, 8, 12, 1, 5, 9, 13, 2, 6, 10, 14, 3, 7, 11, 15);
            _mm512_permutexvar_ps(order, ones)
        });
        self.store_f(&mut sums, 0, ones);
        sums
    }
    #[inline(always)]
    fn load_slice(self, x: &[f32]) -> Self::F {
        // SAFETY: the CPU has AVX-512 (`self`); `start` is 16 readable floats.
        unsafe { _mm512_loadu_ps(start::<16, _>(x)) }
    }
    #[inline(always)]
    fn load_f32_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has AVX-512 (`self`); `start` is 64 readable bytes.
        unsafe { _mm512_loadu_ps(start::<64, _>(x).cast()) }
    }
    #[inline(always)]
    fn load_f16_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has AVX-512 (`self`); `start` is 32 readable bytes.
        unsafe { _mm512_cvtph_ps(_mm256_loadu_si256(start::<32, _>(x).cast())) }
    }
    #[inline(always)]
    fn load_bf16_bytes(self, x: &[u8]) -> Self::F {
        // SAFETY: the CPU has AVX-512 (`self`); `start` is 32 readable bytes.
        unsafe {
            let wide = _mm512_cvtepu16_epi32(_mm256_loadu_si256(start::<32, _>(x).cast()));
            _mm512_castsi512_ps(_mm512_slli_epi32::<16>(wide))
        }
    }
    #[inline(always)]
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F {
        avx512!(_mm512_mul_ps(a, b))
    }
    #[inline(always)]
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        avx512!(_mm512_fmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F {
        avx512!(_mm512_fnmadd_ps(a, b, c))
    }
    #[inline(always)]
    fn to_f(self, a: Self::I) -> Self::F {
        avx512!(_mm512_cvtepi32_ps(a))
    }
    #[inline(always)]
    fn to_i(self, a: Self::F) -> Self::I {
        avx512!(_mm512_cvtps_epi32(a))
    }
    #[inline(always)]
    fn with_bits(self, a: Self::I) -> Self::F {
        avx512!(_mm512_castsi512_ps(a))
    }
    #[inline(always)]
    fn bits(self, a: Self::F) -> Self::I {
        avx512!(_mm512_castps_si512(a))
    }
    #[inline(always)]
    fn f16_low(self, a: Self::I) -> Self::F {
        avx512!(_mm512_cvtph_ps(_mm512_cvtepi32_epi16(a)))
    }
    #[inline(always)]
    fn f16_high(self, a: Self::I) -> Self::F {
        self.f16_low(self.shr(a, 16))
    }
    #[inline(always)]
    fn f16s<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::F {
        rows.ask_ahead(Self::LANES, v, offset, 2);
        debug_assert_eq!(v, 0);
        let (low, high) = (self.eight_words(rows, 0, offset), self.eight_words(rows, 8, offset));
        avx512!(_mm512_cvtph_ps(_mm256_set_m128i(high, low)))
    }
}
