//! Attention of a few queries over a run of pages: flash attention with a fixed order of operations.
//!
//! Every query (one row and head) goes over its visible pages in ascending order, a strip of [`STRIP_PAGES`] at a time:
//! scores, the new maximum, weights `exp(score − maximum)`, and the update of sum and output. Strips are grouped in
//! splits of [`SPLIT_PAGES`]; a split starts afresh and is merged into the total when it ends. Strips and splits lie at
//! absolute positions, and none of this depends on which other queries share the tile, so results don't depend on
//! batches, chunks of prompts or threads.

use super::lines::{Lines, Sums};
use super::state::{State, merge};
use super::{SPLIT_PAGES, STRIP_PAGES};
use crate::cache::{Cache, Format, Pages, each};
use crate::elementwise::soft_cap;
use crate::wide::{Wide, WideOp};
use smelt_backend::PAGE_TOKENS;
use std::ops::Range;

/// Queries that share each load of keys or values: their 16-lane sums fill AVX2's registers, and two vectors side by
/// side AVX-512's. Half as many or fewer take two vectors everywhere, so that enough sums are under way at a time.
const GROUP: usize = 6;

/// Tokens of a strip.
pub(super) const STRIP_TOKENS: usize = STRIP_PAGES * PAGE_TOKENS;

/// A query's scores, then weights, of a strip.
pub(super) type Weights = [f32; STRIP_TOKENS];

/// What a thread works in. `n` queries; grown on first use, never shrunk.
#[derive(Debug, Default)]
pub(crate) struct Scratch {
    /// `[n][k_dim]`, times the scale.
    pub(super) q: Vec<f32>,
    /// `[n]`
    p: Vec<Weights>,
    /// A page's keys and a strip's values as f32, where many queries share them.
    keys: Vec<f32>,
    values: Vec<f32>,
    /// The split that is under way.
    split: State,
    /// The splits before it.
    pub(super) total: State,
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
    /// One more than the last position that all rows see; `None` where each sees up to its own.
    pub(super) end: Option<usize>,
    pub(super) window: Option<usize>,
}

impl Queries {
    pub(super) fn n(&self) -> usize {
        self.rows * self.heads
    }

    /// The tokens of `pages` that row `row` sees, counted from the first of them; empty if it sees none.
    pub(super) fn visible(&self, row: usize, pages: Range<usize>) -> Range<usize> {
        let own = self.position + row + 1;
        let (start, end) = (self.window.map_or(0, |w| own.saturating_sub(w)), self.end.unwrap_or(own));
        let (first, tokens) = (pages.start * PAGE_TOKENS, pages.len() * PAGE_TOKENS);
        start.saturating_sub(first).min(tokens)..end.saturating_sub(first).min(tokens)
    }

    /// The tokens of `pages` that some row sees.
    fn seen(&self, pages: Range<usize>) -> Range<usize> {
        self.visible(0, pages.clone()).start..self.visible(self.rows - 1, pages).end
    }

    /// Whether all rows see all of `pages`.
    fn see_all(&self, pages: Range<usize>) -> bool {
        let last = self.visible(self.rows - 1, pages.clone()).start;
        last == 0 && self.visible(0, pages.clone()) == (0..pages.len() * PAGE_TOKENS)
    }

    /// The rows from `row` on that see the same tokens of `pages`.
    fn alike(&self, row: usize, pages: Range<usize>) -> Range<usize> {
        let visible = self.visible(row, pages.clone());
        // What rows see only moves on.
        if self.visible(self.rows - 1, pages.clone()) == visible {
            return row..self.rows;
        }
        let mut end = row + 1;
        while self.visible(end, pages.clone()) == visible {
            end += 1;
        }
        row..end
    }

    /// The queries that see some of `pages`.
    fn looking(&self, pages: Range<usize>) -> Range<usize> {
        let mut rows = 0..self.rows;
        while !rows.is_empty() && self.visible(rows.start, pages.clone()).is_empty() {
            rows.start += 1;
        }
        while !rows.is_empty() && self.visible(rows.end - 1, pages.clone()).is_empty() {
            rows.end -= 1;
        }
        rows.start * self.heads..rows.end * self.heads
    }

