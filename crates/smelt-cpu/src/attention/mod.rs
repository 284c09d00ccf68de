//! Attention over the paged cache, threaded over rows, KV heads and, where rows are few, parts of the cache.

mod lines;
mod state;
mod tile;

use crate::cache::Cache;
use crate::memory::{Slots, View};
use crate::pool::Pool;
use crate::wide::{Vectors, Wide, WideOp};
use smelt_backend::{Attention, Mask, PAGE_TOKENS, StepInputs};
use state::{finish, merge};
use std::ops::Range;
use tile::{Attend, Queries};

pub(crate) use state::State;
pub(crate) use tile::Scratch;

/// Pages of a split, the unit in which a long cache is spread over threads: 512 tokens. It is the same whether threads
/// take splits apart or not, so it is part of the result's definition.
const SPLIT_PAGES: usize = 16;

/// Pages that go through scores, softmax and outputs together: 128 tokens, at absolute positions in the sequence. What
/// a change of the maximum costs is paid once for all of them. Part of the result's definition too.
const STRIP_PAGES: usize = 4;
const _: () = assert!(SPLIT_PAGES.is_multiple_of(STRIP_PAGES));

/// Most values that partial results of splits may take, 16 MiB; a step that needs more has work enough without.
const MAX_PARTIALS: usize = 1 << 22;

/// With fewer units of work per thread than this, splits are computed apart.
const UNITS_PER_THREAD: usize = 4;

/// Most rows of a tile, whole pages of them: the more share a page, the less it costs to make it f32.
const TILE_ROWS: usize = 2 * PAGE_TOKENS;

/// Rows that go over the cache together: consecutive positions of one sequence, from a multiple of [`TILE_ROWS`] on at
/// most, so that only the last pages are seen in part (windows apart).
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tile {
    first_row: usize,
    rows: usize,
    position: usize,
    sequence: usize,
    /// One more than the sequence's last position in the step.
    end: usize,
}

/// Cuts a step's rows into tiles.
pub(crate) fn cut_tiles(inputs: &StepInputs<'_>, tiles: &mut Vec<Tile>) {
    tiles.clear();
    let mut ends = vec![0; inputs.sequences.len()];
    for row in 0..inputs.tokens.len() {
        let (position, sequence) = (inputs.positions[row] as usize, inputs.sequence[row] as usize);
        match tiles.last_mut() {
            Some(tile)
                if tile.sequence == sequence
                    && tile.position + tile.rows == position
                    && !position.is_multiple_of(TILE_ROWS) =>
            {
                tile.rows += 1;
            }
            _ => tiles.push(Tile { first_row: row, rows: 1, position, sequence, end: 0 }),
        }
        ends[sequence] = position + 1;
    }
    tiles.iter_mut().for_each(|tile| tile.end = ends[tile.sequence]);
}

/// What attention stages work with.
pub(crate) struct Context<'a> {
    pub(crate) pool: &'a Pool,
    pub(crate) vectors: Vectors,
    pub(crate) inputs: &'a StepInputs<'a>,
    /// `[n_heads]`, if there are any.
    pub(crate) sinks: Option<&'a [f32]>,
    pub(crate) tiles: &'a [Tile],
    /// One per worker.
    pub(crate) scratch: &'a Slots<Scratch>,
    /// Results of splits that threads computed apart, one per task; grown as needed.
    pub(crate) partials: &'a mut Slots<State>,
}

/// Runs one attention stage.
pub(crate) fn attend(x: &Attention, q: View, out: View, cache: &Cache, context: Context<'_>) {
    let (kv_heads, stride) = (cache.keys.shape().heads, cache.values.shape().stride());
    let heads = x.n_heads / kv_heads;
    let units = context.tiles.len() * kv_heads;
    let splits = |tile: &Tile| splits(&queries(x, tile, heads, 0)).len();
    let splits = context.tiles.iter().map(splits).max().unwrap_or(1);
    let values = units * splits * TILE_ROWS * heads * stride;
    let threads = context.pool.threads();
    let apart = threads > 1 && splits > 1 && units < UNITS_PER_THREAD * threads && values <= MAX_PARTIALS;
    let Context { pool, vectors, inputs, sinks, tiles, scratch, partials } = context;
    if apart {
        partials.grow(units * splits);
    }
    let partials = &*partials;
    let stage = Stage { x, q, out, cache, heads, vectors, inputs, sinks, tiles, scratch };
    if apart {
        pool.chunks(units * splits, |worker, task| {
            // SAFETY: the pool's worker index.
            let scratch = unsafe { scratch.get(worker) };
            stage.split(task / splits, task % splits, scratch);
            // SAFETY: each task runs once, and its slot is its own.
            std::mem::swap(&mut scratch.total, unsafe { partials.get(task) });
        });
        pool.chunks(units, |worker, unit| stage.merge(worker, unit, splits, partials));
    } else {
        // Late tiles have the most pages to go over, so they come first.
        pool.chunks(units, |worker, unit| stage.whole(worker, units - 1 - unit));
    }
}

