//! The backend: a prepared program and the loop over its stages.

use crate::attention::{self, Tile, cut_tiles};
use crate::cache::Cache;
use crate::isa::{Isa, IsaChoice};
use crate::matmul::{self, Kernel, QuantizedActs};
use crate::memory::{Buffer, Slots, View};
use crate::peak::{self, Peaks};
use crate::placement::{self, Numa, Repack, Weights};
use crate::plan::{KINDS, RowOp, RowStage, Stage, compile, kind_index};
use crate::pool::{Expected, Pool};
use crate::rope::RopeTables;
use crate::topology::{Node, System, ThreadPlan, interleave_thread, nodes};
use crate::wide::Vectors;
use crate::{bandwidth, moe, products, rows};
use smelt_backend::{Backend, Error, Op, Output, Program, StepInputs, Weight, WeightBytes};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// What the user may choose.
#[derive(Debug, Clone, Copy, Default)]
pub struct CpuSettings {
    /// Threads, the caller's included; by default what [`ThreadPlan::choose`] finds.
    pub threads: Option<usize>,
    /// The instruction set; by default the best that the CPU has.
    pub isa: IsaChoice,
    /// Where memory lies on machines with several nodes.
    pub numa: Numa,
    /// Whether weights are copied to faster memory.
    pub repack: Repack,
}

/// Why there is no backend.
#[derive(Debug, thiserror::Error)]
pub enum CpuError {
    /// Zero threads, or absurdly many.
    #[error("{0} threads can't be used; give a number from 1 to {MAX_THREADS}, or none to let Smelt choose")]
    Threads(usize),
    /// The CPU lacks what was asked for.
    #[error("this CPU can't run {}; leave the instruction set to Smelt", .0.name())]
    Isa(Isa),
    /// The system refused a thread.
    #[error("a thread could not be started ({0}); use fewer threads")]
    Spawn(#[from] std::io::Error),
}

const MAX_THREADS: usize = 4096;

/// The CPU backend.
#[derive(Debug)]
pub struct Cpu {
    pool: Pool,
    plan: ThreadPlan,
    isa: Isa,
    vectors: Vectors,
    numa: Numa,
    repack: Repack,
    nodes: Vec<Node>,
    prepared: Option<Prepared>,
    interrupt: Arc<AtomicBool>,
}

/// A program with everything that it runs in.
#[derive(Debug)]
struct Prepared {
    program: Program,
    weights: Weights,
    /// The weights that operations take as F32 vectors, decoded; empty for others.
    constants: Vec<Vec<f32>>,
    /// Of steps that want logits, and of those that want states.
    stages: [Vec<Stage>; 2],
    /// What the last step gave.
    output: Output,
    buffers: Vec<Buffer<f32>>,
    /// One per buffer.
    views: Vec<View>,
    caches: Vec<Cache>,
    pages: usize,
    ropes: RopeTables,
    /// Quantised rows, by kind.
    acts: [QuantizedActs; KINDS.len()],
    experts: moe::Memory,
    matmul_scratch: Slots<matmul::Scratch>,
    attention_scratch: Slots<attention::Scratch>,
    partials: Slots<attention::State>,
    tiles: Vec<Tile>,
    /// Where the step's rows go in the caches, to find two that collide.
    slots: Vec<(u32, usize)>,
}

impl Cpu {
    /// A backend with its threads started and nothing prepared.
    ///
    /// # Errors
    /// If the settings ask for what this machine can't do, or a thread can't be started.
    pub fn new(settings: CpuSettings) -> Result<Self, CpuError> {
        let system = System::this_machine();
        let plan = match settings.threads {
            None => ThreadPlan::choose(&system),
            Some(n) if (1..=MAX_THREADS).contains(&n) => ThreadPlan::fixed(n, &system),
            Some(n) => return Err(CpuError::Threads(n)),
        };
        let isa = match (Isa::resolve(settings.isa), settings.isa) {
            (Some(isa), _) => isa,
            (None, IsaChoice::Only(isa)) => return Err(CpuError::Isa(isa)),
            (None, IsaChoice::Auto) => Isa::Scalar,
        };
        let pool = Pool::new(plan.threads, plan.oversubscribed)?;
        Ok(Self {
            pool,
            plan,
            isa,
            vectors: Vectors::new(isa),
            numa: settings.numa,
            repack: settings.repack,
            nodes: nodes(&system),
            prepared: None,
            interrupt: Arc::default(),
        })
    }

