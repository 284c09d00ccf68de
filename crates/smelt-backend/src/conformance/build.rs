//! Building blocks of cases.

use super::Step;
use crate::{Buffer, Index, Op, Program, StepLimits, Weight, WeightBytes, WeightSpec};
use smelt_quant::Format;

/// A program with its weights and steps.
#[derive(Debug, Clone)]
pub struct Setup {
    /// The program.
    pub program: Program,
    /// Its weights' bytes.
    pub weights: Vec<WeightBytes>,
    /// The steps, run in order on one backend.
    pub steps: Vec<Step>,
    random: Random,
}

/// SplitMix64 (Steele, Lea and Flood 2014): cases are the same on every machine.
#[derive(Debug, Clone)]
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Roughly normal, mean 0, deviation 1: the sum of four uniforms.
    pub(super) fn normal(&mut self) -> f32 {
        let uniform = |bits: u64| (bits & 0xFFFF) as f32 / 65536.0 - 0.5;
        let bits = self.next();
        (0..4).map(|i| uniform(bits >> (16 * i))).sum::<f32>() * 1.732
    }

    pub(super) fn normals(&mut self, n: usize, scale: f32) -> Vec<f32> {
        (0..n).map(|_| self.normal() * scale).collect()
    }
}

/// Bytes of `n` random values in a format. A format that can't be written takes random blocks whose values are sane.
#[must_use]
pub fn random_weight(format: &'static Format, n: usize, scale: f32, seed: u64) -> Vec<u8> {
    let mut random = Random::new(seed);
    let mut bytes = vec![0u8; format.row_bytes(n).expect("whole blocks")];
    if let Some(quantize) = format.quantize {
        quantize(&random.normals(n, scale), &mut bytes);
        return bytes;
    }
    let mut values = vec![0f32; format.block_len];
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        loop {
            block.iter_mut().for_each(|b| *b = random.next() as u8);
            (format.dequantize)(block, &mut values);
            let largest =
                values.iter().fold(0f32, |m, v| if v.is_finite() { m.max(v.abs()) } else { f32::MAX });
            if (1e-4 * scale..10.0 * scale).contains(&largest) {
                break;
            }
        }
    }
    bytes
}

impl Setup {
    /// A program of `vocab_size` tokens, empty.
    pub(super) fn new(vocab_size: usize, seed: u64) -> Self {
        let limits = StepLimits { rows: 256, logit_rows: 64 };
        let program = Program { vocab_size, limits, ..Program::default() };
        Self { program, weights: Vec::new(), steps: Vec::new(), random: Random::new(seed) }
    }

    /// An F32 vector around `mean`.
    pub(super) fn vector(&mut self, n: usize, mean: f32) -> Weight {
        let bytes =
            self.random.normals(n, 0.3).iter().flat_map(|v| (v + mean).to_le_bytes()).collect::<Vec<u8>>();
        self.bind(&smelt_quant::FORMATS[0], n, 1, 1, bytes)
    }

    /// A random matrix, or a stack of them.
    pub(super) fn matrix(
        &mut self,
        format: &'static Format,
        n_out: usize,
        n_in: usize,
        n_experts: usize,
    ) -> Weight {
        let seed = self.random.next();
        let scale = 1.0 / (n_in as f32).sqrt();
        let bytes = random_weight(format, n_out * n_in * n_experts, scale, seed);
        self.bind(&format, n_in, n_out, n_experts, bytes)
    }

    fn bind(
        &mut self,
        format: &&'static Format,
        n_in: usize,
        n_out: usize,
        n_experts: usize,
        bytes: Vec<u8>,
    ) -> Weight {
        let name = format!("weight {}", self.weights.len());
        self.weights.push(bytes.into());
        self.program.weight(WeightSpec { name, format, n_in, n_out, n_experts })
    }

    /// A buffer filled by its own embedding: the case's input. Values have deviation `scale`.
    pub(super) fn input(&mut self, width: usize, scale: f32) -> Buffer {
        let vocab_size = self.program.vocab_size;
        let values = self.random.normals(vocab_size * width, 1.0);
        let bytes = values.iter().flat_map(|v| v.to_le_bytes()).collect::<Vec<u8>>();
        let table = self.bind(&smelt_quant::FORMATS[0], width, vocab_size, 1, bytes);
        let out = self.program.buffer(width);
        self.push(Op::Embed { table, index: Index::Token, out, scale });
        out
    }

    pub(super) fn push(&mut self, op: Op) {
        self.program.ops.push(op);
    }

    /// One step of `n` rows of one sequence, from `position` on.
    pub(super) fn step(&mut self, position: u32, n: u32) {
        let vocab_size = self.program.vocab_size as u64;
        let rows = (0..n).map(|i| (0, position + i, (self.random.next() % vocab_size) as u32)).collect();
        self.steps.push(Step { rows, logit_rows: vec![n - 1], output_rows: n as usize, ..Step::default() });
    }

    /// One step whose rows are `(sequence, position)`.
    pub(super) fn mixed_step(&mut self, rows: &[(u32, u32)]) {
        let vocab_size = self.program.vocab_size as u64;
        let rows: Vec<_> =
            rows.iter().map(|(s, p)| (*s, *p, (self.random.next() % vocab_size) as u32)).collect();
        let (logit_rows, output_rows) = (vec![rows.len() as u32 - 1], rows.len());
        self.steps.push(Step { rows, logit_rows, output_rows, ..Step::default() });
    }

    /// The case's result.
    pub(super) fn output(mut self, buffer: Buffer) -> Self {
        self.program.output = buffer;
        self
    }
}
