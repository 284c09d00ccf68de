//! The one list of conformance cases: small programs that every backend runs and that [`crate::Reference`] settles.
//!
//! ```no_run
//! # use smelt_backend::Reference as MyBackend;
//! for case in smelt_backend::conformance::cases() {
//!     case.check(&mut || Box::new(MyBackend::new()))?;
//! }
//! # Ok::<(), String>(())
//! ```

mod build;
mod cases;

pub use build::{Setup, random_weight};
pub use cases::cases;

use crate::{Backend, Output, PAGE_TOKENS, Reference, SequenceInput, StepInputs};

/// One step of a case: rows as `(sequence, position, token)`, and which of them are logit rows.
#[derive(Debug, Clone, Default)]
pub struct Step {
    /// `(sequence, position, token)`.
    pub rows: Vec<(u32, u32, u32)>,
    /// Indices of `rows`.
    pub logit_rows: Vec<u32>,
    /// Segments of the rows; empty for zeros.
    pub segments: Vec<u32>,
    /// Which end of the program runs.
    pub output: Output,
    /// Rows of the output that count; the output buffer may be one of all rows.
    pub output_rows: usize,
}

/// How far a step's output may be from the reference's.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Tolerance {
    /// Largest |difference| over the largest |reference value|: for float arithmetic in another order.
    Largest(f32),
    /// Root mean square of the differences over that of the reference values: for rounding to int8, whose largest error
    /// among a few values says little.
    RootMeanSquare(f32),
}

/// One case.
#[derive(Debug, Clone)]
pub struct Case {
    /// What it shows, e.g. `attention: window 8, head 80`.
    pub name: String,
    /// The operation that it is about, one of [`crate::OP_NAMES`].
    pub op: &'static str,
    /// The program, its weights and its steps.
    pub setup: Setup,
    /// How far a backend may be from the reference.
    pub tolerance: Tolerance,
}

/// Page table of sequence `s` in a case of `n` sequences: pages interleave, so that a backend that takes pages for
/// contiguous is found out.
fn pages(s: usize, n: usize, count: usize) -> Vec<u32> {
    (0..count).map(|i| ((count - 1 - i) * n + s) as u32).collect()
}

impl Case {
    /// Runs the case on a backend and on the reference.
    ///
    /// # Errors
    /// Says which step and value differ, or what either backend complained of.
    pub fn check(&self, make: &mut dyn FnMut() -> Box<dyn Backend>) -> Result<(), String> {
        let expected = self.outputs(&mut Reference::new())?;
        let found = self.outputs(&mut *make())?;
        for (step, (expected, found)) in expected.iter().zip(&found).enumerate() {
            let at = format!("{}: step {step}", self.name);
            let pairs = || expected.iter().zip(found);
            if let Some(i) = pairs().position(|(e, f)| e.is_nan() != f.is_nan()) {
                return Err(format!("{at}, value {i}: {}, where {} is right", found[i], expected[i]));
            }
            let (error, tolerance) = match self.tolerance {
                Tolerance::Largest(tolerance) => {
                    let largest =
                        |values: &mut dyn Iterator<Item = f32>| values.fold(0f32, |m, v| m.max(v.abs()));
                    let error = largest(&mut pairs().map(|(e, f)| e - f));
                    (error / largest(&mut expected.iter().copied()), tolerance)
                }
                Tolerance::RootMeanSquare(tolerance) => {
                    let squares = |values: &mut dyn Iterator<Item = f32>| values.map(|v| v * v).sum::<f32>();
                    let error = squares(&mut pairs().map(|(e, f)| e - f));
                    ((error / squares(&mut expected.iter().copied())).sqrt(), tolerance)
                }
            };
            if error > tolerance {
                return Err(format!("{at}: off by {error}, where {tolerance} is allowed"));
            }
        }
        Ok(())
    }

    /// The outputs of every step.
    ///
    /// # Errors
    /// What the backend complained of.
    pub fn outputs(&self, backend: &mut dyn Backend) -> Result<Vec<Vec<f32>>, String> {
        let fail = |e: crate::Error| format!("{}: {e}", self.name);
        let program = self.setup.program.clone();
        let widths =
            [Output::Logits, Output::States].map(|o| program.buffers[program.output_for(o).index()].width);
        let n_sequences =
            1 + self.setup.steps.iter().flat_map(|s| &s.rows).map(|r| r.0).max().unwrap_or(0) as usize;
        let last = self.setup.steps.iter().flat_map(|s| &s.rows).map(|r| r.1).max().unwrap_or(0) as usize;
        let count = last / PAGE_TOKENS + 1;
        let tables: Vec<Vec<u32>> = (0..n_sequences).map(|s| pages(s, n_sequences, count)).collect();
        let sequences: Vec<SequenceInput<'_>> = tables.iter().map(|pages| SequenceInput { pages }).collect();
        backend.prepare(program, self.setup.weights.clone()).map_err(fail)?;
        backend.reserve_pages(count * n_sequences).map_err(fail)?;
        let mut outputs = Vec::new();
        for step in &self.setup.steps {
            let column = |f: fn(&(u32, u32, u32)) -> u32| step.rows.iter().map(f).collect::<Vec<u32>>();
            let (sequence, positions, tokens) = (column(|r| r.0), column(|r| r.1), column(|r| r.2));
            let inputs = StepInputs {
                tokens: &tokens,
                positions: &positions,
                sequence: &sequence,
                sequences: &sequences,
                segments: &step.segments,
                logit_rows: &step.logit_rows,
                output: step.output,
            };
            backend.run(&inputs).map_err(fail)?;
            let width = widths[usize::from(step.output == Output::States)];
            let mut out = vec![0.0; step.output_rows * width];
            backend.read_output(&mut out).map_err(fail)?;
            outputs.push(out);
        }
        Ok(outputs)
    }
}
