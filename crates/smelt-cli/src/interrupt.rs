//! Ctrl-C: the first one asks what is running to stop, a second one quits.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context, Result};

use crate::report::INTERRUPTED;

static PRESSED: AtomicBool = AtomicBool::new(false);

/// Takes over Ctrl-C. To be called once, by a command that looks at [`pressed`] often.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if PRESSED.swap(true, Ordering::SeqCst) {
            quit();
        }
    })
    .context("cannot take over Ctrl-C")
}

/// Whether Ctrl-C was pressed.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}

#[expect(clippy::exit, reason = "the person has asked twice, and every file is safe at any time")]
fn quit() -> ! {
    std::process::exit(i32::from(INTERRUPTED))
}
