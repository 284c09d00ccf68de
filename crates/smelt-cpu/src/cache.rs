//! Paged storage of keys and values.
//!
//! A page holds [`PAGE_TOKENS`] tokens of every KV head of one layer. Keys lie with their dimensions outside and tokens
//! inside, `[kv_head][k_head_dim][token]`, values the other way round, `[kv_head][token][v_head_dim]` (the row padded
//! with zeros to whole vectors): so scores and weighted sums are both products with a row-major right-hand side, whose
//! vector lanes are tokens or value dimensions, and nothing is reduced across lanes.

use crate::memory::{Buffer, Plain, Shared};
use crate::wide::{Vectors, Wide, WideOp};
use smelt_backend::{Error, KvFormat, KvSpec, PAGE_TOKENS};

/// Pages that are allocated at a time, so that growing copies nothing.
const PAGES_PER_CHUNK: usize = 16;

/// How keys and values are stored.
pub(crate) trait Element: Plain {
    fn load<W: Wide>(w: W, x: &[Self; 16]) -> W::V;
    fn store<W: Wide>(w: W, v: W::V, out: &mut [Self; 16]);
    const ZERO: Self;
}

impl Element for f32 {
    const ZERO: Self = 0.0;
    #[inline(always)]
    fn load<W: Wide>(w: W, x: &[Self; 16]) -> W::V {
        w.load(x)
    }
    #[inline(always)]
    fn store<W: Wide>(w: W, v: W::V, out: &mut [Self; 16]) {
        w.store(v, out);
    }
}

impl Element for u16 {
    const ZERO: Self = 0;
    #[inline(always)]
    fn load<W: Wide>(w: W, x: &[Self; 16]) -> W::V {
        w.load_half(x)
    }
    #[inline(always)]
    fn store<W: Wide>(w: W, v: W::V, out: &mut [Self; 16]) {
        w.store_half(v, out);
    }
}

/// Sizes of a page, in values.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageShape {
    pub(crate) kv_heads: usize,
    pub(crate) k_dim: usize,
    pub(crate) v_dim: usize,
    /// `v_dim`, padded.
    pub(crate) v_stride: usize,
}

impl PageShape {
    fn new(spec: &KvSpec) -> Self {
        let (k_dim, v_dim) = (spec.k_head_dim, spec.v_head_dim);
        Self { kv_heads: spec.n_kv_heads, k_dim, v_dim, v_stride: v_dim.next_multiple_of(16) }
    }

    /// Values of a head's keys.
    pub(crate) fn k_len(&self) -> usize {
        self.k_dim * PAGE_TOKENS
    }

    /// Values of a head's values.
    pub(crate) fn v_len(&self) -> usize {
        self.v_stride * PAGE_TOKENS
    }

    fn page_len(&self) -> usize {
        self.kv_heads * (self.k_len() + self.v_len())
    }

    /// Where a head's keys begin in a page.
    pub(crate) fn k_start(&self, kv_head: usize) -> usize {
        kv_head * self.k_len()
    }

    /// Where a head's values begin in a page.
    pub(crate) fn v_start(&self, kv_head: usize) -> usize {
        self.kv_heads * self.k_len() + kv_head * self.v_len()
    }
}

/// The pages of one layer.
#[derive(Debug)]
pub(crate) struct Pages<E: Element> {
    shape: PageShape,
    chunks: Vec<Buffer<E>>,
    /// One view per chunk.
    views: Vec<Shared<E>>,
}

impl<E: Element> Pages<E> {
    fn reserve(&mut self, pages: usize) -> Result<(), Error> {
        let wanted = pages.div_ceil(PAGES_PER_CHUNK);
        while self.chunks.len() < wanted {
            let len = self.shape.page_len().checked_mul(PAGES_PER_CHUNK);
            let mut chunk = Buffer::new("a KV cache", len)?;
            self.views.push(chunk.share());
            self.chunks.push(chunk);
        }
        self.chunks.truncate(wanted);
        self.views.truncate(wanted);
        Ok(())
    }

    pub(crate) fn shape(&self) -> PageShape {
        self.shape
    }

    /// The chunk that holds a page, and where the page begins in it.
    fn locate(&self, page: u32) -> (usize, usize) {
        let page = page as usize;
        (page / PAGES_PER_CHUNK, page % PAGES_PER_CHUNK * self.shape.page_len())
    }

