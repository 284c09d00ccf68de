//! Aligned buffers, and views through which the threads of a region write to different parts of one.

use crate::matmul::OutView;
use memmap2::MmapMut;
use smelt_backend::Error;
use std::cell::UnsafeCell;
use std::marker::PhantomData;
use std::ops::Range;
use std::ptr::NonNull;

/// The types that a [`Buffer`] may hold: plain values of which all-zero bytes are one.
pub(crate) trait Plain: Copy + Send + Sync + 'static {}
impl Plain for f32 {}
impl Plain for u8 {}
impl Plain for i8 {}
impl Plain for u16 {}
impl<const N: usize> Plain for [u16; N] {}
impl Plain for u64 {}

/// Zeroed memory, aligned to pages, which costs nothing until it is touched.
pub(crate) struct Buffer<T: Plain> {
    /// `None` for no values.
    map: Option<MmapMut>,
    values: PhantomData<T>,
}

impl<T: Plain> Buffer<T> {
    /// Room for `len` values, all zero.
    pub(crate) fn new(what: &'static str, len: Option<usize>) -> Result<Self, Error> {
        let too_large = || Error::OutOfMemory { what, bytes: usize::MAX };
        let bytes = len.and_then(|n| n.checked_mul(size_of::<T>())).ok_or_else(too_large)?;
        let map = (bytes > 0).then(|| MmapMut::map_anon(bytes)).transpose();
        let map = map.map_err(|_| Error::OutOfMemory { what, bytes })?;
        Ok(Self { map, values: PhantomData })
    }

    /// Asks for large pages, which spare the CPU many look-ups of addresses; where there are none, nothing changes.
    pub(crate) fn want_large_pages(&mut self) {
        #[cfg(target_os = "linux")]
        if let Some(map) = &self.map {
            let _ = map.advise(memmap2::Advice::HugePage);
        }
    }

    fn len(&self) -> usize {
        self.map.as_ref().map_or(0, |map| map.len() / size_of::<T>())
    }

    fn start(&mut self) -> *mut T {
        self.map.as_mut().map_or(NonNull::dangling().as_ptr(), |map| map.as_mut_ptr().cast())
    }

    pub(crate) fn as_slice(&self) -> &[T] {
        let start = self
            .map
            .as_ref()
            .map_or(NonNull::<T>::dangling().as_ptr().cast_const(), |map| map.as_ptr().cast());
        // SAFETY: `len` values that this buffer owns, zeroed at first; all bytes are valid for `T`, and pages are aligned for it.
        unsafe { std::slice::from_raw_parts(start, self.len()) }
    }

    pub(crate) fn as_mut_slice(&mut self) -> &mut [T] {
        // SAFETY: as in `as_slice`, and the borrow is exclusive.
        unsafe { std::slice::from_raw_parts_mut(self.start(), self.len()) }
    }

    /// A view for the threads of a region.
    pub(crate) fn share(&mut self) -> Shared<T> {
        Shared { start: self.start(), len: self.len() }
    }
}

impl<T: Plain> std::fmt::Debug for Buffer<T> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Buffer({} values)", self.len())
    }
}

/// A view of a buffer without a borrow: whoever makes slices of it answers for their not overlapping in time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Shared<T> {
    start: *mut T,
    len: usize,
}

// SAFETY: a pointer and a length; the methods that follow it are unsafe and say what callers owe.
unsafe impl<T: Plain> Send for Shared<T> {}
// SAFETY: as above.
unsafe impl<T: Plain> Sync for Shared<T> {}

