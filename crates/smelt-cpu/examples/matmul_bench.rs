//! Speed of the matmul kernels: `cargo run --release -p smelt-cpu --example matmul_bench [ISA] [FORMAT ...]`.
//!
//! For each format, shape and number of threads: decode (one token over more weights than caches hold) in GB/s, and
//! prefill (512 tokens) in GMAC/s. Beside it the read bandwidth of plain memory, which bounds decode.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use smelt_cpu::isa::{Isa, IsaChoice};
use smelt_cpu::matmul::{Kernel, OutView, QuantizedActs, Scratch, matmul_rows};
use smelt_quant::{FORMATS, Format};
use std::time::Instant;

const SHAPES: [(usize, usize); 2] = [(576, 1536), (8192, 2048)];
const PREFILL: usize = 512;
/// Decode walks over at least this many bytes of weights.
const DECODE_BYTES: usize = 256 << 20;

/// Bytes that pass for blocks of any format; speed does not depend on values.
fn noise(n: usize) -> Vec<u8> {
    let mut x = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8 & 0x3B
    };
    let seed: Vec<u8> = (0..1 << 20).map(|_| next()).collect();
    seed.iter().copied().cycle().take(n).collect()
}

/// Best seconds of a few runs.
fn best(runs: usize, mut f: impl FnMut()) -> f64 {
    (0..runs)
        .map(|_| {
            let start = Instant::now();
            f();
            start.elapsed().as_secs_f64()
        })
        .fold(f64::INFINITY, f64::min)
}

/// One matmul split over threads by rows.
#[derive(Clone, Copy)]
struct Case<'a> {
    kernel: &'a Kernel,
    weights: &'a [u8],
    n: usize,
    acts: &'a QuantizedActs,
    threads: usize,
}

impl Case<'_> {
    fn run(self, out: &mut [f32], scratch: &mut [Scratch]) {
        let (m, view) = (self.acts.m(), OutView::new(out, self.n));
        std::thread::scope(|scope| {
            for (i, scratch) in scratch.iter_mut().enumerate().take(self.threads) {
                let share = (self.n / self.threads).next_multiple_of(self.kernel.row_granule());
                let rows = (i * share).min(self.n)..((i + 1) * share).min(self.n);
                scope.spawn(move || {
                    // SAFETY: the threads' rows are disjoint.
                    unsafe {
                        matmul_rows(self.kernel, self.weights, rows, self.acts, (0..m).into(), view, scratch)
                    };
                });
            }
        });
    }
}

/// GB/s of decode over one tall matrix, and GMAC/s of prefill.
fn measure(
    format: &'static Format,
    isa: Isa,
    (n, k): (usize, usize),
    threads: usize,
    bytes: &[u8],
) -> (f64, f64) {
    let kernel = Kernel::for_format(format, isa);
    let row_bytes = format.row_bytes(k).expect("shapes are whole blocks");
    let x: Vec<f32> = (0..PREFILL * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let mut acts = QuantizedActs::default();
    let mut scratch = [Scratch::default(), Scratch::default()];

    acts.prepare(kernel.activation(), &x[..k], 1, k, isa);
    let tall = DECODE_BYTES / row_bytes;
    let mut out = vec![0f32; tall.max(PREFILL * n)];
    let weights = &bytes[..tall * row_bytes];
    let case = Case { kernel: &kernel, weights, n: tall, acts: &acts, threads };
    let decode = best(3, || case.run(&mut out, &mut scratch));

    let mut acts = QuantizedActs::default();
    acts.prepare(kernel.activation(), &x, PREFILL, k, isa);
    let case = Case { kernel: &kernel, weights: &bytes[..n * row_bytes], n, acts: &acts, threads };
    let prefill = best(if n * k > 1 << 22 { 2 } else { 8 }, || case.run(&mut out, &mut scratch));
    (weights.len() as f64 / decode / 1e9, (PREFILL * n * k) as f64 / prefill / 1e9)
}

/// GB/s of reading memory.
fn bandwidth(bytes: &[u8], threads: usize) -> f64 {
    let read = |part: &[u8]| {
        let sum = part.as_chunks::<64>().0.iter().fold([0u64; 8], |mut acc, line| {
            for (a, x) in acc.iter_mut().zip(line.as_chunks::<8>().0) {
                *a = a.wrapping_add(u64::from_le_bytes(*x));
            }
            acc
        });
        std::hint::black_box(sum);
    };
    let seconds = best(3, || {
        std::thread::scope(|scope| {
            for part in bytes.chunks(bytes.len() / threads) {
                scope.spawn(|| read(part));
            }
        });
    });
    bytes.len() as f64 / seconds / 1e9
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let named = args.first().and_then(|a| Isa::ALL.into_iter().find(|isa| isa.name() == a));
    if named.is_some() {
        args.remove(0);
    }
    let choice = named.map_or(IsaChoice::Auto, IsaChoice::Only);
    let isa = Isa::resolve(choice).expect("the CPU has the instruction set");
    let bytes = noise(DECODE_BYTES);
    for threads in [1, 2] {
        println!("read bandwidth, {threads} threads: {:.1} GB/s", bandwidth(&bytes, threads));
    }
    println!("{:<22} {:>12} {:>3} {:>12} {:>16}", "kernel", "shape", "thr", "decode GB/s", "prefill GMAC/s");
    for format in FORMATS {
        if !args.is_empty() && !args.iter().any(|a| a.eq_ignore_ascii_case(format.name)) {
            continue;
        }
        for (n, k) in SHAPES.into_iter().filter(|(_, k)| format.row_bytes(*k).is_some()) {
            for threads in [1, 2] {
                let (decode, prefill) = measure(format, isa, (n, k), threads, &bytes);
                let name = format!("{} {}", format.name, isa.name());
                println!("{name:<22} {n:>5} x {k:>4} {threads:>3} {decode:>12.1} {prefill:>16.1}");
            }
        }
    }
}