    /// A page's values.
    ///
    /// # Safety
    /// Nobody writes to the page while the slice is used.
    pub(crate) unsafe fn page(&self, page: u32) -> &[E] {
        let (chunk, start) = self.locate(page);
        // SAFETY: the chunk lives as long as `self`; the rest is the caller's promise.
        unsafe { self.views[chunk].slice(start..start + self.shape.page_len()) }
    }

    /// Writes one token's keys and values.
    ///
    /// # Safety
    /// Nobody else reads or writes this token of this page meanwhile.
    unsafe fn write<W: Wide>(&self, w: W, page: u32, token: usize, k: &[f32], v: &[f32]) {
        let (chunk, start) = self.locate(page);
        let (view, shape) = (self.views[chunk], self.shape);
        let end = start + shape.page_len();
        assert!(token < PAGE_TOKENS && k.len() == shape.kv_heads * shape.k_dim);
        // Keys of one head follow each other at a distance of a page's tokens, and so do heads.
        for (i, x) in k.chunks(16).enumerate() {
            let mut values = [E::ZERO; 16];
            E::store(w, w.load_part(x), &mut values);
            for (j, value) in values[..x.len()].iter().enumerate() {
                let at = start + (i * 16 + j) * PAGE_TOKENS + token;
                assert!(at < end);
                // SAFETY: inside the page, and this token's values are ours.
                unsafe { *view.at(at) = *value };
            }
        }
        for (head, v) in v.chunks_exact(shape.v_dim).enumerate() {
            let at = start + shape.v_start(head) + token * shape.v_stride;
            // SAFETY: this token's row of values, which is ours.
            let row = unsafe { view.slice_mut(at..at + shape.v_stride) };
            for (x, out) in v.chunks(16).zip(row.as_chunks_mut::<16>().0) {
                E::store(w, w.load_part(x), out);
            }
        }
    }

    fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        let shape = self.shape;
        let ((from_chunk, from), (to_chunk, to)) = (self.locate(from), self.locate(to));
        let mut copy = |start: usize, len: usize| {
            for i in start..start + len {
                let value = self.chunks[from_chunk].as_slice()[from + i];
                self.chunks[to_chunk].as_mut_slice()[to + i] = value;
            }
        };
        for row in 0..shape.kv_heads * shape.k_dim {
            copy(row * PAGE_TOKENS, tokens);
        }
        for head in 0..shape.kv_heads {
            copy(shape.v_start(head), tokens * shape.v_stride);
        }
    }
}

/// One layer's cache.
#[derive(Debug)]
pub(crate) enum Cache {
    F16(Pages<u16>),
    F32(Pages<f32>),
}

/// Runs the same code on either storage.
macro_rules! each {
    ($cache:expr, $pages:ident => $body:expr) => {
        match $cache {
            Cache::F16($pages) => $body,
            Cache::F32($pages) => $body,
        }
    };
}
pub(crate) use each;

impl Cache {
    pub(crate) fn new(spec: &KvSpec) -> Self {
        let shape = PageShape::new(spec);
        match spec.format {
            KvFormat::F16 => Self::F16(Pages { shape, chunks: Vec::new(), views: Vec::new() }),
            KvFormat::F32 => Self::F32(Pages { shape, chunks: Vec::new(), views: Vec::new() }),
        }
    }

    pub(crate) fn shape(&self) -> PageShape {
        each!(self, pages => pages.shape())
    }

    /// Makes room for `pages` pages, keeping what is written.
    pub(crate) fn reserve(&mut self, pages: usize) -> Result<(), Error> {
        each!(self, p => p.reserve(pages))
    }

    /// Copies the first tokens of a page.
    pub(crate) fn copy(&mut self, from: u32, to: u32, tokens: usize) {
        each!(self, pages => pages.copy(from, to, tokens));
    }

    /// Writes one token's keys and values.
    ///
    /// # Safety
    /// Nobody else reads or writes this token of this page meanwhile.
    pub(crate) unsafe fn write(&self, vectors: Vectors, page: u32, token: usize, k: &[f32], v: &[f32]) {
        vectors.run(Write { cache: self, page, token, k, v });
    }
}

/// The arguments of [`Cache::write`], whose promise whoever makes one gives.
struct Write<'a> {
    cache: &'a Cache,
    page: u32,
    token: usize,
    k: &'a [f32],
    v: &'a [f32],
}

impl WideOp for Write<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        // SAFETY: the promise of whoever made `self`.
        each!(self.cache, pages => unsafe { pages.write(w, self.page, self.token, self.k, self.v) });
    }
}
