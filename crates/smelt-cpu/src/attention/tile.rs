//! Attention of a few queries over a run of pages: flash attention with a fixed order of operations.
//!
//! Every query (one row and head) goes over its visible pages in ascending order. Per page: scores, the new maximum,
//! weights `exp(score − maximum)`, and the update of sum and output. Pages are grouped in splits of [`SPLIT_PAGES`] at
//! absolute positions; a split starts afresh and is merged into the total when it ends. None of this depends on which
//! other queries share the tile, so results don't depend on batches, chunks of prompts or threads.

use super::SPLIT_PAGES;
use crate::cache::{Element, PageShape, Pages};
use crate::elementwise::soft_cap;
use crate::wide::{Wide, WideOp};
use smelt_backend::PAGE_TOKENS;

/// Queries that share each load of keys or values: their 16-lane sums fill AVX2's registers.
const GROUP: usize = 6;

/// What a thread works in. `n` queries; grown on first use, never shrunk.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// `[n][k_dim]`, times the scale.
    pub(super) q: Vec<f32>,
    /// `[n]`: scores, then weights, of one page.
    p: Vec<[f32; PAGE_TOKENS]>,
    /// The split that is under way.
    split: State,
    /// The splits before it.
    pub(super) total: State,
}

/// Running softmax: `maximum` and `sum` `[n]`, unnormalised output `[n][v_stride]`.
#[derive(Debug, Default)]
pub(crate) struct State {
    maximum: Vec<f32>,
    pub(super) sum: Vec<f32>,
    pub(super) out: Vec<f32>,
}

impl State {
    pub(super) fn clear(&mut self, n: usize, v_stride: usize) {
        refill(&mut self.maximum, n, f32::NEG_INFINITY);
        refill(&mut self.sum, n, 0.0);
        refill(&mut self.out, n * v_stride, 0.0);
    }
}

fn refill(v: &mut Vec<f32>, n: usize, value: f32) {
    v.clear();
    v.resize(n, value);
}

/// The queries of a tile: `rows` consecutive rows of a sequence with `heads` heads each, which share a KV head.
#[derive(Debug, Clone, Copy)]
pub(super) struct Queries {
    /// Position of the first row.
    pub(super) position: usize,
    pub(super) rows: usize,
    pub(super) heads: usize,
    pub(super) kv_head: usize,
    pub(super) softcap: Option<f32>,
    pub(super) window: Option<usize>,
}

impl Queries {
    /// The positions of `page` that row `row` sees, counted from the page's first; empty if it sees none.
    fn visible(&self, row: usize, page: usize) -> (usize, usize) {
        let end = self.position + row + 1;
        let start = self.window.map_or(0, |w| end.saturating_sub(w));
        let first = page * PAGE_TOKENS;
        let low = start.saturating_sub(first).min(PAGE_TOKENS);
        (low, end.saturating_sub(first).min(PAGE_TOKENS))
    }

    /// The pages that some row sees.
    pub(super) fn pages(&self) -> std::ops::Range<usize> {
        let start = self.window.map_or(0, |w| (self.position + 1).saturating_sub(w));
        start / PAGE_TOKENS..(self.position + self.rows - 1) / PAGE_TOKENS + 1
    }
}

/// Runs `queries`, whose values are in `scratch.q`, over the pages `range` of a sequence; the result is
/// `scratch.total`. `table` gives the sequence's pages.
pub(super) struct Attend<'a, E: Element> {
    pub(super) pages: &'a Pages<E>,
    pub(super) table: &'a [u32],
    pub(super) range: std::ops::Range<usize>,
    pub(super) queries: Queries,
    pub(super) scratch: &'a mut Scratch,
}

