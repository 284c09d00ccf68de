//! Stages of operations that treat every row by itself.

use crate::cache::Cache;
use crate::elementwise::{Activate, Add, Gated, LayerNorm, RmsNorm, Scale, Sigmoid, SoftCap};
use crate::isa::Isa;
use crate::matmul::ActsWriter;
use crate::memory::View;
use crate::placement::Weights;
use crate::plan::{KINDS, RowOp, RowStage, kind_index};
use crate::pool::Pool;
use crate::rope::{RopeTables, Rotate};
use crate::wide::Vectors;
use smelt_backend::{Activation, Buffer, Op, PAGE_TOKENS, Program, Rope, StepInputs, Weight};
use std::ops::Range;

/// Values below which the caller does a stage alone: about two microseconds of work, what a barrier may cost.
const SERIAL: usize = 16 * 1024;

/// Columns that a thread takes at a time where few rows are wide.
const COLUMNS: usize = 4096;

/// Chunks per thread: enough for a thread that is held up to be made up for.
const CHUNKS_PER_THREAD: usize = 4;

/// What rows are computed from.
#[derive(Clone, Copy)]
pub(crate) struct Context<'a> {
    pub(crate) program: &'a Program,
    pub(crate) views: &'a [View],
    pub(crate) weights: &'a Weights,
    /// The weights that are F32 vectors, decoded.
    pub(crate) constants: &'a [Vec<f32>],
    pub(crate) ropes: &'a RopeTables,
    pub(crate) caches: &'a [Cache],
    pub(crate) inputs: &'a StepInputs<'a>,
    pub(crate) vectors: Vectors,
    pub(crate) isa: Isa,
    /// Where rows are quantised to, by kind.
    pub(crate) writers: [Option<ActsWriter<'a>>; KINDS.len()],
}

/// Runs a stage over `rows` rows.
pub(crate) fn run(stage: &RowStage, rows: usize, pool: &Pool, context: Context<'_>) {
    let all = |row: usize| stage.ops.iter().for_each(|op| context.apply(op, row, None));
    let parts = pool.threads() * CHUNKS_PER_THREAD;
    if rows * stage.work < SERIAL {
        (0..rows).for_each(all);
    } else if let Some(width) = stage.elementwise.filter(|_| rows < parts) {
        let pieces = width.div_ceil(COLUMNS);
        pool.chunks(rows * pieces, |_, chunk| {
            let first = chunk % pieces * COLUMNS;
            let columns = first..(first + COLUMNS).min(width);
            stage.ops.iter().for_each(|op| context.apply(op, chunk / pieces, Some(columns.clone())));
        });
    } else {
        let step = rows.div_ceil(parts);
        pool.chunks(rows.div_ceil(step), |_, chunk| {
            (chunk * step..(chunk * step + step).min(rows)).for_each(all);
        });
    }
}

