//! Paged storage of keys and values.
//!
//! A page holds [`PAGE_TOKENS`] tokens of every KV head of one layer. Keys lie with their dimensions outside and tokens
//! inside, `[dim][token]`, values the other way round, `[token][dim]` (the row padded to whole blocks): so scores and
//! weighted sums are both products with a row-major right-hand side, whose vector lanes are tokens or value dimensions,
//! and nothing is reduced across lanes. Scales of quantised blocks lie apart, `[block][token]` for both. The pages of a
//! chunk lie head by head, so that a sequence's pages, which mostly follow each other, are read in long runs.

mod format;

use crate::memory::{Buffer, Shared};
use crate::wide::{Vectors, Wide, WideOp};
use smelt_backend::{Error, KvFormat, KvSpec, PAGE_TOKENS};

pub(crate) use format::{BLOCK, Format, Half, Q4, Q8, Single};

/// Pages that are allocated at a time, so that growing copies nothing.
const PAGES_PER_CHUNK: usize = 16;

/// Which way a head lies in a page.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Side {
    /// `[dim][token]`.
    Keys,
    /// `[token][dim]`.
    Values,
}

/// Sizes of a page.
#[derive(Debug, Clone, Copy)]
pub(crate) struct PageShape {
    side: Side,
    pub(crate) heads: usize,
    /// Values per head.
    pub(crate) dim: usize,
    /// Blocks per head, the last one perhaps not full.
    pub(crate) blocks: usize,
}

impl PageShape {
    /// Values of a token's head, in whole blocks.
    pub(crate) fn stride(&self) -> usize {
        self.blocks * BLOCK
    }
}

/// Codes of one head's page, with the scales of its blocks, `[block][token]`.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Head<'a, F: Format> {
    pub(crate) codes: &'a [F::Code],
    pub(crate) scales: &'a [[u16; PAGE_TOKENS]],
}

/// The keys or the values of one layer.
#[derive(Debug)]
pub(crate) struct Pages<F: Format> {
    shape: PageShape,
    chunks: Vec<Chunk<F>>,
}

#[derive(Debug)]
struct Chunk<F: Format> {
    /// What the views see.
    memory: (Buffer<F::Code>, Buffer<[u16; PAGE_TOKENS]>),
    codes: Shared<F::Code>,
    scales: Shared<[u16; PAGE_TOKENS]>,
}

impl<F: Format> Pages<F> {
    fn new(shape: PageShape) -> Self {
        Self { shape, chunks: Vec::new() }
    }

    /// Codes of a head's page.
    fn head_codes(&self) -> usize {
        let per_token = match self.shape.side {
            Side::Keys if !F::SCALED => self.shape.dim,
            _ => self.shape.blocks * F::CODES,
        };
        per_token * PAGE_TOKENS
    }

    /// Blocks of scales of a head's page.
    fn head_scales(&self) -> usize {
        if F::SCALED { self.shape.blocks } else { 0 }
    }

    fn reserve(&mut self, pages: usize) -> Result<(), Error> {
        let wanted = pages.div_ceil(PAGES_PER_CHUNK);
        while self.chunks.len() < wanted {
            let heads = PAGES_PER_CHUNK.checked_mul(self.shape.heads);
            let mut codes = Buffer::new("a KV cache", heads.and_then(|n| n.checked_mul(self.head_codes())))?;
            let mut scales =
                Buffer::new("a KV cache", heads.and_then(|n| n.checked_mul(self.head_scales())))?;
            let (code_view, scale_view) = (codes.share(), scales.share());
            self.chunks.push(Chunk { memory: (codes, scales), codes: code_view, scales: scale_view });
        }
        self.chunks.truncate(wanted);
        Ok(())
    }

    pub(crate) fn shape(&self) -> PageShape {
        self.shape
    }

    /// The chunk that holds a head's page, and how many such come before it.
    fn locate(&self, page: u32, head: usize) -> (usize, usize) {
        let page = page as usize;
        (page / PAGES_PER_CHUNK, head * PAGES_PER_CHUNK + page % PAGES_PER_CHUNK)
    }

