//! The memory nodes (NUMA) of the machine, and where the system is asked to put pages.

use super::System;
use std::io;

/// A memory node and its CPUs, ascending.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Node {
    /// The system's number of it.
    pub id: usize,
    /// Its CPUs that this process may run on.
    pub cpus: Vec<usize>,
}

/// Nodes with at least one CPU that the process may run on, in the order of their numbers; one of all CPUs where the
/// system tells none.
#[must_use]
pub fn nodes(system: &System) -> Vec<Node> {
    let dir = system.root.join("sys/devices/system/node");
    let names = std::fs::read_dir(&dir).into_iter().flatten().flatten();
    let node = |name: std::ffi::OsString| {
        let id = name.to_str()?.strip_prefix("node")?.parse().ok().filter(|id| *id < MAX_NODES)?;
        let list = std::fs::read_to_string(dir.join(name).join("cpulist")).ok()?;
        let ranges = cpu_ranges(&list);
        let cpus = system.affinity.iter().copied().filter(|cpu| ranges.iter().any(|r| r.contains(cpu)));
        Some(Node { id, cpus: cpus.collect() }).filter(|node| !node.cpus.is_empty())
    };
    let mut nodes: Vec<Node> = names.filter_map(|entry| node(entry.file_name())).collect();
    nodes.sort_by_key(|node| node.id);
    if nodes.is_empty() {
        nodes.push(Node { id: 0, cpus: system.affinity.clone() });
    }
    nodes
}

/// The ranges of a list like `0-3,8`; what is no range is left out.
fn cpu_ranges(list: &str) -> Vec<std::ops::RangeInclusive<usize>> {
    let range = |item: &str| {
        let (first, last) = item.split_once('-').unwrap_or((item, item));
        Some(first.parse().ok()?..=last.parse().ok()?)
    };
    list.trim().split(',').filter_map(range).collect()
}

/// More nodes than any machine has.
const MAX_NODES: usize = 1024;

/// The nodes as the system calls take them: a bit each.
#[cfg(target_os = "linux")]
fn mask(nodes: &[Node]) -> [libc::c_ulong; MAX_NODES / BITS] {
    let mut mask = [0; MAX_NODES / BITS];
    nodes.iter().for_each(|node| mask[node.id / BITS] |= 1 << (node.id % BITS));
    mask
}
#[cfg(target_os = "linux")]
const BITS: usize = libc::c_ulong::BITS as usize;

/// From now on the calling thread's new pages, those of files that it reads first among them, go to all nodes in turn.
#[cfg(target_os = "linux")]
pub(crate) fn interleave_thread(nodes: &[Node]) -> io::Result<()> {
    let mask = mask(nodes);
    // SAFETY: the call reads `MAX_NODES` bits of `mask`; the kernel takes their number plus one.
    let result = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, libc::MPOL_INTERLEAVE, mask.as_ptr(), MAX_NODES + 1)
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// Pages of `memory`, none of which was touched yet, go to `node` while that has room.
#[cfg(target_os = "linux")]
pub(crate) fn prefer(memory: &mut [u8], node: &Node) -> io::Result<()> {
    let mask = mask(std::slice::from_ref(node));
    // SAFETY: the memory is a whole map that the caller owns, and where its pages lie changes no value; the call reads
    // `MAX_NODES` bits of `mask`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_mbind,
            memory.as_mut_ptr(),
            memory.len(),
            libc::MPOL_PREFERRED,
            mask.as_ptr(),
            MAX_NODES + 1,
            0,
        )
    };
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The CPU that the calling thread is on right now.
#[cfg(target_os = "linux")]
pub(crate) fn current_cpu() -> usize {
    // SAFETY: it takes nothing; where the kernel lacks it, it gives −1.
    usize::try_from(unsafe { libc::sched_getcpu() }).unwrap_or(0)
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn interleave_thread(_: &[Node]) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn prefer(_: &mut [u8], _: &Node) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn current_cpu() -> usize {
    0
}
