//! Progress of things that take longer than a person likes to wait without a word. On stderr, on a terminal only.

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use std::io::IsTerminal;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// How long nothing is said.
const PATIENCE: Duration = Duration::from_secs(1);
const TICK: Duration = Duration::from_millis(100);

/// Does `work`; a spinner says `what` if it takes long.
pub(crate) fn with_spinner<T>(what: &str, work: impl FnOnce() -> T) -> T {
    if !std::io::stderr().is_terminal() {
        return work();
    }
    let (done, finished) = mpsc::channel::<()>();
    std::thread::scope(|scope| {
        scope.spawn(move || {
            if finished.recv_timeout(PATIENCE) == Err(mpsc::RecvTimeoutError::Timeout) {
                let spinner = ProgressBar::new_spinner().with_message(what.to_owned());
                spinner.enable_steady_tick(TICK);
                // The other end hangs up when the work is done, or has panicked.
                finished.recv().unwrap_or_default();
                spinner.finish_and_clear();
            }
        });
        let result = work();
        drop(done);
        result
    })
}

/// A bar that appears once a job turns out to be long.
#[derive(Debug)]
pub(crate) struct Bar {
    start: Instant,
    unit: &'static str,
    bar: Option<ProgressBar>,
}

impl Bar {
    /// A bar for `unit`s; its message stands behind the counts.
    pub(crate) fn new(unit: &'static str) -> Self {
        Self { start: Instant::now(), unit, bar: None }
    }

    /// Shows that `done` of `total` are done.
    pub(crate) fn update(&mut self, done: usize, total: usize, message: impl FnOnce() -> String) {
        if self.bar.is_none() && done < total && self.start.elapsed() > PATIENCE {
            let bar = ProgressBar::with_draw_target(Some(total as u64), ProgressDrawTarget::stderr());
            let template = format!("{{bar:30}} {{pos}}/{{len}} {} {{msg}} {{eta}} left", self.unit);
            if let Ok(style) = ProgressStyle::with_template(&template) {
                bar.set_style(style);
            }
            self.bar = Some(bar);
        }
        if let Some(bar) = &self.bar {
            bar.set_message(message());
            bar.set_position(done as u64);
        }
    }

    /// Removes the bar from the screen.
    pub(crate) fn clear(&mut self) {
        if let Some(bar) = self.bar.take() {
            bar.finish_and_clear();
        }
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.clear();
    }
}
