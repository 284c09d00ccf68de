//! A head's page as rows of vectors.
//!
//! A row is a dimension of keys, whose lanes are tokens, or a token of values, whose lanes are dimensions. Whoever reads
//! rows takes `C` vectors of them side by side, in f32: see [`Sink`].

use super::tile::STRIP_TOKENS;
use crate::cache::{BLOCK, Format, Head, Single};
use crate::isa::prefetch;
use crate::wide::Wide;
use smelt_backend::PAGE_TOKENS;
use std::ops::Range;

/// Bytes between what is read and what is prefetched. A head's pages mostly follow each other, but the hardware's own
/// prefetching ends with the pages of virtual memory, which are hardly larger.
const AHEAD: usize = 4 << 10;

/// Where a head's rows are.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lines<'a, F: Format> {
    head: Head<'a, F>,
    /// Codes from a row to the next.
    row: usize,
    /// Codes from a vector of a row to the next, where codes are values.
    vector: usize,
    /// Bytes to what is prefetched.
    ahead: usize,
}

/// Takes rows in ascending order.
pub(super) trait Sink<W: Wide, const C: usize> {
    fn take(&mut self, w: W, row: usize, vectors: [W::V; C]);
}

/// What a row's codes are multiplied by.
trait Scale<W: Wide, const C: usize> {
    fn apply(&self, w: W, row: usize, vectors: [W::V; C]) -> [W::V; C];
}

struct Unscaled;

impl<W: Wide, const C: usize> Scale<W, C> for Unscaled {
    #[inline(always)]
    fn apply(&self, _: W, _: usize, vectors: [W::V; C]) -> [W::V; C] {
        vectors
    }
}

/// A scale for each lane.
struct ByLane<V, const C: usize>([V; C]);

impl<W: Wide, const C: usize> Scale<W, C> for ByLane<W::V, C> {
    #[inline(always)]
    fn apply(&self, w: W, _: usize, mut vectors: [W::V; C]) -> [W::V; C] {
        for c in 0..C {
            vectors[c] = w.mul(vectors[c], self.0[c]);
        }
        vectors
    }
}

/// A scale for each row and block; the first vector begins a block, or stands alone.
struct ByRow([[f32; PAGE_TOKENS]; 2]);

impl<W: Wide, const C: usize> Scale<W, C> for ByRow {
    #[inline(always)]
    fn apply(&self, w: W, row: usize, mut vectors: [W::V; C]) -> [W::V; C] {
        for c in 0..C {
            vectors[c] = w.mul(vectors[c], w.splat(self.0[c * 16 / BLOCK][row % PAGE_TOKENS]));
        }
        vectors
    }
}

impl<'a> Lines<'a, Single> {
    /// What [`Lines::unpack_keys`] or [`Lines::unpack_values`] wrote, of `rows` rows.
    pub(super) fn unpacked(values: &'a [f32], rows: usize) -> Self {
        Self { head: Head { codes: values, scales: &[] }, row: 16, vector: rows * 16, ahead: 0 }
    }
}

impl<'a, F: Format> Lines<'a, F> {
    /// Keys.
    pub(super) fn keys(head: Head<'a, F>) -> Self {
        Self { head, row: PAGE_TOKENS, vector: 16, ahead: AHEAD }
    }

    /// Values of `stride` dimensions, which are whole blocks.
    pub(super) fn values(head: Head<'a, F>, stride: usize) -> Self {
        Self { head, row: stride / BLOCK * F::CODES, vector: 16, ahead: AHEAD }
    }

    /// Hands over `dim` dimensions of the keys of the tokens from `16 · vector` on.
    #[inline(always)]
    pub(super) fn read_keys<W: Wide, const C: usize>(
        &self,
        w: W,
        dim: usize,
        vector: usize,
        sink: &mut impl Sink<W, C>,
    ) {
        if !F::SCALED {
            return self.read(w, 0..dim, 0, self.places(vector), &Unscaled, sink);
        }
        for (block, scales) in self.head.scales.iter().enumerate() {
            let mut lanes = [w.splat(0.0); C];
            for c in 0..C {
                lanes[c] = w.load_half(&scales.as_chunks::<16>().0[vector + c]);
            }
            for part in 0..BLOCK / F::CODES {
                let first = block * BLOCK + part * F::CODES;
                let rows = first..(first + F::CODES).min(dim);
                let mut places = self.places(vector);
                places.iter_mut().for_each(|place| place.shift = part as u32 * 4);
                self.read(w, rows, block * F::CODES, places, &ByLane(lanes), sink);
            }
        }
    }

