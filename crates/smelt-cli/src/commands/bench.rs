//! `smelt bench`.

use std::path::Path;
use std::time::Duration;

use anyhow::Result;
use clap::value_parser;
use serde::Serialize;
use smelt_checkpoint::Checkpoint;
use smelt_engine::{Engine, Facts, KvFormat, Peaks};

use super::load::{MachineArgs, ModelArg, load};
use crate::context::Context;
use crate::output;
use crate::report::Usage;
use crate::wait;

/// Measure how fast a model runs here
///
/// Times the computing of prompts (pp) and of single tokens (tg), each once to warm up and then several times, and
/// prints mean and standard deviation in tokens per second. For tg also how many gigabytes per second that reads:
/// decoding is bound by memory, so this compares models and formats.
///
/// --json prints what llama.cpp's llama-bench prints with `-o json`, under the same names.
#[derive(Debug, clap::Args)]
#[command(
    allow_negative_numbers = true,
    after_long_help = "Examples:
  smelt bench smollm2:135m -p 512 -n 128 -r 5 -t 2
  smelt bench ./model.gguf -p 128,512,2048 -n 0
  smelt bench ./model.gguf -p 0 -n 64 -d 4096 --json"
)]
pub(crate) struct Args {
    #[command(flatten)]
    model: ModelArg,
    /// Lengths of prompts, separated by commas; 0 for none
    #[arg(short = 'p', long, value_name = "N", default_value = "512", value_delimiter = ',', value_parser = value_parser!(u32).range(..=1 << 24))]
    n_prompt: Vec<u32>,
    /// Numbers of tokens to generate, separated by commas; 0 for none
    #[arg(short = 'n', long, value_name = "N", default_value = "128", value_delimiter = ',', value_parser = value_parser!(u32).range(..=1 << 24))]
    n_gen: Vec<u32>,
    /// Tokens that are in the cache before, separated by commas
    #[arg(short = 'd', long, value_name = "N", default_value = "0", value_delimiter = ',', value_parser = value_parser!(u32).range(..=1 << 24))]
    n_depth: Vec<u32>,
    /// Sequences whose answers are computed together
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = value_parser!(u16).range(1..=512))]
    parallel: u16,
    /// How often each test is timed
    #[arg(short, long, value_name = "N", default_value_t = 5, value_parser = value_parser!(u32).range(1..=10_000))]
    repetitions: u32,
    #[command(flatten)]
    machine: MachineArgs,
    /// Print JSON in llama-bench's form
    #[arg(long, help_heading = "Output")]
    json: bool,
    /// Measure the machine's limits before each test, for --json
    #[arg(long, hide = true)]
    machine_limits: bool,
}

/// One test: a prompt or answers behind `depth` tokens. One of the two counts is 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Test {
    n_prompt: usize,
    n_gen: usize,
    depth: usize,
    /// Sequences with an answer each; 1 for prompts.
    parallel: usize,
}

/// A line of the result: every field of llama-bench (build 11434), under its names and in its order.
#[derive(Debug, Serialize)]
struct Record {
    build_commit: &'static str,
    build_number: u32,
    cpu_info: String,
    gpu_info: &'static str,
    backends: String,
    model_filename: String,
    model_type: String,
    model_size: u64,
    model_n_params: u64,
    n_batch: usize,
    n_ubatch: usize,
    n_threads: usize,
    #[serde(flatten)]
    pinning: Pinning,
    type_k: &'static str,
    type_v: &'static str,
    #[serde(flatten)]
    placement: Placement,
    n_prompt: usize,
    n_gen: usize,
    n_depth: usize,
    test_time: String,
    avg_ns: u64,
    stddev_ns: u64,
    avg_ts: f64,
    stddev_ts: f64,
    samples_ns: Vec<u64>,
    samples_ts: Vec<f64>,
    /// Gigabytes that decoding reads per second; Smelt's own field, absent for prompts.
    #[serde(skip_serializing_if = "Option::is_none")]
    avg_gb_per_s: Option<f64>,
    /// Sequences with an answer each; Smelt's own field.
    n_parallel: usize,
    /// Smelt's own field, with --machine-limits.
    #[serde(skip_serializing_if = "Option::is_none")]
    machine: Option<Limits>,
}

/// What the machine can do at best, with as many threads as the test has.
#[derive(Debug, Serialize)]
struct Limits {
    read_gb_per_s: f64,
    int8_gmac_per_s: f64,
    f32_gmac_per_s: f64,
}

impl Limits {
    fn measure(engine: &mut Engine) -> Result<Option<Self>> {
        let (read, peaks) = (engine.measure_bandwidth()?, engine.measure_peaks());
        Ok(read.zip(peaks).map(|(read_gb_per_s, Peaks { int8_gmac_per_s, f32_gmac_per_s })| Self {
            read_gb_per_s,
            int8_gmac_per_s,
            f32_gmac_per_s,
        }))
    }
}

