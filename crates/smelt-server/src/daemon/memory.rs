//! Who may be loaded at a time.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use smelt_api::{ApiError, Code};

use super::handle::Handle;

/// Bytes that an engine takes.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Need {
    /// Its weights.
    pub(crate) least: u64,
    /// And the keys and values of an answer that fills the context. They are taken as they fill, so that an engine may do
    /// with less, but then there is none beside it.
    pub(crate) usual: u64,
}

/// Memory for all engines together, and who holds how much of it.
#[derive(Debug)]
pub(crate) struct Memory {
    /// Bytes; `None` for any number.
    budget: Option<u64>,
    held: Mutex<Vec<Held>>,
    /// One engine at a time looks for memory.
    turn: tokio::sync::Mutex<()>,
}

#[derive(Debug)]
struct Held {
    engine: Handle,
    bytes: u64,
}

impl Held {
    /// What it counts with: as was estimated, or what it really has if that is more.
    fn taken(&self) -> u64 {
        self.bytes.max(self.engine.process().and_then(resident).unwrap_or(0))
    }
}

/// Bytes of memory that a process has, pages of mapped files among them.
#[cfg(target_os = "linux")]
fn resident(process: u32) -> Option<u64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    kib.checked_mul(1024)
}

#[cfg(not(target_os = "linux"))]
fn resident(_process: u32) -> Option<u64> {
    None
}

/// An engine's part, until it is dropped.
#[derive(Debug)]
pub(super) struct Reservation {
    memory: Arc<Memory>,
    engine: Handle,
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.memory.held().retain(|held| !held.engine.is(&self.engine));
    }
}

impl Memory {
    pub(crate) fn new(budget: Option<u64>) -> Arc<Self> {
        Arc::new(Self { budget, held: Mutex::default(), turn: tokio::sync::Mutex::default() })
    }

    fn held(&self) -> MutexGuard<'_, Vec<Held>> {
        self.held.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A part for an engine. Others that nobody uses go for it, the one that was used least lately first; one
    /// that answers never does.
    ///
    /// # Errors
    /// If there is not so much, or it is in use.
    pub(super) async fn reserve(
        self: &Arc<Self>,
        engine: &Handle,
        need: Need,
    ) -> Result<Reservation, ApiError> {
        let _turn = self.turn.lock().await;
        let budget = self.budget.unwrap_or(u64::MAX);
        if need.least > budget {
            let (least, budget) = (mib(need.least), mib(budget));
            let message = format!(
                "the model's weights are {least} MiB, and there are {budget} for all; raise --memory"
            );
            return Err(ApiError::new(Code::InsufficientMemory, message));
        }
        let bytes = need.usual.min(budget);
        let mut asked: Vec<Handle> = Vec::new();
        loop {
            let least_used = {
                let mut held = self.held();
                let used = held.iter().fold(0_u64, |sum, held| sum.saturating_add(held.taken()));
                if used.saturating_add(bytes) <= budget {
                    held.push(Held { engine: engine.clone(), bytes });
                    return Ok(Reservation { memory: self.clone(), engine: engine.clone() });
                }
                let others = held.iter().map(|held| &held.engine);
                let free = others.filter(|other| !asked.iter().any(|asked| asked.is(other)));
                free.min_by_key(|other| other.last_used()).cloned()
            };
            let Some(other) = least_used else {
                let message = format!(
                    "the model takes {} MiB, and those that are loaded answer; try again",
                    mib(bytes)
                );
                return Err(ApiError::new(Code::InsufficientMemory, message).retry_after(5));
            };
            // Whether it went shows in what is held.
            other.unload().await;
            asked.push(other);
        }
    }
}

/// Bytes in MiB, rounded up.
fn mib(bytes: u64) -> u64 {
    bytes.div_ceil(1 << 20)
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_tells_what_it_has() {
        let before = super::resident(std::process::id()).unwrap();
        let filled = vec![1_u8; 64 << 20];
        let after = super::resident(std::process::id()).unwrap();
        assert!(after >= before + (32 << 20), "{before} {after}");
        drop(std::hint::black_box(filled));
        assert_eq!(super::resident(u32::MAX), None);
    }
}
