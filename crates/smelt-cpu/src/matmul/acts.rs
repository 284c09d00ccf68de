//! Quantised activations in the layout that the micro-kernels read.

use crate::isa::{Isa, Line, Op, Simd, prefetch};
use core::marker::PhantomData;
use core::ops::Range;
use smelt_quant::activation::block_scale;
use smelt_quant::{Activation, Row};

/// Which rows of activations a matmul reads, and in which order.
#[derive(Debug, Clone, Copy)]
pub enum Tokens<'a> {
    /// Rows `first..first + len`; the result of row `t` is row `t` of the output.
    Range {
        /// First row.
        first: usize,
        /// How many.
        len: usize,
    },
    /// The listed rows; the result of `list[i]` is row `i` of the output (an expert's gathered tokens).
    List(&'a [u32]),
}

impl From<Range<usize>> for Tokens<'_> {
    fn from(r: Range<usize>) -> Self {
        Tokens::Range { first: r.start, len: r.len() }
    }
}

impl Tokens<'_> {
    /// How many.
    #[must_use]
    pub fn len(&self) -> usize {
        match self {
            Tokens::Range { len, .. } => *len,
            Tokens::List(list) => list.len(),
        }
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Activation row of the `i`-th token.
    #[inline(always)]
    pub(crate) fn row(&self, i: usize) -> usize {
        match self {
            Tokens::Range { first, .. } => first + i,
            Tokens::List(list) => list[i] as usize,
        }
    }

    /// Output row of the `i`-th token.
    #[inline(always)]
    pub(crate) fn out_row(&self, i: usize) -> usize {
        match self {
            Tokens::Range { first, .. } => first + i,
            Tokens::List(_) => i,
        }
    }
}

/// `m` rows of `k` activations, quantised once for all the matmuls that read them; storage is reused.
///
/// Codes, scales and sums are those of `smelt_quant::activation::quantize_row`, bit for bit. Beside them lie the
/// derived forms that kernels would otherwise recompute for every row of weights.
#[derive(Debug)]
pub struct QuantizedActs {
    kind: Activation,
    m: usize,
    k: usize,
    /// `F32`: `[m][k]`, in lines so that vectors seldom straddle two.
    floats: Vec<Line>,
    /// `[m][k]`, −127..=127.
    codes: Vec<i8>,
    /// One a block of 32 or 256.
    scales: Vec<f32>,
    /// One per 32 codes (both quantised kinds), `|sum| ≤ 4,064`.
    sums32: Vec<i16>,
    /// One per 16 codes (both quantised kinds).
    sums16: Vec<i16>,
    /// `scale · sum` per 32 codes (`Q8x32`).
    scaled_sums: Vec<f32>,
}

impl Default for QuantizedActs {
    fn default() -> Self {
        Self {
            kind: Activation::F32,
            m: 0,
            k: 0,
            floats: Vec::new(),
            codes: Vec::new(),
            scales: Vec::new(),
            sums32: Vec::new(),
            sums16: Vec::new(),
            scaled_sums: Vec::new(),
        }
    }
}

/// Values that share a scale.
fn block_len(kind: Activation) -> usize {
    match kind {
        Activation::F32 => 1,
        Activation::Q8x32 => 32,
        Activation::Q8x256 => 256,
    }
}

impl QuantizedActs {
    /// The layout.
    #[must_use]
    pub fn kind(&self) -> Activation {
        self.kind
    }

    /// Rows.
    #[must_use]
    pub fn m(&self) -> usize {
        self.m
    }

    /// Values a row.
    #[must_use]
    pub fn k(&self) -> usize {
        self.k
    }