/// How threads are tied to cores: not at all, and idle ones sleep.
#[derive(Debug, Serialize)]
struct Pinning {
    cpu_mask: &'static str,
    cpu_strict: bool,
    poll: u32,
}

const PINNING: Pinning = Pinning { cpu_mask: "0x0", cpu_strict: false, poll: 0 };

/// Where weights and work go, with llama-bench's words for a machine whose CPU does everything.
#[derive(Debug, Serialize)]
struct Placement {
    n_gpu_layers: i32,
    n_cpu_moe: u32,
    split_mode: &'static str,
    main_gpu: u32,
    no_kv_offload: bool,
    /// 1 is on: attention never holds the scores of all positions at once.
    flash_attn: i32,
    devices: &'static str,
    tensor_split: &'static str,
    tensor_buft_overrides: &'static str,
    load_mode: &'static str,
    lazy_mode: &'static str,
    embeddings: bool,
    no_op_offload: u32,
    no_host: bool,
    /// Whether weights are laid out anew when they are loaded. Here they stay as the file has them.
    repack: bool,
    fit_target: u64,
    fit_min_ctx: u32,
}

const PLACEMENT: Placement = Placement {
    n_gpu_layers: 0,
    n_cpu_moe: 0,
    split_mode: "none",
    main_gpu: 0,
    no_kv_offload: false,
    flash_attn: 1,
    devices: "none",
    tensor_split: "0.00",
    tensor_buft_overrides: "none",
    load_mode: "mmap",
    lazy_mode: "off",
    embeddings: false,
    no_op_offload: 0,
    no_host: false,
    repack: false,
    fit_target: 0,
    fit_min_ctx: 0,
};

pub(crate) fn run(args: &Args, context: &Context) -> Result<()> {
    let tests = tests(args);
    let longest = tests.iter().map(|t| t.depth + t.n_prompt + t.n_gen).max();
    let longest =
        longest.ok_or_else(|| Usage("there is nothing to measure: -p and -n are both 0".to_owned()))?;
    let mut settings = args.machine.settings(Some(longest), KvFormat::F16);
    let parallel = usize::from(args.parallel);
    settings.batch = settings.batch.max(parallel);
    settings.logit_rows = settings.logit_rows.max(parallel);
    let mut engine = load(&args.model, &settings, context)?;
    let model_type = model_type(engine.model().file(), engine.facts())?;
    let mut records = Vec::new();
    for test in tests {
        let test_time = jiff::Timestamp::now().strftime("%Y-%m-%dT%H:%M:%SZ").to_string();
        let machine = if args.machine_limits { Limits::measure(&mut engine)? } else { None };
        let samples = wait::with_spinner(&test.name(), || measure(&mut engine, test, args.repetitions))?;
        let samples_ns: Vec<u64> = samples.iter().map(|t| t.as_nanos() as u64).collect();
        let tokens = (test.n_prompt + test.n_gen * test.parallel) as f64;
        let samples_ts: Vec<f64> = samples.iter().map(|t| tokens / t.as_secs_f64()).collect();
        let (avg_ts, stddev_ts) = mean_and_deviation(&samples_ts);
        let nanoseconds: Vec<f64> = samples_ns.iter().map(|ns| *ns as f64).collect();
        let (avg_ns, stddev_ns) = mean_and_deviation(&nanoseconds);
        let (facts, device) = (engine.facts(), engine.device());
        records.push(Record {
            build_commit: env!("SMELT_COMMIT"),
            // Commits are not counted here.
            build_number: 0,
            cpu_info: device.description,
            gpu_info: "",
            backends: device.name.to_owned(),
            model_filename: engine.model().file().display().to_string(),
            model_type: model_type.clone(),
            model_size: facts.weight_bytes,
            model_n_params: facts.parameters,
            n_batch: settings.batch,
            n_ubatch: settings.batch,
            n_threads: device.threads,
            pinning: PINNING,
            type_k: settings.kv_formats.k.name(),
            type_v: settings.kv_formats.v.name(),
            placement: PLACEMENT,
            n_prompt: test.n_prompt,
            n_gen: test.n_gen,
            n_depth: test.depth,
            test_time,
            avg_ns: avg_ns as u64,
            stddev_ns: stddev_ns as u64,
            avg_ts,
            stddev_ts,
            samples_ns,
            samples_ts,
            avg_gb_per_s: (test.n_gen > 0).then(|| test.bytes_per_token(facts) * avg_ts / 1e9),
            n_parallel: test.parallel,
            machine,
        });
    }
    match args.json {
        true => output::json(&records),
        false => table(&records),
    }
}

/// The tests that the flags ask for, prompts first.
fn tests(args: &Args) -> Vec<Test> {
    let mut tests = Vec::new();
    for &depth in &args.n_depth {
        let depth = depth as usize;
        let parallel = usize::from(args.parallel);
        let prompts =
            args.n_prompt.iter().map(|n| Test { n_prompt: *n as usize, n_gen: 0, depth, parallel: 1 });
        let answers = args.n_gen.iter().map(|n| Test { n_prompt: 0, n_gen: *n as usize, depth, parallel });
        tests.extend(prompts.chain(answers).filter(|t| t.n_prompt + t.n_gen > 0));
    }
    tests
}

