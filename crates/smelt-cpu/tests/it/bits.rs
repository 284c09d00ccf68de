//! Results don't depend on what else is in a step, on how a prompt is cut, or on the number of threads.

use crate::{cpu, isas};
use smelt_backend::conformance::random_weight;
use smelt_backend::{
    Activation, Attention, Backend, Experts, Gating, Index, KvFormat, KvFormats, KvSpec, Mask, Moe, Op,
    PAGE_TOKENS, Program, Projection, Rope, RopeStyle, SequenceInput, StepInputs, StepLimits, Weight,
    WeightBytes, WeightSpec,
};
use smelt_cpu::isa::Isa;
use smelt_cpu::{Cpu, CpuSettings, Numa, Repack};
use smelt_quant::{Format, by_name};

const VOCAB: usize = 96;
const HIDDEN: usize = 256;
const HEADS: usize = 6;
const KV_HEADS: usize = 2;
const HEAD_DIM: usize = 32;
const FFN: usize = 512;
/// Longer than the part of a cache that threads take at a time.
const POSITIONS: usize = 1120;

/// A small model: per layer attention and a feed-forward network, dense in even layers and of experts in odd ones.
pub(crate) struct Model {
    program: Program,
    weights: Vec<WeightBytes>,
}

impl Model {
    fn weight(&mut self, format: &'static Format, n_out: usize, n_in: usize, n_experts: usize) -> Weight {
        let seed = self.weights.len() as u64;
        let scale = 1.0 / (n_in as f32).sqrt();
        self.weights.push(random_weight(format, n_out * n_in * n_experts, scale, seed).into());
        self.program.weight(WeightSpec { name: format!("w{seed}"), format, n_in, n_out, n_experts })
    }

    fn vector(&mut self, n: usize) -> Weight {
        self.weight(by_name("F32").unwrap(), 1, n, 1)
    }

    pub(crate) fn new(kv: KvFormats) -> Self {
        let limits = StepLimits { rows: 512, logit_rows: 512 };
        let mut m = Self {
            program: Program { vocab_size: VOCAB, limits, ..Program::default() },
            weights: Vec::new(),
        };
        let [q8, q4k, f32] = ["Q8_0", "Q4_K", "F32"].map(|name| by_name(name).unwrap());
        let table = m.weight(q8, VOCAB, HIDDEN, 1);
        let x = m.program.buffer(HIDDEN);
        m.program.ops.push(Op::Embed { table, index: Index::Token, out: x, scale: 16.0 });
        for layer in 0..3 {
            m.attention(x, kv, [q8, q4k, f32][layer], (layer == 1).then_some(70));
            if layer == 1 { m.experts(x, q8) } else { m.dense(x, [q8, q4k, f32][layer]) }
        }
        let (last, logits) = (m.program.logit_buffer(HIDDEN), m.program.logit_buffer(VOCAB));
        let weight = m.vector(HIDDEN);
        m.program.ops.extend([
            Op::GatherLogitRows { input: x, out: last },
            Op::RmsNorm { input: last, weight, out: last, eps: 1e-5 },
            Op::MatMul {
                input: last,
                projections: vec![Projection { weight: table, bias: None, out: logits }],
            },
            Op::SoftCap { buffer: logits, cap: 30.0 },
        ]);
        m.program.output = logits;
        m
    }

    fn normed(&mut self, x: smelt_backend::Buffer) -> smelt_backend::Buffer {
        let (weight, out) = (self.vector(HIDDEN), self.program.buffer(HIDDEN));
        self.program.ops.push(Op::RmsNorm { input: x, weight, out, eps: 1e-5 });
        out
    }

    fn project(
        &mut self,
        input: smelt_backend::Buffer,
        format: &'static Format,
        sizes: &[usize],
    ) -> Vec<Projection> {
        let n_in = self.program.buffers[input.index()].width;
        let projections: Vec<Projection> = sizes
            .iter()
            .map(|n| Projection {
                weight: self.weight(format, *n, n_in, 1),
                bias: Some(self.vector(*n)),
                out: self.program.buffer(*n),
            })
            .collect();
        self.program.ops.push(Op::MatMul { input, projections: projections.clone() });
        projections
    }

