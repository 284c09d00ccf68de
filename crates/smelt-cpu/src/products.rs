//! Stages of matmuls.

use crate::matmul::{FEW, Kernel, QuantizedActs, Scratch, Tokens, matmul_rows, prefetch_few};
use crate::memory::{Slots, View};
use crate::placement::Weights;
use crate::plan::{KINDS, Product, kind_index};
use crate::pool::{Expected, Pace, Pool};
use crate::rows::gated;
use crate::wide::Vectors;
use smelt_backend::Projection;
use std::num::NonZero;
use std::ops::Range;

/// Bytes of weights that a thread reads in the time that it takes to begin somewhere else: a microsecond and a half.
const BEGINNING: usize = 48 * 1024;

/// Bytes of each matrix that a waiting thread asks for: they fit the second-level cache beside what else is in use.
const AHEAD: usize = 128 * 1024;

/// Bytes of weights that a thread takes at a time, if they are many chunks.
const AT_ONCE: usize = 128 * 1024;

/// What matmuls read and work in.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) vectors: Vectors,
    pub(crate) views: &'a [View],
    pub(crate) weights: &'a Weights,
    /// The weights that are F32 vectors, decoded.
    pub(crate) constants: &'a [Vec<f32>],
    /// The quantised rows, by kind.
    pub(crate) acts: &'a [QuantizedActs; KINDS.len()],
    /// One per worker.
    pub(crate) scratch: &'a Slots<Scratch>,
}

/// Output rows that a thread takes at a time, of `n_out` in all, for `rows` rows of input: the fewer, the better a thread
/// that is held up is made up for by the others; with many rows of input a larger part of the weights is better
/// multiplied at once.
pub(crate) fn chunk_rows(n_out: usize, rows: usize, granule: usize, threads: usize) -> usize {
    let chunks_per_thread = if rows <= FEW { 32 } else { 8 };
    (n_out / (threads * chunks_per_thread)).next_multiple_of(granule).max(granule)
}

/// How a stage's output rows are cut into chunks.
struct Cut<'a> {
    /// The projections that chunks follow. The two of a gated activation are computed side by side, so only the first is one.
    split: &'a [(Projection, Kernel)],
    step: usize,
    chunks: usize,
}

impl<'a> Cut<'a> {
    fn new(product: &'a Product, rows: usize, threads: usize, context: &Context<'_>) -> Self {
        let granule = product.projections.iter().map(|(_, k)| k.row_granule(rows)).max().unwrap_or(1);
        let split =
            if product.gated.is_some() { &product.projections[..1] } else { &product.projections[..] };
        let step = chunk_rows(split.iter().map(|p| context.outputs(p)).sum(), rows, granule, threads);
        let chunks = split.iter().map(|p| context.outputs(p).div_ceil(step)).sum();
        Self { split, step, chunks }
    }

    /// Takes the first chunks that belong to one projection, and gives it and its output rows.
    fn take(
        &self,
        chunks: &mut Range<usize>,
        context: &Context<'_>,
    ) -> Option<(&'a (Projection, Kernel), Range<usize>)> {
        let mut before = 0;
        for projection in self.split {
            let outputs = context.outputs(projection);
            let end = before + outputs.div_ceil(self.step);
            if (before..end).contains(&chunks.start) && chunks.start < chunks.end {
                let taken = chunks.start..chunks.end.min(end);
                chunks.start = taken.end;
                let row = |chunk: usize| ((chunk - before) * self.step).min(outputs);
                return Some((projection, row(taken.start)..row(taken.end)));
            }
            before = end;
        }
        None
    }
}

/// The projections that a thread reads together with `projection`.
fn beside<'a>(product: &'a Product, projection: &'a (Projection, Kernel)) -> &'a [(Projection, Kernel)] {
    if product.gated.is_some() { &product.projections[..] } else { std::slice::from_ref(projection) }
}