    /// Takes the shape of `m` rows of `k` values, keeping the storage, and gives the writer that fills the rows.
    /// Rows that are not written hold old values.
    ///
    /// # Panics
    /// If `k` is no multiple of the kind's block (32 or 256).
    pub fn reshape(&mut self, kind: Activation, m: usize, k: usize) -> ActsWriter<'_> {
        let block = block_len(kind);
        assert!(k.is_multiple_of(block), "{kind:?} activations come in blocks of {block}, not {k}");
        (self.kind, self.m, self.k) = (kind, m, k);
        fn fit<T: Copy + Default>(v: &mut Vec<T>, n: usize) -> *mut T {
            if v.len() < n {
                v.resize(n, T::default());
            }
            v.as_mut_ptr()
        }
        let n = m * k;
        let quantised = if kind == Activation::F32 { 0 } else { n };
        let narrow = if kind == Activation::Q8x32 { n } else { 0 };
        ActsWriter {
            kind,
            m,
            k,
            floats: fit(&mut self.floats, (n - quantised).div_ceil(16)).cast(),
            codes: fit(&mut self.codes, quantised),
            scales: fit(&mut self.scales, quantised / block),
            // One more, so that the last may be read as a pair.
            sums32: fit(&mut self.sums32, quantised / 32 + 1),
            sums16: fit(&mut self.sums16, quantised / 16 + 1),
            scaled_sums: fit(&mut self.scaled_sums, narrow / 32),
            owner: PhantomData,
        }
    }

    /// Quantises all of `x` (`[m][k]`) on this thread.
    ///
    /// # Panics
    /// If `x` is not `m · k` long, or as [`QuantizedActs::reshape`] does.
    pub fn prepare(&mut self, kind: Activation, x: &[f32], m: usize, k: usize, isa: Isa) {
        assert_eq!(x.len(), m * k, "activations are [m][k]");
        let writer = self.reshape(kind, m, k);
        for (t, row) in x.chunks_exact(k.max(1)).enumerate() {
            // SAFETY: this thread writes every row, one after the other.
            unsafe { writer.write(t, row, isa) };
        }
    }

    /// Row `t`, for a kernel with groups of `group` values.
    #[inline(always)]
    pub(crate) fn row(&self, t: usize, group: usize) -> ActRow<'_> {
        assert!(t < self.m);
        let (k, block) = (self.k, block_len(self.kind));
        let (sums, per) = if group == 16 { (&self.sums16, 16) } else { (&self.sums32, 32) };
        // SAFETY: `reshape` made room for `m` rows in every part that the kind has, and `t` is one of them.
        unsafe {
            ActRow {
                codes: self.codes.get_unchecked(t * k..(t + 1) * k),
                scales: self.scales.get_unchecked(t * k / block..(t + 1) * k / block),
                sums: sums.get_unchecked(t * k / per..(t + 1) * k / per + 1),
                scaled_sums: if self.kind == Activation::Q8x32 {
                    self.scaled_sums.get_unchecked(t * k / 32..(t + 1) * k / 32)
                } else {
                    &[]
                },
            }
        }
    }

    /// Asks the cache for the first row's values.
    pub(crate) fn prefetch(&self) {
        let (start, bytes) = match self.kind {
            Activation::F32 => (self.floats.as_ptr().cast::<u8>(), self.k * size_of::<f32>()),
            Activation::Q8x32 | Activation::Q8x256 => (self.codes.as_ptr().cast(), self.k),
        };
        (0..bytes).step_by(64).for_each(|offset| prefetch(start.wrapping_add(offset)));
    }

    /// Row `t` as the scalar dot products take it.
    pub(crate) fn oracle_row(&self, t: usize) -> Row<'_> {
        if self.kind == Activation::F32 {
            return Row::F32(self.float_row(t));
        }
        let ActRow { codes, scales, sums, .. } =
            self.row(t, if self.kind == Activation::Q8x256 { 16 } else { 32 });
        let sums = &sums[..sums.len() - 1];
        match self.kind {
            Activation::Q8x256 => Row::Q8x256 { codes, scales, sums },
            _ => Row::Q8x32 { codes, scales, sums },
        }
    }

    /// Row `t` of `F32` activations.
    #[inline(always)]
    pub(crate) fn float_row(&self, t: usize) -> &[f32] {
        assert!(t < self.m);
        // SAFETY: `reshape` made room for m · k floats, `t` is one of the m rows, and a line is sixteen floats.
        unsafe {
            let row = self.floats.as_ptr().cast::<f32>().add(t * self.k);
            core::slice::from_raw_parts(row, self.k)
        }
    }
}

