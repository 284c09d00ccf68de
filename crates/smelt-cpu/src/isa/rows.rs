//! One block of each of some rows, as unpackers see it.

use super::prefetch;
use core::marker::PhantomData;

/// Blocks of `B` bytes in `count` rows that lie at equal distances. It is an address and a distance, because an address
/// for each row would not fit the registers and be written to memory for every block.
///
/// Whoever reads a part of the blocks asks the cache for the same share of the bytes `ahead`, so that requests are spread
/// evenly over the work: in bursts they would fill the queue of misses, and the core would wait for its own prefetches.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Rows<'a, const B: usize> {
    first: *const u8,
    stride: usize,
    count: usize,
    ahead: *const u8,
    bytes: PhantomData<&'a [u8]>,
}

impl<'a, const B: usize> Rows<'a, B> {
    /// The blocks that begin at `offset` in `count` rows of `stride` bytes; `ahead` is where the bytes begin that will be
    /// read next, as many as the blocks have.
    ///
    /// # Panics
    /// If the last block ends behind `bytes`.
    #[inline(always)]
    pub(crate) fn new(bytes: &'a [u8], stride: usize, offset: usize, count: usize, ahead: *const u8) -> Self {
        assert!(count > 0 && (count - 1) * stride + offset + B <= bytes.len());
        Self { first: bytes[offset..].as_ptr(), stride, count, ahead, bytes: PhantomData }
    }

    /// Whole rows.
    #[inline(always)]
    #[cfg(test)]
    pub(crate) fn of(rows: &'a [[u8; B]; 16]) -> Self {
        Self {
            first: rows.as_ptr().cast(),
            stride: B,
            count: 16,
            ahead: core::ptr::null(),
            bytes: PhantomData,
        }
    }

    /// Prefetches the share of the bytes ahead that corresponds to bytes `offset..offset + n` of `lanes` rows, the `v`-th ones:
    /// the lines that begin there. So each line is asked for once, though shares seldom end where lines do.
    #[inline(always)]
    pub(super) fn ask_ahead(&self, lanes: usize, v: usize, offset: usize, n: usize) {
        let (start, bytes) = (self.ahead.wrapping_add(lanes * (v * B + offset)), lanes * n);
        let to_line = start.addr().wrapping_neg() % 64;
        for line in 0..bytes / 64 {
            prefetch(start.wrapping_add(to_line + 64 * line));
        }
        if to_line < bytes % 64 {
            prefetch(start.wrapping_add(to_line + bytes / 64 * 64));
        }
    }

    /// Row `r`'s block.
    #[inline(always)]
    pub(crate) fn row(&self, r: usize) -> &'a [u8; B] {
        assert!(r < self.count);
        // SAFETY: `new` asserts that the last row ends inside the bytes that `self` borrows.
        unsafe { &*self.first.add(r * self.stride).cast::<[u8; B]>() }
    }

    /// Thirty-two bytes of row `r`.
    #[inline(always)]
    pub(crate) fn half_line(&self, r: usize, offset: usize) -> &'a [u8; 32] {
        self.row(r)[offset..].first_chunk().expect("32 bytes inside a block")
    }

    /// Sixteen bytes of row `r`.
    #[inline(always)]
    pub(crate) fn quad(&self, r: usize, offset: usize) -> &'a [u8; 16] {
        self.row(r)[offset..].first_chunk().expect("16 bytes inside a block")
    }

    /// Eight bytes of row `r`.
    #[inline(always)]
    pub(crate) fn eight(&self, r: usize, offset: usize) -> &'a [u8; 8] {
        self.row(r)[offset..].first_chunk().expect("8 bytes inside a block")
    }

    /// Four bytes of row `r`.
    #[inline(always)]
    pub(crate) fn dword(&self, r: usize, offset: usize) -> i32 {
        i32::from_le_bytes(*self.row(r)[offset..].first_chunk().expect("4 bytes inside a block"))
    }

    /// Two bytes of row `r`.
    #[inline(always)]
    pub(crate) fn word(&self, r: usize, offset: usize) -> i16 {
        i16::from_le_bytes(*self.row(r)[offset..].first_chunk().expect("2 bytes inside a block"))
    }
}
