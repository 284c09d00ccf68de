//! Tokens per second of prompts and answers, beside what the machine can do.
//!
//! Programs take turns test by test, and before each run of Smelt the machine's limits are measured: a shared machine's
//! speed changes within minutes, so only what ran at the same time compares. Ratios and shares are therefore formed
//! round by round, and the table shows the medians of those.

use std::fs;
use std::path::Path;

use anyhow::{Context, Result};
use serde::Serialize;

use super::Setup;
use super::models::{Model, Selection, Work};
use super::programs::{self, Limits, Program, Test};
use super::table::{median, print, with_spread};

/// All rounds of one test on one model.
#[derive(Serialize)]
struct Comparison {
    model: String,
    format: String,
    test: Test,
    work: Work,
    rounds: Vec<Round>,
}

/// Tokens per second by the order of [`Program::ALL`]; `None` where a program failed or takes no part.
#[derive(Default, Serialize)]
struct Round {
    limits: Option<Limits>,
    rates: [Option<f64>; Program::ALL.len()],
}

/// What has gone wrong, and what differs from how a program usually runs.
#[derive(Default)]
struct Notes(Vec<String>);

impl Notes {
    fn add(&mut self, note: String) {
        eprintln!("speed: {note}");
        if !self.0.contains(&note) {
            self.0.push(note);
        }
    }
}

/// What is compared.
pub(super) struct Plan<'a> {
    pub(super) selection: &'a Selection,
    pub(super) tests: Vec<&'static Test>,
    pub(super) programs: Vec<Program>,
    pub(super) json: Option<&'a Path>,
}

/// Runs the programs in turn and prints the table.
pub(super) fn compare(setup: &Setup, plan: &Plan<'_>) -> Result<()> {
    let (mut comparisons, mut notes) = (Vec::new(), Notes::default());
    for model in plan.selection.models() {
        let model = model?;
        for test in plan.tests.iter().filter(|test| test.fits(&model)) {
            comparisons.push(compare_one(setup, plan, &model, test, &mut notes));
            // A long run that is interrupted leaves what it has found so far.
            if let Some(path) = plan.json {
                let json = serde_json::to_string_pretty(&comparisons)?;
                fs::write(path, json).with_context(|| format!("can't write {}", path.display()))?;
            }
        }
    }
    let rows: Vec<_> = comparisons.iter().map(row).collect();
    print(
        &format!("Speed, {} threads, median of {} rounds ± half range", setup.threads, setup.rounds),
        [
            "model",
            "format",
            "test",
            "smelt tok/s",
            "llama.cpp tok/s",
            "ik tok/s",
            "÷ llama.cpp",
            "÷ ik",
            "smelt",
            "llama.cpp",
            "ik",
            "machine's limit",
        ],
        &rows,
    );
    println!();
    notes.0.iter().for_each(|note| println!("- {note}"));
    Ok(())
}

fn compare_one(
    setup: &Setup,
    plan: &Plan<'_>,
    model: &Model,
    test: &'static Test,
    notes: &mut Notes,
) -> Comparison {
    let mut failed = [false; Program::ALL.len()];
    let mut ik_attention = true;
    let mut rounds = Vec::new();
    for round in 0..setup.rounds {
        eprintln!("speed: {} {} {} round {}", model.name, model.format, test.name, round + 1);
        let mut results = Round::default();
        // Another one begins each round, so that a machine that grows warm or busy treats all alike.
        for turn in 0..Program::ALL.len() {
            let index = (turn + round as usize) % Program::ALL.len();
            let program = Program::ALL[index];
            if failed[index] || !plan.programs.contains(&program) {
                continue;
            }
            let run = |attention| programs::run(setup, program, model, test, attention);
            let mut outcome = run(ik_attention);
            let place = format!("at {} of {} {}", test.name, model.name, model.format);
            if program == Program::Ik && outcome.is_err() && ik_attention {
                ik_attention = false;
                outcome = run(false);
                if outcome.is_ok() {
                    notes.add(format!("ik's flash attention fails {place}: measured without it"));
                }
            }
            match outcome {
                Ok(outcome) => {
                    results.rates[index] = Some(outcome.rate);
                    results.limits = results.limits.or(outcome.limits);
                }
                Err(error) => {
                    failed[index] = true;
                    eprintln!("{error:#}");
                    notes.add(format!("{} does not run {place}: {}", program.name(), first_line(&error)));
                }
            }
        }
        rounds.push(results);
    }
    let (name, format) = (model.name.clone(), model.format.clone());
    Comparison { model: name, format, test: *test, work: model.work, rounds }
}