    /// The pages that some row sees.
    pub(super) fn pages(&self) -> Range<usize> {
        let start = self.window.map_or(0, |w| (self.position + 1).saturating_sub(w));
        let end = self.end.unwrap_or(self.position + self.rows);
        start / PAGE_TOKENS..(end - 1) / PAGE_TOKENS + 1
    }
}

/// Runs `queries`, whose values are in `scratch.q`, over the pages `range` of a sequence; the result is
/// `scratch.total`. `table` gives the sequence's pages.
pub(super) struct Attend<'a> {
    pub(super) cache: &'a Cache,
    pub(super) table: &'a [u32],
    pub(super) range: Range<usize>,
    pub(super) queries: Queries,
    pub(super) scratch: &'a mut Scratch,
}

impl WideOp for Attend<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        let Self { cache, table, range, queries, scratch } = self;
        let (n, stride) = (queries.n(), cache.values.shape().stride());
        scratch.total.clear(n, stride);
        scratch.split.clear(n, stride);
        if scratch.p.len() < n {
            scratch.p.resize(n, [0.0; STRIP_TOKENS]);
        }
        let mut first = range.start;
        while first < range.end {
            if first.is_multiple_of(SPLIT_PAGES) && first != range.start {
                scratch.end_split(w, n, stride);
            }
            let pages = first..((first / STRIP_PAGES + 1) * STRIP_PAGES).min(range.end);
            first = pages.end;
            let whole = queries.see_all(pages.clone());
            let strip = Strip { pages: pages.clone(), table, queries, cache, shared: n > GROUP, whole };
            strip.scores(w, scratch);
            scratch.split.weigh(w, &queries, pages, whole, &mut scratch.p, stride);
            strip.outputs(w, scratch);
        }
        scratch.end_split(w, n, stride);
    }
}

impl Scratch {
    /// Merges the split that is under way into the total, and begins a new one.
    #[inline(always)]
    fn end_split<W: Wide>(&mut self, w: W, n: usize, stride: usize) {
        merge(w, &mut self.total, &self.split, n, stride);
        self.split.clear(n, stride);
    }
}

/// A strip that the queries of a tile go over.
struct Strip<'a> {
    /// Their places in the sequence.
    pages: Range<usize>,
    /// All pages' numbers in the cache.
    table: &'a [u32],
    queries: Queries,
    cache: &'a Cache,
    /// Whether so many queries share it that keys and values are made f32 once, in the scratch.
    shared: bool,
    /// Whether all rows see all of it, which all but the last strips are without a window: what else a row sees takes as
    /// long to find out as sixteen exponentials.
    whole: bool,
}

