//! Attention over a long cache, for every format and shape.

use crate::{cpu, isas};
use smelt_backend::conformance::random_weight;
use smelt_backend::{
    Attention, Backend, Index, KvFormat, KvFormats, KvSpec, Mask, Op, PAGE_TOKENS, Program, Reference,
    SequenceInput, StepInputs, StepLimits,
};
use smelt_cpu::isa::Isa;
use smelt_quant::by_name;

/// Tokens in the cache before the queries.
const DEPTH: usize = 6000;
/// A prime, so that tokens don't repeat in step with pages.
const VOCAB: usize = 509;
const HEADS: usize = 2;
/// Rows of the step that is compared.
const ROWS: usize = 3;

struct Shape {
    formats: KvFormats,
    head_dim: usize,
    window: Option<usize>,
    softcap: Option<f32>,
}

impl Shape {
    /// One KV head, written and read by every row.
    fn program(&self) -> (Program, Vec<Vec<u8>>) {
        let limits = StepLimits { rows: 512, logit_rows: 1 };
        let mut program = Program { vocab_size: VOCAB, limits, ..Program::default() };
        let (mut weights, format) = (Vec::new(), by_name("F32").unwrap());
        let mut input = |width: usize, scale: f32| {
            let bytes = random_weight(format, VOCAB * width, 1.0, width as u64 + weights.len() as u64);
            weights.push(bytes);
            let name = format!("table {}", weights.len());
            let table = program.weight(smelt_backend::WeightSpec {
                name,
                format,
                n_in: width,
                n_out: VOCAB,
                n_experts: 1,
            });
            let out = program.buffer(width);
            program.ops.push(Op::Embed { table, index: Index::Token, out, scale });
            out
        };
        let dim = self.head_dim;
        let (q, k, v) = (input(HEADS * dim, 2.0), input(dim, 1.5), input(dim, 1.0));
        let (formats, softcap, window) = (self.formats, self.softcap, self.window);
        let cache = program.cache(KvSpec { n_kv_heads: 1, k_head_dim: dim, v_head_dim: dim, formats });
        program.output = program.buffer(HEADS * dim);
        program.ops.push(Op::KvWrite { k, v, cache });
        program.ops.push(Op::Attention(Attention {
            q,
            out: program.output,
            cache,
            n_heads: HEADS,
            scale: 1.0 / (dim as f32).sqrt(),
            softcap,
            mask: Mask::Causal,
            window,
            sinks: None,
        }));
        (program, weights)
    }

    /// The outputs of a few rows behind a full cache.
    fn outputs(&self, backend: &mut dyn Backend) -> Vec<f32> {
        let (program, weights) = self.program();
        backend.prepare(program, weights.into_iter().map(Into::into).collect()).unwrap();
        let pages: Vec<u32> = (0..(DEPTH + ROWS).div_ceil(PAGE_TOKENS) as u32).rev().collect();
        backend.reserve_pages(pages.len()).unwrap();
        let token = |position: usize| (position * 7919 % VOCAB) as u32;
        let mut run = |sequences: &[SequenceInput<'_>], rows: &[(usize, usize)], first: usize| {
            let tokens: Vec<u32> = rows.iter().map(|(s, p)| token(first + s * PAGE_TOKENS + p)).collect();
            let positions: Vec<u32> = rows.iter().map(|(_, p)| *p as u32).collect();
            let sequence: Vec<u32> = rows.iter().map(|(s, _)| *s as u32).collect();
            let (tokens, positions, sequence) = (&tokens[..], &positions[..], &sequence[..]);
            let inputs = StepInputs {
                tokens,
                positions,
                sequence,
                sequences,
                logit_rows: &[0],
                ..StepInputs::default()
            };
            backend.run(&inputs).unwrap();
        };
        // Keys have no rotation here, so every page may be filled as a sequence of its own, which takes no time.
        for (chunk, filled) in pages.chunks(16).enumerate() {
            let sequences: Vec<SequenceInput<'_>> =
                filled.chunks(1).map(|pages| SequenceInput { pages }).collect();
            let rows: Vec<(usize, usize)> =
                (0..filled.len() * PAGE_TOKENS).map(|i| (i / PAGE_TOKENS, i % PAGE_TOKENS)).collect();
            run(&sequences, &rows, chunk * 16 * PAGE_TOKENS);
        }
        let rows: Vec<(usize, usize)> = (DEPTH..DEPTH + ROWS).map(|p| (0, p)).collect();
        run(&[SequenceInput { pages: &pages }], &rows, 0);
        let mut out = vec![0.0; ROWS * HEADS * self.head_dim];
        backend.read_output(&mut out).unwrap();
        out
    }
}

/// The reference rounds keys and values as the format does, and computes in f64.
#[test]
fn long_caches_hold_in_every_format() {
    let mut failures = Vec::new();
    let isa = isas().last().unwrap_or(Isa::Scalar);
    for k in KvFormat::ALL {
        for v in KvFormat::ALL {
            for head_dim in [64, 80, 96, 128, 256] {
                for window in [None, Some(1000)] {
                    for softcap in [None, Some(5.0)] {
                        let shape = Shape { formats: KvFormats { k, v }, head_dim, window, softcap };
                        let right = shape.outputs(&mut Reference::new());
                        let found = shape.outputs(&mut cpu(2, isa));
                        let largest = |x: &mut dyn Iterator<Item = f32>| x.fold(0f32, |m, x| m.max(x.abs()));
                        let error = largest(&mut right.iter().zip(&found).map(|(a, b)| a - b));
                        let error = error / largest(&mut right.iter().copied());
                        if error.is_nan() || error > 2e-5 {
                            let names = [k.name(), v.name()];
                            let what = format!("heads of {head_dim}, window {window:?}, cap {softcap:?}");
                            failures.push(format!("{names:?}, {what}: off by {error}"));
                        }
                    }
                }
            }
        }
    }
    assert!(failures.is_empty(), "{}", failures.join("\n"));
}
