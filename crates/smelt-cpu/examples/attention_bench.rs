//! Speed of attention: `cargo run --release -p smelt-cpu --example attention_bench [ISA] [SHAPE ...]`.
//!
//! For each shape of heads, format of keys and values, and number of threads: the time of a step with attention less
//! that of the same step with no more than a page to look back on. Prefill is 512 rows behind 1,536 others, in GMAC/s;
//! decode is one row behind 4,096, in GB/s of keys and values over more layers than caches hold. Medians of many steps.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]

use smelt_backend::conformance::random_weight;
use smelt_backend::{
    Attention, Backend, Index, KvFormat, KvFormats, KvSpec, Mask, Op, PAGE_TOKENS, Program, SequenceInput,
    StepInputs, StepLimits, WeightSpec,
};
use smelt_cpu::{Cpu, CpuSettings, Isa, IsaChoice};
use smelt_quant::by_name;
use std::time::Instant;

/// The heads of a layer.
struct Shape {
    name: &'static str,
    heads: usize,
    kv_heads: usize,
    dim: usize,
}

const SHAPES: [Shape; 4] = [
    Shape { name: "SmolLM2-135M", heads: 9, kv_heads: 3, dim: 64 },
    Shape { name: "Llama-1B", heads: 32, kv_heads: 8, dim: 64 },
    Shape { name: "Llama-8B", heads: 32, kv_heads: 8, dim: 128 },
    Shape { name: "Gemma-270M", heads: 4, kv_heads: 1, dim: 256 },
];

const DEPTH: usize = 4096;
const PREFILL: usize = 512;
/// Rows before those of prefill.
const BEHIND: usize = 1536;
/// All layers' keys and values at [`DEPTH`] take this many bytes in f16.
const CACHE_BYTES: usize = 128 << 20;
const VOCAB: usize = 64;
/// Time for a measurement.
const SECONDS: f64 = 0.4;

impl Shape {
    fn layers(&self) -> usize {
        CACHE_BYTES.div_ceil(2 * 2 * self.kv_heads * self.dim * DEPTH)
    }

    /// Writes a row's keys and values to every layer's cache and attends to them.
    fn prepare(&self, formats: KvFormats, backend: &mut Cpu) {
        let limits = StepLimits { rows: PREFILL, logit_rows: 1 };
        let mut program = Program { vocab_size: VOCAB, limits, ..Program::default() };
        let (mut weights, format) = (Vec::new(), by_name("F32").expect("a format"));
        let (wide, narrow) = (self.heads * self.dim, self.kv_heads * self.dim);
        let [q, k, v] = [wide, narrow, narrow].map(|width| {
            weights.push(random_weight(format, VOCAB * width, 1.0, weights.len() as u64).into());
            let name = format!("table {}", weights.len());
            let spec = WeightSpec { name, format, n_in: width, n_out: VOCAB, n_experts: 1 };
            let (table, out) = (program.weight(spec), program.buffer(width));
            program.ops.push(Op::Embed { table, index: Index::Token, out, scale: 1.0 });
            out
        });
        program.output = program.buffer(wide);
        for _ in 0..self.layers() {
            let (n_kv_heads, k_head_dim, v_head_dim) = (self.kv_heads, self.dim, self.dim);
            let cache = program.cache(KvSpec { n_kv_heads, k_head_dim, v_head_dim, formats });
            program.ops.push(Op::KvWrite { k, v, cache });
            program.ops.push(Op::Attention(Attention {
                q,
                out: program.output,
                cache,
                n_heads: self.heads,
                scale: 1.0 / (self.dim as f32).sqrt(),
                softcap: None,
                mask: Mask::Causal,
                window: None,
                sinks: None,
            }));
        }
        backend.prepare(program, weights).expect("a valid program");
        backend.reserve_pages(DEPTH / PAGE_TOKENS + 1).expect("memory");
    }

