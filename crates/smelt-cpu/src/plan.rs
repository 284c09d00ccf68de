//! A program compiled to stages, each of them at most one parallel region.
//!
//! Operations that treat every row by itself (norms, rotations, writes to the cache, activations, additions) are
//! gathered into one stage that runs them all on a row while it is in the first-level cache, and that quantises the
//! row for the matmul that follows. A gated activation right behind the two matmuls that feed it runs on each chunk of
//! their output rows. Both save barriers, which is where a small model loses its time.

use crate::matmul::Kernel;
use smelt_backend::{Activation as Function, Attention, Buffer, Moe, Op, Program, Projection, Rope, Weight};
use smelt_quant::Activation;

/// A stage of the plan. Buffers and weights are indices into the program's lists.
#[derive(Debug)]
pub(crate) enum Stage {
    Rows(RowStage),
    Product(Product),
    Attention(Attention),
    Moe(Moe),
}

/// Operations on rows, in order.
#[derive(Debug, Default)]
pub(crate) struct RowStage {
    /// Whether the rows are the step's logit rows.
    pub(crate) logit_rows: bool,
    pub(crate) ops: Vec<RowOp>,
    /// Values that the operations touch in one row, to judge whether threads pay.
    pub(crate) work: usize,
    /// The width of all operations, if they treat every value by itself.
    pub(crate) elementwise: Option<usize>,
}

#[derive(Debug)]
pub(crate) enum RowOp {
    /// Any of the program's operations that treat rows by themselves.
    Op(Op),
    /// Quantises the row for the products that follow.
    Quantize { buffer: Buffer, kind: Activation },
}

/// Matmuls that share their input, whose quantised rows are at hand.
#[derive(Debug)]
pub(crate) struct Product {
    pub(crate) logit_rows: bool,
    pub(crate) projections: Vec<(Projection, Kernel)>,
    /// What to make of the two projections: `out = function(first) · second`.
    pub(crate) gated: Option<(Function, Buffer)>,
}

/// Every kind of activations; [`kind_index`] indexes it.
pub(crate) const KINDS: [Activation; 3] = [Activation::F32, Activation::Q8x32, Activation::Q8x256];

/// The place of a kind in [`KINDS`].
pub(crate) fn kind_index(kind: Activation) -> usize {
    match kind {
        Activation::F32 => 0,
        Activation::Q8x32 => 1,
        Activation::Q8x256 => 2,
    }
}

/// Compiles operations of a validated program.
pub(crate) fn compile<'a>(
    program: &Program,
    ops: impl Iterator<Item = &'a Op>,
    kernel: impl Fn(Weight) -> Kernel,
) -> Vec<Stage> {
    let mut compiler = Compiler { program, kernel, stages: Vec::new(), held: [None; KINDS.len()] };
    ops.for_each(|op| compiler.push(op));
    compiler.stages
}

struct Compiler<'a, F> {
    program: &'a Program,
    kernel: F,
    stages: Vec<Stage>,
    /// The buffer whose quantised rows each kind's store holds, as long as they are its present values.
    held: [Option<Buffer>; KINDS.len()],
}