    fn attention(
        &mut self,
        x: smelt_backend::Buffer,
        kv: KvFormats,
        format: &'static Format,
        window: Option<usize>,
    ) {
        let normed = self.normed(x);
        let qkv = self.project(normed, format, &[HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM, KV_HEADS * HEAD_DIM]);
        let (q, k, v) = (qkv[0].out, qkv[1].out, qkv[2].out);
        let table = self.program.rope((0..HEAD_DIM / 2).map(|i| 0.7f32.powi(i as i32)).collect());
        let spec = KvSpec { n_kv_heads: KV_HEADS, k_head_dim: HEAD_DIM, v_head_dim: HEAD_DIM, formats: kv };
        let cache = self.program.cache(spec);
        let out = self.program.buffer(HEADS * HEAD_DIM);
        for buffer in [q, k] {
            let rope = Rope { buffer, table, style: RopeStyle::Halves, head_dim: HEAD_DIM, magnitude: 1.0 };
            self.program.ops.push(Op::Rope(rope));
        }
        self.program.ops.push(Op::KvWrite { k, v, cache });
        let softcap = window.map(|_| 20.0);
        let sinks = window.map(|_| self.vector(HEADS));
        self.program.ops.push(Op::Attention(Attention {
            q,
            out,
            cache,
            n_heads: HEADS,
            scale: 1.0 / (HEAD_DIM as f32).sqrt(),
            softcap,
            mask: Mask::Causal,
            window,
            sinks,
        }));
        // Q4_K needs rows of 256 values, which the heads don't give.
        let projected = self.project(out, by_name("Q8_0").unwrap(), &[HIDDEN])[0].out;
        self.program.ops.push(Op::Add { input: projected, out: x, scale: 1.0 });
    }

    fn dense(&mut self, x: smelt_backend::Buffer, format: &'static Format) {
        let normed = self.normed(x);
        let both = self.project(normed, format, &[FFN, FFN]);
        let (gate, up) = (both[0].out, both[1].out);
        self.program.ops.push(Op::GatedActivation { gate, up, out: gate, activation: Activation::GeluTanh });
        let down = self.project(gate, format, &[HIDDEN])[0].out;
        self.program.ops.push(Op::Add { input: down, out: x, scale: 0.5 });
    }

    fn experts(&mut self, x: smelt_backend::Buffer, format: &'static Format) {
        let input = self.normed(x);
        let router = self.project(input, by_name("F32").unwrap(), &[8])[0].out;
        let experts = Experts {
            gate: self.weight(format, FFN, HIDDEN, 8),
            up: self.weight(by_name("Q4_K").unwrap(), FFN, HIDDEN, 8),
            down: self.weight(format, HIDDEN, FFN, 8),
        };
        let out = self.program.buffer(HIDDEN);
        self.program.ops.push(Op::Moe(Moe {
            input,
            router,
            experts,
            out,
            n_used: 3,
            gating: Gating::SoftmaxNormalized,
            scale: 1.0,
            activation: Activation::Silu,
        }));
        self.program.ops.push(Op::Add { input: out, out: x, scale: 1.0 });
    }

    fn load(&self, threads: usize, isa: Isa) -> Runner {
        self.run_on(cpu(threads, isa))
    }

    pub(crate) fn run_on(&self, mut backend: Cpu) -> Runner {
        backend.prepare(self.program.clone(), self.weights.clone()).unwrap();
        backend.reserve_pages(2 * POSITIONS.div_ceil(PAGE_TOKENS)).unwrap();
        Runner { backend }
    }
}

pub(crate) struct Runner {
    backend: Cpu,
}

fn token(sequence: u32, position: usize) -> u32 {
    (position as u32 * 7 + sequence * 31 + position as u32 / 5) % VOCAB as u32
}

