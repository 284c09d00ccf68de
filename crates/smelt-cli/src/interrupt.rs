//! Ctrl-C: the first one asks what is running to stop, a second one quits.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, LazyLock};

use anyhow::{Context, Result};

use crate::report::INTERRUPTED;

static LISTENING: AtomicBool = AtomicBool::new(false);
/// Shared with the engine, which looks at it while it computes.
static PRESSED: LazyLock<Arc<AtomicBool>> = LazyLock::new(Arc::default);

/// Takes over Ctrl-C, once. While there is no [`Listener`] nothing is worth finishing, and it quits at once.
pub(crate) fn install() -> Result<()> {
    ctrlc::set_handler(|| {
        if !LISTENING.load(Ordering::SeqCst) || PRESSED.swap(true, Ordering::SeqCst) {
            quit();
        }
    })
    .context("cannot take over Ctrl-C")
}

/// Whether Ctrl-C was pressed since the last listener began to listen.
pub(crate) fn pressed() -> bool {
    PRESSED.load(Ordering::SeqCst)
}

/// The flag behind [`pressed`].
pub(crate) fn flag() -> Arc<AtomicBool> {
    PRESSED.clone()
}

/// While it lives the first Ctrl-C is only noted, for whoever holds it to look at [`pressed`] often.
#[derive(Debug)]
pub(crate) struct Listener(());

impl Listener {
    pub(crate) fn new() -> Listener {
        PRESSED.store(false, Ordering::SeqCst);
        LISTENING.store(true, Ordering::SeqCst);
        Listener(())
    }

    /// Forgets that Ctrl-C was pressed.
    #[expect(clippy::unused_self, reason = "only who listens may forget")]
    pub(crate) fn renew(&self) {
        PRESSED.store(false, Ordering::SeqCst);
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        LISTENING.store(false, Ordering::SeqCst);
    }
}

#[expect(
    clippy::exit,
    reason = "there is nothing to finish, or the person has asked twice; files are safe at any time"
)]
fn quit() -> ! {
    std::process::exit(i32::from(INTERRUPTED))
}
