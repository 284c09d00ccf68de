//! What the scheduler needs of a model: the seam behind which tests put a fake one.

use crate::Error;
use crate::runner::Runner;
use smelt_backend::{StepInputs, StepLimits};

/// Runs steps.
pub(super) trait Stepper: Send {
    /// The largest step, but for a text that must be computed in one.
    fn limits(&self) -> StepLimits;

    /// Makes `pages` pages exist.
    ///
    /// # Errors
    /// If memory can't be had; what was reserved before stays.
    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error>;

    /// Copies the first `tokens` tokens of page `from` to page `to`.
    fn copy_page(&mut self, from: u32, to: u32, tokens: usize);

    /// Computes a step.
    ///
    /// # Errors
    /// If the inputs don't fit, or the device fails.
    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error>;

    /// A row of what the last step gave: logits of logit row `row`, `[vocab_size]`, or the state of row `row`.
    fn row(&mut self, row: usize) -> &mut [f32];
}

impl Stepper for Runner {
    fn limits(&self) -> StepLimits {
        Self::limits(self)
    }

    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error> {
        Ok(self.device.backend().reserve_pages(pages)?)
    }

    fn copy_page(&mut self, from: u32, to: u32, tokens: usize) {
        self.device.backend().copy_page(from, to, tokens);
    }

    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        Self::run(self, inputs)
    }

    fn row(&mut self, row: usize) -> &mut [f32] {
        Self::row(self, row)
    }
}
