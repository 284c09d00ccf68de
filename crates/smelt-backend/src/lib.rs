//! The seam between model graphs and devices.
//!
//! A model is compiled once into a [`Program`]: a list of [`Op`]s over opaque buffers. A [`Backend`] binds the
//! weights, prepares the program (where it may fuse, reorder and choose kernels: its private matter) and then runs it
//! once per step with [`StepInputs`]: tokens of any number of sequences, each with its position. Prefill, decode,
//! batching and verification of drafted tokens are the same call with other rows.
//!
//! - Shapes are validated once, when the program is built ([`Program::validate`]) and when a step is submitted
//!   ([`StepInputs::validate`]); past that a bad shape is a bug.
//! - No operation hands data back except [`Backend::read_output`]. Work may complete later; `read_output` waits for it.
//! - [`Reference`] is the scalar f32 backend, without SIMD and without threads: it specifies every operation.
//!   [`conformance::cases`] is the one list of cases that every backend runs against it.

pub mod conformance;
mod error;
mod op;
mod program;
pub mod reference;
mod step;
mod weight;

pub use error::Error;
pub use op::{
    Activation, Attention, ExpertGate, Experts, Gating, Index, Mask, Moe, OP_NAMES, Op, Projection, Rope,
    RopeStyle,
};
pub use program::{
    Buffer, BufferSpec, KvCache, KvFormat, KvFormats, KvSpec, Program, RopeTable, States, Weight, WeightSpec,
};
pub use reference::Reference;
pub use step::{Output, PAGE_TOKENS, SequenceInput, StepInputs, StepLimits};
pub use weight::{Owner, WeightBytes};

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

/// A device that runs programs. One instance belongs to one engine thread.
pub trait Backend: Send {
    /// A short name for logs and `smelt show`, e.g. `cpu (avx2, 2 threads)`.
    fn describe(&self) -> String;

    /// Binds everything that `program` names and prepares it to run. `weights[i]` holds the bytes of
    /// `program.weights[i]`, row-major in the file's own format; the backend keeps a reference or makes its own copy.
    /// All sequences' caches start with no pages: see [`Backend::reserve_pages`].
    ///
    /// # Errors
    /// If memory can't be had, or the program needs what this backend can't do.
    fn prepare(&mut self, program: Program, weights: Vec<WeightBytes>) -> Result<(), Error>;

    /// Makes room for `pages` pages of [`PAGE_TOKENS`] tokens in every KV cache, keeping what is written.
    ///
    /// # Errors
    /// If memory can't be had; what was reserved before stays.
    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error>;

    /// Copies the first `tokens` tokens of page `from` to page `to` in every KV cache (copy on write).
    fn copy_page(&mut self, from: u32, to: u32, tokens: usize);

    /// Runs the program once over the rows of `inputs`. May return before the work is done.
    ///
    /// # Errors
    /// If the inputs don't fit the program, the device fails, or the flag of [`Backend::interrupt_on`] is up.
    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error>;

    /// Gives the backend a flag that any thread may raise at any time. While it is up, [`Backend::run`] ends with
    /// [`Error::Interrupted`], between two operations too: a step of many rows takes seconds, and who waits for it may
    /// not want it any more. What the step has written to the caches by then is to be written again.
    fn interrupt_on(&mut self, flag: Arc<AtomicBool>);

    /// Waits for all work and copies `out.len()` values of the output that the last [`Backend::run`] was to give, from
    /// its start: row `i` belongs to `inputs.logit_rows[i]`, or to row `i` of the step where states were wanted.
    ///
    /// # Errors
    /// If the device failed.
    fn read_output(&mut self, out: &mut [f32]) -> Result<(), Error>;
}