impl<T: Plain> Shared<T> {
    /// The values of `range`.
    ///
    /// # Safety
    /// The buffer lives, and nobody writes to the range while the slice is used.
    pub(crate) unsafe fn slice<'a>(self, range: Range<usize>) -> &'a [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} values", self.len);
        // SAFETY: inside the buffer, which the caller keeps alive and unwritten.
        unsafe { std::slice::from_raw_parts(self.start.add(range.start), range.len()) }
    }

    /// The values of `range`, to write.
    ///
    /// # Safety
    /// The buffer lives, and nobody else reads or writes the range while the slice is used.
    pub(crate) unsafe fn slice_mut<'a>(self, range: Range<usize>) -> &'a mut [T] {
        assert!(range.start <= range.end && range.end <= self.len, "{range:?} of {} values", self.len);
        // SAFETY: inside the buffer, which the caller keeps alive and to itself.
        unsafe { std::slice::from_raw_parts_mut(self.start.add(range.start), range.len()) }
    }

    /// The address of value `index`.
    pub(crate) fn at(self, index: usize) -> *mut T {
        assert!(index <= self.len, "{index} of {} values", self.len);
        self.start.wrapping_add(index)
    }
}

/// An activation buffer as the threads of a region see it: `[rows, width]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct View {
    data: Shared<f32>,
    pub(crate) width: usize,
}

impl View {
    pub(crate) fn new(buffer: &mut Buffer<f32>, width: usize) -> Self {
        Self { data: buffer.share(), width }
    }

    /// Rows `rows`, for matmuls to write.
    ///
    /// # Safety
    /// The buffer lives as long as the view is used.
    pub(crate) unsafe fn out<'a>(self, rows: Range<usize>) -> OutView<'a> {
        let (start, end) = (rows.start * self.width, rows.end * self.width);
        assert!(start <= end && end <= self.data.len, "rows {rows:?} of {} values", self.data.len);
        // SAFETY: inside the buffer, which the caller keeps alive; buffers are initialised when they are made.
        unsafe { OutView::from_raw(self.data.at(start), end - start, self.width) }
    }

    /// One row.
    ///
    /// # Safety
    /// As [`Shared::slice`].
    pub(crate) unsafe fn row<'a>(self, row: usize) -> &'a [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part(row, 0..self.width) }
    }

    /// One row, to write.
    ///
    /// # Safety
    /// As [`Shared::slice_mut`].
    pub(crate) unsafe fn row_mut<'a>(self, row: usize) -> &'a mut [f32] {
        // SAFETY: the caller's promise.
        unsafe { self.part_mut(row, 0..self.width) }
    }

    /// Some columns of a row.
    ///
    /// # Safety
    /// As [`Shared::slice`].
    pub(crate) unsafe fn part<'a>(self, row: usize, columns: Range<usize>) -> &'a [f32] {
        let start = row * self.width;
        // SAFETY: the caller's promise.
        unsafe { self.data.slice(start + columns.start..start + columns.end) }
    }

    /// Some columns of a row, to write.
    ///
    /// # Safety
    /// As [`Shared::slice_mut`].
    pub(crate) unsafe fn part_mut<'a>(self, row: usize, columns: Range<usize>) -> &'a mut [f32] {
        let start = row * self.width;
        // SAFETY: the caller's promise.
        unsafe { self.data.slice_mut(start + columns.start..start + columns.end) }
    }
}

/// Values that the threads of a region take one by one: a worker's own, or a task's.
#[derive(Debug)]
pub(crate) struct Slots<T>(Vec<UnsafeCell<T>>);

// SAFETY: `get` is unsafe, and its callers keep threads on different slots.
unsafe impl<T: Send> Sync for Slots<T> {}

impl<T: Default> Slots<T> {
    pub(crate) fn new(n: usize) -> Self {
        let mut slots = Self(Vec::new());
        slots.grow(n);
        slots
    }

    /// Makes it `n` slots at least.
    pub(crate) fn grow(&mut self, n: usize) {
        if self.0.len() < n {
            self.0.resize_with(n, Default::default);
        }
    }

    /// The value of slot `index`.
    ///
    /// # Safety
    /// No other borrow of the slot lives: it belongs to this worker (the index that the pool gave to this call), to
    /// this task, or nobody writes to it.
    #[expect(clippy::mut_from_ref, reason = "the slot is the caller's own")]
    pub(crate) unsafe fn get(&self, index: usize) -> &mut T {
        // SAFETY: the caller's promise.
        unsafe { &mut *self.0[index].get() }
    }
}