/// The queries of a tile that share a KV head.
fn queries(x: &Attention, tile: &Tile, heads: usize, kv_head: usize) -> Queries {
    let (softcap, window) = (x.softcap, x.window);
    let end = match x.mask {
        Mask::Causal => None,
        Mask::Full => Some(tile.end),
    };
    Queries { position: tile.position, rows: tile.rows, heads, kv_head, softcap, end, window }
}

/// The splits that hold the visible pages.
fn splits(queries: &Queries) -> Range<usize> {
    let pages = queries.pages();
    pages.start / SPLIT_PAGES..(pages.end - 1) / SPLIT_PAGES + 1
}

struct Stage<'a> {
    x: &'a Attention,
    q: View,
    out: View,
    cache: &'a Cache,
    /// Query heads per KV head.
    heads: usize,
    vectors: Vectors,
    inputs: &'a StepInputs<'a>,
    sinks: Option<&'a [f32]>,
    tiles: &'a [Tile],
    scratch: &'a Slots<Scratch>,
}

impl Stage<'_> {
    /// A unit of work is a tile and a KV head.
    fn unit(&self, unit: usize) -> (&Tile, Queries) {
        let kv_heads = self.cache.keys.shape().heads;
        let tile = &self.tiles[unit / kv_heads];
        (tile, queries(self.x, tile, self.heads, unit % kv_heads))
    }

    fn whole(&self, worker: usize, unit: usize) {
        let (tile, queries) = self.unit(unit);
        // SAFETY: the pool's worker index.
        let scratch = unsafe { self.scratch.get(worker) };
        self.over_pages(tile, queries, queries.pages(), scratch);
        self.write(tile, queries, &mut scratch.total);
    }

    /// One split of a unit; the result is `scratch.total`.
    fn split(&self, unit: usize, split: usize, scratch: &mut Scratch) {
        let (tile, queries) = self.unit(unit);
        let pages = queries.pages();
        let first = (splits(&queries).start + split) * SPLIT_PAGES;
        let range = first.clamp(pages.start, pages.end)..(first + SPLIT_PAGES).clamp(pages.start, pages.end);
        self.over_pages(tile, queries, range, scratch);
    }

    fn over_pages(&self, tile: &Tile, queries: Queries, range: Range<usize>, scratch: &mut Scratch) {
        let (k_dim, heads) = (self.cache.keys.shape().dim, self.heads);
        scratch.q.clear();
        for row in tile.first_row..tile.first_row + tile.rows {
            // SAFETY: the queries were written by a stage before.
            let q = unsafe { self.q.row(row) };
            let q = &q[queries.kv_head * heads * k_dim..][..heads * k_dim];
            scratch.q.extend(q.iter().map(|q| q * self.x.scale));
        }
        let table = self.inputs.sequences[tile.sequence].pages;
        self.vectors.run(Attend { cache: self.cache, table, range, queries, scratch });
    }

    fn merge(&self, worker: usize, unit: usize, splits: usize, partials: &Slots<State>) {
        let (tile, queries) = self.unit(unit);
        // SAFETY: the pool's worker index.
        let scratch = unsafe { self.scratch.get(worker) };
        let (n, stride) = (queries.n(), self.cache.values.shape().stride());
        scratch.total.clear(n, stride);
        for split in 0..splits {
            // SAFETY: the tasks that wrote are over, and nobody writes in this region.
            let partial = &*unsafe { partials.get(unit * splits + split) };
            self.vectors.run(Merge { total: &mut scratch.total, split: partial, n, stride });
        }
        self.write(tile, queries, &mut scratch.total);
    }

    /// Divides by the sums and writes the heads to the output.
    fn write(&self, tile: &Tile, queries: Queries, total: &mut State) {
        let (dim, stride) = (self.cache.values.shape().dim, self.cache.values.shape().stride());
        let first = queries.kv_head * self.heads;
        let sinks = self.sinks.map(|sinks| &sinks[first..first + self.heads]);
        self.vectors.run(Finish { total, sinks, stride });
        for (i, values) in total.out.chunks_exact(stride).enumerate() {
            let head = first + i % self.heads;
            // SAFETY: each row and head belongs to one unit.
            let out =
                unsafe { self.out.part_mut(tile.first_row + i / self.heads, head * dim..(head + 1) * dim) };
            out.copy_from_slice(&values[..dim]);
        }
    }
}

/// [`merge`] as work for [`Vectors::run`].
struct Merge<'a> {
    total: &'a mut State,
    split: &'a State,
    n: usize,
    stride: usize,
}

impl WideOp for Merge<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        merge(w, self.total, self.split, self.n, self.stride);
    }
}

/// [`finish`] as work for [`Vectors::run`].
struct Finish<'a> {
    total: &'a mut State,
    sinks: Option<&'a [f32]>,
    stride: usize,
}

impl WideOp for Finish<'_> {
    type Output = ();

    #[inline(always)]
    fn run<W: Wide>(self, w: W) {
        finish(w, self.total, self.sinks, self.stride);
    }
}