    /// How many threads, and why.
    #[must_use]
    pub fn thread_plan(&self) -> &ThreadPlan {
        &self.plan
    }

    /// The instruction set in use.
    #[must_use]
    pub fn isa(&self) -> Isa {
        self.isa
    }

    /// Memory bandwidth in GB/s, as the threads reach it reading a buffer that no cache holds. Takes a few tenths of a
    /// second.
    ///
    /// # Errors
    /// If there is no memory for the buffer.
    pub fn measure_bandwidth(&self) -> Result<f64, Error> {
        bandwidth::measure(&self.pool)
    }

    /// How fast the threads multiply and add with everything in registers, in the instruction set in use. Takes a few
    /// tenths of a second.
    #[must_use]
    pub fn measure_peaks(&self) -> Peaks {
        peak::measure(&self.pool, self.isa)
    }

    /// Makes every thread of the pool, the caller's included, put its new pages on all nodes in turn.
    fn interleave(&self) -> std::io::Result<()> {
        let refusals: Slots<Option<std::io::Error>> = Slots::new(self.pool.threads());
        let nodes = &self.nodes[..];
        self.pool.each(&|worker| {
            // SAFETY: the pool's worker index.
            *unsafe { refusals.get(worker) } = interleave_thread(nodes).err();
        });
        // SAFETY: the region is over, and with it the workers' borrows.
        let refusal = (0..self.pool.threads()).find_map(|worker| unsafe { refusals.get(worker) }.take());
        refusal.map_or(Ok(()), Err)
    }
}

impl Backend for Cpu {
    fn describe(&self) -> String {
        let threads =
            if self.plan.threads == 1 { "1 thread".into() } else { format!("{} threads", self.plan.threads) };
        let memory = placement::describe(self.numa, self.repack, self.nodes.len());
        format!("cpu ({}, {threads}: {}; {memory})", self.isa.name(), self.plan.reason)
    }

    fn prepare(&mut self, program: Program, weights: Vec<WeightBytes>) -> Result<(), Error> {
        program.validate(&weights.iter().map(|w| w.len()).collect::<Vec<_>>())?;
        self.prepared = None;
        if self.numa == Numa::Interleave {
            self.interleave().map_err(|error| placement::refused("several nodes", &error))?;
        }
        let weights = Weights::place(weights, self.numa, self.repack, &self.nodes, &self.pool)?;
        self.prepared = Some(Prepared::new(program, weights, self.isa, self.pool.threads())?);
        Ok(())
    }

    fn reserve_pages(&mut self, pages: usize) -> Result<(), Error> {
        let prepared = self.prepared.as_mut().ok_or_else(nothing_prepared)?;
        for cache in &mut prepared.caches {
            cache.reserve(pages)?;
        }
        prepared.pages = pages;
        Ok(())
    }

    fn copy_page(&mut self, from: u32, to: u32, _: usize) {
        let caches = self.prepared.iter_mut().flat_map(|p| &mut p.caches);
        caches.for_each(|cache| cache.copy(from, to));
    }

