//! Where blocks go while they are unpacked: to a tile, or into sums at once.

use super::acts::ActRow;
use super::class::Class;
use super::tile::TileBlock;
use crate::isa::Simd;
use core::marker::PhantomData;

/// Takes a block of `LANES` rows piece by piece, in any order in which scales come before the codes of their group.
pub(crate) trait Sink<S: Simd> {
    /// Float scale `i`.
    fn d(&mut self, s: S, i: usize, x: S::F);
    /// Float minimum `i`.
    fn m(&mut self, s: S, i: usize, x: S::F);
    /// Integer scale of group `g`, twice as `i16`.
    fn scale(&mut self, s: S, g: usize, x: S::I);
    /// What multiplies the sums of the activations of groups `2·p` and `2·p + 1`, as `i16`.
    fn pair(&mut self, s: S, p: usize, x: S::I);
    /// The lines of codes from `first` on, of whole groups or a part of one.
    fn codes<const N: usize>(&mut self, s: S, first: usize, x: [S::I; N]);
}

/// Stores a block as the rows `v * LANES..` of a tile's.
pub(crate) struct Store<'a> {
    pub(crate) block: TileBlock<'a>,
    pub(crate) v: usize,
}

impl<S: Simd> Sink<S> for Store<'_> {
    #[inline(always)]
    fn d(&mut self, s: S, i: usize, x: S::F) {
        s.store_f(&mut self.block.d[i], self.v, x);
    }
    #[inline(always)]
    fn m(&mut self, s: S, i: usize, x: S::F) {
        s.store_f(&mut self.block.m[i], self.v, x);
    }
    #[inline(always)]
    fn scale(&mut self, s: S, g: usize, x: S::I) {
        s.store(&mut self.block.scales[g], self.v, x);
    }
    #[inline(always)]
    fn pair(&mut self, s: S, p: usize, x: S::I) {
        s.store(&mut self.block.pairs[p], self.v, x);
    }
    #[inline(always)]
    fn codes<const N: usize>(&mut self, s: S, first: usize, x: [S::I; N]) {
        for i in 0..N {
            s.store(&mut self.block.codes[first + i], self.v, x[i]);
        }
    }
}

/// Multiplies a super-block with `T` tokens while it is unpacked, so that its 64 lines of codes are neither stored nor
/// loaded. Integer sums are exact, and the float steps are those of [`super::micro`].
pub(crate) struct Multiply<'a, S: Simd, C, const T: usize> {
    rows: &'a [ActRow<'a>; T],
    /// The block's first value.
    value: usize,
    /// Not inside, where indices that are no constants would keep the sums out of registers.
    scales: &'a mut [S::I; 16],
    d: S::F,
    m: S::F,
    sum: [S::I; T],
    /// Minima times sums of activations.
    minima: [S::I; T],
    class: PhantomData<C>,
}

impl<'a, S: Simd, C: Class, const T: usize> Multiply<'a, S, C, T> {
    /// Whether it pays. For one token: codes that fill a partial in one step need as many more registers as loads are saved.
    /// For more: where there are 32 registers, unless signed scales of groups of 16 take them.
    pub(crate) const PAYS: bool = C::INTEGER_SCALES
        && if T == 1 { C::DEPTH > 1 } else { S::LANES == 16 && (C::GROUP == 32 || C::MINS) };

    /// Nothing yet of the block that begins at value `value`.
    ///
    /// # Safety
    /// `value + C::VALUES` is at most the length of the rows.
    #[inline(always)]
    pub(crate) unsafe fn new(
        s: S,
        rows: &'a [ActRow<'a>; T],
        value: usize,
        scales: &'a mut [S::I; 16],
    ) -> Self {
        assert!(C::INTEGER_SCALES);
        let (zero, none) = (s.splat(0), s.splat_f(0.0));
        Self { rows, value, scales, d: none, m: none, sum: [zero; T], minima: [zero; T], class: PhantomData }
    }

    /// Adds the block's products to `acc`.
    #[inline(always)]
    pub(crate) fn add_to(self, s: S, acc: &mut [S::F; T]) {
        for t in 0..T {
            // SAFETY: `new`'s caller promises that the rows have this block.
            let d_a = s.splat_f(unsafe { self.rows[t].scale(self.value / 256) });
            acc[t] = s.fma(s.mul_f(self.d, d_a), s.to_f(self.sum[t]), acc[t]);
            if C::MINS {
                acc[t] = s.fnma(s.mul_f(self.m, d_a), s.to_f(self.minima[t]), acc[t]);
            }
        }
    }
}

impl<S: Simd, C: Class, const T: usize> Sink<S> for Multiply<'_, S, C, T> {
    #[inline(always)]
    fn d(&mut self, _: S, _: usize, x: S::F) {
        self.d = x;
    }
    #[inline(always)]
    fn m(&mut self, _: S, _: usize, x: S::F) {
        self.m = x;
    }
    #[inline(always)]
    fn scale(&mut self, _: S, g: usize, x: S::I) {
        self.scales[g] = x;
    }
    #[inline(always)]
    fn pair(&mut self, s: S, p: usize, x: S::I) {
        if C::WIDE && S::SIGNED_WIDE {
            return;
        }
        let sum = if C::MINS { &mut self.minima } else { &mut self.sum };
        for t in 0..T {
            // SAFETY: `new`'s caller promises that the rows have this block.
            let a = s.splat(unsafe { self.rows[t].sum_pair(self.value / C::GROUP + 2 * p) });
            sum[t] = s.madd(sum[t], x, a);
        }
    }
    #[inline(always)]
    fn codes<const N: usize>(&mut self, s: S, first: usize, x: [S::I; N]) {
        let mac = if C::WIDE { S::mac_wide } else { S::mac };
        let most = if S::EXACT_PARTIAL || C::DEPTH > N { N } else { C::DEPTH };
        let depth = most.min(C::GROUP / 4);
        // It saves an addition, but is longer in the chain of sums, which is all that one token has.
        let fits = 4 * depth as i32 * C::MAX * 127 <= i32::from(i16::MAX);
        let narrow = if T == 1 { C::NARROW } else { fits };
        let end = if narrow { S::end_scaled_narrow } else { S::end_scaled };
        for c in 0..N / depth {
            let scale = self.scales[(first + c * depth) * 4 / C::GROUP];
            for t in 0..T {
                let mut partial = s.begin(s.splat(0));
                for k in c * depth..(c + 1) * depth {
                    // SAFETY: `new`'s caller promises that the rows have this block.
                    let a = s.splat(unsafe { self.rows[t].four_codes(self.value + 4 * (first + k)) });
                    partial = mac(s, partial, x[k], a);
                }
                self.sum[t] = end(s, self.sum[t], partial, scale);
            }
        }
    }
}
