//! The CPU quota and the memory limit of the control groups that this process is in, versions 1 and 2.
//!
//! A limit at any ancestor binds, so every directory from the process's own group up to the mount's root is read and
//! the smallest wins. A container often sees a mount whose root is its own group while `/proc/self/cgroup` shows the
//! path from the host's root (or `/`, in a cgroup namespace): `mountinfo` says which part of the path the mount holds.

use std::path::{Component, Path, PathBuf};

/// The smallest quota found.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Quota {
    /// CPU time per wall-clock time.
    pub(super) cpus: f64,
    /// The file that sets it, for the reason.
    pub(super) file: String,
}

/// One mounted hierarchy.
struct Mount {
    version: Version,
    /// The group that the mount point shows.
    root: PathBuf,
    point: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Version {
    V1,
    V2,
}

/// The smallest CPU quota of this process's groups and their ancestors; `None` if none is set. Files that are missing
/// or malformed set none.
pub(super) fn cpu_quota(system_root: &Path) -> Option<Quota> {
    let quotas = limits(system_root, "cpu", |dir, version| {
        let (cpus, file) = read_quota(system_root, dir, version)?;
        Some(Quota { cpus, file: Path::new("/").join(file).display().to_string() })
    });
    quotas.into_iter().min_by(|a, b| a.cpus.total_cmp(&b.cpus))
}

/// The smallest limit to memory in bytes, likewise.
pub(super) fn memory_limit(system_root: &Path) -> Option<u64> {
    let limits = limits(system_root, "memory", |dir, version| {
        let name = match version {
            Version::V2 => "memory.max",
            Version::V1 => "memory.limit_in_bytes",
        };
        // "max" is no number; version 1 writes a huge one, which the machine's own memory is less than.
        std::fs::read_to_string(system_root.join(dir).join(name)).ok()?.trim().parse::<u64>().ok()
    });
    limits.into_iter().min()
}

/// What `read` finds in the directories of this process's groups and their ancestors, for one of version 1's controllers.
fn limits<T>(system_root: &Path, controller: &str, read: impl Fn(&Path, Version) -> Option<T>) -> Vec<T> {
    let text = |name: &str| std::fs::read_to_string(system_root.join(name)).unwrap_or_default();
    let groups = text("proc/self/cgroup");
    let mounts = text("proc/self/mountinfo");
    let mut found = Vec::new();
    for mount in mounts.lines().filter_map(|line| parse_mount(line, controller)) {
        let group = groups.lines().find_map(|line| group_path(line, mount.version, controller));
        let dirs = group.map_or_else(Vec::new, |group| group_dirs(&mount, &group));
        found.extend(dirs.iter().filter_map(|dir| read(dir, mount.version)));
    }
    found
}

/// A line of `mountinfo`: `36 35 0:30 <root> <point> <options> [tags] - <type> <source> <super options>`.
fn parse_mount(line: &str, controller: &str) -> Option<Mount> {
    let (before, after) = line.split_once(" - ")?;
    let before: Vec<&str> = before.split(' ').collect();
    let after: Vec<&str> = after.split(' ').collect();
    let version = match *after.first()? {
        "cgroup2" => Version::V2,
        "cgroup" if after.get(2)?.split(',').any(|option| option == controller) => Version::V1,
        _ => return None,
    };
    Some(Mount { version, root: before.get(3)?.into(), point: before.get(4)?.into() })
}

/// The path in a line `<id>:<controllers>:<path>` of `/proc/self/cgroup`, if it is of the hierarchy wanted.
fn group_path(line: &str, version: Version, controller: &str) -> Option<PathBuf> {
    let mut fields = line.splitn(3, ':');
    let (_, controllers, path) = (fields.next()?, fields.next()?, fields.next()?);
    let wanted = match version {
        Version::V2 => controllers.is_empty(),
        Version::V1 => controllers.split(',').any(|c| c == controller),
    };
    wanted.then(|| path.into())
}

/// The directories from the process's group up to the mount point.
fn group_dirs(mount: &Mount, group: &Path) -> Vec<PathBuf> {
    let inside =
        group.strip_prefix(&mount.root).or_else(|_| group.strip_prefix("/")).unwrap_or(Path::new(""));
    // A group outside the namespace's root shows as `/../..`: nothing below the mount point is known to be ours.
    let climbs = inside.components().any(|c| c == Component::ParentDir);
    let inside = if climbs { Path::new("") } else { inside };
    let point = mount.point.strip_prefix("/").unwrap_or(&mount.point);
    inside.ancestors().map(|group| point.join(group)).collect()
}

fn read_quota(system_root: &Path, dir: &Path, version: Version) -> Option<(f64, PathBuf)> {
    let read = |file: &Path| std::fs::read_to_string(system_root.join(file)).ok();
    let (quota, period, file) = match version {
        Version::V2 => {
            let file = dir.join("cpu.max");
            let text = read(&file)?;
            let mut fields = text.split_whitespace();
            let quota = fields.next()?.parse::<i64>().ok()?;
            (quota, fields.next().map_or(Some(100_000), |p| p.parse().ok())?, file)
        }
        Version::V1 => {
            let file = dir.join("cpu.cfs_quota_us");
            let quota = read(&file)?.trim().parse::<i64>().ok()?;
            (quota, read(&dir.join("cpu.cfs_period_us"))?.trim().parse::<i64>().ok()?, file)
        }
    };
    // Version 1 writes "no quota" as -1; version 2 as "max", which is no number.
    (quota > 0 && period > 0).then(|| (quota as f64 / period as f64, file))
}
