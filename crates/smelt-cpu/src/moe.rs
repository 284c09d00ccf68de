//! Mixture of experts: rows are grouped by expert, so that each expert's weights are read once, in place.
//!
//! A row with `n_used` experts makes as many *slots*. Slots are sorted by expert, and in an expert by row. Every
//! expert computes its slots like a small feed-forward network; at the end each row sums its slots, weighted, in the
//! order of its experts from the best down, which depends on nothing but the row.

use crate::elementwise::{Add, Gated};
use crate::isa::Isa;
use crate::matmul::{FEW, Kernel, QuantizedActs, Scratch, Tokens, matmul_rows, prefetch_few};
use crate::memory::{Buffer, Plain, Slots, View};
use crate::placement::Weights;
use crate::plan::{KINDS, kind_index};
use crate::pool::{Pace, Pool};
use crate::products::chunk_rows;
use crate::wide::Vectors;
use smelt_backend::{Error, Gating, Moe, Op, Program, Weight};
use std::ops::Range;

/// A row's expert and its weight.
#[derive(Debug, Clone, Copy, Default)]
struct Choice {
    expert: u32,
    weight: f32,
}

impl Plain for Choice {}

/// The slots of an expert that has any.
#[derive(Debug, Clone)]
struct Group {
    expert: usize,
    slots: Range<usize>,
}

/// What mixtures of experts work in, made for the largest step.
#[derive(Debug)]
pub(crate) struct Memory {
    /// `[rows, n_used]`, best first.
    choices: Buffer<Choice>,
    /// The row of each slot.
    rows: Vec<u32>,
    /// The slot of each choice.
    slots: Vec<u32>,
    groups: Vec<Group>,
    /// `[slots, ffn_dim]`.
    gate: Buffer<f32>,
    up: Buffer<f32>,
    /// `[slots, hidden_dim]`.
    down: Buffer<f32>,
    acts: QuantizedActs,
}

impl Memory {
    pub(crate) fn new(program: &Program) -> Result<Self, Error> {
        let (mut all_slots, mut ffn, mut hidden) = (Some(0), Some(0), Some(0));
        for op in &program.ops {
            if let Op::Moe(x) = op {
                let slots = program.limits.rows.checked_mul(x.n_used);
                let size = |weight: Weight| slots?.checked_mul(program.weights[weight.index()].n_out);
                let larger = |a: Option<usize>, b: Option<usize>| a.zip(b).map(|(a, b)| a.max(b));
                all_slots = larger(all_slots, slots);
                ffn = larger(ffn, size(x.experts.gate));
                hidden = larger(hidden, size(x.experts.down));
            }
        }
        let buffer = |len| Buffer::new("a mixture of experts", len);
        Ok(Self {
            choices: Buffer::new("a mixture of experts", all_slots)?,
            rows: Vec::new(),
            slots: Vec::new(),
            groups: Vec::new(),
            gate: buffer(ffn)?,
            up: buffer(ffn)?,
            down: buffer(hidden)?,
            acts: QuantizedActs::default(),
        })
    }

    /// Chooses every row's experts, and sorts the slots.
    fn route(&mut self, x: &Moe, router: View, rows: usize, pool: &Pool) {
        let choices = self.choices.share();
        each_in_groups(pool, rows, |row| {
            // SAFETY: the row's choices are written by this call alone; the router's logits were by a stage before.
            let (choices, logits) =
                unsafe { (choices.slice_mut(row * x.n_used..(row + 1) * x.n_used), router.row(row)) };
            choose(logits, x, choices);
        });
        let choices = &self.choices.as_slice()[..rows * x.n_used];
        self.groups.clear();
        self.groups.extend((0..router.width).map(|expert| Group { expert, slots: 0..0 }));
        for choice in choices {
            self.groups[choice.expert as usize].slots.end += 1;
        }
        let mut next = 0;
        for group in &mut self.groups {
            let len = group.slots.end;
            group.slots = next..next;
            next += len;
        }
        self.rows.resize(choices.len(), 0);
        self.slots.resize(choices.len(), 0);
        for (i, choice) in choices.iter().enumerate() {
            let slot = &mut self.groups[choice.expert as usize].slots.end;
            self.rows[*slot] = (i / x.n_used) as u32;
            self.slots[i] = *slot as u32;
            *slot += 1;
        }
        self.groups.retain(|group| !group.slots.is_empty());
    }
}