    fn run(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        let prepared = self.prepared.as_mut().ok_or_else(nothing_prepared)?;
        inputs.validate(&prepared.program, prepared.pages)?;
        if self.numa == Numa::Interleave {
            // The engine may have moved to another thread than the one that `prepare` was called on, which the system allowed it.
            let _ = interleave_thread(&self.nodes);
        }
        prepared.check_slots(inputs)?;
        cut_tiles(inputs, &mut prepared.tiles);
        prepared.ropes.cover(inputs.positions.iter().max().map_or(0, |p| *p as usize + 1));
        prepared.output = inputs.output;
        let of = output_index(inputs.output);
        let stages = std::mem::take(&mut prepared.stages[of]);
        let mut interrupted = false;
        for (i, stage) in stages.iter().enumerate() {
            interrupted = self.interrupt.load(Ordering::Relaxed);
            if interrupted {
                break;
            }
            if !matches!(stage, Stage::Rows(_)) {
                prepared.expect(stages[i + 1..].iter().chain(&stages), inputs, &self.pool, self.vectors);
            }
            prepared.execute(stage, inputs, &self.pool, (self.vectors, self.isa));
        }
        prepared.stages[of] = stages;
        if interrupted { Err(Error::Interrupted) } else { Ok(()) }
    }

    fn interrupt_on(&mut self, flag: Arc<AtomicBool>) {
        self.interrupt = flag;
    }

    fn read_output(&mut self, out: &mut [f32]) -> Result<(), Error> {
        let prepared = self.prepared.as_ref().ok_or_else(nothing_prepared)?;
        let buffer = prepared.program.output_for(prepared.output);
        out.copy_from_slice(&prepared.buffers[buffer.index()].as_slice()[..out.len()]);
        Ok(())
    }
}

/// The place of an output in [`Prepared::stages`].
fn output_index(output: Output) -> usize {
    match output {
        Output::Logits => 0,
        Output::States => 1,
    }
}

fn nothing_prepared() -> Error {
    Error::Step("no program was prepared".into())
}

impl Prepared {
    fn new(program: Program, weights: Weights, isa: Isa, threads: usize) -> Result<Self, Error> {
        let kernel = |w: Weight| Kernel::for_format(program.weights[w.index()].format, isa);
        let stages = [Output::Logits, Output::States]
            .map(|output| compile(&program, program.ops_for(output).into_iter().flatten(), kernel));
        let mut constants = vec![Vec::new(); program.weights.len()];
        let mut ropes = RopeTables::new(&program);
        let mut constant = |weight: Weight| {
            let spec = &program.weights[weight.index()];
            let mut values = vec![0.0; spec.n_in];
            (spec.format.dequantize)(&weights[weight.index()], &mut values);
            constants[weight.index()] = values;
        };
        for op in program.all_ops() {
            match op {
                Op::RmsNorm { weight, .. } => constant(*weight),
                Op::LayerNorm { weight, bias, .. } => {
                    [Some(*weight), *bias].into_iter().flatten().for_each(&mut constant);
                }
                Op::MatMul { projections, .. } => {
                    projections.iter().filter_map(|p| p.bias).for_each(&mut constant)
                }
                Op::Attention(x) => x.sinks.into_iter().for_each(&mut constant),
                Op::Rope(x) => ropes.add(x.table.index(), x.magnitude),
                _ => {}
            }
        }
        let rows = |logit: bool| if logit { program.limits.logit_rows } else { program.limits.rows };
        let buffer = |b: &smelt_backend::BufferSpec| {
            let mut buffer = Buffer::new("the activations", b.width.checked_mul(rows(b.logit_rows)))?;
            let view = View::new(&mut buffer, b.width);
            Ok((buffer, view))
        };
        let buffers = program.buffers.iter().map(buffer).collect::<Result<Vec<_>, Error>>()?;
        let (buffers, views) = buffers.into_iter().unzip();
        Ok(Self {
            constants,
            stages,
            output: Output::default(),
            buffers,
            views,
            caches: program.caches.iter().map(Cache::new).collect(),
            pages: 0,
            ropes,
            acts: Default::default(),
            experts: moe::Memory::new(&program)?,
            matmul_scratch: Slots::new(threads),
            attention_scratch: Slots::new(threads),
            partials: Slots::new(0),
            tiles: Vec::new(),
            slots: Vec::new(),
            program,
            weights,
        })
    }