    /// A head of a page.
    ///
    /// # Safety
    /// Nobody writes to the page while the slices are used.
    pub(crate) unsafe fn head(&self, page: u32, head: usize) -> Head<'_, F> {
        let (chunk, index) = self.locate(page, head);
        let (codes, scales) = (self.head_codes(), self.head_scales());
        let chunk = &self.chunks[chunk];
        // SAFETY: the chunk lives as long as `self`; the rest is the caller's promise.
        unsafe {
            Head {
                codes: chunk.codes.slice(index * codes..(index + 1) * codes),
                scales: chunk.scales.slice(index * scales..(index + 1) * scales),
            }
        }
    }

    /// Writes one token's keys or values.
    ///
    /// # Safety
    /// Nobody else reads or writes this token of this page meanwhile.
    unsafe fn write<W: Wide>(&self, w: W, page: u32, token: usize, values: &[f32]) {
        let shape = self.shape;
        assert!(token < PAGE_TOKENS && values.len() == shape.heads * shape.dim);
        for (head, values) in values.chunks_exact(shape.dim).enumerate() {
            let (chunk, index) = self.locate(page, head);
            let chunk = &self.chunks[chunk];
            for (block, x) in values.chunks(BLOCK).enumerate() {
                let mut padded = [0.0; BLOCK];
                padded[..x.len()].copy_from_slice(x);
                let mut codes = [F::Code::default(); BLOCK];
                let scale = F::encode(w, &padded, &mut codes);
                let codes = if F::SCALED { &codes[..F::CODES] } else { &codes[..x.len()] };
                let start = index * self.head_codes();
                let (first, step) = match shape.side {
                    Side::Keys => (start + block * F::CODES * PAGE_TOKENS + token, PAGE_TOKENS),
                    Side::Values => (start + (token * shape.blocks + block) * F::CODES, 1),
                };
                assert!(first + (codes.len() - 1) * step < start + self.head_codes());
                for (i, code) in codes.iter().enumerate() {
                    // SAFETY: inside the head's codes, and these are of this token, which is ours.
                    unsafe { *chunk.codes.at(first + i * step) = *code };
                }
                if F::SCALED {
                    assert!(block < self.head_scales());
                    let scales = chunk.scales.at(index * self.head_scales() + block).cast::<u16>();
                    // SAFETY: inside the head's scales, of which this one is our token's.
                    unsafe { *scales.add(token) = scale };
                }
            }
        }
    }

    /// Copies the first tokens of a page: all of it, as nobody sees what stands behind them.
    fn copy(&mut self, from: u32, to: u32) {
        let (codes, scales) = (self.head_codes(), self.head_scales());
        for head in 0..self.shape.heads {
            let ((from_chunk, from), (to_chunk, to)) = (self.locate(from, head), self.locate(to, head));
            let mut kept = vec![F::Code::default(); codes];
            kept.copy_from_slice(&self.chunks[from_chunk].memory.0.as_slice()[from * codes..][..codes]);
            self.chunks[to_chunk].memory.0.as_mut_slice()[to * codes..][..codes].copy_from_slice(&kept);
            let kept = self.chunks[from_chunk].memory.1.as_slice()[from * scales..][..scales].to_vec();
            self.chunks[to_chunk].memory.1.as_mut_slice()[to * scales..][..scales].copy_from_slice(&kept);
        }
    }
}

/// The keys or the values of one layer, in whichever format.
#[derive(Debug)]
pub(crate) enum Store {
    F16(Pages<Half>),
    F32(Pages<Single>),
    Q8(Pages<Q8>),
    Q4(Pages<Q4>),
}

/// Runs the same code on any storage.
macro_rules! each {
    ($store:expr, $pages:ident => $body:expr) => {
        match $store {
            $crate::cache::Store::F16($pages) => $body,
            $crate::cache::Store::F32($pages) => $body,
            $crate::cache::Store::Q8($pages) => $body,
            $crate::cache::Store::Q4($pages) => $body,
        }
    };
}
pub(crate) use each;

impl Store {
    fn new(format: KvFormat, shape: PageShape) -> Self {
        match format {
            KvFormat::F16 => Self::F16(Pages::new(shape)),
            KvFormat::F32 => Self::F32(Pages::new(shape)),
            KvFormat::Q8_0 => Self::Q8(Pages::new(shape)),
            KvFormat::Q4_0 => Self::Q4(Pages::new(shape)),
        }
    }

    pub(crate) fn shape(&self) -> PageShape {
        each!(self, pages => pages.shape())
    }
}

/// One layer's cache.
#[derive(Debug)]
pub(crate) struct Cache {
    pub(crate) keys: Store,
    pub(crate) values: Store,
}

impl Cache {
    pub(crate) fn new(spec: &KvSpec) -> Self {
        let store = |side, format, dim: usize| {
            Store::new(format, PageShape { side, heads: spec.n_kv_heads, dim, blocks: dim.div_ceil(BLOCK) })
        };
        Self {
            keys: store(Side::Keys, spec.formats.k, spec.k_head_dim),
            values: store(Side::Values, spec.formats.v, spec.v_head_dim),
        }
    }

    /// Makes room for `pages` pages, keeping what is written.
    pub(crate) fn reserve(&mut self, pages: usize) -> Result<(), Error> {
        each!(&mut self.keys, p => p.reserve(pages))?;
        each!(&mut self.values, p => p.reserve(pages))
    }

    /// Copies a page.
    pub(crate) fn copy(&mut self, from: u32, to: u32) {
        each!(&mut self.keys, pages => pages.copy(from, to));
        each!(&mut self.values, pages => pages.copy(from, to));
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
        unsafe {
            each!(&self.cache.keys, pages => pages.write(w, self.page, self.token, self.k));
            each!(&self.cache.values, pages => pages.write(w, self.page, self.token, self.v));
        }
    }
}