/// Runs `f` for every one of `n` rows or slots, a few of them to a chunk.
fn each_in_groups(pool: &Pool, n: usize, f: impl Fn(usize) + Sync) {
    const GROUP: usize = 4;
    pool.chunks(n.div_ceil(GROUP), |_, group| {
        (group * GROUP..((group + 1) * GROUP).min(n)).for_each(&f);
    });
}

/// The best experts of a row, best first; of equal logits the lower index wins. NaN counts as the greatest, so that it
/// reaches the result.
fn choose(logits: &[f32], x: &Moe, choices: &mut [Choice]) {
    let mut n = 0;
    for (expert, logit) in logits.iter().enumerate() {
        let worse = |c: &Choice| logits[c.expert as usize].total_cmp(logit).is_lt();
        let at = choices[..n].iter().position(worse).unwrap_or(n);
        if at < choices.len() {
            n = (n + 1).min(choices.len());
            choices[at..n].rotate_right(1);
            choices[at].expert = expert as u32;
        }
    }
    let max = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
    let exp = |logit: f32| f64::from(logit - max).exp();
    let sum: f64 = logits.iter().map(|logit| exp(*logit)).sum();
    for choice in choices.iter_mut() {
        choice.weight = (exp(logits[choice.expert as usize]) / sum) as f32;
    }
    let total: f32 = match x.gating {
        Gating::Softmax => 1.0,
        Gating::SoftmaxNormalized => choices.iter().map(|c| c.weight).sum(),
    };
    choices.iter_mut().for_each(|c| c.weight = c.weight / total * x.scale);
}

/// What a mixture of experts reads and works with.
pub(crate) struct Context<'a> {
    pub(crate) vectors: Vectors,
    pub(crate) isa: Isa,
    pub(crate) program: &'a Program,
    pub(crate) views: &'a [View],
    pub(crate) weights: &'a Weights,
    pub(crate) acts: &'a [QuantizedActs; KINDS.len()],
    pub(crate) scratch: &'a Slots<Scratch>,
}

/// Runs one mixture of experts over `rows` rows.
pub(crate) fn run(x: &Moe, rows: usize, memory: &mut Memory, pool: &Pool, context: &Context<'_>) {
    memory.route(x, context.views[x.router.index()], rows, pool);
    let [gate, up, down] = [x.experts.gate, x.experts.up, x.experts.down].map(|w| context.expert_weight(w));
    let Memory {
        choices,
        rows: rows_of_slots,
        slots,
        groups,
        acts,
        gate: gate_out,
        up: up_out,
        down: down_out,
    } = memory;
    let choices = &choices.as_slice()[..rows * x.n_used];
    let gate_out = View::new(gate_out, gate.n_out);
    let up_out = View::new(up_out, up.n_out);
    let down_out = View::new(down_out, down.n_out);

    let inputs = [&gate, &up].map(|weight| (weight, &context.acts[kind_index(weight.kernel.activation())]));
    experts(pool, groups, &[&gate, &up], |worker, group, columns, next| {
        let tokens = Tokens::List(&rows_of_slots[group.slots.clone()]);
        for ((weight, acts), out) in inputs.iter().zip([gate_out, up_out]) {
            // SAFETY: the columns of the group's slots are this chunk's, and the worker is the pool's.
            unsafe { context.multiply(weight, (group, columns.clone(), next), (acts, tokens), out, worker) };
        }
        for slot in group.slots.clone() {
            // SAFETY: as above, and the two are different buffers.
            let (gate, up) =
                unsafe { (gate_out.part_mut(slot, columns.clone()), up_out.part(slot, columns.clone())) };
            context.vectors.run(Gated { gate, up, activation: x.activation });
        }
    });

    let writer = acts.reshape(down.kernel.activation(), choices.len(), gate.n_out);
    // SAFETY: each slot is quantised by one thread, and its values were written in the region before.
    each_in_groups(pool, choices.len(), |slot| unsafe {
        writer.write(slot, gate_out.row(slot), context.isa);
    });

    experts(pool, groups, &[&down], |worker, group, columns, next| {
        let tokens = Tokens::from(group.slots.clone());
        // SAFETY: as for the first region.
        unsafe { context.multiply(&down, (group, columns, next), (acts, tokens), down_out, worker) };
    });

    pool.chunks(rows, |_, row| {
        // SAFETY: the row of the output is this chunk's, and the slots were written in the region before.
        let out = unsafe { context.views[x.out.index()].row_mut(row) };
        out.fill(0.0);
        for i in row * x.n_used..(row + 1) * x.n_used {
            // SAFETY: as above.
            let values = unsafe { down_out.row(slots[i] as usize) };
            context.vectors.run(Add { out, x: values, scale: choices[i].weight });
        }
    });
}

