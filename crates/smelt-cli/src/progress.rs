//! Shows a pull: bars on a terminal, lines elsewhere, or events as JSON.

use std::io::{self, IsTerminal};
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};
use smelt_store::{Event, Progress, StoreError};

use crate::{interrupt, output};

/// How often a line or a JSON event tells how far a transfer is.
const LINE_EVERY: Duration = Duration::from_secs(10);
const EVENT_EVERY: Duration = Duration::from_millis(200);

/// Shows the events of a pull, and stops it after Ctrl-C.
#[derive(Debug)]
pub(crate) struct Reporter {
    mode: Mode,
    /// The transfer that began last.
    file: String,
    total: Option<u64>,
    told: Instant,
    /// Why the last source failed. It is told when the next one is tried; else the error of the whole pull tells it.
    failure: Option<String>,
}

#[derive(Debug)]
enum Mode {
    Bars(ProgressBar),
    Lines,
    Json,
    Quiet,
}

impl Reporter {
    /// For people; bars if standard error is a terminal.
    pub(crate) fn new(quiet: bool) -> Reporter {
        Reporter::with(match (quiet, io::stderr().is_terminal()) {
            (true, _) => Mode::Quiet,
            (false, true) => Mode::Bars(ProgressBar::hidden()),
            (false, false) => Mode::Lines,
        })
    }

    /// One JSON object per line on standard output.
    pub(crate) fn json() -> Reporter {
        Reporter::with(Mode::Json)
    }

    fn with(mode: Mode) -> Reporter {
        Reporter { mode, file: String::new(), total: None, told: Instant::now(), failure: None }
    }

    /// The error of a pull, without the failures that were told already.
    pub(crate) fn untold(&self, error: StoreError) -> StoreError {
        match (&self.mode, error) {
            (Mode::Bars(_) | Mode::Lines, StoreError::AllSourcesFailed { reference, mut failures }) => {
                failures.drain(..failures.len().saturating_sub(1));
                StoreError::AllSourcesFailed { reference, failures }
            }
            (_, other) => other,
        }
    }

    /// A note: above the bar, or a line.
    fn note(&self, text: &str) {
        let text = &output::plain(text, "\n");
        match &self.mode {
            Mode::Bars(bar) if !bar.is_finished() && !bar.is_hidden() => bar.println(text.as_ref()),
            Mode::Bars(_) | Mode::Lines => {
                use io::Write;
                // A closed standard error is no reason to stop a download.
                let _ = writeln!(io::stderr().lock(), "{text}");
            }
            Mode::Json | Mode::Quiet => {}
        }
    }

    fn start(&mut self, file: &str, total: Option<u64>, resumed: u64) {
        self.file = file.into();
        self.total = total;
        self.told = Instant::now();
        match &mut self.mode {
            Mode::Bars(bar) => {
                bar.finish_and_clear();
                *bar = total.map_or_else(ProgressBar::new_spinner, ProgressBar::new);
                bar.set_style(style(total.is_some()));
                bar.set_message(self.file.clone());
                bar.set_position(resumed);
                // The speed shown is this attempt's.
                bar.reset_eta();
            }
            Mode::Lines => {
                let total = total.map_or(String::new(), |t| format!(", {}", output::bytes(t)));
                let resumed = if resumed > 0 {
                    format!(", {} are here", output::bytes(resumed))
                } else {
                    String::new()
                };
                self.note(&format!("fetching {file}{total}{resumed}"));
            }
            Mode::Json | Mode::Quiet => {}
        }
    }

    fn advance(&mut self, bytes: u64) {
        match &self.mode {
            Mode::Bars(bar) => bar.set_position(bytes),
            Mode::Lines if self.told.elapsed() >= LINE_EVERY => {
                self.told = Instant::now();
                let of = self.total.map_or(String::new(), |t| format!(" of {}", output::bytes(t)));
                self.note(&format!("{}: {}{of}", self.file, output::bytes(bytes)));
            }
            _ => {}
        }
    }

    fn show(&mut self, event: &Event<'_>) {
        match event {
            Event::WaitingForOther { reference } => {
                self.note(&format!("another process is pulling {reference}; waiting for it"));
            }
            Event::Source { source } => {
                if let Some(failure) = self.failure.take() {
                    self.note(&format!("  no luck there: {failure}"));
                }
                self.note(&format!("pulling from {source}"));
            }
            Event::SourceFailed { error, .. } => self.failure = Some(error.to_string()),
            Event::Checking { file, bytes } => {
                self.note(&format!("checking {} of {file} that are here", output::bytes(*bytes)));
            }
            Event::Started { file, total, resumed, .. } => self.start(file, *total, *resumed),
            Event::Advanced { bytes } => self.advance(*bytes),
            Event::Retrying { attempt, delay, reason } => {
                self.note(&format!("  {reason}; attempt {} in {:.1} s", attempt + 1, delay.as_secs_f64()));
            }
            Event::Finished => {
                if let Mode::Bars(bar) = &self.mode {
                    bar.finish_and_clear();
                }
            }
            _ => {}
        }
    }

    /// The event as JSON; nothing for what is only time passing, or came a moment after the last of its kind.
    fn value(&mut self, event: &Event<'_>) -> Option<Value> {
        Some(match event {
            Event::WaitingForOther { reference } => json!({"event": "waiting", "reference": reference}),
            Event::Source { source } => json!({"event": "source", "source": source}),
            Event::SourceFailed { source, error } => {
                json!({"event": "source_failed", "source": source, "error": error.to_string()})
            }
            Event::Checking { file, bytes } => json!({"event": "checking", "file": file, "bytes": bytes}),
            Event::Started { file, total, resumed, .. } => {
                json!({"event": "started", "file": file, "total": total, "resumed": resumed})
            }
            Event::Advanced { bytes } => {
                if self.told.elapsed() < EVENT_EVERY {
                    return None;
                }
                self.told = Instant::now();
                json!({"event": "advanced", "bytes": bytes})
            }
            Event::Retrying { attempt, delay, reason } => {
                let delay = delay.as_secs_f64();
                json!({"event": "retrying", "attempt": attempt, "delay": delay, "reason": reason})
            }
            Event::Finished => json!({"event": "finished"}),
            _ => return None,
        })
    }
}

impl Progress for Reporter {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        match self.mode {
            Mode::Quiet => {}
            Mode::Json => {
                // Without a reader there is nobody to pull for.
                if let Some(value) = self.value(&event)
                    && output::event(&value).is_err()
                {
                    return ControlFlow::Break(());
                }
            }
            _ => self.show(&event),
        }
        if interrupt::pressed() { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

impl Drop for Reporter {
    fn drop(&mut self) {
        if let Mode::Bars(bar) = &self.mode {
            bar.finish_and_clear();
        }
    }
}

fn style(known: bool) -> ProgressStyle {
    let template = match known {
        true => "{msg} [{bar:30}] {decimal_bytes}/{decimal_total_bytes} {decimal_bytes_per_sec} {eta}",
        false => "{msg} {spinner} {decimal_bytes} {decimal_bytes_per_sec}",
    };
    ProgressStyle::with_template(template)
        .unwrap_or_else(|_| ProgressStyle::default_bar())
        .progress_chars("=> ")
}
