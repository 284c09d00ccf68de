//! Steps of the backend: rows in, logits out, pages taken as sequences grow.

use crate::pages::Pages;
use crate::{BackendChoice, DeviceFacts, Error, Settings};
use smelt_backend::{Backend, Output, PAGE_TOKENS, Reference, SequenceInput, StepInputs, StepLimits};
use smelt_checkpoint::Checkpoint;
use smelt_cpu::{Cpu, CpuSettings};
use smelt_models::Model;

/// A sequence of tokens whose keys and values are in the cache. It must be given back to its engine
/// ([`crate::Engine::release`]) for its pages to be used again.
#[derive(Debug, Default)]
pub struct Sequence {
    pub(crate) tokens: Vec<u32>,
    pub(crate) pages: Vec<u32>,
}

impl Sequence {
    /// The tokens in the cache.
    #[must_use]
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// How many leading tokens are the same as `tokens`.
    #[must_use]
    pub fn common_prefix(&self, tokens: &[u32]) -> usize {
        self.tokens.iter().zip(tokens).take_while(|(a, b)| a == b).count()
    }
}

/// The one device of an engine. `Cpu` has measurements of its own that the seam has no place for.
pub(crate) enum Device {
    Cpu(Box<Cpu>),
    Reference(Box<Reference>),
}

impl Device {
    pub(crate) fn new(settings: &Settings) -> Result<Self, Error> {
        Ok(match settings.backend {
            BackendChoice::Cpu => {
                let Settings { threads, isa, numa, repack, .. } = *settings;
                Self::Cpu(Box::new(Cpu::new(CpuSettings { threads, isa, numa, repack })?))
            }
            BackendChoice::Reference => Self::Reference(Box::default()),
        })
    }

    pub(crate) fn facts(&self) -> DeviceFacts {
        let (name, threads, backend): (_, _, &dyn Backend) = match self {
            Self::Cpu(cpu) => ("cpu", cpu.thread_plan().threads, &**cpu),
            Self::Reference(reference) => ("reference", 1, &**reference),
        };
        DeviceFacts { name, threads, description: backend.describe() }
    }

    pub(crate) fn backend(&mut self) -> &mut dyn Backend {
        match self {
            Self::Cpu(cpu) => &mut **cpu,
            Self::Reference(reference) => &mut **reference,
        }
    }
}

/// Runs steps.
pub(crate) struct Runner {
    pub(crate) device: Device,
    checkpoint: Checkpoint,
    pages: Pages,
    batch: usize,
    logit_rows: usize,
    pub(crate) vocab_size: usize,
    positions: Vec<u32>,
    sequence: Vec<u32>,
    wanted: Vec<u32>,
    /// Values per row of each output.
    widths: Widths,
    /// What the last step gave, `[rows, width]`.
    out: Vec<f32>,
    /// Which output that was.
    output: Output,
}

/// Values per row of logits (or of labels' scores) and of states.
#[derive(Debug, Clone, Copy)]
struct Widths {
    logits: usize,
    states: usize,
}

impl Widths {
    fn of(self, output: Output) -> usize {
        match output {
            Output::Logits => self.logits,
            Output::States => self.states,
        }
    }
}

/// Takes the index of a token and the logits behind it, which it may edit.
pub(crate) type RowSink<'a> = dyn FnMut(usize, &mut [f32]) -> Result<(), Error> + 'a;

/// Which logits an [`Runner::extend`] hands over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Want {
    /// Those behind the last token.
    Last,
    /// Those from the given index of the new tokens on.
    From(usize),
}

impl Runner {
    pub(crate) fn new(
        mut device: Device,
        checkpoint: Checkpoint,
        model: Model,
        settings: &Settings,
    ) -> Result<Self, Error> {
        let vocab_size = model.spec.vocab_size;
        let width = |output| model.program.buffers[model.program.output_for(output).index()].width;
        let widths = Widths { logits: width(Output::Logits), states: width(Output::States) };
        device.backend().prepare(model.program, model.weights)?;
        Ok(Self {
            device,
            checkpoint,
            pages: Pages::default(),
            batch: settings.batch,
            logit_rows: settings.logit_rows,
            vocab_size,
            positions: Vec::new(),
            sequence: Vec::new(),
            wanted: Vec::new(),
            widths,
            out: Vec::new(),
            output: Output::default(),
        })
    }

    /// Forgets what `sequence` has from token `len` on.
    pub(crate) fn truncate(&mut self, sequence: &mut Sequence, len: usize) {
        sequence.tokens.truncate(len);
        let keep = sequence.tokens.len().div_ceil(PAGE_TOKENS);
        self.pages.give(sequence.pages.drain(keep..).rev());
    }