    /// Hands over the values of `tokens`, their dimensions from `16 · vector` on; where several vectors are, they begin
    /// with a block.
    #[inline(always)]
    pub(super) fn read_values<W: Wide, const C: usize>(
        &self,
        w: W,
        tokens: Range<usize>,
        vector: usize,
        sink: &mut impl Sink<W, C>,
    ) {
        let first = tokens.start;
        if !F::SCALED {
            return self.read(w, tokens, first, self.places(vector), &Unscaled, sink);
        }
        let mut scales = [[0.0; PAGE_TOKENS]; 2];
        for (i, scales) in scales.iter_mut().take((C * 16).div_ceil(BLOCK)).enumerate() {
            let halves = self.head.scales[vector * 16 / BLOCK + i].as_chunks::<16>().0;
            for (half, scales) in halves.iter().zip(scales.as_chunks_mut::<16>().0) {
                w.store(w.load_half(half), scales);
            }
        }
        let mut places = [Place::default(); C];
        for c in 0..C {
            let (block, within) = ((vector + c) * 16 / BLOCK, (vector + c) * 16 % BLOCK);
            let (offset, shift) = (block * F::CODES + within % F::CODES, (within / F::CODES) as u32 * 4);
            places[c] = Place { offset, shift };
        }
        self.read(w, tokens, first, places, &ByRow(scales), sink);
    }

    /// The places of the vectors from `vector` on where codes are values.
    #[inline(always)]
    fn places<const C: usize>(&self, vector: usize) -> [Place; C] {
        let mut places = [Place::default(); C];
        for c in 0..C {
            places[c].offset = (vector + c) * self.vector;
        }
        places
    }

    /// Hands over `rows`, of which the first lies in row `from` of the codes.
    #[inline(always)]
    fn read<W: Wide, const C: usize>(
        &self,
        w: W,
        rows: Range<usize>,
        from: usize,
        places: [Place; C],
        scale: &impl Scale<W, C>,
        sink: &mut impl Sink<W, C>,
    ) {
        if rows.is_empty() {
            return;
        }
        let last = (from + rows.len() - 1) * self.row + 16;
        assert!(places.iter().all(|place| place.offset + last <= self.head.codes.len()));
        let (first, start) = (rows.start, self.head.codes.as_ptr());
        for row in rows {
            let next = start.wrapping_add(places[0].offset + (from + row - first) * self.row).cast::<u8>();
            for line in 0..(C * 16 * size_of::<F::Code>() * F::CODES / BLOCK).div_ceil(64) {
                prefetch(next.wrapping_add(self.ahead + line * 64));
            }
            let mut vectors = [w.splat(0.0); C];
            for c in 0..C {
                let at = places[c].offset + (from + row - first) * self.row;
                // SAFETY: sixteen codes from here on end at the last row's end or before, which is inside the slice.
                let line = unsafe { &*start.add(at).cast::<[F::Code; 16]>() };
                vectors[c] = F::load(w, line, places[c].shift);
            }
            sink.take(w, row, scale.apply(w, row, vectors));
        }
    }

    /// Makes `dim` dimensions of the keys f32, in vectors of tokens one behind the other.
    #[inline(always)]
    pub(super) fn unpack_keys<W: Wide>(&self, w: W, dim: usize, out: &mut Vec<f32>) {
        out.resize(dim * PAGE_TOKENS, 0.0);
        for (vector, rows) in out.chunks_exact_mut(dim * 16).enumerate() {
            self.read_keys::<W, 1>(w, dim, vector, &mut Unpacked(rows));
        }
    }

    /// Makes the values of `tokens` f32, in vectors of dimensions one behind the other, each with the rows of a strip, where
    /// the page's begin at `column`.
    #[inline(always)]
    pub(super) fn unpack_values<W: Wide>(
        &self,
        w: W,
        tokens: Range<usize>,
        stride: usize,
        column: usize,
        out: &mut Vec<f32>,
    ) {
        out.resize(stride * STRIP_TOKENS, 0.0);
        for (vector, rows) in out.chunks_exact_mut(STRIP_TOKENS * 16).enumerate() {
            self.read_values::<W, 1>(w, tokens.clone(), vector, &mut Unpacked(&mut rows[column * 16..]));
        }
    }
}

/// Where a vector begins in its row of codes, and where its bits begin in a code.
#[derive(Debug, Clone, Copy, Default)]
struct Place {
    offset: usize,
    shift: u32,
}

/// Stores rows one behind the other.
struct Unpacked<'a>(&'a mut [f32]);

impl<W: Wide> Sink<W, 1> for Unpacked<'_> {
    #[inline(always)]
    fn take(&mut self, w: W, row: usize, [vector]: [W::V; 1]) {
        w.store(vector, &mut self.0.as_chunks_mut::<16>().0[row]);
    }
}

/// `sums[m] += Σᵢ factors[m][i − first] · row i`, one row after the other.
pub(super) struct Sums<'a, W: Wide, const M: usize, const C: usize> {
    pub(super) factors: [&'a [f32]; M],
    pub(super) first: usize,
    pub(super) sums: [[W::V; C]; M],
}

impl<W: Wide, const M: usize, const C: usize> Sink<W, C> for Sums<'_, W, M, C> {
    #[inline(always)]
    fn take(&mut self, w: W, row: usize, vectors: [W::V; C]) {
        for m in 0..M {
            let factor = w.splat(self.factors[m][row - self.first]);
            for c in 0..C {
                self.sums[m][c] = w.fma(factor, vectors[c], self.sums[m][c]);
            }
        }
    }
}