impl Strip<'_> {
    fn keys<'a, F: Format>(&self, pages: &'a Pages<F>, index: usize) -> Lines<'a, F> {
        // SAFETY: pages are written by the stage of rows before, and regions don't overlap.
        Lines::keys(unsafe { pages.head(self.table[index], self.queries.kv_head) })
    }

    fn values<'a, F: Format>(&self, pages: &'a Pages<F>, index: usize) -> Lines<'a, F> {
        // SAFETY: as in `keys`.
        let head = unsafe { pages.head(self.table[index], self.queries.kv_head) };
        Lines::values(head, pages.shape().stride())
    }

    /// The place in the strip of a page's first token.
    fn column(&self, index: usize) -> usize {
        (index - self.pages.start) * PAGE_TOKENS
    }

    /// All queries' scores; those of tokens that a query doesn't see mean nothing.
    #[inline(always)]
    fn scores<W: Wide>(&self, w: W, scratch: &mut Scratch) {
        let Scratch { q, p, keys, .. } = scratch;
        let (k_dim, softcap) = (self.cache.keys.shape().dim, self.queries.softcap);
        for index in self.pages.clone() {
            let (mut visible, mut queries) = (0..PAGE_TOKENS, 0..self.queries.n());
            if !self.whole {
                visible = self.queries.seen(index..index + 1);
                queries = self.queries.looking(index..index + 1);
            }
            let scores = Scores { q, k_dim, visible, column: self.column(index), softcap };
            if self.shared {
                each!(&self.cache.keys, pages => self.keys(pages, index).unpack_keys(w, k_dim, keys));
                scores.run(w, &Lines::unpacked(keys, k_dim), p, queries);
            } else {
                each!(&self.cache.keys, pages => scores.run(w, &self.keys(pages, index), p, queries));
            }
        }
    }

    /// Adds the weighed values to all queries' outputs.
    #[inline(always)]
    fn outputs<W: Wide>(&self, w: W, scratch: &mut Scratch) {
        let Scratch { p, values, split, .. } = scratch;
        let stride = self.cache.values.shape().stride();
        if self.shared {
            for index in self.pages.clone() {
                let (seen, column) = (self.queries.seen(index..index + 1), self.column(index));
                each!(&self.cache.values, pages => {
                    self.values(pages, index).unpack_values(w, seen, stride, column, values);
                });
            }
        }
        let mut first = self.pages.start;
        while first < self.pages.end {
            let mut run = first..first + 1;
            // The longer the run, the less often outputs are loaded and stored.
            while self.shared && run.end < self.pages.end && self.see_all(first..run.end + 1) {
                run.end += 1;
            }
            first = run.end;
            self.add_run(w, run, p, values, split);
        }
    }

    /// Whether all rows see all of some of the strip's pages.
    fn see_all(&self, pages: Range<usize>) -> bool {
        self.whole || self.queries.see_all(pages)
    }

    /// Adds the weighed values of `pages`: of one, where they are not shared.
    #[inline(always)]
    fn add_run<W: Wide>(&self, w: W, run: Range<usize>, p: &[Weights], values: &[f32], split: &mut State) {
        let (stride, Queries { rows, heads, .. }) = (self.cache.values.shape().stride(), self.queries);
        let column = self.column(run.start);
        let mut row = 0;
        while row < rows {
            let (mut visible, mut alike) = (0..run.len() * PAGE_TOKENS, row..rows);
            if !self.whole {
                visible = self.queries.visible(row, run.clone());
                alike = self.queries.alike(row, run.clone());
            }
            let queries = alike.start * heads..alike.end * heads;
            row = alike.end;
            if visible.is_empty() {
                continue;
            }
            let outputs = Outputs { p, stride, visible, column };
            if self.shared {
                let values = Lines::unpacked(&values[column * 16..], STRIP_TOKENS);
                outputs.run(w, &values, split, queries);
            } else {
                each!(&self.cache.values, pages => {
                    outputs.run(w, &self.values(pages, run.start), split, queries);
                });
            }
        }
    }
}

/// Calls a method for groups of queries: `M` of them and `C` vectors side by side. Fewer sizes than there could be, as
/// each is compiled for every format.
macro_rules! groups {
    ($queries:expr, $first:ident => $self:ident.$method:ident($($argument:expr),*)) => {{
        let mut queries: Range<usize> = $queries;
        while !queries.is_empty() {
            let $first = queries.start;
            queries.start += match queries.len() {
                _ if W::SUMS == 1 => { $self.$method::<W, F, 1, 1>($($argument),*); 1 }
                1 => { $self.$method::<W, F, 1, 2>($($argument),*); 1 }
                2 => { $self.$method::<W, F, 2, 2>($($argument),*); 2 }
                3 => { $self.$method::<W, F, 3, 2>($($argument),*); 3 }
                4 | 5 if W::SUMS < 8 => { $self.$method::<W, F, 4, 1>($($argument),*); 4 }
                4 | 5 => { $self.$method::<W, F, 4, 2>($($argument),*); 4 }
                _ if W::SUMS < 2 * GROUP => { $self.$method::<W, F, GROUP, 1>($($argument),*); GROUP }
                _ => { $self.$method::<W, F, GROUP, 2>($($argument),*); GROUP }
            }
        }
    }};
}