impl<E: Element> WideOp for Attend<'_, E> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let Self { pages, table, range, queries, scratch } = self;
        let shape = pages.shape();
        let n = queries.rows * queries.heads;
        scratch.total.clear(n, shape.v_stride);
        scratch.split.clear(n, shape.v_stride);
        if scratch.p.len() < n {
            scratch.p.resize(n, [0.0; PAGE_TOKENS]);
        }
        for page in range.clone() {
            if page % SPLIT_PAGES == 0 && page != range.start {
                end_split(w, scratch, n, shape.v_stride);
            }
            // SAFETY: pages are written by the stage of rows before, and this step's regions are barriers.
            let values = unsafe { pages.page(table[page]) };
            let mut row = 0;
            while row < queries.rows {
                let visible = queries.visible(row, page);
                let first = row;
                while row < queries.rows && queries.visible(row, page) == visible {
                    row += 1;
                }
                if visible.0 < visible.1 {
                    let run = Run { shape, page: values, visible, queries };
                    run.rows(w, scratch, first * queries.heads..row * queries.heads);
                }
            }
        }
        end_split(w, scratch, n, shape.v_stride);
    }
}

/// Merges the split that is under way into the total, and begins a new one.
#[inline(always)]
fn end_split<W: Wide>(w: W, scratch: &mut Scratch, n: usize, v_stride: usize) {
    merge(w, &mut scratch.total, &scratch.split, n, v_stride);
    scratch.split.clear(n, v_stride);
}

/// Merges the `n` queries of `split`, which follow `total`'s, into it.
#[inline(always)]
pub(super) fn merge<W: Wide>(w: W, total: &mut State, split: &State, n: usize, v_stride: usize) {
    for i in 0..n {
        let out = total.out[i * v_stride..][..v_stride].as_chunks_mut::<16>().0;
        let add = split.out[i * v_stride..][..v_stride].as_chunks::<16>().0;
        if split.sum[i] == 0.0 {
            // No page of the split was visible.
            continue;
        }
        if total.sum[i] == 0.0 {
            (total.maximum[i], total.sum[i]) = (split.maximum[i], split.sum[i]);
            out.copy_from_slice(add);
            continue;
        }
        let (old, new) = (total.maximum[i], split.maximum[i]);
        let maximum = if new > old { new } else { old };
        let mut factors = [0.0; 16];
        w.store(w.exp(w.load_part(&[old - maximum, new - maximum])), &mut factors);
        let (keep, take) = (factors[0], factors[1]);
        total.maximum[i] = maximum;
        total.sum[i] = total.sum[i].mul_add(keep, split.sum[i] * take);
        for (out, add) in out.iter_mut().zip(add) {
            let taken = w.mul(w.load(add), w.splat(take));
            w.store(w.fma(w.load(out), w.splat(keep), taken), out);
        }
    }
}

/// One page for queries that see the same part of it.
struct Run<'a, E: Element> {
    shape: PageShape,
    page: &'a [E],
    /// First and end.
    visible: (usize, usize),
    queries: Queries,
}

