//! How a pull tells what it is doing.

use std::ops::ControlFlow;
use std::time::Duration;

use crate::error::StoreError;

/// One thing that happened during a pull. Sizes are in bytes.
#[derive(Debug)]
#[non_exhaustive]
pub enum Event<'a> {
    /// Another process is pulling the same model; sent once, then [`Event::Tick`] until it is done.
    WaitingForOther {
        /// The model.
        reference: &'a str,
    },
    /// A source is being tried.
    Source {
        /// The source, as text for people.
        source: &'a str,
    },
    /// A source did not give the model; the next one, if any, is tried.
    SourceFailed {
        /// The source, as text for people.
        source: &'a str,
        /// Why.
        error: &'a StoreError,
    },
    /// Bytes that an earlier pull left are being hashed, so that the download can go on after them.
    Checking {
        /// The file.
        file: &'a str,
        /// How many bytes there are.
        bytes: u64,
    },
    /// A transfer begins.
    Started {
        /// The file.
        file: &'a str,
        /// Its SHA-256 in lower-case hex, if it is known before.
        sha256: Option<&'a str>,
        /// Its whole size, if the source says it.
        total: Option<u64>,
        /// How much of it is here from an earlier attempt.
        resumed: u64,
    },
    /// The transfer that began last has now this many bytes of its file.
    Advanced {
        /// Bytes in all.
        bytes: u64,
    },
    /// An attempt failed in a way that may pass; the next one starts after `delay`.
    Retrying {
        /// Which attempt failed, from 1.
        attempt: u32,
        /// How long is waited.
        delay: Duration,
        /// What went wrong.
        reason: &'a str,
    },
    /// The transfer that began last is complete.
    Finished,
    /// Nothing new, time passes.
    Tick,
}

/// Receives the events of a pull.
pub trait Progress {
    /// Called often, from the thread that pulls. [`ControlFlow::Break`] ends the pull with
    /// [`StoreError::Cancelled`]; what was downloaded stays for the next one.
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()>;
}

/// Watches nothing.
impl Progress for () {
    fn event(&mut self, _event: Event<'_>) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl<F: FnMut(Event<'_>) -> ControlFlow<()>> Progress for F {
    fn event(&mut self, event: Event<'_>) -> ControlFlow<()> {
        self(event)
    }
}

/// Reports `event`, and turns a wish to stop into an error.
pub(crate) fn tell(progress: &mut dyn Progress, event: Event<'_>) -> Result<(), StoreError> {
    match progress.event(event) {
        ControlFlow::Continue(()) => Ok(()),
        ControlFlow::Break(()) => Err(StoreError::Cancelled),
    }
}
