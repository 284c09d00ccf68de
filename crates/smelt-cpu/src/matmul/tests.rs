//! Every kernel against the format's scalar dot product, bit for bit.

use super::*;
use crate::isa::Isa;
use smelt_quant::{FORMATS, Row};

/// A small deterministic generator.
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// Uniform in −1..1.
    fn float(&mut self) -> f32 {
        (self.next() >> 40) as f32 / (1u64 << 23) as f32 - 1.0
    }
}

/// Formats whose kernel is the scalar dot product, row by row.
const UNACCELERATED: &[&str] = &[];

/// Random rows of `format`: encoded where it can be, and random bytes (with finite scales) elsewhere, so that every
/// bit pattern of codes occurs.
fn weights(format: &Format, rows: usize, k: usize, random: &mut Random) -> Vec<u8> {
    let mut bytes = vec![0u8; rows * format.row_bytes(k).unwrap()];
    let mut values = vec![0f32; format.block_len];
    for block in bytes.chunks_exact_mut(format.block_bytes) {
        loop {
            for b in block.iter_mut() {
                *b = random.next() as u8;
            }
            (format.dequantize)(block, &mut values);
            if values.iter().all(|v| v.is_finite() && v.abs() < 1e6) {
                break;
            }
        }
    }
    bytes
}

/// Activations with blocks that reach ±127, zeros, and ordinary values.
fn activations(m: usize, k: usize, random: &mut Random) -> Vec<f32> {
    let mut x: Vec<f32> = (0..m * k).map(|_| random.float()).collect();
    for (i, block) in x.chunks_mut(32).enumerate() {
        match i % 5 {
            0 => block.iter_mut().for_each(|v| *v = v.signum()),
            3 => block.fill(0.0),
            4 => block.fill(0.75),
            _ => {}
        }
    }
    x
}

fn isas() -> impl Iterator<Item = Isa> {
    Isa::ALL.into_iter().chain([Isa::Model512]).filter(|isa| isa.available())
}

/// What the scalar dot products give, `[m][n]`.
fn oracle(format: &Format, weights: &[u8], n: usize, acts: &QuantizedActs) -> Vec<f32> {
    let row_bytes = weights.len() / n;
    let rows = || weights.chunks_exact(row_bytes);
    (0..acts.m()).flat_map(|t| rows().map(move |w| (format.vec_dot)(w, acts.oracle_row(t)))).collect()
}

fn run(
    kernel: &Kernel,
    w: &[u8],
    rows: Range<usize>,
    acts: &QuantizedActs,
    tokens: Tokens<'_>,
    out: &mut [f32],
    n: usize,
) {
    // SAFETY: `out` is borrowed exclusively.
    unsafe { matmul_rows(kernel, w, rows, acts, tokens, OutView::new(out, n), &mut Scratch::default()) };
}

fn bits(x: &[f32]) -> Vec<u32> {
    x.iter().map(|v| v.to_bits()).collect()
}

#[test]
fn every_format_gives_the_oracles_bits_on_every_isa() {
    for format in FORMATS {
        let random = &mut Random(0x9E37_79B9_7F4A_7C15 ^ u64::from(format.ggml_type));
        // Rows of single values may have any length.
        for (n, k) in [(37, 768), (16, 2304), (3, 256), (35, 1045), (18, 96), (6, 4192)] {
            if k % format.block_len != 0 {
                continue;
            }
            let w = weights(format, n, k, random);
            for m in [1, 2, 3, 4, 5, 7, 8, 17, 64] {
                let x = activations(m, k, random);
                for isa in isas() {
                    let mut acts = QuantizedActs::default();
                    acts.prepare(format.activation, &x, m, k, isa);
                    let want = oracle(format, &w, n, &acts);
                    let kernel = Kernel::for_format(format, isa);
                    let mut got = vec![f32::NAN; m * n];
                    run(&kernel, &w, 0..n, &acts, (0..m).into(), &mut got, n);
                    assert_eq!(
                        bits(&got),
                        bits(&want),
                        "{} on {}, {n} x {k}, {m} tokens",
                        format.name,
                        isa.name()
                    );
                }
            }
        }
    }
}

#[test]
fn any_split_gives_the_same_bits() {
    for format in FORMATS {
        let random = &mut Random(7 + u64::from(format.ggml_type));
        let (n, k, m) = (45, 1280, 9);
        let w = weights(format, n, k, random);
        let x = activations(m, k, random);
        for isa in isas() {
            let mut acts = QuantizedActs::default();
            acts.prepare(format.activation, &x, m, k, isa);
            let kernel = Kernel::for_format(format, isa);
            let mut whole = vec![f32::NAN; m * n];
            run(&kernel, &w, 0..n, &acts, (0..m).into(), &mut whole, n);
            let mut split = vec![f32::NAN; m * n];
            for rows in [0..1, 1..18, 18..45] {
                for tokens in [0..1, 1..6, 6..9] {
                    run(&kernel, &w, rows.clone(), &acts, tokens.into(), &mut split, n);
                }
            }
            assert_eq!(bits(&split), bits(&whole), "{} on {}", format.name, isa.name());
            let list = [8u32, 0, 0, 5, 3, 7];
            let mut gathered = vec![f32::NAN; list.len() * n];
            run(&kernel, &w, 0..n, &acts, Tokens::List(&list), &mut gathered, n);
            for (row, &t) in gathered.chunks_exact(n).zip(&list) {
                assert_eq!(
                    bits(row),
                    bits(&whole[t as usize * n..][..n]),
                    "{} on {}",
                    format.name,
                    isa.name()
                );
            }
        }
    }
}

#[test]
fn activations_are_those_of_the_scalar_quantiser() {
    let random = &mut Random(99);
    for (kind, block, group) in [(Activation::Q8x32, 32, 32), (Activation::Q8x256, 256, 16)] {
        let (m, k) = (3, 1024);
        let mut x = activations(m, k, random);
        x[300] = f32::NAN;
        x[k + 5] = f32::INFINITY;
        x[k + 600] = f32::NEG_INFINITY;
        x[2 * k..2 * k + 256].fill(1e-42);
        for isa in isas() {
            let mut acts = QuantizedActs::default();
            acts.prepare(kind, &x, m, k, isa);
            for (t, row) in x.chunks_exact(k).enumerate() {
                let (mut codes, mut scales, mut sums) =
                    (vec![0; k], vec![0.0; k / block], vec![0; k / group]);
                smelt_quant::activation::quantize_row(row, block, group, &mut codes, &mut scales, &mut sums);
                let (Row::Q8x32 { codes: c, scales: d, sums: s }
                | Row::Q8x256 { codes: c, scales: d, sums: s }) = acts.oracle_row(t)
                else {
                    unreachable!("quantised")
                };
                assert_eq!(c, codes, "{kind:?} on {}", isa.name());
                assert_eq!(s, sums, "{kind:?} on {}", isa.name());
                let same = d
                    .iter()
                    .zip(&scales)
                    .all(|(a, b)| a.to_bits() == b.to_bits() || a.is_nan() && b.is_nan());
                assert!(same, "{kind:?} on {}: {d:?} for {scales:?}", isa.name());
            }
        }
    }
}

#[test]
fn every_format_has_a_kernel_or_is_listed() {
    for format in FORMATS {
        for isa in isas() {
            let accelerated = Kernel::for_format(format, isa).is_accelerated();
            let listed = UNACCELERATED.contains(&format.name);
            assert_ne!(accelerated, listed, "{} on {}", format.name, isa.name());
        }
    }
}