impl<E: Element> Run<'_, E> {
    #[inline(always)]
    fn rows<W: Wide>(&self, w: W, scratch: &mut Scratch, mut queries: std::ops::Range<usize>) {
        while queries.len() >= GROUP {
            self.group::<W, GROUP>(w, scratch, queries.start);
            queries.start += GROUP;
        }
        match queries.len() {
            0 => {}
            1 => self.group::<W, 1>(w, scratch, queries.start),
            2 => self.group::<W, 2>(w, scratch, queries.start),
            3 => self.group::<W, 3>(w, scratch, queries.start),
            4 => self.group::<W, 4>(w, scratch, queries.start),
            _ => self.group::<W, 5>(w, scratch, queries.start),
        }
    }

    /// `M` queries from `first` on.
    #[inline(always)]
    fn group<W: Wide, const M: usize>(&self, w: W, scratch: &mut Scratch, first: usize) {
        self.scores::<W, M>(w, scratch, first);
        let corrections = self.softmax::<W, M>(w, scratch, first);
        self.outputs::<W, M>(w, scratch, first, &corrections);
    }

    /// `p[m][token] = q[m] · k[token]`.
    #[inline(always)]
    fn scores<W: Wide, const M: usize>(&self, w: W, scratch: &mut Scratch, first: usize) {
        let k_dim = self.shape.k_dim;
        let keys = &self.page[self.shape.k_start(self.queries.kv_head)..][..self.shape.k_len()];
        let mut q: [&[f32]; M] = [&[]; M];
        for m in 0..M {
            q[m] = &scratch.q[(first + m) * k_dim..][..k_dim];
        }
        for half in [0, 16] {
            if half >= self.visible.1 || half + 16 <= self.visible.0 {
                continue;
            }
            let sums = product::<W, E, M>(w, q, &keys[half..], PAGE_TOKENS, [w.splat(0.0); M]);
            for m in 0..M {
                let mut s = sums[m];
                if let Some(cap) = self.queries.softcap {
                    s = soft_cap(w, s, cap);
                }
                let out = &mut scratch.p[first + m].as_chunks_mut::<16>().0[half / 16];
                w.store(s, out);
            }
        }
    }

    /// Scores to weights; the factors by which what was summed so far shrinks.
    #[inline(always)]
    fn softmax<W: Wide, const M: usize>(&self, w: W, scratch: &mut Scratch, first: usize) -> [f32; M] {
        let (low, high) = self.visible;
        let mut shrink = [0f32; 16];
        for m in 0..M {
            let p = &mut scratch.p[first + m];
            p[..low].fill(f32::NEG_INFINITY);
            p[high..].fill(f32::NEG_INFINITY);
            let halves = p.as_chunks::<16>().0;
            let largest = w.largest(w.max(w.load(&halves[0]), w.load(&halves[1])));
            let old = scratch.split.maximum[first + m];
            let maximum = if largest > old { largest } else { old };
            scratch.split.maximum[first + m] = maximum;
            shrink[m] = old - maximum;
            for half in p.as_chunks_mut::<16>().0 {
                w.store(w.exp(w.sub(w.load(half), w.splat(maximum))), half);
            }
            p[..low].fill(0.0);
            p[high..].fill(0.0);
        }
        let mut corrections = [0f32; 16];
        w.store(w.exp(w.load(&shrink)), &mut corrections);
        let mut result = [0f32; M];
        for m in 0..M {
            result[m] = corrections[m];
            let halves = scratch.p[first + m].as_chunks::<16>().0;
            let sum = w.sum(w.add(w.load(&halves[0]), w.load(&halves[1])));
            scratch.split.sum[first + m] = scratch.split.sum[first + m].mul_add(corrections[m], sum);
        }
        result
    }

    /// `out[m] = out[m] · correction[m] + Σ p[m][token] · v[token]`.
    #[inline(always)]
    fn outputs<W: Wide, const M: usize>(
        &self,
        w: W,
        scratch: &mut Scratch,
        first: usize,
        corrections: &[f32; M],
    ) {
        let (low, high) = self.visible;
        let stride = self.shape.v_stride;
        let values = &self.page[self.shape.v_start(self.queries.kv_head)..][low * stride..high * stride];
        let mut p: [&[f32]; M] = [&[]; M];
        for m in 0..M {
            p[m] = &scratch.p[first + m][low..high];
        }
        for column in (0..stride).step_by(16) {
            let mut sums = [w.splat(0.0); M];
            for m in 0..M {
                let old = &scratch.split.out[(first + m) * stride + column..];
                sums[m] = w.mul(load16(w, old), w.splat(corrections[m]));
            }
            let sums = product::<W, E, M>(w, p, &values[column..], stride, sums);
            for m in 0..M {
                w.store_part(sums[m], &mut scratch.split.out[(first + m) * stride + column..][..16]);
            }
        }
    }
}

#[inline(always)]
fn load16<W: Wide>(w: W, x: &[f32]) -> W::V {
    w.load(x.first_chunk().expect("rows are padded to whole vectors"))
}

/// Sixteen columns of a product: `init[m] + Σᵢ a[m][i] · b[i]`, row `i` of `b` beginning at `i · stride`; the sums go
/// in ascending order.
#[inline(always)]
fn product<W: Wide, E: Element, const M: usize>(
    w: W,
    a: [&[f32]; M],
    b: &[E],
    stride: usize,
    init: [W::V; M],
) -> [W::V; M] {
    let k = a[0].len();
    let mut sums = init;
    for (i, row) in b.chunks(stride).take(k).enumerate() {
        let row = E::load(w, row.first_chunk().expect("a row has sixteen columns from here on"));
        for m in 0..M {
            sums[m] = w.fma(w.splat(a[m][i]), row, sums[m]);
        }
    }
    sums
}