    /// Rows are written to the caches at once, so no two may go to the same place.
    fn check_slots(&mut self, inputs: &StepInputs<'_>) -> Result<(), Error> {
        self.slots.clear();
        self.slots.extend((0..inputs.tokens.len()).map(|row| rows::slot(inputs, row)));
        self.slots.sort_unstable();
        match self.slots.windows(2).find(|w| w[0] == w[1]) {
            Some(w) if !self.caches.is_empty() => {
                Err(Error::Step(format!("two rows go to token {} of page {}", w[0].1, w[0].0)))
            }
            _ => Ok(()),
        }
    }

    /// The stage's rows in this step.
    fn count(logit_rows: bool, inputs: &StepInputs<'_>) -> usize {
        if logit_rows { inputs.logit_rows.len() } else { inputs.tokens.len() }
    }

    fn products(&self, vectors: Vectors) -> products::Context<'_> {
        products::Context {
            vectors,
            views: &self.views,
            weights: &self.weights,
            constants: &self.constants,
            acts: &self.acts,
            scratch: &self.matmul_scratch,
        }
    }

    /// Lets threads that wait ask for the weights that the first of `later` stages with weights reads.
    fn expect<'a>(
        &self,
        mut later: impl Iterator<Item = &'a Stage>,
        inputs: &StepInputs<'_>,
        pool: &Pool,
        vectors: Vectors,
    ) {
        // Which experts are next is not known yet.
        let weighty = later.find(|stage| matches!(stage, Stage::Product(_) | Stage::Moe(_)));
        match weighty {
            Some(Stage::Product(product)) => {
                let rows = Self::count(product.logit_rows, inputs);
                products::expect(product, rows, pool, &self.products(vectors));
            }
            _ => pool.expect(|_| Expected::default()),
        }
    }

    fn execute(
        &mut self,
        stage: &Stage,
        inputs: &StepInputs<'_>,
        pool: &Pool,
        (vectors, isa): (Vectors, Isa),
    ) {
        let rows = |logit: bool| Self::count(logit, inputs);
        match stage {
            Stage::Rows(stage) => self.rows(stage, rows(stage.logit_rows), inputs, pool, (vectors, isa)),
            Stage::Product(product) => {
                products::run(product, rows(product.logit_rows), pool, self.products(vectors));
            }
            Stage::Attention(x) => attention::attend(
                x,
                self.views[x.q.index()],
                self.views[x.out.index()],
                &self.caches[x.cache.index()],
                attention::Context {
                    pool,
                    vectors,
                    inputs,
                    sinks: x.sinks.map(|weight| &self.constants[weight.index()][..]),
                    tiles: &self.tiles,
                    scratch: &self.attention_scratch,
                    partials: &mut self.partials,
                },
            ),
            Stage::Moe(x) => moe::run(
                x,
                rows(false),
                &mut self.experts,
                pool,
                &moe::Context {
                    vectors,
                    isa,
                    program: &self.program,
                    views: &self.views,
                    weights: &self.weights,
                    acts: &self.acts,
                    scratch: &self.matmul_scratch,
                },
            ),
        }
    }

    fn rows(
        &mut self,
        stage: &RowStage,
        n: usize,
        inputs: &StepInputs<'_>,
        pool: &Pool,
        (vectors, isa): (Vectors, Isa),
    ) {
        let mut writers = [None; KINDS.len()];
        for (acts, kind) in self.acts.iter_mut().zip(KINDS) {
            let quantized = stage.ops.iter().find_map(|op| match op {
                RowOp::Quantize { buffer, kind: k } if *k == kind => Some(*buffer),
                _ => None,
            });
            if let Some(buffer) = quantized {
                writers[kind_index(kind)] = Some(acts.reshape(kind, n, self.views[buffer.index()].width));
            }
        }
        let context = rows::Context {
            program: &self.program,
            views: &self.views,
            weights: &self.weights,
            constants: &self.constants,
            ropes: &self.ropes,
            caches: &self.caches,
            inputs,
            vectors,
            isa,
            writers,
        };
        rows::run(stage, n, pool, context);
    }
}
