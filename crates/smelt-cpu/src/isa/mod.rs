//! Instruction sets as tokens, and the few vector operations that every kernel is written in.
//!
//! A kernel is generic over [`Simd`]; a value of a token type is the proof that the CPU has the instructions.
//! Generic code is `#[inline(always)]` and enters an instruction set in exactly one place a set, the
//! `#[target_feature]` function behind [`Simd::vectorize`], so no kernel is written twice.
//!
//! Every operation is exact or correctly rounded, and kernels fix the order of the float ones, so results are
//! the same bits on every token.

#[cfg(target_arch = "x86_64")]
mod avx2;
#[cfg(target_arch = "x86_64")]
mod avx512;
mod codebook;
mod plain;
mod rows;
#[cfg(test)]
mod tests;

#[cfg(target_arch = "x86_64")]
pub(crate) use avx2::Avx2;
#[cfg(target_arch = "x86_64")]
pub(crate) use avx512::Avx512Vnni;
pub(crate) use codebook::Codebook;
pub(crate) use plain::Plain;
pub(crate) use rows::Rows;

use smelt_quant::reduce16;

/// The instruction sets that kernels exist for, slowest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Isa {
    /// Plain Rust, on any CPU.
    Scalar,
    /// x86-64 with AVX2, FMA and F16C.
    Avx2,
    /// x86-64 with AVX-512 F, BW, VL and VNNI.
    Avx512Vnni,
    /// The sixteen-lane algorithm on plain arrays, so that it is tested where the CPU has no AVX-512.
    #[cfg(test)]
    Model512,
}

/// What the settings ask for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum IsaChoice {
    /// The best that the CPU has.
    #[default]
    Auto,
    /// This one, and an error where the CPU lacks it.
    Only(Isa),
}

impl Isa {
    /// Every instruction set, slowest first.
    pub const ALL: [Isa; 3] = [Isa::Scalar, Isa::Avx2, Isa::Avx512Vnni];

    /// Whether this CPU can run it.
    #[must_use]
    pub fn available(self) -> bool {
        match self {
            Isa::Scalar => true,
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::new().is_some(),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Avx512Vnni::new().is_some(),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512Vnni => false,
            #[cfg(test)]
            Isa::Model512 => true,
        }
    }

    /// The choice resolved on this CPU; `None` where it asks for what the CPU lacks.
    #[must_use]
    pub fn resolve(choice: IsaChoice) -> Option<Isa> {
        match choice {
            IsaChoice::Auto => Isa::ALL.into_iter().rev().find(|isa| isa.available()),
            IsaChoice::Only(isa) => isa.available().then_some(isa),
        }
    }

    /// The name in settings and reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Isa::Scalar => "scalar",
            Isa::Avx2 => "avx2",
            Isa::Avx512Vnni => "avx512-vnni",
            #[cfg(test)]
            Isa::Model512 => "model-512",
        }
    }

    /// Panels of sixteen rows that a register tile of the matmul kernels spans: with many registers two, so that an
    /// activation is loaded once for two products.
    #[must_use]
    pub(crate) fn panels(self) -> usize {
        match self {
            Isa::Scalar | Isa::Avx2 => 1,
            Isa::Avx512Vnni => 2,
            #[cfg(test)]
            Isa::Model512 => 2,
        }
    }

    /// Runs `op` compiled for this instruction set.
    ///
    /// # Panics
    /// If the CPU lacks it; [`Isa::resolve`] never gives such a value.
    #[inline]
    pub(crate) fn run<O: Op>(self, op: O) -> O::Output {
        match self {
            Isa::Scalar => Plain::<8>.vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx2 => Avx2::new().expect("the CPU has AVX2").vectorize(op),
            #[cfg(target_arch = "x86_64")]
            Isa::Avx512Vnni => Avx512Vnni::new().expect("the CPU has AVX-512 VNNI").vectorize(op),
            #[cfg(not(target_arch = "x86_64"))]
            Isa::Avx2 | Isa::Avx512Vnni => unreachable!("not an instruction set of this CPU"),
            #[cfg(test)]
            Isa::Model512 => Plain::<16>.vectorize(op),
        }
    }
}

/// A piece of work that is generic over the instruction set.
pub(crate) trait Op {
    /// What it returns.
    type Output;
    /// Does the work; implementations are `#[inline(always)]`.
    fn run<S: Simd>(self, s: S) -> Self::Output;
}

/// One cache line: sixteen 32-bit lanes, or sixty-four bytes, as tiles are stored.
#[derive(Debug, Clone, Copy, Default)]
#[repr(C, align(64))]
pub(crate) struct Line(pub(crate) [u32; 16]);