impl<F: Fn(Weight) -> Kernel> Compiler<'_, F> {
    fn push(&mut self, op: &Op) {
        match op {
            Op::MatMul { input, projections } => self.product(*input, projections),
            Op::Attention(x) => {
                self.wrote(x.out);
                self.stages.push(Stage::Attention(*x));
            }
            Op::Moe(x) => {
                for weight in [x.experts.gate, x.experts.up] {
                    let kind = (self.kernel)(weight).activation();
                    self.quantize(x.input, kind);
                }
                self.wrote(x.out);
                self.stages.push(Stage::Moe(*x));
            }
            Op::GatedActivation { gate, up, out, activation } if self.fuses(*gate, *up) => {
                self.wrote(*out);
                if let Some(Stage::Product(product)) = self.stages.last_mut() {
                    product.gated = Some((*activation, *out));
                }
            }
            _ => self.row_op(RowOp::Op(op.clone())),
        }
    }

    /// Whether `gate` and `up` are the last stage's two projections, in this order.
    fn fuses(&self, gate: Buffer, up: Buffer) -> bool {
        let Some(Stage::Product(product)) = self.stages.last() else { return false };
        let outs: Vec<Buffer> = product.projections.iter().map(|(p, _)| p.out).collect();
        outs == [gate, up] && gate != up && product.gated.is_none()
    }

    fn product(&mut self, input: Buffer, projections: &[Projection]) {
        let projections: Vec<_> = projections.iter().map(|p| (*p, (self.kernel)(p.weight))).collect();
        for (_, kernel) in &projections {
            self.quantize(input, kernel.activation());
        }
        projections.iter().for_each(|(p, _)| self.wrote(p.out));
        let logit_rows = self.logit_rows(input);
        self.stages.push(Stage::Product(Product { logit_rows, projections, gated: None }));
    }

    fn quantize(&mut self, buffer: Buffer, kind: Activation) {
        if self.held[kind_index(kind)] != Some(buffer) {
            self.row_op(RowOp::Quantize { buffer, kind });
            self.held[kind_index(kind)] = Some(buffer);
        }
    }

    /// Adds an operation to the last stage if that has the same rows, or begins a stage.
    fn row_op(&mut self, op: RowOp) {
        let (main, work, written) = self.operands(&op);
        written.into_iter().for_each(|buffer| self.wrote(buffer));
        let logit_rows = self.logit_rows(main);
        let elementwise = is_elementwise(&op).then(|| self.width(main));
        match self.stages.last_mut() {
            Some(Stage::Rows(stage)) if stage.logit_rows == logit_rows => {
                stage.work += work;
                stage.elementwise = stage.elementwise.filter(|_| stage.elementwise == elementwise);
                stage.ops.push(op);
            }
            _ => self.stages.push(Stage::Rows(RowStage { logit_rows, ops: vec![op], work, elementwise })),
        }
    }

    /// The buffer whose rows the operation goes by, the values that it touches in one row, and what it writes.
    fn operands(&self, op: &RowOp) -> (Buffer, usize, Option<Buffer>) {
        let op = match op {
            RowOp::Quantize { buffer, .. } => return (*buffer, self.width(*buffer), None),
            RowOp::Op(op) => op,
        };
        /// Values that take as long as computing one `exp`.
        const EXP: usize = 4;
        match op {
            Op::Embed { out, .. } | Op::GatherLogitRows { out, .. } => (*out, self.width(*out), Some(*out)),
            Op::RmsNorm { out, .. } => (*out, 2 * self.width(*out), Some(*out)),
            Op::LayerNorm { out, .. } => (*out, 3 * self.width(*out), Some(*out)),
            Op::Rope(Rope { buffer, .. }) => (*buffer, 2 * self.width(*buffer), Some(*buffer)),
            Op::KvWrite { k, v, .. } => (*k, 2 * (self.width(*k) + self.width(*v)), None),
            Op::GatedActivation { out, .. } => (*out, EXP * self.width(*out), Some(*out)),
            Op::Activate { buffer, .. } => (*buffer, EXP * self.width(*buffer), Some(*buffer)),
            Op::ExpertGate(x) => (x.buffer, self.width(x.buffer), Some(x.buffer)),
            Op::Add { out, .. } => (*out, self.width(*out), Some(*out)),
            Op::Scale { buffer, .. } => (*buffer, self.width(*buffer), Some(*buffer)),
            Op::SoftCap { buffer, .. } => (*buffer, EXP * self.width(*buffer), Some(*buffer)),
            Op::MatMul { .. } | Op::Attention(_) | Op::Moe(_) => {
                unreachable!("{} is a stage of its own", op.name())
            }
        }
    }

    fn wrote(&mut self, buffer: Buffer) {
        self.held.iter_mut().filter(|held| **held == Some(buffer)).for_each(|held| *held = None);
    }

    fn width(&self, buffer: Buffer) -> usize {
        self.program.buffers[buffer.index()].width
    }

    fn logit_rows(&self, buffer: Buffer) -> bool {
        self.program.buffers[buffer.index()].logit_rows
    }
}

/// Whether an operation treats every value of a row by itself.
fn is_elementwise(op: &RowOp) -> bool {
    let RowOp::Op(op) = op else { return false };
    matches!(
        op,
        Op::GatedActivation { .. }
            | Op::Activate { .. }
            | Op::Add { .. }
            | Op::Scale { .. }
            | Op::SoftCap { .. }
    )
}