    /// Appends `tokens` to `sequence`, in steps; hands the wanted logits over, `(index of the token, logits behind
    /// it)`. After each step `progress` gets the count of tokens done; if it says false, the rest is left out.
    pub(crate) fn extend(
        &mut self,
        sequence: &mut Sequence,
        tokens: &[u32],
        want: Want,
        progress: &mut dyn FnMut(usize) -> bool,
        sink: &mut RowSink<'_>,
    ) -> Result<bool, Error> {
        if let Some(token) = tokens.iter().find(|t| **t as usize >= self.vocab_size) {
            return Err(Error::TokenRange { token: *token, vocab_size: self.vocab_size });
        }
        let first_wanted = match want {
            Want::Last => tokens.len().saturating_sub(1),
            Want::From(index) => index,
        };
        let mut done = 0;
        while done < tokens.len() {
            let mut n = self.batch.min(tokens.len() - done);
            let start = first_wanted.max(done);
            // A step never wants more logits than there is room for.
            n = n.min((start - done).saturating_add(self.logit_rows));
            let before = sequence.tokens.len();
            if let Err(error) = self.step(sequence, &tokens[done..done + n], start - done) {
                // The pages that it took hold nothing.
                self.truncate(sequence, before);
                return Err(error);
            }
            for (row, index) in (start..done + n).enumerate() {
                sink(index, self.row(row))?;
            }
            done += n;
            if !progress(done) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    /// One step: `tokens` at the sequence's end, logits from row `wanted` on.
    fn step(&mut self, sequence: &mut Sequence, tokens: &[u32], wanted: usize) -> Result<(), Error> {
        let start = sequence.tokens.len();
        self.grow(sequence, tokens.len())?;
        refill(&mut self.positions, start as u32..(start + tokens.len()) as u32);
        refill(&mut self.sequence, std::iter::repeat_n(0, tokens.len()));
        refill(&mut self.wanted, wanted.min(tokens.len()) as u32..tokens.len() as u32);
        self.compute(tokens, &[SequenceInput { pages: &sequence.pages }])?;
        sequence.tokens.extend_from_slice(tokens);
        Ok(())
    }

    /// One step: a token at the end of each sequence, and the logits behind all of them. There must
    /// be room for them.
    pub(crate) fn step_each(&mut self, sequences: &mut [Sequence], tokens: &[u32]) -> Result<(), Error> {
        for sequence in sequences.iter_mut() {
            self.grow(sequence, 1)?;
        }
        let rows = sequences.len() as u32;
        refill(&mut self.positions, sequences.iter().map(|sequence| sequence.tokens.len() as u32));
        refill(&mut self.sequence, 0..rows);
        refill(&mut self.wanted, 0..rows);
        let inputs: Vec<_> = sequences.iter().map(|s| SequenceInput { pages: &s.pages }).collect();
        self.compute(tokens, &inputs)?;
        for (sequence, token) in sequences.iter_mut().zip(tokens) {
            sequence.tokens.push(*token);
        }
        Ok(())
    }

    /// Takes the pages for `n` more tokens.
    fn grow(&mut self, sequence: &mut Sequence, n: usize) -> Result<(), Error> {
        let missing = (sequence.tokens.len() + n).div_ceil(PAGE_TOKENS) - sequence.pages.len();
        if let Some(reserved) = self.pages.growth(missing) {
            self.device.backend().reserve_pages(reserved)?;
            self.pages.grow(reserved);
        }
        sequence.pages.extend((0..missing).map(|_| self.pages.take()));
        Ok(())
    }

    /// Runs the step that the lists of rows describe and reads its logits.
    fn compute(&mut self, tokens: &[u32], sequences: &[SequenceInput<'_>]) -> Result<(), Error> {
        // The lists are lent to the inputs while the step runs.
        let (positions, rows) = (std::mem::take(&mut self.positions), std::mem::take(&mut self.sequence));
        let wanted = std::mem::take(&mut self.wanted);
        let done = self.run(&StepInputs {
            tokens,
            positions: &positions,
            sequence: &rows,
            sequences,
            logit_rows: &wanted,
            ..StepInputs::default()
        });
        (self.positions, self.sequence, self.wanted) = (positions, rows, wanted);
        done
    }

    /// Runs a step of any number of sequences, for [`Runner::row`] to give what it computed.
    pub(crate) fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        self.device.backend().run(inputs)?;
        let rows = match inputs.output {
            Output::Logits => inputs.logit_rows.len(),
            Output::States => inputs.tokens.len(),
        };
        self.output = inputs.output;
        self.out.resize(rows * self.widths.of(inputs.output), 0.0);
        self.device.backend().read_output(&mut self.out)?;
        Ok(self.checkpoint.check_intact()?)
    }

    /// A row of what the last step gave: logits of a logit row, or the state of a row.
    pub(crate) fn row(&mut self, row: usize) -> &mut [f32] {
        let width = self.widths.of(self.output);
        &mut self.out[row * width..][..width]
    }

    /// The largest step, but for a text that must be computed in one.
    pub(crate) fn limits(&self) -> StepLimits {
        StepLimits { rows: self.batch, logit_rows: self.logit_rows }
    }
}

fn refill(list: &mut Vec<u32>, values: impl Iterator<Item = u32>) {
    list.clear();
    list.extend(values);
}