/// `p[query][column + token] = q[query] · k[token]`.
struct Scores<'a> {
    q: &'a [f32],
    k_dim: usize,
    visible: Range<usize>,
    column: usize,
    softcap: Option<f32>,
}

impl Scores<'_> {
    #[inline(always)]
    fn run<W: Wide, F: Format>(&self, w: W, keys: &Lines<'_, F>, p: &mut [Weights], queries: Range<usize>) {
        groups!(queries, first => self.group(w, keys, p, first));
    }

    #[inline(always)]
    fn group<W: Wide, F: Format, const M: usize, const C: usize>(
        &self,
        w: W,
        keys: &Lines<'_, F>,
        p: &mut [Weights],
        first: usize,
    ) {
        let mut q: [&[f32]; M] = [&[]; M];
        for m in 0..M {
            q[m] = &self.q[(first + m) * self.k_dim..][..self.k_dim];
        }
        for half in (0..PAGE_TOKENS / 16).step_by(C) {
            if half * 16 >= self.visible.end || (half + C) * 16 <= self.visible.start {
                continue;
            }
            let mut sums = Sums::<W, M, C> { factors: q, first: 0, sums: [[w.splat(0.0); C]; M] };
            keys.read_keys(w, self.k_dim, half, &mut sums);
            let sums = sums.sums;
            for m in 0..M {
                let out = p[first + m][self.column..].as_chunks_mut::<16>().0;
                for c in 0..C {
                    let mut score = sums[m][c];
                    if let Some(cap) = self.softcap {
                        score = soft_cap(w, score, cap);
                    }
                    w.store(score, &mut out[half + c]);
                }
            }
        }
    }
}

/// `out[query] += Σ p[query][column + token] · v[token]`.
struct Outputs<'a> {
    p: &'a [Weights],
    stride: usize,
    visible: Range<usize>,
    column: usize,
}

impl Outputs<'_> {
    #[inline(always)]
    fn run<W: Wide, F: Format>(&self, w: W, values: &Lines<'_, F>, state: &mut State, queries: Range<usize>) {
        groups!(queries, first => self.group(w, values, state, first));
    }

    #[inline(always)]
    fn group<W: Wide, F: Format, const M: usize, const C: usize>(
        &self,
        w: W,
        values: &Lines<'_, F>,
        state: &mut State,
        first: usize,
    ) {
        let vectors = self.stride / 16;
        if C == 2 && 4 * M <= W::SUMS {
            // Whole rows where they have 64 dimensions: memory is read in order.
            self.columns::<W, F, M, 4>(w, values, state, first, 0..vectors / 4 * 4);
            self.columns::<W, F, M, C>(w, values, state, first, vectors / 4 * 4..vectors);
        } else {
            self.columns::<W, F, M, C>(w, values, state, first, 0..vectors);
        }
    }

    /// Some vectors of dimensions.
    #[inline(always)]
    fn columns<W: Wide, F: Format, const M: usize, const C: usize>(
        &self,
        w: W,
        values: &Lines<'_, F>,
        state: &mut State,
        first: usize,
        vectors: Range<usize>,
    ) {
        let mut p: [&[f32]; M] = [&[]; M];
        for m in 0..M {
            p[m] = &self.p[first + m][self.column..][self.visible.clone()];
        }
        for vector in vectors.step_by(C) {
            let mut sums =
                Sums::<W, M, C> { factors: p, first: self.visible.start, sums: [[w.splat(0.0); C]; M] };
            for m in 0..M {
                let out = self.row(&mut state.out, first + m);
                for c in 0..C {
                    sums.sums[m][c] = w.load(&out[vector + c]);
                }
            }
            values.read_values(w, self.visible.clone(), vector, &mut sums);
            for m in 0..M {
                let out = self.row(&mut state.out, first + m);
                for c in 0..C {
                    w.store(sums.sums[m][c], &mut out[vector + c]);
                }
            }
        }
    }

    /// A query's output.
    #[inline(always)]
    fn row<'a>(&self, out: &'a mut [f32], query: usize) -> &'a mut [[f32; 16]] {
        out[query * self.stride..][..self.stride].as_chunks_mut().0
    }
}
