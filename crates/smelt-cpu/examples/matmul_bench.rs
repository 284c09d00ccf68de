//! Speed of the matmul kernels: `cargo run --release -p smelt-cpu --example matmul_bench [ISA] [decode] [FORMAT ...] [NxK ...]`.
//! With `decode` prefill is left out; other shapes than the usual ones are given as output rows times values a row.
//!
//! For each format, shape and number of threads: decode (one token over weights in a cache, then one and eight over more
//! weights than caches hold) in GB/s, and prefill (512 tokens) in GMAC/s, each as the median and the best tenth of short slices.
//! Beside it what bounds them: the read bandwidth of plain memory, and the rate of products in registers.

#![allow(clippy::print_stdout, reason = "a benchmark prints")]
#![expect(unsafe_code, reason = "threads write disjoint rows of one result")]

use smelt_cpu::isa::{Isa, IsaChoice};
use smelt_cpu::matmul::{Kernel, OutView, QuantizedActs, Scratch, matmul_rows};
use smelt_cpu::{Cpu, CpuSettings};
use smelt_quant::{FORMATS, Format};
use std::time::Instant;

const SHAPES: &[(usize, usize)] = &[(576, 1536), (2048, 8192)];
const PREFILL: usize = 512;
/// Decode walks over at least this many bytes of weights.
const DECODE_BYTES: usize = 256 << 20;
/// What a second-level cache holds of them.
const CACHED_BYTES: usize = 192 << 10;
/// How often decode walks over those.
const CACHED_TURNS: usize = 100;

/// Bytes that pass for blocks of any format, with scales that are neither infinite nor denormal: of other values speed does not
/// depend.
fn noise(n: usize) -> Vec<u8> {
    let mut x = 0x2545_F491_4F6C_DD1Du64;
    let mut next = || {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
        x as u8 & 0x3B | 0x40
    };
    let seed: Vec<u8> = (0..1 << 20).map(|_| next()).collect();
    seed.iter().copied().cycle().take(n).collect()
}

/// Amounts a second, a thread: the median and the best tenth of many short slices. Other work on the machine slows
/// some slices and not others, so the best tenth is the kernel's own speed, and the median what it gets here now.
#[derive(Clone, Copy, Default)]
struct Rate {
    median: f64,
    best: f64,
}

impl Rate {
    fn of(mut per_second: Vec<f64>) -> Self {
        per_second.sort_by(f64::total_cmp);
        let at = |part: f64| per_second[((per_second.len() - 1) as f64 * part) as usize];
        Self { median: at(0.5), best: at(0.9) }
    }
}

impl std::iter::Sum for Rate {
    fn sum<I: Iterator<Item = Self>>(rates: I) -> Self {
        rates.fold(Self::default(), |a, b| Self { median: a.median + b.median, best: a.best + b.best })
    }
}

/// Runs `slice(i)` for every thread's share of `0..slices` and adds the threads' rates; it returns the amount of work.
fn rate(threads: usize, slices: usize, slice: impl Fn(usize, &mut Scratch) -> f64 + Sync) -> Rate {
    let share = slices / threads;
    let run = |thread: usize| {
        let mut scratch = Scratch::default();
        let timed = |i: usize| {
            let start = Instant::now();
            let amount = slice(i, &mut scratch);
            amount / start.elapsed().as_secs_f64()
        };
        Rate::of((thread * share..(thread + 1) * share).map(timed).collect())
    };
    std::thread::scope(|scope| {
        let run = &run;
        let workers: Vec<_> = (0..threads).map(|t| scope.spawn(move || run(t))).collect();
        workers.into_iter().map(|w| w.join().expect("no panics")).sum()
    })
}