    /// Writes keys and values to all pages, each as a sequence of its own, which takes no time.
    fn fill(&self, backend: &mut Cpu) {
        let pages: Vec<u32> = (0..(DEPTH / PAGE_TOKENS) as u32).collect();
        for pages in pages.chunks(PREFILL / PAGE_TOKENS) {
            let sequences: Vec<_> = pages.chunks(1).map(|pages| SequenceInput { pages }).collect();
            let rows: Vec<_> =
                (0..pages.len() * PAGE_TOKENS).map(|i| (i / PAGE_TOKENS, i % PAGE_TOKENS)).collect();
            self.step(backend, &sequences, &rows);
        }
    }

    /// Runs a step whose rows are sequences and positions; its seconds.
    fn step(&self, backend: &mut Cpu, sequences: &[SequenceInput<'_>], rows: &[(usize, usize)]) -> f64 {
        let sequence: Vec<u32> = rows.iter().map(|row| row.0 as u32).collect();
        let positions: Vec<u32> = rows.iter().map(|row| row.1 as u32).collect();
        let tokens: Vec<u32> = (0..rows.len()).map(|i| (i * 37 % VOCAB) as u32).collect();
        let (tokens, positions, sequence) = (&tokens[..], &positions[..], &sequence[..]);
        let start = Instant::now();
        let inputs =
            StepInputs { tokens, positions, sequence, sequences, logit_rows: &[0], ..StepInputs::default() };
        backend.run(&inputs).expect("a valid step");
        start.elapsed().as_secs_f64()
    }

    /// The median of many steps' seconds.
    fn seconds(&self, backend: &mut Cpu, position: usize, rows: usize) -> f64 {
        let pages: Vec<u32> = (0..(DEPTH / PAGE_TOKENS + 1) as u32).collect();
        let rows: Vec<_> = (position..position + rows).map(|position| (0, position)).collect();
        let (begin, mut times) = (Instant::now(), Vec::new());
        while times.len() < 3 || begin.elapsed().as_secs_f64() < SECONDS {
            times.push(self.step(backend, &[SequenceInput { pages: &pages }], &rows));
        }
        times.sort_by(f64::total_cmp);
        times[times.len() / 2]
    }

    fn measure(&self, format: KvFormat, isa: Isa, threads: usize) {
        let settings =
            CpuSettings { threads: Some(threads), isa: IsaChoice::Only(isa), ..CpuSettings::default() };
        let mut backend = Cpu::new(settings).expect("the CPU has the instruction set");
        self.prepare(KvFormats { k: format, v: format }, &mut backend);
        self.fill(&mut backend);
        let prefill = self.seconds(&mut backend, BEHIND, PREFILL) - self.seconds(&mut backend, 0, PREFILL);
        let macs = 2 * self.layers() * self.heads * self.dim * PREFILL * BEHIND;
        let decode = self.seconds(&mut backend, DEPTH, 1) - self.seconds(&mut backend, 0, 1);
        let values = 2 * self.layers() * self.kv_heads * self.dim * DEPTH;
        let blocks = format.blocks();
        let bytes = values / blocks.block_len * blocks.block_bytes;
        println!(
            "{:<14} {:<5} {:<12} {threads} {:>8.1} {:>8.1}",
            self.name,
            format.name(),
            isa.name(),
            macs as f64 / prefill / 1e9,
            bytes as f64 / decode / 1e9
        );
    }
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let named = args.first().and_then(|a| Isa::ALL.into_iter().find(|isa| isa.name() == a));
    if named.is_some() {
        args.remove(0);
    }
    let isa = Isa::resolve(named.map_or(IsaChoice::Auto, IsaChoice::Only)).expect("the CPU has it");
    println!("{:<14} {:<5} {:<12} t prefill GMAC/s, decode GB/s", "shape", "k, v", "isa");
    for shape in SHAPES.iter().filter(|s| args.is_empty() || args.iter().any(|a| a == s.name)) {
        for format in KvFormat::ALL {
            for threads in [1, 2] {
                shape.measure(format, isa, threads);
            }
        }
    }
}