/// Fills the rows of a [`QuantizedActs`], from several threads if they take different rows.
#[derive(Debug, Clone, Copy)]
pub struct ActsWriter<'a> {
    kind: Activation,
    m: usize,
    k: usize,
    floats: *mut f32,
    codes: *mut i8,
    scales: *mut f32,
    sums32: *mut i16,
    sums16: *mut i16,
    scaled_sums: *mut f32,
    owner: PhantomData<&'a mut QuantizedActs>,
}

// SAFETY: it stands for `&mut QuantizedActs`, whose parts are `Send`; `write` makes callers keep threads apart.
unsafe impl Send for ActsWriter<'_> {}
// SAFETY: as above.
unsafe impl Sync for ActsWriter<'_> {}

impl ActsWriter<'_> {
    /// Quantises row `t` from `x` (`k` values).
    ///
    /// # Safety
    /// No two threads write the same row at the same time.
    ///
    /// # Panics
    /// If `t` or the length of `x` does not fit the shape.
    pub unsafe fn write(&self, t: usize, x: &[f32], isa: Isa) {
        assert!(
            t < self.m && x.len() == self.k,
            "row {t} of {} with {} of {} values",
            self.m,
            x.len(),
            self.k
        );
        let k = self.k;
        /// # Safety
        /// `len` values from `offset` are inside the vector behind `p` and nobody else's now.
        unsafe fn part<'a, T>(p: *mut T, offset: usize, len: usize) -> &'a mut [T] {
            // SAFETY: the caller's promise.
            unsafe { core::slice::from_raw_parts_mut(p.add(offset), len) }
        }
        if self.kind == Activation::F32 {
            // SAFETY: `reshape` made room for m · k floats, and row `t` is ours.
            unsafe { part(self.floats, t * k, k) }.copy_from_slice(x);
            return;
        }
        let block = block_len(self.kind);
        // SAFETY: `reshape` made room for m rows in every part that the kind has, and row `t` is ours.
        let (codes, scales, sums32, sums16) = unsafe {
            (
                part(self.codes, t * k, k),
                part(self.scales, t * k / block, k / block),
                part(self.sums32, t * k / 32, k / 32),
                part(self.sums16, t * k / 16, k / 16),
            )
        };
        isa.run(QuantizeRow { x, block, codes, scales, sums16 });
        for (sum, halves) in sums32.iter_mut().zip(sums16.as_chunks::<2>().0) {
            *sum = halves[0] + halves[1];
        }
        if self.kind == Activation::Q8x32 {
            // SAFETY: as above.
            let scaled = unsafe { part(self.scaled_sums, t * k / 32, k / 32) };
            for ((out, d), sum) in scaled.iter_mut().zip(&*scales).zip(&*sums32) {
                *out = d * f32::from(*sum);
            }
        }
    }
}

/// Codes, scales and sums of one row: the vector form of `smelt_quant::activation::quantize_row`.
struct QuantizeRow<'a> {
    x: &'a [f32],
    block: usize,
    codes: &'a mut [i8],
    scales: &'a mut [f32],
    /// Of sixteen codes each.
    sums16: &'a mut [i16],
}