impl Runner {
    /// Runs rows `(sequence, position)` of two interleaved sequences; the bits of every row's logits.
    fn step(&mut self, rows: &[(u32, usize)]) -> Vec<Vec<u32>> {
        let pages: Vec<Vec<u32>> = (0..2)
            .map(|s| (0..POSITIONS.div_ceil(PAGE_TOKENS) as u32).map(|page| 2 * page + s).collect())
            .collect();
        let sequences: Vec<SequenceInput<'_>> = pages.iter().map(|pages| SequenceInput { pages }).collect();
        let tokens: Vec<u32> = rows.iter().map(|(s, p)| token(*s, *p)).collect();
        let positions: Vec<u32> = rows.iter().map(|(_, p)| *p as u32).collect();
        let sequence: Vec<u32> = rows.iter().map(|(s, _)| *s).collect();
        let logit_rows: Vec<u32> = (0..rows.len() as u32).collect();
        self.backend
            .run(&StepInputs {
                tokens: &tokens,
                positions: &positions,
                sequence: &sequence,
                sequences: &sequences,
                logit_rows: &logit_rows,
                ..StepInputs::default()
            })
            .unwrap();
        let mut out = vec![0.0; rows.len() * VOCAB];
        self.backend.read_output(&mut out).unwrap();
        out.chunks(VOCAB).map(|row| row.iter().map(|v| v.to_bits()).collect()).collect()
    }

    /// The logits of a sequence, its prompt cut into steps of the given lengths (the last one repeats).
    pub(crate) fn sequence(&mut self, sequence: u32, n: usize, lengths: &[usize]) -> Vec<Vec<u32>> {
        let (mut logits, mut position) = (Vec::new(), 0);
        let mut lengths = lengths.iter().copied();
        let mut length = 0;
        while position < n {
            length = lengths.next().unwrap_or(length);
            let end = (position + length).min(n);
            logits.extend(self.step(&(position..end).map(|p| (sequence, p)).collect::<Vec<_>>()));
            position = end;
        }
        logits
    }
}

#[test]
fn prompts_may_be_cut_anywhere() {
    let both = KvFormat::ALL.map(KvFormats::from);
    let mixed = KvFormats { k: KvFormat::Q8_0, v: KvFormat::Q4_0 };
    for kv in both.into_iter().chain([mixed]) {
        let model = Model::new(kv);
        let isa = isas().last().unwrap();
        let expected = model.load(1, isa).sequence(0, POSITIONS, &[512]);
        assert!(expected.iter().flatten().all(|bits| f32::from_bits(*bits).is_finite()));
        for (threads, lengths) in
            [(1, &[1, 30, 2, 100][..]), (2, &[500, 12, 3, 7, 64]), (3, &[400, 200, 300, 200, 1])]
        {
            let found = model.load(threads, isa).sequence(0, POSITIONS, lengths);
            let differs = expected.iter().zip(&found).position(|(a, b)| a != b);
            assert_eq!(differs, None, "{kv:?}, {threads} threads, {lengths:?}: the first row that differs");
        }
    }
}

#[test]
fn instruction_sets_and_threads_agree() {
    let model = Model::new(KvFormat::F16.into());
    // Into the second part of the cache, and no further: plain code takes its time.
    let n = 530;
    let expected = model.load(2, Isa::Scalar).sequence(0, n, &[100]);
    for isa in isas().filter(|isa| *isa != Isa::Scalar) {
        for threads in [1, 2, 4] {
            let found = model.load(threads, isa).sequence(0, n, &[512, 16, 1]);
            assert!(expected == found, "{isa:?}, {threads} threads");
        }
    }
}

#[test]
fn where_memory_lies_changes_nothing() {
    let model = Model::new(KvFormat::F16.into());
    let expected = model.load(2, Isa::Scalar).sequence(0, 40, &[100]);
    for numa in [Numa::Off, Numa::Interleave, Numa::Mirror] {
        for repack in [Repack::Auto, Repack::Off, Repack::On] {
            let settings = CpuSettings { threads: Some(2), numa, repack, ..CpuSettings::default() };
            if let Err(error) =
                Cpu::new(settings).unwrap().prepare(model.program.clone(), model.weights.clone())
            {
                // A container may forbid to place memory, and then says so.
                assert!(
                    numa != Numa::Off && error.to_string().contains("refuses to place memory"),
                    "{error}"
                );
                continue;
            }
            let found = model.run_on(Cpu::new(settings).unwrap()).sequence(0, 40, &[16, 1]);
            assert!(expected == found, "{numa:?}, {repack:?}");
        }
    }
}