impl Context<'_> {
    /// One operation on one row, or on some columns of it where the operation is elementwise.
    ///
    /// Every row (or piece of one) is computed by one thread, and no operation of a stage reads other rows of buffers
    /// that the stage writes: that is what the unsafe code below rests on.
    fn apply(&self, op: &RowOp, row: usize, columns: Option<Range<usize>>) {
        let op = match op {
            RowOp::Op(op) => op,
            RowOp::Quantize { buffer, kind } => {
                let writer = self.writers[kind_index(*kind)].as_ref().expect("made for the stage");
                // SAFETY: this thread alone works on the row.
                return unsafe { writer.write(row, self.view(*buffer).row(row), self.isa) };
            }
        };
        let columns = |buffer: Buffer| columns.clone().unwrap_or(0..self.view(buffer).width);
        // SAFETY: this thread alone works on these columns of the row. Below, what is written is one buffer, and what
        // is read is others: `Program::validate` refuses the operations that could make them the same, norms excepted.
        let (write, read) = unsafe {
            (
                |buffer| self.view(buffer).part_mut(row, columns(buffer)),
                |buffer| self.view(buffer).part(row, columns(buffer)),
            )
        };
        match op {
            Op::Embed { table, index, out, scale } => {
                self.embed(table.index(), write(*out), self.inputs.index(*index, row), *scale);
            }
            Op::RmsNorm { input, weight, out, eps } => {
                let out_row = write(*out);
                if input != out {
                    out_row.copy_from_slice(read(*input));
                }
                let (weight, eps) = (&self.constants[weight.index()], *eps);
                for x in out_row.chunks_exact_mut(weight.len()) {
                    self.vectors.run(RmsNorm { x, weight, eps });
                }
            }
            Op::LayerNorm { input, weight, bias, out, eps } => {
                let out_row = write(*out);
                if input != out {
                    out_row.copy_from_slice(read(*input));
                }
                let constant = |weight: Weight| &self.constants[weight.index()][..];
                let (weight, bias, eps) = (constant(*weight), bias.map(constant), *eps);
                for x in out_row.chunks_exact_mut(weight.len()) {
                    self.vectors.run(LayerNorm { x, weight, bias, eps });
                }
            }
            Op::Rope(x) => self.rope(x, write(x.buffer), row),
            Op::KvWrite { k, v, cache } => {
                let (page, token) = slot(self.inputs, row);
                let cache = &self.caches[cache.index()];
                // SAFETY: `run` of the backend has checked that no two rows share a token of a page.
                unsafe { cache.write(self.vectors, page, token, read(*k), read(*v)) };
            }
            Op::GatedActivation { gate, up, out, activation } => {
                let views = [*gate, *up, *out].map(|b| self.view(b));
                // SAFETY: this thread alone works on these columns of the row.
                unsafe { gated(self.vectors, views, row, columns(*out), *activation) };
            }
            Op::Activate { buffer, activation } => {
                self.vectors.run(Activate { x: write(*buffer), activation: *activation });
            }
            Op::ExpertGate(x) => {
                let factor = self.vectors.run(Sigmoid(read(x.gate)[0]));
                self.vectors.run(Scale { x: write(x.buffer), factor });
            }
            Op::Add { input, out, scale } => {
                self.vectors.run(Add { out: write(*out), x: read(*input), scale: *scale });
            }
            Op::Scale { buffer, factor } => self.vectors.run(Scale { x: write(*buffer), factor: *factor }),
            Op::SoftCap { buffer, cap } => self.vectors.run(SoftCap { x: write(*buffer), cap: *cap }),
            Op::GatherLogitRows { input, out } => {
                let from = self.inputs.logit_rows[row] as usize;
                // SAFETY: the input is a buffer of all rows, which a stage of logit rows doesn't write.
                write(*out).copy_from_slice(unsafe { self.view(*input).row(from) });
            }
            Op::MatMul { .. } | Op::Attention(_) | Op::Moe(_) => {
                unreachable!("{} is a stage of its own", op.name())
            }
        }
    }

    fn view(&self, buffer: Buffer) -> View {
        self.views[buffer.index()]
    }

    /// Row `index` of a table.
    fn embed(&self, table: usize, out: &mut [f32], index: usize, scale: f32) {
        let spec = &self.program.weights[table];
        let bytes = spec.format.row_bytes(spec.n_in).expect("validated by prepare");
        let start = index * bytes;
        (spec.format.dequantize)(&self.weights[table][start..start + bytes], out);
        if scale.to_bits() != 1f32.to_bits() {
            self.vectors.run(Scale { x: out, factor: scale });
        }
    }

    fn rope(&self, x: &Rope, values: &mut [f32], row: usize) {
        let position = self.inputs.positions[row] as usize;
        let (cos, sin) = self.ropes.row(x.table.index(), x.magnitude, position);
        self.vectors.run(Rotate { heads: values, head_dim: x.head_dim, style: x.style, cos, sin });
    }
}

/// The page and the token in it that a row's keys and values go to.
pub(crate) fn slot(inputs: &StepInputs<'_>, row: usize) -> (u32, usize) {
    let position = inputs.positions[row] as usize;
    let pages = inputs.sequences[inputs.sequence[row] as usize].pages;
    (pages[position / PAGE_TOKENS], position % PAGE_TOKENS)
}

/// `out = activation(gate) · up` on some columns of a row; any of the three views may be of one buffer.
///
/// # Safety
/// Nobody else uses these columns of the row meanwhile.
pub(crate) unsafe fn gated(
    vectors: Vectors,
    [gate, up, out]: [View; 3],
    row: usize,
    columns: Range<usize>,
    activation: Activation,
) {
    /// Values that are kept aside at a time, so that the buffers may be the same.
    const PIECE: usize = 256;
    let mut gates = [0f32; PIECE];
    for first in columns.clone().step_by(PIECE) {
        let piece = first..(first + PIECE).min(columns.end);
        let gates = &mut gates[..piece.len()];
        // SAFETY: the caller's promise; each slice ends before the next of its buffer begins.
        unsafe {
            gates.copy_from_slice(gate.part(row, piece.clone()));
            vectors.run(Gated { gate: gates, up: up.part(row, piece.clone()), activation });
            out.part_mut(row, piece).copy_from_slice(gates);
        }
    }
}