impl Test {
    fn name(self) -> String {
        let (kind, n) = if self.n_gen > 0 { ("tg", self.n_gen) } else { ("pp", self.n_prompt) };
        let depth = if self.depth > 0 { format!(" @ d{}", self.depth) } else { String::new() };
        let parallel = if self.parallel > 1 { format!(" x {}", self.parallel) } else { String::new() };
        format!("{kind}{n}{parallel}{depth}")
    }

    /// What decoding a token reads: its share of the weights, and the keys and values of the tokens before, on average.
    fn bytes_per_token(self, facts: &Facts) -> f64 {
        let behind = self.depth as f64 + self.n_gen as f64 / 2.0;
        facts.weight_bytes_per_token as f64 / self.parallel as f64 + facts.kv_bytes_per_token as f64 * behind
    }
}

/// Times a test.
fn measure(engine: &mut Engine, test: Test, repetitions: u32) -> Result<Vec<Duration>> {
    Ok(match test.n_gen {
        0 => engine.time_prefill(test.n_prompt, test.depth, repetitions)?,
        n_gen => engine.time_decode(n_gen, test.depth, test.parallel, repetitions)?,
    })
}

/// Mean and sample standard deviation; the latter is 0 of a single value.
fn mean_and_deviation(values: &[f64]) -> (f64, f64) {
    let n = values.len() as f64;
    let mean = values.iter().sum::<f64>() / n;
    let squares: f64 = values.iter().map(|v| (v - mean).powi(2)).sum();
    (mean, if values.len() > 1 { (squares / (n - 1.0)).sqrt() } else { 0.0 })
}

/// Architecture, size and the format that most bytes are in: "llama 135M Q4_1".
fn model_type(file: &Path, facts: &Facts) -> Result<String> {
    let checkpoint = Checkpoint::open(file)?;
    let mut sizes: Vec<(&str, u64)> = Vec::new();
    for tensor in checkpoint.tensors() {
        match sizes.iter_mut().find(|(name, _)| *name == tensor.format.name) {
            Some((_, size)) => *size += tensor.byte_len as u64,
            None => sizes.push((tensor.format.name, tensor.byte_len as u64)),
        }
    }
    let format = sizes.iter().max_by_key(|(_, size)| *size).map_or("", |(name, _)| name);
    Ok(format!("{} {} {format}", facts.architecture, count(facts.parameters)))
}

/// A number of parameters for people.
fn count(n: u64) -> String {
    let n = n as f64;
    match n {
        1e9.. => format!("{:.2}B", n / 1e9),
        1e6.. => format!("{:.0}M", n / 1e6),
        _ => format!("{:.0}K", n / 1e3),
    }
}

/// A table that is Markdown too.
fn table(records: &[Record]) -> Result<()> {
    let header = ["model", "size", "params", "backend", "threads", "test", "t/s", "GB/s"].map(String::from);
    let rows = records.iter().map(|r| {
        let test = Test { n_prompt: r.n_prompt, n_gen: r.n_gen, depth: r.n_depth, parallel: r.n_parallel };
        [
            r.model_type.clone(),
            output::bytes(r.model_size),
            count(r.model_n_params),
            r.backends.clone(),
            r.n_threads.to_string(),
            test.name(),
            format!("{:.2} ± {:.2}", r.avg_ts, r.stddev_ts),
            r.avg_gb_per_s.map_or(String::new(), |rate| format!("{rate:.2}")),
        ]
    });
    let rows: Vec<[String; 8]> = std::iter::once(header).chain(rows).collect();
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max().unwrap_or(0);
    let widths: [usize; 8] = std::array::from_fn(width);
    // Names to the left, numbers to the right.
    let left = |column: usize| matches!(column, 0 | 3 | 5);
    for (index, row) in rows.iter().enumerate() {
        let cell = |c: usize| {
            let (text, width) = (&row[c], widths[c]);
            if left(c) { format!(" {text:<width$} |") } else { format!(" {text:>width$} |") }
        };
        output::line(format!("|{}", (0..8).map(cell).collect::<String>()))?;
        if index == 0 {
            let rule = |c: usize| match left(c) {
                true => format!(" {} |", "-".repeat(widths[c])),
                false => format!(" {}: |", "-".repeat(widths[c] - 1)),
            };
            output::line(format!("|{}", (0..8).map(rule).collect::<String>()))?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{count, mean_and_deviation};

    #[test]
    fn statistics_are_those_of_a_sample() {
        assert_eq!(mean_and_deviation(&[2.0]), (2.0, 0.0));
        assert_eq!(mean_and_deviation(&[1.0, 2.0, 3.0]), (2.0, 1.0));
    }

    #[test]
    fn parameters_are_counted_for_people() {
        assert_eq!([(134_515_008), 3_210_000_000, 92_000].map(count), ["135M", "3.21B", "92K"]);
    }
}
