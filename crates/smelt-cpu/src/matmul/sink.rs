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
    /// The lines of codes from `first` on, all of one group.
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

/// Multiplies a super-block with one token while it is unpacked, so that its 64 lines of codes are neither stored nor
/// loaded. Integer sums are exact, and the float steps are those of [`super::micro`].
pub(crate) struct Multiply<'a, S: Simd, C> {
    row: ActRow<'a>,
    /// The block's first value.
    value: usize,
    /// Not inside, where indices that are no constants would keep the sums out of registers.
    scales: &'a mut [S::I; 16],
    d: S::F,
    m: S::F,
    sum: S::I,
    /// Minima times sums of activations.
    minima: S::I,
    class: PhantomData<C>,
}

impl<'a, S: Simd, C: Class> Multiply<'a, S, C> {
    /// Whether it pays: codes that fill a partial in one step need as many more registers as loads are saved.
    pub(crate) const PAYS: bool = C::INTEGER_SCALES && C::DEPTH > 1;

    /// Nothing yet of the block that begins at value `value`.
    ///
    /// # Safety
    /// `value + C::VALUES` is at most the length of the row.
    #[inline(always)]
    pub(crate) unsafe fn new(s: S, row: ActRow<'a>, value: usize, scales: &'a mut [S::I; 16]) -> Self {
        assert!(C::INTEGER_SCALES);
        let (zero, none) = (s.splat(0), s.splat_f(0.0));
        Self { row, value, scales, d: none, m: none, sum: zero, minima: zero, class: PhantomData }
    }

    /// `acc` and the block's products.
    #[inline(always)]
    pub(crate) fn add_to(self, s: S, acc: S::F) -> S::F {
        // SAFETY: `new`'s caller promises that the row has this block.
        let d_a = s.splat_f(unsafe { self.row.scale(self.value / 256) });
        let acc = s.fma(s.mul_f(self.d, d_a), s.to_f(self.sum), acc);
        if C::MINS { s.fnma(s.mul_f(self.m, d_a), s.to_f(self.minima), acc) } else { acc }
    }
}

impl<S: Simd, C: Class> Sink<S> for Multiply<'_, S, C> {
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
        // SAFETY: `new`'s caller promises that the row has this block.
        let a = s.splat(unsafe { self.row.sum_pair(self.value / C::GROUP + 2 * p) });
        let sum = if C::MINS { &mut self.minima } else { &mut self.sum };
        *sum = s.madd(*sum, x, a);
    }
    #[inline(always)]
    fn codes<const N: usize>(&mut self, s: S, first: usize, x: [S::I; N]) {
        let (scale, mac) = (self.scales[first * 4 / C::GROUP], if C::WIDE { S::mac_wide } else { S::mac });
        let end = if C::NARROW { S::end_scaled_narrow } else { S::end_scaled };
        let depth = if S::EXACT_PARTIAL || C::DEPTH > N { N } else { C::DEPTH };
        for c in 0..N / depth {
            let mut partial = s.begin(s.splat(0));
            for k in c * depth..(c + 1) * depth {
                // SAFETY: `new`'s caller promises that the row has this block.
                let a = s.splat(unsafe { self.row.four_codes(self.value + 4 * (first + k)) });
                partial = mac(s, partial, x[k], a);
            }
            self.sum = end(s, self.sum, partial, scale);
        }
    }
}
