//! The panel of rows that a kernel works on, and the cache-sized tile that its codes are unpacked into.

use crate::isa::Line;

/// Output rows that are unpacked and multiplied together: two AVX2 vectors or one AVX-512 vector.
pub(crate) const PANEL: usize = 16;

/// Sixteen rows of blocks. A panel at the matrix's end repeats its last row; the results are dropped.
pub(crate) struct Panel<'a> {
    rows: [&'a [u8]; PANEL],
    /// Where the bytes after the panel begin, for prefetching.
    next: *const u8,
}

impl<'a> Panel<'a> {
    /// Rows `first..` (at most sixteen) of `weights`, whose rows have `row_bytes` bytes.
    pub(crate) fn new(weights: &'a [u8], row_bytes: usize, first: usize, end: usize) -> Self {
        let row = |r: usize| &weights[r * row_bytes..][..row_bytes];
        let rows = core::array::from_fn(|i| row((first + i).min(end - 1)));
        Self { rows, next: rows[PANEL - 1].as_ptr_range().end }
    }

    /// Block `b` of every row, for blocks of `B` bytes. An indexed loop, because iterators are not inlined into kernels.
    #[inline(always)]
    pub(crate) fn blocks<const B: usize>(&self, b: usize) -> [&'a [u8; B]; PANEL] {
        assert!((b + 1) * B <= self.rows[0].len());
        let mut blocks = [&[0u8; B]; PANEL];
        for i in 0..PANEL {
            debug_assert_eq!(self.rows[i].len(), self.rows[0].len());
            // SAFETY: block `b` lies inside row 0 (asserted), and `new` makes all rows equally long.
            blocks[i] = unsafe { &*self.rows[i].as_ptr().add(b * B).cast::<[u8; B]>() };
        }
        blocks
    }

    /// Address of the bytes that follow the panel, `offset` further on; only for prefetching.
    #[inline(always)]
    pub(crate) fn following(&self, offset: usize) -> *const u8 {
        self.next.wrapping_add(offset)
    }
}

/// Unpacked blocks. A line holds one thing of all sixteen rows, so vector lanes are rows.
///
/// For formats with a float scale a group ([`super::class::Floats`]) an entry of `d` and `m` belongs to a group; for
/// formats with integer scales inside super-blocks ([`super::class::Scaled`]) to a super-block.
#[derive(Debug, Default)]
pub(crate) struct Tile {
    /// Four consecutive codes of each row a line, offset so that they are unsigned.
    pub(crate) codes: Vec<Line>,
    /// Integer scale of each group, twice as `i16`.
    pub(crate) scales: Vec<Line>,
    /// What multiplies the activations' sums, as pairs of `i16` for two neighbouring sums.
    pub(crate) pairs: Vec<Line>,
    /// Float scale.
    pub(crate) d: Vec<Line>,
    /// Float minimum.
    pub(crate) m: Vec<Line>,
}

/// One block's (of 256 values) or group's part of a [`Tile`].
pub(crate) struct TileBlock<'a> {
    pub(crate) codes: &'a mut [Line],
    pub(crate) scales: &'a mut [Line],
    pub(crate) pairs: &'a mut [Line],
    pub(crate) d: &'a mut [Line],
    pub(crate) m: &'a mut [Line],
}

/// Lines that one block takes in each part of a tile.
#[derive(Debug, Clone, Copy)]
pub(crate) struct TileShape {
    pub(crate) codes: usize,
    pub(crate) scales: usize,
    pub(crate) pairs: usize,
    pub(crate) floats: usize,
}

impl Tile {
    /// Grows every part to hold `blocks` blocks.
    pub(crate) fn fit(&mut self, shape: TileShape, blocks: usize) {
        let fit = |v: &mut Vec<Line>, n: usize| {
            if v.len() < n {
                v.resize(n, Line::ZERO);
            }
        };
        fit(&mut self.codes, shape.codes * blocks);
        fit(&mut self.scales, shape.scales * blocks);
        fit(&mut self.pairs, shape.pairs * blocks);
        fit(&mut self.d, shape.floats * blocks);
        fit(&mut self.m, shape.floats * blocks);
    }

    /// Block `i`'s part.
    #[inline(always)]
    pub(crate) fn block(&mut self, shape: TileShape, i: usize) -> TileBlock<'_> {
        TileBlock {
            codes: &mut self.codes[i * shape.codes..][..shape.codes],
            scales: &mut self.scales[i * shape.scales..][..shape.scales],
            pairs: &mut self.pairs[i * shape.pairs..][..shape.pairs],
            d: &mut self.d[i * shape.floats..][..shape.floats],
            m: &mut self.m[i * shape.floats..][..shape.floats],
        }
    }
}