/// An error's first line without the command, which is long.
fn first_line(error: &anyhow::Error) -> String {
    let text = format!("{error:#}");
    let line = text.lines().next().unwrap_or_default();
    line.rsplit_once(" failed: ").map_or(line, |(_, reason)| reason).to_owned()
}

impl Comparison {
    /// Tokens per second of each round in which the program ran.
    fn rates(&self, program: usize) -> Vec<f64> {
        self.rounds.iter().filter_map(|round| round.rates[program]).collect()
    }

    /// How many times as fast as another program the first one, Smelt, is.
    fn ratio(&self, other: usize) -> Option<f64> {
        let ratios: Vec<f64> =
            self.rounds.iter().filter_map(|round| Some(round.rates[0]? / round.rates[other]?)).collect();
        (!ratios.is_empty()).then(|| median(&ratios))
    }

    /// What a token per second is in the unit of the limit: GB/s for answers, GMAC/s for prompts.
    fn unit_per_token(&self) -> f64 {
        match self.test.n_prompt {
            0 => self.work.bytes_per_step(self.test.sequences) / f64::from(self.test.sequences) / 1e9,
            _ => self.work.gmac_per_prompt_token(),
        }
    }

    fn limit(&self, limits: &Limits) -> f64 {
        match (self.test.n_prompt, self.work.is_float) {
            (0, _) => limits.read_gb_per_s,
            (_, true) => limits.f32_gmac_per_s,
            (_, false) => limits.int8_gmac_per_s,
        }
    }

    /// A program's rate in the limit's unit, and its share of the limit.
    fn share(&self, program: usize) -> String {
        let rates = self.rates(program);
        if rates.is_empty() {
            return "-".to_owned();
        }
        let rate = median(&rates) * self.unit_per_token();
        let shares: Vec<f64> = self
            .rounds
            .iter()
            .filter_map(|round| {
                Some(round.rates[program]? * self.unit_per_token() / self.limit(&round.limits?) * 100.0)
            })
            .collect();
        match shares.is_empty() {
            true => format!("{rate:.1}"),
            false => format!("{rate:.1} = {:.0} %", median(&shares)),
        }
    }
}

fn row(comparison: &Comparison) -> [String; 12] {
    let rate = |program| match comparison.rates(program) {
        rates if rates.is_empty() => "-".to_owned(),
        rates => with_spread(&rates, 1),
    };
    let ratio = |program| comparison.ratio(program).map_or("-".to_owned(), |ratio| format!("{ratio:.2}"));
    let limits: Vec<f64> = comparison
        .rounds
        .iter()
        .filter_map(|round| round.limits.as_ref())
        .map(|limits| comparison.limit(limits))
        .collect();
    let unit = if comparison.test.n_prompt == 0 { "GB/s" } else { "GMAC/s" };
    let limit = if limits.is_empty() { unit.to_owned() } else { format!("{:.1} {unit}", median(&limits)) };
    [
        comparison.model.clone(),
        comparison.format.clone(),
        comparison.test.name.to_owned(),
        rate(0),
        rate(1),
        rate(2),
        ratio(1),
        ratio(2),
        comparison.share(0),
        comparison.share(1),
        comparison.share(2),
        limit,
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ratios_are_formed_round_by_round() {
        let limits =
            |read_gb_per_s| Some(Limits { read_gb_per_s, int8_gmac_per_s: 1.0, f32_gmac_per_s: 1.0 });
        let rounds = vec![
            Round { limits: limits(10.0), rates: [Some(2.0), Some(1.0), None] },
            Round { limits: limits(40.0), rates: [Some(9.0), Some(3.0), None] },
            Round { limits: limits(20.0), rates: [Some(4.0), None, None] },
        ];
        let test = *programs::TESTS.iter().find(|test| test.name == "tg64").expect("it is in the list");
        let (model, format) = (String::new(), String::new());
        let comparison = Comparison { model, format, test, work: Work::default(), rounds };
        assert_eq!(comparison.ratio(1), Some(2.5));
        assert_eq!(comparison.ratio(2), None);
        assert_eq!(comparison.share(2), "-");
        assert_eq!(comparison.rates(0), [2.0, 9.0, 4.0]);
    }

    #[test]
    fn errors_are_cut_to_their_reason() {
        let error = anyhow::anyhow!("/a/python ik_bench.py failed: signal: 4 (SIGILL)\nlong text");
        assert_eq!(first_line(&error), "signal: 4 (SIGILL)");
    }
}
