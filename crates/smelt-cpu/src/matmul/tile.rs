//! The panel of rows that a kernel works on, and the cache-sized tile that its codes are unpacked into.

use super::class::Class;
use crate::isa::{Line, Rows};

/// Output rows that are unpacked and multiplied together: two AVX2 vectors or one AVX-512 vector.
pub(crate) const PANEL: usize = 16;

/// Sixteen rows of blocks.
#[derive(Clone, Copy)]
pub(crate) struct Panel<'a> {
    bytes: &'a [u8],
    row_bytes: usize,
    /// Where what is read behind it begins.
    next: *const u8,
}

/// Rows of packed blocks, one after the other.
#[derive(Clone, Copy)]
pub(crate) struct Weights<'a> {
    pub(crate) bytes: &'a [u8],
    pub(crate) row_bytes: usize,
    /// Where what is read behind the last row begins.
    pub(crate) next: *const u8,
}

impl<'a> Weights<'a> {
    /// Rows `first..end`, at most sixteen. Fewer are copied to `edge` and followed by zeros, so that kernels know nothing of a
    /// matrix's end.
    #[inline(always)]
    pub(crate) fn panel<'p>(&self, first: usize, end: usize, edge: &'p mut Vec<u8>) -> Panel<'p>
    where
        'a: 'p,
    {
        let Self { bytes, row_bytes, next } = *self;
        if first + PANEL <= end {
            let bytes = &bytes[first * row_bytes..][..PANEL * row_bytes];
            return Panel {
                bytes,
                row_bytes,
                next: if first + PANEL == end { next } else { bytes.as_ptr_range().end },
            };
        }
        edge.clear();
        edge.extend_from_slice(&bytes[first * row_bytes..end * row_bytes]);
        edge.resize(PANEL * row_bytes, 0);
        Panel { bytes: edge, row_bytes, next }
    }
}

impl<'a> Panel<'a> {
    /// `count` blocks of `B` bytes from the panel's `i`-th on, in the order of addresses; what lies `ahead` bytes further is
    /// asked for.
    #[inline(always)]
    pub(crate) fn in_order<const B: usize>(&self, i: usize, count: usize, ahead: usize) -> Rows<'a, B> {
        let at = i * B + ahead;
        let ahead = match at.checked_sub(self.bytes.len()) {
            None => self.bytes.as_ptr().wrapping_add(at),
            Some(behind) => self.next.wrapping_add(behind),
        };
        Rows::new(self.bytes, B, i * B, count, ahead)
    }

    /// Bytes of a row.
    pub(crate) fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Block `b` of `count` rows from `first` on, for blocks of `B` bytes. The rows behind them come next: their bytes are
    /// asked for in the order of addresses.
    #[inline(always)]
    pub(crate) fn blocks<const B: usize>(&self, first: usize, count: usize, b: usize) -> Rows<'a, B> {
        let behind = first + count;
        let ahead = if behind == PANEL {
            self.next
        } else {
            self.bytes.as_ptr().wrapping_add(behind * self.row_bytes)
        };
        let ahead = ahead.wrapping_add(b * B * count);
        Rows::new(self.bytes, self.row_bytes, first * self.row_bytes + b * B, count, ahead)
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

/// The same of one block of a class, for reading.
#[derive(Clone, Copy)]
pub(crate) struct TilePart<'a> {
    pub(crate) codes: &'a [Line],
    pub(crate) scales: &'a [Line],
    pub(crate) pairs: &'a [Line],
    pub(crate) d: &'a [Line],
    pub(crate) m: &'a [Line],
}

/// Room for one block of any format, in local memory so that what fits stays in registers.
pub(crate) struct OneBlock {
    codes: [Line; 64],
    scales: [Line; 16],
    pairs: [Line; 8],
    d: [Line; 4],
    m: [Line; 4],
}

impl OneBlock {
    #[inline(always)]
    pub(crate) fn new() -> Self {
        Self {
            codes: [Line::ZERO; 64],
            scales: [Line::ZERO; 16],
            pairs: [Line::ZERO; 8],
            d: [Line::ZERO; 4],
            m: [Line::ZERO; 4],
        }
    }

    /// The block, for writing.
    #[inline(always)]
    pub(crate) fn block(&mut self, shape: TileShape) -> TileBlock<'_> {
        TileBlock {
            codes: &mut self.codes[..shape.codes],
            scales: &mut self.scales[..shape.scales],
            pairs: &mut self.pairs[..shape.pairs],
            d: &mut self.d[..shape.floats],
            m: &mut self.m[..shape.floats],
        }
    }

    /// Block `i` of a class.
    #[inline(always)]
    pub(crate) fn part<C: Class>(&self, i: usize) -> TilePart<'_> {
        let shape = C::SHAPE;
        TilePart {
            codes: &self.codes[i * shape.codes..][..shape.codes],
            scales: &self.scales[i * shape.scales..][..shape.scales],
            pairs: &self.pairs[i * shape.pairs..][..shape.pairs],
            d: &self.d[i * shape.floats..][..shape.floats],
            m: &self.m[i * shape.floats..][..shape.floats],
        }
    }
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

    /// Whether every part has room for `blocks` blocks.
    pub(crate) fn holds(&self, shape: TileShape, blocks: usize) -> bool {
        self.codes.len() >= blocks * shape.codes
            && self.scales.len() >= blocks * shape.scales
            && self.pairs.len() >= blocks * shape.pairs
            && self.d.len() >= blocks * shape.floats
            && self.m.len() >= blocks * shape.floats
    }

    /// Block `i` of a class.
    ///
    /// # Safety
    /// The tile holds more than `i` blocks.
    #[inline(always)]
    pub(crate) unsafe fn part<C: Class>(&self, i: usize) -> TilePart<'_> {
        let shape = C::SHAPE;
        debug_assert!(self.holds(shape, i + 1));
        // SAFETY: the caller's promise.
        unsafe {
            TilePart {
                codes: self.codes.get_unchecked(i * shape.codes..(i + 1) * shape.codes),
                scales: self.scales.get_unchecked(i * shape.scales..(i + 1) * shape.scales),
                pairs: self.pairs.get_unchecked(i * shape.pairs..(i + 1) * shape.pairs),
                d: self.d.get_unchecked(i * shape.floats..(i + 1) * shape.floats),
                m: self.m.get_unchecked(i * shape.floats..(i + 1) * shape.floats),
            }
        }
    }
}
