//! The choice of threads, over fixture trees of `/proc` and `/sys`.

use smelt_cpu::{Node, System, ThreadPlan, nodes};
use std::path::{Path, PathBuf};

/// A directory that is gone with the test.
struct Tree(PathBuf);

impl Drop for Tree {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Tree {
    fn new(name: &str, files: &[(&str, &str)]) -> Self {
        let root = std::env::temp_dir().join(format!("smelt-topology-{}-{name}", std::process::id()));
        let tree = Self(root);
        for (path, text) in files {
            let path = tree.0.join(path);
            std::fs::create_dir_all(path.parent().unwrap_or(Path::new("/"))).unwrap();
            std::fs::write(path, text).unwrap();
        }
        tree
    }

    fn plan(&self, affinity: &[usize]) -> ThreadPlan {
        ThreadPlan::choose(&System::at(&self.0, affinity.to_vec()))
    }
}

const V2_MOUNT: &str = "29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
const V1_MOUNT: &str =
    "33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct\n";

const HYBRID_MOUNTS: &str = "\
33 25 0:29 / /sys/fs/cgroup/cpu,cpuacct rw,nosuid shared:15 - cgroup cgroup rw,cpu,cpuacct
29 23 0:26 / /sys/fs/cgroup/unified rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";
const MALFORMED_MOUNTS: &str = "\
short line
1 2 - cgroup2
 - \n
29 23 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate
";

/// Name, files, threads, whether over-subscribed, and what the reason says, for a mask of eight CPUs.
type Case = (&'static str, &'static [(&'static str, &'static str)], usize, bool, &'static str);

const CASES: &[Case] = &[
    ("nothing", &[], 8, false, "no cgroup quota"),
    (
        "v2",
        &[
            ("proc/self/cgroup", "0::/app\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/app/cpu.max", "300000 100000\n"),
        ],
        3,
        false,
        "cgroup quota 3.00 CPUs (/sys/fs/cgroup/app/cpu.max)",
    ),
    (
        "v2 unlimited",
        &[
            ("proc/self/cgroup", "0::/app\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/app/cpu.max", "max 100000\n"),
        ],
        8,
        false,
        "no cgroup quota",
    ),
    (
        "v2 ancestor",
        &[
            ("proc/self/cgroup", "0::/kube/pod/container\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/kube/pod/container/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/kube/pod/cpu.max", "150000 100000\n"),
            ("sys/fs/cgroup/kube/cpu.max", "600000 100000\n"),
        ],
        2,
        true,
        "cgroup quota 1.50 CPUs (/sys/fs/cgroup/kube/pod/cpu.max)",
    ),
    (
        "v2 namespace",
        &[
            ("proc/self/cgroup", "0::/\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "50000 100000\n"),
        ],
        1,
        true,
        "cgroup quota 0.50 CPUs (/sys/fs/cgroup/cpu.max)",
    ),
    (
        "v2 outside the namespace",
        &[
            ("proc/self/cgroup", "0::/../../other\n"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/cpu.max", "200000 100000\n"),
        ],
        2,
        false,
        "2.00",
    ),
    (
        "v2 mount of a part",
        &[
            ("proc/self/cgroup", "0::/docker/abc/inner\n"),
            ("proc/self/mountinfo", "29 23 0:26 /docker/abc /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
            ("sys/fs/cgroup/inner/cpu.max", "max 100000\n"),
            ("sys/fs/cgroup/cpu.max", "400000 100000\n"),
        ],
        4,
        false,
        "4.00",
    ),
    (
        "v1",
        &[
            ("proc/self/cgroup", "12:memory:/x\n4:cpu,cpuacct:/docker/abc\n"),
            ("proc/self/mountinfo", V1_MOUNT),
            ("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_quota_us", "-1\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/abc/cpu.cfs_period_us", "100000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us", "250000\n"),
            ("sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_period_us", "50000\n"),
        ],
        5,
        false,
        "5.00 CPUs (/sys/fs/cgroup/cpu,cpuacct/docker/cpu.cfs_quota_us)",
    ),
    (
        "hybrid",
        &[
            ("proc/self/cgroup", "4:cpu,cpuacct:/a\n0::/b\n"),
            ("proc/self/mountinfo", HYBRID_MOUNTS),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_quota_us", "700000"),
            ("sys/fs/cgroup/cpu,cpuacct/a/cpu.cfs_period_us", "100000"),
            ("sys/fs/cgroup/unified/b/cpu.max", "600000 100000"),
        ],
        6,
        false,
        "/sys/fs/cgroup/unified/b/cpu.max",
    ),
    (
        "malformed",
        &[
            ("proc/self/cgroup", "0::/app\nnonsense\n::\n"),
            ("proc/self/mountinfo", MALFORMED_MOUNTS),
            ("sys/fs/cgroup/app/cpu.max", "many 100000\n"),
            ("sys/fs/cgroup/cpu.max", "100000 0\n"),
        ],
        8,
        false,
        "no cgroup quota",
    ),
    (
        "empty files",
        &[
            ("proc/self/cgroup", "0::/app"),
            ("proc/self/mountinfo", V2_MOUNT),
            ("sys/fs/cgroup/app/cpu.max", ""),
        ],
        8,
        false,
        "no cgroup quota",
    ),
];

#[test]
fn quotas_bind_at_every_ancestor() {
    for (name, files, threads, oversubscribed, reason) in CASES {
        let plan = Tree::new(name, files).plan(&[0, 1, 2, 3, 4, 5, 6, 7]);
        assert_eq!((plan.threads, plan.oversubscribed), (*threads, *oversubscribed), "{name}: {plan:?}");
        assert!(plan.reason.contains(reason), "{name}: {}", plan.reason);
    }
}

#[test]
fn smt_siblings_are_one_core() {
    let file = |cpu: usize, name: &str| format!("sys/devices/system/cpu/cpu{cpu}/topology/{name}");
    let siblings = ["0,4", "1,5", "2,6", "3,7"];
    let files: Vec<(String, &str)> =
        (0..8).map(|cpu| (file(cpu, "core_cpus_list"), siblings[cpu % 4])).collect();
    let files: Vec<(&str, &str)> = files.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    let tree = Tree::new("smt", &files);
    assert_eq!(tree.plan(&[0, 1, 2, 3, 4, 5, 6, 7]).threads, 4);
    // A cpuset that gives both siblings of one core and one of another.
    let plan = tree.plan(&[1, 5, 6]);
    assert_eq!(plan.threads, 2);
    assert_eq!(plan.reason, "2 physical cores, affinity allows 3 CPUs, no cgroup quota");

    let old: Vec<(String, &str)> =
        (0..4).map(|cpu| (file(cpu, "thread_siblings_list"), ["0-1", "2-3"][cpu / 2])).collect();
    let old: Vec<(&str, &str)> = old.iter().map(|(path, text)| (path.as_str(), *text)).collect();
    assert_eq!(Tree::new("old kernel", &old).plan(&[0, 1, 2, 3]).threads, 2);

    let path = file(0, "core_cpus_list");
    assert_eq!(Tree::new("malformed list", &[(&path, "all of them")]).plan(&[0, 1]).threads, 2);
}

#[test]
fn more_threads_than_cores_are_oversubscribed() {
    let tree = Tree::new("fixed", &[]);
    let system = System::at(&tree.0, vec![0, 1]);
    assert!(!ThreadPlan::fixed(2, &system).oversubscribed);
    assert!(ThreadPlan::fixed(3, &system).oversubscribed);
}

#[test]
fn memory_is_the_machines_or_what_groups_allow() {
    const TOTAL: (&str, &str) = ("proc/meminfo", "MemTotal:       16000000 kB\nMemFree:  1 kB\n");
    const V1_MEMORY: &str = "34 25 0:30 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
    const V2: (&str, &str) = ("proc/self/mountinfo", V2_MOUNT);
    const GROUP: (&str, &str) = ("proc/self/cgroup", "0::/app/one\n");
    let total = Some(16_000_000 * 1024);
    type Case = (&'static str, &'static [(&'static str, &'static str)], Option<u64>);
    let cases: &[Case] = &[
        ("no meminfo", &[], None),
        ("meminfo of another kind", &[("proc/meminfo", "MemTotal: many kB\n")], None),
        ("no group", &[TOTAL], total),
        ("no limit", &[TOTAL, V2, GROUP, ("sys/fs/cgroup/app/one/memory.max", "max\n")], total),
        (
            "an ancestor's",
            &[
                TOTAL,
                V2,
                GROUP,
                ("sys/fs/cgroup/app/one/memory.max", "4096000\n"),
                ("sys/fs/cgroup/app/memory.max", "2048000\n"),
            ],
            Some(2_048_000),
        ),
        (
            "version 1",
            &[
                TOTAL,
                ("proc/self/mountinfo", V1_MEMORY),
                ("proc/self/cgroup", "9:memory:/app\n8:cpu:/else\n"),
                ("sys/fs/cgroup/memory/app/memory.limit_in_bytes", "1024000\n"),
            ],
            Some(1_024_000),
        ),
        (
            "version 1 without a limit",
            &[
                TOTAL,
                ("proc/self/mountinfo", V1_MEMORY),
                ("proc/self/cgroup", "9:memory:/\n"),
                ("sys/fs/cgroup/memory/memory.limit_in_bytes", "9223372036854771712\n"),
            ],
            total,
        ),
    ];
    for (name, files, memory) in cases {
        let tree = Tree::new(&format!("memory-{name}"), files);
        assert_eq!(System::at(&tree.0, vec![0]).memory(), *memory, "{name}");
    }
}

#[test]
fn this_machine_has_a_plan() {
    let plan = ThreadPlan::choose(&System::this_machine());
    assert!(plan.threads >= 1);
    assert!(!plan.reason.is_empty());
}

#[test]
fn nodes_are_those_with_cpus_that_the_process_may_use() {
    let node = |id: usize, cpus: &[usize]| Node { id, cpus: cpus.to_vec() };
    let files = [
        ("sys/devices/system/node/node1/cpulist", "4-5,7\n"),
        ("sys/devices/system/node/node0/cpulist", "0-3\n"),
        // Memory without CPUs, one with CPUs of others only, and what is no node.
        ("sys/devices/system/node/node2/cpulist", "\n"),
        ("sys/devices/system/node/node3/cpulist", "64-127\n"),
        ("sys/devices/system/node/node99999/cpulist", "0\n"),
        ("sys/devices/system/node/node4/cpulist", "x,3-,-1\n"),
        ("sys/devices/system/node/possible", "0-3\n"),
    ];
    let tree = Tree::new("nodes", &files);
    let at = |affinity: &[usize]| nodes(&System::at(&tree.0, affinity.to_vec()));
    assert_eq!(at(&[0, 1, 5, 7, 9]), [node(0, &[0, 1]), node(1, &[5, 7])]);
    assert_eq!(at(&[4]), [node(1, &[4])]);

    let unknown = Tree::new("no-nodes", &[("sys/devices/system/cpu/online", "0-1\n")]);
    assert_eq!(nodes(&System::at(&unknown.0, vec![0, 1])), [node(0, &[0, 1])]);
}
