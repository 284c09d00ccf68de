//! Stages of matmuls.

use crate::matmul::{Kernel, QuantizedActs, Scratch, Tokens, matmul_rows};
use crate::memory::{Slots, View};
use crate::plan::{KINDS, Product, kind_index};
use crate::pool::Pool;
use crate::rows::gated;
use crate::wide::Vectors;
use smelt_backend::{Projection, WeightBytes};
use std::ops::Range;

/// Chunks per thread, so that a thread that is held up is made up for by the others.
const CHUNKS_PER_THREAD: usize = 8;

/// What matmuls read and work in.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) vectors: Vectors,
    pub(crate) views: &'a [View],
    pub(crate) weights: &'a [WeightBytes],
    /// The weights that are F32 vectors, decoded.
    pub(crate) constants: &'a [Vec<f32>],
    /// The quantised rows, by kind.
    pub(crate) acts: &'a [QuantizedActs; KINDS.len()],
    /// One per worker.
    pub(crate) scratch: &'a Slots<Scratch>,
}

/// Output rows that a thread takes at a time.
pub(crate) fn chunk_rows(rows: usize, granule: usize, threads: usize) -> usize {
    (rows / (threads * CHUNKS_PER_THREAD)).next_multiple_of(granule).max(granule)
}

/// Runs a stage over `rows` rows.
pub(crate) fn run(product: &Product, rows: usize, pool: &Pool, context: Context<'_>) {
    let outputs = |(p, _): &(Projection, Kernel)| context.views[p.out.index()].width;
    let granule = product.projections.iter().map(|(_, k)| k.row_granule()).max().unwrap_or(1);
    // The two projections of a gated activation are computed side by side, so they count once.
    let split = if product.gated.is_some() { &product.projections[..1] } else { &product.projections[..] };
    let step = chunk_rows(split.iter().map(outputs).sum(), granule, pool.threads());
    let chunks = split.iter().map(|p| outputs(p).div_ceil(step)).sum();
    pool.chunks(chunks, |worker, mut chunk| {
        let mut projections = split.iter();
        let mut projection = projections.next().expect("a chunk belongs to a projection");
        while chunk >= outputs(projection).div_ceil(step) {
            chunk -= outputs(projection).div_ceil(step);
            projection = projections.next().expect("a chunk belongs to a projection");
        }
        let columns = chunk * step..(chunk * step + step).min(outputs(projection));
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