/// Lets the pool's threads ask for the weights that they will read first for `rows` rows, whenever they wait. Many rows take so
/// long that it doesn't pay, and of weights with copies for each memory node only a thread knows which one it reads.
pub(crate) fn expect(product: &Product, rows: usize, pool: &Pool, context: &Context<'_>) {
    if rows > FEW || context.weights.are_mirrored() {
        return pool.expect(|_| Expected::default());
    }
    let cut = Cut::new(product, rows, pool.threads(), context);
    pool.expect(|worker| {
        let mut chunks = Pool::first_chunk(worker, cut.chunks, pool.threads())..cut.chunks;
        let Some((projection, columns)) = cut.take(&mut chunks, context) else { return Expected::default() };
        let mut expected = Expected { starts: [None; 2], bytes: AHEAD };
        for (start, projection) in expected.starts.iter_mut().zip(beside(product, projection)) {
            let first = context.weights[projection.0.weight.index()].as_ptr();
            *start = NonZero::new(first.addr() + columns.start * context.row_bytes(projection));
        }
        expected
    });
}

/// Runs a stage over `rows` rows.
pub(crate) fn run(product: &Product, rows: usize, pool: &Pool, context: Context<'_>) {
    let cut = Cut::new(product, rows, pool.threads(), &context);
    let chunk_bytes = cut.step * product.projections.iter().map(|p| context.row_bytes(p)).max().unwrap_or(0);
    let chunks = |bytes: usize| if rows <= FEW { bytes / chunk_bytes.max(1) } else { 0 };
    let pace = Pace { most: chunks(AT_ONCE).max(1), leave: chunks(BEGINNING) };
    pool.runs(cut.chunks, pace, |worker, mut chunks, mut continues| {
        while let Some((projection, columns)) = cut.take(&mut chunks, &context) {
            let together = beside(product, projection);
            if rows <= FEW && !continues {
                together.iter().for_each(|p| context.prefetch(p, columns.start));
            }
            together.iter().for_each(|p| context.project(p, rows, columns.clone(), worker));
            if let Some((activation, out)) = product.gated {
                let [first, second] = together else { unreachable!("gated are two projections") };
                let views = [first.0.out, second.0.out, out].map(|b| context.views[b.index()]);
                for row in 0..rows {
                    // SAFETY: these columns of the three buffers are these chunks'.
                    unsafe { gated(context.vectors, views, row, columns.clone(), activation) };
                }
            }
            continues = false;
        }
    });
}

impl Context<'_> {
    /// Output rows.
    fn outputs(&self, (projection, _): &(Projection, Kernel)) -> usize {
        self.views[projection.out.index()].width
    }

    /// Bytes of a row of weights.
    fn row_bytes(&self, p: &(Projection, Kernel)) -> usize {
        self.weights[p.0.weight.index()].len() / self.outputs(p).max(1)
    }

    /// Asks the cache for what a thread that begins with row `first` of the weights reads first.
    fn prefetch(&self, p: &(Projection, Kernel), first: usize) {
        let (projection, kernel) = p;
        // Another core has just written them.
        self.acts[kind_index(kernel.activation())].prefetch();
        prefetch_few(kernel, &self.weights[projection.weight.index()], self.row_bytes(p), first);
    }

    /// Some columns of a projection's output, for all rows.
    fn project(
        &self,
        (projection, kernel): &(Projection, Kernel),
        rows: usize,
        columns: Range<usize>,
        worker: usize,
    ) {
        let view = self.views[projection.out.index()];
        let acts = &self.acts[kind_index(kernel.activation())];
        // SAFETY: the view is written through in these columns only, which are this chunk's; the scratch is the
        // worker's.
        unsafe {
            let out = view.out(0..rows);
            let weights = &self.weights[projection.weight.index()];
            let tokens = Tokens::from(0..rows);
            matmul_rows(kernel, weights, columns.clone(), acts, tokens, out, self.scratch.get(worker));
        }
        let Some(bias) = projection.bias else { return };
        let bias = &self.constants[bias.index()][columns.clone()];
        for row in 0..rows {
            // SAFETY: as above.
            let out = unsafe { view.part_mut(row, columns.clone()) };
            out.iter_mut().zip(bias).for_each(|(out, bias)| *out += bias);
        }
    }
}
