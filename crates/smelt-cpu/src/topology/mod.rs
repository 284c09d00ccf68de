//! How many threads to use, and why.
//!
//! One thread per physical core: decoding is bound by memory bandwidth and the integer kernels fill a core's vector
//! units, so SMT siblings only add contention. Cores that the affinity mask excludes don't count, and a container's CPU
//! quota caps the number: a thread more than the quota allows makes every barrier wait for the throttled one.

mod cgroup;
mod cores;
mod nodes;

pub use nodes::{Node, nodes};
pub(crate) use nodes::{current_cpu, interleave_thread, prefer};

use std::path::{Path, PathBuf};

/// The number of threads, with the reason as text for logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ThreadPlan {
    /// Threads, the caller's included; at least 1.
    pub threads: usize,
    /// Whether the threads may not all run at once, so that waiting must not burn time.
    pub oversubscribed: bool,
    /// E.g. `2 physical cores, affinity allows 2 CPUs, no cgroup quota`.
    pub reason: String,
}

/// Where `/proc` and `/sys` are looked up, and which CPUs this process may use. Tests give a fixture tree.
#[derive(Debug, Clone)]
pub struct System {
    root: PathBuf,
    affinity: Vec<usize>,
}

impl System {
    /// This machine, with the calling thread's affinity mask (a cpuset cgroup is already part of it).
    #[must_use]
    pub fn this_machine() -> Self {
        Self { root: PathBuf::from("/"), affinity: cores::affinity() }
    }

    /// The machine that the files below `root` describe, limited to the CPUs in `affinity`.
    #[must_use]
    pub fn at(root: &Path, affinity: Vec<usize>) -> Self {
        Self { root: root.to_owned(), affinity }
    }
}

impl System {
    /// Bytes of memory that this process may come to use: the machine's, or what its control groups allow; `None` where
    /// the system doesn't tell.
    #[must_use]
    pub fn memory(&self) -> Option<u64> {
        let text = std::fs::read_to_string(self.root.join("proc/meminfo")).ok()?;
        let line = text.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
        let total = line.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)?;
        Some(cgroup::memory_limit(&self.root).map_or(total, |limit| limit.min(total)))
    }
}

impl ThreadPlan {
    /// One thread per physical core that the affinity mask allows, at most the cgroup quota (rounded up).
    #[must_use]
    pub fn choose(system: &System) -> Self {
        let cores = cores::physical_cores(&system.root, &system.affinity).max(1);
        let quota = cgroup::cpu_quota(&system.root);
        let allowed = quota.as_ref().map_or(usize::MAX, |q| (q.cpus.ceil() as usize).max(1));
        let threads = cores.min(allowed);
        let quota_text = match &quota {
            None => "no cgroup quota".into(),
            Some(q) => format!("cgroup quota {:.2} CPUs ({})", q.cpus, q.file),
        };
        Self {
            threads,
            oversubscribed: quota.is_some_and(|q| q.cpus < threads as f64),
            reason: format!(
                "{}, affinity allows {}, {quota_text}",
                count(cores, "physical core"),
                count(system.affinity.len(), "CPU")
            ),
        }
    }

    /// What the user asked for; more threads than [`ThreadPlan::choose`] finds are over-subscribed.
    #[must_use]
    pub fn fixed(threads: usize, system: &System) -> Self {
        let chosen = Self::choose(system);
        Self {
            threads,
            oversubscribed: threads > chosen.threads || (chosen.oversubscribed && threads == chosen.threads),
            reason: "as asked".into(),
        }
    }
}

fn count(n: usize, what: &str) -> String {
    if n == 1 { format!("1 {what}") } else { format!("{n} {what}s") }
}