/// GB/s of decode of one token and of eight over one tall matrix, and GMAC/s of prefill.
fn measure(
    format: &'static Format,
    isa: Isa,
    (n, k): (usize, usize),
    threads: usize,
    bytes: &[u8],
    prefill: bool,
) -> [Rate; 4] {
    let kernel = Kernel::for_format(format, isa);
    let row_bytes = format.row_bytes(k).expect("shapes are whole blocks");
    let x: Vec<f32> = (0..PREFILL * k).map(|i| ((i * 37 % 101) as f32 - 50.0) / 50.0).collect();
    let run = |m: usize, n: usize, step: usize, scale: f64| {
        let mut acts = QuantizedActs::default();
        acts.prepare(kernel.activation(), &x[..m * k], m, k, isa);
        let weights = &bytes[..n * row_bytes];
        let mut out = vec![0f32; m * n];
        let view = OutView::new(&mut out, n);
        rate(threads, n / step, |i, scratch| {
            let rows = i * step..(i + 1) * step;
            // SAFETY: slices are disjoint rows.
            unsafe { matmul_rows(&kernel, weights, rows, &acts, (0..m).into(), view, scratch) };
            step as f64 * scale / 1e9
        })
    };
    let granule = kernel.row_granule(PREFILL);
    let tall = DECODE_BYTES / row_bytes / granule * granule;
    let decode = |m: usize| run(m, tall, 16 * granule, row_bytes as f64);
    let cached = {
        let short = (CACHED_BYTES / row_bytes).max(granule) / granule * granule;
        let mut acts = QuantizedActs::default();
        acts.prepare(kernel.activation(), &x[..k], 1, k, isa);
        rate(threads, threads * CACHED_TURNS, |_, scratch| {
            let mut out = vec![0f32; short];
            let view = OutView::new(&mut out, short);
            // SAFETY: the result is this call's own.
            unsafe { matmul_rows(&kernel, bytes, 0..short, &acts, (0..1).into(), view, scratch) };
            (short * row_bytes) as f64 / 1e9
        })
    };
    let many = if prefill { run(PREFILL, n, granule, (PREFILL * k) as f64) } else { Rate::default() };
    [cached, decode(1), decode(8), many]
}

/// GB/s of reading memory.
fn bandwidth(bytes: &[u8], threads: usize) -> Rate {
    let parts: Vec<&[u8]> = bytes.chunks_exact(1 << 18).collect();
    rate(threads, parts.len(), |i, _| {
        let mut sum = [0u64; 8];
        for line in parts[i].as_chunks::<64>().0 {
            for j in 0..8 {
                sum[j] ^= u64::from_le_bytes(*line[8 * j..].first_chunk().expect("a word"));
            }
        }
        std::hint::black_box(sum);
        parts[i].len() as f64 / 1e9
    })
}

fn main() {
    let mut args: Vec<String> = std::env::args().skip(1).collect();
    let named = args.first().and_then(|a| Isa::ALL.into_iter().find(|isa| isa.name() == a));
    if named.is_some() {
        args.remove(0);
    }
    let prefill = args.first().is_none_or(|a| a != "decode");
    if !prefill {
        args.remove(0);
    }
    let shape = |a: &String| a.split_once('x').and_then(|(n, k)| Some((n.parse().ok()?, k.parse().ok()?)));
    let mut shapes: Vec<(usize, usize)> = args.iter().filter_map(shape).collect();
    args.retain(|a| shape(a).is_none());
    if shapes.is_empty() {
        shapes.extend(SHAPES);
    }
    let choice = named.map_or(IsaChoice::Auto, IsaChoice::Only);
    let isa = Isa::resolve(choice).expect("the CPU has the instruction set");
    let bytes = noise(DECODE_BYTES);
    for threads in [1, 2] {
        let Rate { median, best } = bandwidth(&bytes, threads);
        let settings =
            CpuSettings { threads: Some(threads), isa: IsaChoice::Only(isa), ..CpuSettings::default() };
        let peaks = Cpu::new(settings).expect("this CPU runs it").measure_peaks();
        println!(
            "{threads} threads: read bandwidth median {median:.1}, best tenth {best:.1} GB/s; products in registers {:.0} \
             GMAC/s of bytes, {:.0} of floats",
            peaks.int8_gmac_per_s, peaks.f32_gmac_per_s
        );
    }
    println!(
        "{:<22} {:>12} {:>3} {:>16} {:>16} {:>16} {:>18}",
        "kernel", "shape", "thr", "in cache GB/s", "decode GB/s", "8 tokens GB/s", "prefill GMAC/s"
    );
    for format in FORMATS {
        if !args.is_empty() && !args.iter().any(|a| a.eq_ignore_ascii_case(format.name)) {
            continue;
        }
        for (n, k) in shapes.iter().copied().filter(|(_, k)| format.row_bytes(*k).is_some()) {
            for threads in [1, 2] {
                let [c, d, e, p] = measure(format, isa, (n, k), threads, &bytes, prefill);
                let name = format!("{} {}", format.name, isa.name());
                println!(
                    "{name:<22} {n:>5} x {k:>4} {threads:>3} {:>8.1} {:>7.1} {:>8.1} {:>7.1} {:>8.1} {:>7.1} {:>10.1} {:>7.1}",
                    c.median, c.best, d.median, d.best, e.median, e.best, p.median, p.best
                );
            }
        }
    }
}