/// A stack of experts' matrices.
struct ExpertWeight<'a> {
    kernel: Kernel,
    bytes: &'a [u8],
    /// Bytes of one expert.
    stride: usize,
    n_out: usize,
}

impl ExpertWeight<'_> {
    fn of(&self, expert: usize) -> &[u8] {
        &self.bytes[expert * self.stride..][..self.stride]
    }
}

impl Context<'_> {
    /// Some columns of a group's slots; `next` is the expert that the worker goes on with, if it is another one. The list of `tokens` (rows of the step) counts its results from 0, their range
    /// (slots) from the first slot of all.
    ///
    /// # Safety
    /// Nobody else uses these columns of the group's slots meanwhile, and `worker` is the pool's index.
    unsafe fn multiply(
        &self,
        weight: &ExpertWeight<'_>,
        (group, columns, next): (&Group, Range<usize>, Option<usize>),
        (acts, tokens): (&QuantizedActs, Tokens<'_>),
        out: View,
        worker: usize,
    ) {
        let skipped = if matches!(tokens, Tokens::List(_)) { group.slots.start } else { 0 };
        // SAFETY: the caller's promise.
        unsafe {
            let scratch = self.scratch.get(worker);
            scratch.expect(next.map(|expert| weight.of(expert)));
            let bytes = weight.of(group.expert);
            matmul_rows(
                &weight.kernel,
                bytes,
                columns,
                acts,
                tokens,
                out.out(skipped..group.slots.end),
                scratch,
            );
        }
    }

    fn expert_weight(&self, weight: Weight) -> ExpertWeight<'_> {
        let spec = &self.program.weights[weight.index()];
        let bytes = &self.weights[weight.index()];
        let kernel = Kernel::for_format(spec.format, self.isa);
        ExpertWeight { kernel, bytes, stride: bytes.len() / spec.n_experts, n_out: spec.n_out }
    }
}

/// Runs `f(worker, group, columns, next)` for pieces of every group's output of `weights`, which have one shape. `next` is the
/// expert that the worker goes on with, if it is another one.
fn experts(
    pool: &Pool,
    groups: &[Group],
    weights: &[&ExpertWeight<'_>],
    f: impl Fn(usize, &Group, Range<usize>, Option<usize>) + Sync,
) {
    let most = groups.iter().map(|group| group.slots.len()).max().unwrap_or(0);
    let (n_out, granule) = (weights[0].n_out, weights[0].kernel.row_granule(most));
    let step = chunk_rows(groups.len() * n_out, most, granule, pool.threads()).min(n_out);
    let pieces = n_out.div_ceil(step);
    let run = |worker: usize, chunk: usize| {
        let first = chunk % pieces * step;
        let next = if (chunk + 1).is_multiple_of(pieces) { groups.get((chunk + 1) / pieces) } else { None };
        let columns = first..(first + step).min(n_out);
        f(worker, &groups[chunk / pieces], columns, next.map(|group| group.expert));
    };
    if most > FEW {
        return pool.chunks(groups.len() * pieces, run);
    }
    pool.runs(groups.len() * pieces, Pace { most: 1, leave: 0 }, |worker, chunks, continues| {
        for chunk in chunks.clone() {
            if chunk == chunks.start && !continues {
                for weight in weights {
                    let bytes = weight.of(groups[chunk / pieces].expert);
                    prefetch_few(&weight.kernel, bytes, bytes.len() / n_out, chunk % pieces * step);
                }
            }
            run(worker, chunk);
        }
    });
}