impl Line {
    pub(crate) const ZERO: Line = Line([0; 16]);

    /// The bytes of lines that lie one after the other.
    pub(crate) fn bytes(lines: &[Line]) -> &[u8] {
        // SAFETY: as many bytes as the lines have, all initialised.
        unsafe { core::slice::from_raw_parts(lines.as_ptr().cast(), size_of_val(lines)) }
    }

    /// The lanes as floats.
    pub(crate) fn floats(&self) -> [f32; 16] {
        self.0.map(f32::from_bits)
    }
}

/// Vectors of 32-bit lanes. `I` holds integers (or four bytes a lane), `F` floats, `P` a partial int8 dot product.
///
/// Methods that read memory take references or slices and check them; the checks are of constants and vanish.
pub(crate) trait Simd: Copy + Send + Sync + 'static {
    /// 32-bit lanes a vector: 8 or 16.
    const LANES: usize;
    /// Tokens in a register tile of one panel: 1, 4 or 8. Beside two panels there is room for six.
    const TOKENS: usize;
    /// Whether [`Simd::mac_wide`] takes signed bytes. If not, codes are offset by 128, and the sum is corrected.
    const SIGNED_WIDE: bool;
    /// Whether `P` is as wide as `I`, so that no overflow bounds the number of [`Simd::mac`] steps.
    const EXACT_PARTIAL: bool;

    type I: Copy;
    type F: Copy;
    type P: Copy;

    /// Runs `op` inside this instruction set's `#[target_feature]` function.
    fn vectorize<O: Op>(self, op: O) -> O::Output;

    // Integers.
    fn splat(self, x: i32) -> Self::I;
    fn load(self, line: &Line, v: usize) -> Self::I;
    fn store(self, line: &mut Line, v: usize, x: Self::I);
    fn and(self, a: Self::I, b: Self::I) -> Self::I;
    fn or(self, a: Self::I, b: Self::I) -> Self::I;
    fn xor(self, a: Self::I, b: Self::I) -> Self::I;
    /// Lanes shifted left by `n`, a constant; bits that cross a byte are the caller's to mask.
    fn shl(self, a: Self::I, n: u32) -> Self::I;
    /// Lanes shifted right, zeros in.
    fn shr(self, a: Self::I, n: u32) -> Self::I;
    /// Lanes shifted right, signs in.
    fn sar(self, a: Self::I, n: u32) -> Self::I;
    /// 32-bit sums, wrapping.
    fn add(self, a: Self::I, b: Self::I) -> Self::I;
    /// 32-bit products, wrapping.
    fn mul(self, a: Self::I, b: Self::I) -> Self::I;
    /// The larger of signed lanes.
    fn max(self, a: Self::I, b: Self::I) -> Self::I;
    /// `0xFF` in every byte where `a` and `b` agree.
    fn eq_bytes(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bytes of `a`, less those of `b` (wrapping) where the byte of `flags` has the one bit that the byte of `bit` has.
    fn sub_where(self, a: Self::I, b: Self::I, flags: Self::I, bit: Self::I) -> Self::I;
    /// Every byte (0..=15) replaced by the table's.
    fn lookup(self, table: &[u8; 16], index: Self::I) -> Self::I;
    /// The codebook's four values for the indices in the lanes' low halves, and those for their high halves; indices are taken
    /// modulo its length.
    fn lookup4<const N: usize>(self, book: &Codebook<4, N>, index: Self::I) -> [Self::I; 2];
    /// The codebook's eight values likewise, for each half the first four and the last four.
    fn lookup8<const N: usize>(self, book: &Codebook<8, N>, index: Self::I) -> [[Self::I; 2]; 2];
    /// Byte `n` (0..=3) of each lane, copied to all four.
    fn spread_byte<const N: u32>(self, a: Self::I) -> Self::I;
    /// Bytes `A` and `B` (0..=3) of each lane, as the lane's two 16-bit halves, zeros above.
    fn halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I;
    /// The same with signs above.
    fn signed_halves<const A: i32, const B: i32>(self, x: Self::I) -> Self::I;
    /// Products of the 16-bit halves of lanes, wrapping.
    fn mul_halves(self, a: Self::I, b: Self::I) -> Self::I;
    /// Bytes `offset..offset + 16` of `LANES` rows beginning with row `v * LANES`, transposed: lane `r` of vector
    /// `j` is little-endian dword `j` of row `r`.
    fn quads<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 4];
    /// Bytes `offset..offset + 4` of `LANES` rows.
    fn dwords<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::I;
    /// Bytes `offset..offset + 8` of `LANES` rows, for each the first four and the last four.
    #[inline(always)]
    fn dword_pairs<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> [Self::I; 2] {
        [self.dwords(rows, v, offset), self.dwords(rows, v, offset + 4)]
    }

    // Dot products of unsigned weight bytes with signed activation bytes in −127..=127.
    /// A partial that continues `sum`, or starts from nothing if partials are narrow.
    fn begin(self, sum: Self::I) -> Self::P;
    /// `partial + Σ₄ w · a` by byte; the caller keeps narrow partials within `i16`.
    fn mac(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P;
    /// The same for `w` that use all eight bits, into an empty narrow partial; [`Simd::SIGNED_WIDE`] says which bytes they are.
    fn mac_wide(self, partial: Self::P, w: Self::I, a: Self::I) -> Self::P;
    /// Dot products of the 32 signed bytes at `offset` of `LANES` rows with 32 activations each, one row's behind the other's.
    /// Unless [`Simd::SIGNED_WIDE`], 128 is added to each byte of the rows.
    fn dots<const B: usize>(self, rows: Rows<'_, B>, offset: usize, acts: &[i8]) -> Self::I;
    /// `sum` and what `partial` adds to it, where `partial` came from `begin(sum)`.
    fn end(self, sum: Self::I, partial: Self::P) -> Self::I;
    /// `sum + scale · partial`, where `partial` came from `begin(0)` and both halves of `scale` hold the same `i16`.
    fn end_scaled(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I;
    /// The same for a `partial` whose lanes fit 16 bits.
    #[inline(always)]
    fn end_scaled_narrow(self, sum: Self::I, partial: Self::P, scale: Self::I) -> Self::I {
        self.end_scaled(sum, partial, scale)
    }
    /// `sum + a₀·b₀ + a₁·b₁` over the signed 16-bit halves of each lane.
    fn madd(self, sum: Self::I, a: Self::I, b: Self::I) -> Self::I;

    // Floats.
    fn splat_f(self, x: f32) -> Self::F;
    fn load_f(self, line: &Line, v: usize) -> Self::F;
    fn store_f(self, line: &mut Line, v: usize, x: Self::F);
    /// The sums of sixteen lines' floats, each by the fixed tree of [`reduce16`], as a line.
    #[inline(always)]
    fn reduce_lines(self, lines: &[Line; 16]) -> Line {
        let mut sums = Line::ZERO;
        for i in 0..16 {
            sums.0[i] = reduce16(lines[i].floats()).to_bits();
        }
        sums
    }
    /// `LANES` floats from the slice's beginning.
    fn load_slice(self, x: &[f32]) -> Self::F;
    /// `LANES` little-endian floats from the slice's beginning.
    fn load_f32_bytes(self, x: &[u8]) -> Self::F;
    /// `LANES` little-endian IEEE halves from the slice's beginning, converted.
    fn load_f16_bytes(self, x: &[u8]) -> Self::F;
    /// `LANES` little-endian bfloats from the slice's beginning, converted.
    fn load_bf16_bytes(self, x: &[u8]) -> Self::F;
    fn mul_f(self, a: Self::F, b: Self::F) -> Self::F;
    /// `a·b + c`, rounded once.
    fn fma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// `c − a·b`, rounded once.
    fn fnma(self, a: Self::F, b: Self::F, c: Self::F) -> Self::F;
    /// Signed lanes to floats, rounded to nearest even.
    fn to_f(self, a: Self::I) -> Self::F;
    /// Floats to signed lanes, rounded to nearest even.
    fn to_i(self, a: Self::F) -> Self::I;
    /// Floats of these bits.
    fn with_bits(self, a: Self::I) -> Self::F;
    /// The bits of floats.
    fn bits(self, a: Self::F) -> Self::I;
    /// IEEE halves in the low 16 bits of each lane.
    fn f16_low(self, a: Self::I) -> Self::F;
    /// IEEE halves in the high 16 bits of each lane.
    fn f16_high(self, a: Self::I) -> Self::F;
    /// IEEE halves at byte `offset` of `LANES` rows.
    fn f16s<const B: usize>(self, rows: Rows<'_, B>, v: usize, offset: usize) -> Self::F;
}

/// Asks the cache for the line at `p`; any address will do.
#[inline(always)]
pub(crate) fn prefetch(p: *const u8) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: SSE is part of x86-64, and a prefetch of a bad address does nothing.
    unsafe {
        core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(p.cast());
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = p;
}
