//! What became of the requests, as a table beside the bars.

use std::cell::Ref;
use std::collections::BTreeMap;
use std::time::Duration;

use crate::peers::table;

/// How many times as fast as llama.cpp's server Smelt's must be.
const SPEED_BAR: f64 = 1.3;
/// How much memory may grow from the middle to the end.
const GROWTH_BAR: f64 = 1.03;
/// Errors that are shown, of each server.
const SHOWN_ERRORS: usize = 20;

/// What one server did.
#[derive(Default)]
pub(super) struct Tally {
    pub(super) sent: u64,
    /// Answers read to their end.
    pub(super) complete: u64,
    /// Malformed bodies that were refused as such.
    pub(super) refused: u64,
    /// Requests whose client went away as it meant to.
    pub(super) left: u64,
    /// What the server did wrong, and how often.
    errors: BTreeMap<String, u64>,
    /// Tokens of answers that arrived.
    pub(super) tokens: u64,
    /// Under load.
    pub(super) time: Duration,
    /// Seconds from a request to its first text.
    pub(super) first: Vec<f64>,
    /// Seconds between two pieces of text.
    pub(super) between: Vec<f64>,
    /// Bytes of resident memory before the first slice and after each.
    pub(super) resident: Vec<u64>,
}

impl Tally {
    pub(super) fn error(&mut self, error: String) {
        *self.errors.entry(error).or_default() += 1;
    }

    fn errors(&self) -> u64 {
        self.errors.values().sum()
    }

    fn rate(&self) -> f64 {
        self.tokens as f64 / self.time.as_secs_f64()
    }

    /// Resident MiB at the start, in the middle and at the end.
    fn memory(&self) -> Option<[f64; 3]> {
        let mebibytes = |bytes: &u64| *bytes as f64 / f64::from(1 << 20);
        let middle = self.resident.get(self.resident.len() / 2)?;
        Some([self.resident.first()?, middle, self.resident.last()?].map(mebibytes))
    }
}

/// The sample below which a share of `samples` lies; not a number when there is none.
fn quantile(samples: &[f64], share: f64) -> f64 {
    let mut sorted = samples.to_vec();
    sorted.sort_by(f64::total_cmp);
    let index = (share * sorted.len() as f64) as usize;
    sorted.get(index.min(sorted.len().saturating_sub(1))).copied().unwrap_or(f64::NAN)
}

/// Prints the table, the errors and the bars; gives how many bars are missed.
pub(super) fn report(tallies: &[(&'static str, Ref<'_, Tally>)]) -> usize {
    let rows: Vec<_> = tallies.iter().map(|(name, tally)| row(name, tally)).collect();
    let heads = [
        "server",
        "requests",
        "complete",
        "left",
        "refused",
        "errors",
        "tok/s",
        "between tokens p50 / p99, ms",
        "first token p50 / p99, s",
        "memory start / middle / end, MiB",
    ];
    table::print("Load", heads, &rows);
    println!();
    for (name, tally) in tallies {
        for (error, count) in tally.errors.iter().take(SHOWN_ERRORS) {
            println!("- {name}, {count} times: {error}");
        }
    }
    let bars = bars(tallies);
    for (bar, is_met) in &bars {
        println!("- {} {bar}", if *is_met { "met:" } else { "MISSED:" });
    }
    bars.iter().filter(|(_, is_met)| !is_met).count()
}

fn row(name: &str, tally: &Tally) -> [String; 10] {
    let pair = |samples: &[f64], scale: f64, decimals: usize| {
        let [half, most] = [0.5, 0.99].map(|share| quantile(samples, share) * scale);
        format!("{half:.decimals$} / {most:.decimals$}")
    };
    let memory = tally.memory().map(|samples| samples.map(|mebibytes| format!("{mebibytes:.0}")).join(" / "));
    [
        name.to_owned(),
        tally.sent.to_string(),
        tally.complete.to_string(),
        tally.left.to_string(),
        tally.refused.to_string(),
        tally.errors().to_string(),
        format!("{:.0}", tally.rate()),
        pair(&tally.between, 1e3, 1),
        pair(&tally.first, 1.0, 2),
        memory.unwrap_or("-".to_owned()),
    ]
}

/// What must be true of the first server, and whether it is.
fn bars(tallies: &[(&'static str, Ref<'_, Tally>)]) -> Vec<(String, bool)> {
    let Some(((_, ours), others)) = tallies.split_first() else { return Vec::new() };
    let mut bars = vec![("no error that isn't the client's".to_owned(), ours.errors() == 0)];
    if let Some([_, middle, end]) = ours.memory() {
        let growth = end / middle;
        bars.push((format!("memory flat from the middle on: {growth:.3} times"), growth <= GROWTH_BAR));
    }
    for (name, theirs) in others {
        let ratio = ours.rate() / theirs.rate();
        bars.push((format!("{ratio:.2} times the tokens of {name}, of {SPEED_BAR}"), ratio >= SPEED_BAR));
        let [mine, other] = [ours, theirs].map(|tally| quantile(&tally.between, 0.99));
        let text = format!("p99 between tokens {:.1} ms, {name}'s {:.1} ms", mine * 1e3, other * 1e3);
        bars.push((text, mine <= other));
    }
    bars
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_samples() {
        let samples: Vec<f64> = (0..100).rev().map(f64::from).collect();
        assert_eq!(quantile(&samples, 0.5), 50.0);
        assert_eq!(quantile(&samples, 0.99), 99.0);
        assert!(quantile(&[], 0.5).is_nan());
    }
}
