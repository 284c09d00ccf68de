//! Stages of matmuls.

use crate::matmul::{FEW, Kernel, QuantizedActs, Scratch, Tokens, matmul_rows, prefetch_few};
use crate::memory::{Slots, View};
use crate::placement::Weights;
use crate::plan::{KINDS, Product, kind_index};
use crate::pool::Pool;
use crate::rows::gated;
use crate::wide::Vectors;
use smelt_backend::Projection;
use std::ops::Range;

/// Bytes of weights that a thread reads in the time that it takes to begin somewhere else: a microsecond and a half.
const BEGINNING: usize = 48 * 1024;

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

/// Runs a stage over `rows` rows.
pub(crate) fn run(product: &Product, rows: usize, pool: &Pool, context: Context<'_>) {
    let outputs = |(p, _): &(Projection, Kernel)| context.views[p.out.index()].width;
    let granule = product.projections.iter().map(|(_, k)| k.row_granule(rows)).max().unwrap_or(1);
    // The two projections of a gated activation are computed side by side, so they count once.
    let split = if product.gated.is_some() { &product.projections[..1] } else { &product.projections[..] };
    let step = chunk_rows(split.iter().map(outputs).sum(), rows, granule, pool.threads());
    let chunks = split.iter().map(|p| outputs(p).div_ceil(step)).sum();
    let chunk_bytes = step * product.projections.iter().map(|p| context.row_bytes(p)).max().unwrap_or(0);
    let leave = if rows <= FEW { BEGINNING / chunk_bytes.max(1) } else { 0 };
    pool.runs(chunks, leave, |worker, mut chunk, continues| {
        let mut projections = split.iter();
        let mut projection = projections.next().expect("a chunk belongs to a projection");
        while chunk >= outputs(projection).div_ceil(step) {
            chunk -= outputs(projection).div_ceil(step);
            projection = projections.next().expect("a chunk belongs to a projection");
        }
        let columns = chunk * step..(chunk * step + step).min(outputs(projection));
        if rows <= FEW && !continues {
            let begun = if product.gated.is_some() {
                &product.projections[..]
            } else {
                std::slice::from_ref(projection)
            };
            begun.iter().for_each(|projection| context.prefetch(projection, columns.start));
        }
        let Some((activation, out)) = product.gated else {
            return context.project(projection, rows, columns, worker);
        };
        let [first, second] = &product.projections[..] else { unreachable!("gated are two projections") };
        context.project(first, rows, columns.clone(), worker);
        context.project(second, rows, columns.clone(), worker);
        let views = [first.0.out, second.0.out, out].map(|b| context.views[b.index()]);
        for row in 0..rows {
            // SAFETY: these columns of the three buffers are this chunk's.
            unsafe { gated(context.vectors, views, row, columns.clone(), activation) };
        }
    });
}

impl Context<'_> {
    /// Bytes of a row of weights.
    fn row_bytes(&self, (_, kernel): &(Projection, Kernel)) -> usize {
        let k = self.acts[kind_index(kernel.activation())].k();
        kernel.format().row_bytes(k).expect("validated by prepare")
    }

    /// Asks the cache for what a thread that begins with row `first` of the weights reads first.
    fn prefetch(&self, p: &(Projection, Kernel), first: usize) {
        let (projection, kernel) = p;
        // Another core has just written them.
        self.acts[kind_index(kernel.activation())].prefetch();
        prefetch_few(&self.weights[projection.weight.index()], self.row_bytes(p), first);
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
