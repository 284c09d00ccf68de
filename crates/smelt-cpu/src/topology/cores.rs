//! The affinity mask and the physical cores in it.

use std::collections::BTreeSet;
use std::path::Path;

/// The CPUs that the calling thread may run on, ascending; CPU 0 alone if the system doesn't say.
#[cfg(target_os = "linux")]
pub(super) fn affinity() -> Vec<usize> {
    const BITS: usize = u64::BITS as usize;
    // The kernel refuses a mask smaller than its own, so grow until it fits.
    for words in [16, 128, 1024] {
        let mut mask = vec![0u64; words];
        // SAFETY: `mask` is `size_of_val(&mask)` writable bytes, and pid 0 is the calling thread.
        let ok = unsafe {
            libc::sched_getaffinity(
                0,
                size_of_val(mask.as_slice()),
                mask.as_mut_ptr().cast::<libc::cpu_set_t>(),
            )
        };
        if ok == 0 {
            let set = |cpu: &usize| mask[cpu / BITS] >> (cpu % BITS) & 1 == 1;
            return (0..words * BITS).filter(set).collect();
        }
    }
    vec![0]
}

/// The CPUs that the process may run on.
#[cfg(not(target_os = "linux"))]
pub(super) fn affinity() -> Vec<usize> {
    (0..std::thread::available_parallelism().map_or(1, usize::from)).collect()
}

/// Distinct physical cores among `cpus`. A CPU whose files are missing counts as a core of its own.
pub(super) fn physical_cores(root: &Path, cpus: &[usize]) -> usize {
    let core = |cpu: &usize| {
        let dir = root.join(format!("sys/devices/system/cpu/cpu{cpu}/topology"));
        let first = |name| {
            let text = std::fs::read_to_string(dir.join(name)).ok()?;
            first_cpu(&text)
        };
        first("core_cpus_list").or_else(|| first("thread_siblings_list")).unwrap_or(*cpu)
    };
    cpus.iter().map(core).collect::<BTreeSet<_>>().len()
}

/// The lowest CPU of a list like `0-1,64-65`, which names a core; `None` if the text is no such list.
fn first_cpu(list: &str) -> Option<usize> {
    list.trim().split([',', '-']).next()?.parse().ok()
}