#[test]
fn batches_change_nothing() {
    let model = Model::new(KvFormat::F16.into());
    let isa = isas().last().unwrap();
    let n = 90;
    let alone: Vec<Vec<Vec<u32>>> = (0..2).map(|s| model.load(2, isa).sequence(s, n, &[17])).collect();
    let mut runner = model.load(2, isa);
    let mut together = vec![Vec::new(), Vec::new()];
    // One sequence is ahead of the other, and their rows alternate or stand in blocks.
    let mut next = [0usize, 0];
    for step in 0..n {
        let mut rows = Vec::new();
        for (s, count) in [(1u32, step % 3), (0, 2), (1, step % 2)] {
            for _ in 0..count {
                if next[s as usize] < n {
                    rows.push((s, next[s as usize]));
                    next[s as usize] += 1;
                }
            }
        }
        if rows.is_empty() {
            continue;
        }
        for ((s, _), logits) in rows.iter().zip(runner.step(&rows)) {
            together[*s as usize].push(logits);
        }
    }
    for (s, (alone, together)) in alone.iter().zip(&together).enumerate() {
        assert!(together.len() > n / 2);
        let differs = alone.iter().zip(together).position(|(a, b)| a != b);
        assert_eq!(differs, None, "sequence {s}: the first row that differs");
    }
}

#[test]
fn nan_reaches_the_logits() {
    let mut model = Model::new(KvFormat::F16.into());
    // The embedding of one token has a scale that is not a number.
    let mut table = model.weights[0].to_vec();
    let row = by_name("Q8_0").unwrap().row_bytes(HIDDEN).unwrap();
    let bad = token(0, 5) as usize;
    table[bad * row..][..2].copy_from_slice(&[0xFF, 0x7F]);
    model.weights[0] = table.into();
    for isa in isas() {
        let logits = model.load(2, isa).sequence(0, 6, &[6]);
        let nan = |row: &Vec<u32>| row.iter().all(|bits| f32::from_bits(*bits).is_nan());
        assert!(nan(&logits[5]), "{isa:?}");
    }
}

#[test]
fn copied_pages_hold_what_the_original_held() {
    let model = Model::new(KvFormat::F16.into());
    let isa = isas().last().unwrap();
    let expected = model.load(1, isa).sequence(0, 60, &[60]);
    let mut runner = model.load(2, isa);
    runner.sequence(0, 50, &[50]);
    // Sequence 1 owns the odd pages; it takes over sequence 0's first 50 tokens.
    runner.backend.copy_page(0, 1, 32);
    runner.backend.copy_page(2, 3, 18);
    let pages: Vec<u32> = (0..2).map(|i| 2 * i + 1).collect();
    let positions: Vec<u32> = (50..60).collect();
    let tokens: Vec<u32> = positions.iter().map(|p| token(0, *p as usize)).collect();
    let logit_rows: Vec<u32> = (0..10).collect();
    runner
        .backend
        .run(&StepInputs {
            tokens: &tokens,
            positions: &positions,
            sequence: &[0; 10],
            sequences: &[SequenceInput { pages: &pages }],
            logit_rows: &logit_rows,
            ..StepInputs::default()
        })
        .unwrap();
    let mut out = vec![0.0f32; 10 * VOCAB];
    runner.backend.read_output(&mut out).unwrap();
    let expected: Vec<u32> = expected[50..].iter().flatten().copied().collect();
    assert!(out.iter().map(|v| v.to_bits()).eq(expected));
}

#[test]
fn rows_that_collide_are_refused() {
    let model = Model::new(KvFormat::F16.into());
    let mut runner = model.load(1, Isa::Scalar);
    let inputs = StepInputs {
        tokens: &[1, 2],
        positions: &[3, 3],
        sequence: &[0, 1],
        sequences: &[SequenceInput { pages: &[1] }, SequenceInput { pages: &[1] }],
        logit_rows: &[],
        ..StepInputs::default()
    };
    let message = runner.backend.run(&inputs).unwrap_err().to_string();
    assert_eq!(message, "step: two rows go to token 3 of page 1");
}