impl Op for QuantizeRow<'_> {
    type Output = ();

    #[inline(always)]
    fn run<S: Simd>(self, s: S) {
        let magnitude = s.splat(i32::MAX);
        let mut line = Line::ZERO;
        for b in 0..self.scales.len() {
            let x = &self.x[b * self.block..][..self.block];
            let codes = &mut self.codes[b * self.block..][..self.block];
            // The bits of magnitudes are ordered like the magnitudes, with NaN above infinity.
            let mut largest = s.splat(0);
            for i in 0..self.block / S::LANES {
                largest = s.max(largest, s.and(s.bits(s.load_slice(&x[i * S::LANES..])), magnitude));
            }
            s.store(&mut line, 0, largest);
            let mut bits = 0;
            for lane in 0..S::LANES {
                bits = line.0[lane].max(bits);
            }
            let amax = f32::from_bits(bits);
            let inverse = 127.0 / amax;
            if !(amax.is_finite() && inverse.is_finite()) {
                self.scales[b] = if amax.is_finite() { 0.0 } else { f32::NAN };
                codes.fill(0);
                continue;
            }
            self.scales[b] = block_scale(amax, self.block);
            let inverse = s.splat_f(inverse);
            for i in 0..self.block / S::LANES {
                s.store(&mut line, 0, s.to_i(s.mul_f(s.load_slice(&x[i * S::LANES..]), inverse)));
                let out = &mut codes[i * S::LANES..][..S::LANES];
                for lane in 0..S::LANES {
                    out[lane] = line.0[lane] as i8;
                }
            }
        }
        for i in 0..self.sums16.len() {
            let mut sum = 0;
            for j in 0..16 {
                sum += i16::from(self.codes[16 * i + j]);
            }
            self.sums16[i] = sum;
        }
    }
}

/// One row as a micro-kernel reads it.
#[derive(Clone, Copy)]
pub(crate) struct ActRow<'a> {
    codes: &'a [i8],
    scales: &'a [f32],
    sums: &'a [i16],
    scaled_sums: &'a [f32],
}

/// The accessors skip bounds checks: they run several times a multiply. A kernel asserts its range once.
impl<'a> ActRow<'a> {
    pub(crate) const EMPTY: Self = Self { codes: &[], scales: &[], sums: &[], scaled_sums: &[] };

    /// Codes, scales and sums of the first `n` blocks of 32 values.
    pub(crate) fn blocks(&self, n: usize) -> (&'a [i8], &'a [f32], &'a [i16]) {
        (&self.codes[..32 * n], &self.scales[..n], &self.sums[..n])
    }

    /// Codes `i..i + 4` as a lane.
    ///
    /// # Safety
    /// `i + 4` is at most the row's length.
    #[inline(always)]
    pub(crate) unsafe fn four_codes(&self, i: usize) -> i32 {
        debug_assert!(i + 4 <= self.codes.len());
        // SAFETY: the caller's promise.
        i32::from_le(unsafe { self.codes.as_ptr().add(i).cast::<i32>().read_unaligned() })
    }

    /// Scale of block `i`.
    ///
    /// # Safety
    /// The row has that block.
    #[inline(always)]
    pub(crate) unsafe fn scale(&self, i: usize) -> f32 {
        debug_assert!(i < self.scales.len());
        // SAFETY: the caller's promise.
        unsafe { *self.scales.get_unchecked(i) }
    }

    /// Sums of groups `i` and `i + 1` as the halves of a lane; behind the last group stands anything.
    ///
    /// # Safety
    /// The row has group `i`.
    #[inline(always)]
    pub(crate) unsafe fn sum_pair(&self, i: usize) -> i32 {
        debug_assert!(i + 1 < self.sums.len());
        // SAFETY: the caller's promise.
        i32::from_le(unsafe { self.sums.as_ptr().add(i).cast::<i32>().read_unaligned() })
    }

    /// Scale times sum of group `i` of 32.
    ///
    /// # Safety
    /// The row has that group.
    #[inline(always)]
    pub(crate) unsafe fn scaled_sum(&self, i: usize) -> f32 {
        debug_assert!(i < self.scaled_sums.len());
        // SAFETY: the caller's promise.
        unsafe { *self.scaled_sums.get_unchecked(i) }
    }
}
