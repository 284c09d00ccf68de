//! A container with less than a core slows down in proportion: a control group is made, and this program runs in it.

use crate::bits::Model;
use smelt_backend::KvFormat;
use smelt_cpu::{Cpu, CpuSettings};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Instant;

/// The length of a quota's period in microseconds, the kernel's default.
const PERIOD: u32 = 100_000;

/// A control group that is gone with the test.
struct Group {
    dir: PathBuf,
    version: u8,
}

impl Drop for Group {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir(&self.dir);
    }
}

impl Group {
    /// A group below the one that this process is in, in the hierarchy that has CPU quotas.
    fn new(name: &str) -> Result<Self, String> {
        let read = |file: &str| std::fs::read_to_string(file).map_err(|e| format!("{file}: {e}"));
        let (mounts, groups) = (read("/proc/self/mountinfo")?, read("/proc/self/cgroup")?);
        let mut reasons = Vec::new();
        for mount in mounts.lines() {
            let Some((before, after)) = mount.split_once(" - ") else { continue };
            let point = Path::new(before.split(' ').nth(4).unwrap_or_default());
            let options = after.rsplit(' ').next().unwrap_or_default();
            let version = match after.split(' ').next() {
                Some("cgroup2") => 2,
                Some("cgroup") if options.split(',').any(|option| option == "cpu") => 1,
                _ => continue,
            };
            let own = groups.lines().find_map(|line| {
                let mut fields = line.splitn(3, ':').skip(1);
                let (controllers, path) = (fields.next()?, fields.next()?);
                let wanted = if version == 2 { "" } else { "cpu" };
                controllers.split(',').any(|c| c == wanted).then(|| path.trim_start_matches('/').to_owned())
            });
            let parent = point.join(own.unwrap_or_default());
            let parent = if parent.is_dir() { parent } else { point.to_owned() };
            let group = Self { dir: parent.join(format!("{name}-{}", std::process::id())), version };
            match std::fs::create_dir(&group.dir) {
                Err(e) => reasons.push(format!("{}: {e}", group.dir.display())),
                Ok(()) if group.dir.join(group.quota_file()).exists() => return Ok(group),
                Ok(()) => reasons.push(format!("{} has no CPU quota", group.dir.display())),
            }
        }
        Err(if reasons.is_empty() { "no control groups are mounted".into() } else { reasons.join("; ") })
    }

    fn quota_file(&self) -> &'static str {
        if self.version == 2 { "cpu.max" } else { "cpu.cfs_quota_us" }
    }

    /// How often the group was stopped because its quota was used up.
    fn throttled(&self) -> u64 {
        let stat = std::fs::read_to_string(self.dir.join("cpu.stat")).unwrap();
        let count = stat.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        count.unwrap().parse().unwrap()
    }

    /// Allows `quota` microseconds of CPU time per period.
    fn set(&self, quota: u32) -> std::io::Result<()> {
        let text = if self.version == 2 { format!("{quota} {PERIOD}") } else { quota.to_string() };
        std::fs::write(self.dir.join(self.quota_file()), text)
    }
}

/// What [`child`] tells, with its own choice of threads and with two.
#[derive(Debug)]
struct Told {
    /// How many it chose.
    threads: usize,
    /// Seconds.
    wall: [f64; 2],
    /// Seconds of CPU time, which other processes don't lengthen.
    cpu: [f64; 2],
}

/// Runs [`child`] inside the group.
fn run_in(group: &Group) -> Told {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "quota::child", "--ignored", "--nocapture"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    std::fs::write(group.dir.join("cgroup.procs"), child.id().to_string()).unwrap();
    // It waits for this line, so that all that it does is done inside.
    child.stdin.take().unwrap().write_all(b"go\n").unwrap();
    let mut told = None;
    for line in BufReader::new(child.stdout.take().unwrap()).lines() {
        let line = line.unwrap();
        let Some((_, numbers)) = line.split_once("told: ") else { continue };
        let mut numbers = numbers.split(' ').map(|n| n.parse::<f64>().unwrap());
        let mut next = || numbers.next().unwrap();
        told = Some(Told { threads: next() as usize, wall: [next(), next()], cpu: [next(), next()] });
    }
    assert!(child.wait().unwrap().success());
    told.expect("the child tells")
}

/// Not a test by itself: what [`half_a_core_is_half_as_fast`] runs in its groups.
#[test]
#[ignore = "the part of another test that runs in a control group"]
fn child() {
    std::io::stdin().lock().read_line(&mut String::new()).unwrap();
    let model = Model::new(KvFormat::F16.into());
    let mut threads = 0;
    let mut cpu = Vec::new();
    let wall = [None, Some(2)].map(|wanted| {
        let backend = Cpu::new(CpuSettings { threads: wanted, ..CpuSettings::default() }).unwrap();
        if wanted.is_none() {
            threads = backend.thread_plan().threads;
        }
        let mut runner = model.run_on(backend);
        let (start, used) = (Instant::now(), cpu_seconds());
        runner.sequence(0, 1000, &[64, 1]);
        cpu.push(cpu_seconds() - used);
        start.elapsed().as_secs_f64()
    });
    println!("told: {threads} {} {} {} {}", wall[0], wall[1], cpu[0], cpu[1]);
}

/// CPU time of all threads of this process: fields 14 and 15 of its `stat`, in hundredths of a second.
fn cpu_seconds() -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap();
    // The name, in brackets, may hold spaces.
    let fields: Vec<&str> = stat.rsplit_once(')').unwrap().1.split_whitespace().collect();
    fields[11..13].iter().map(|ticks| ticks.parse::<f64>().unwrap() / 100.0).sum()
}

#[test]
fn half_a_core_is_half_as_fast() {
    let group = match Group::new("smelt-quota") {
        Ok(group) => group,
        Err(reason) => return println!("no control group could be made, so this was not tested: {reason}"),
    };
    group.set(PERIOD).unwrap();
    let whole = run_in(&group);
    group.set(PERIOD / 2).unwrap();
    let before = group.throttled();
    let half = run_in(&group);
    println!("a core: {whole:?}\nhalf: {half:?}, stopped {} times", group.throttled() - before);
    assert_eq!((whole.threads, half.threads), (1, 1));
    for i in 0..2 {
        // Where a thread spins its quota away while it waits, CPU time grows, and elapsed time with it.
        assert!(half.cpu[i] < 3.0 * whole.cpu[0], "{i}: {half:?}, with a core {whole:?}");
        assert!(half.wall[i] < 6.0 * whole.wall[i], "{i}: {half:?}, with a core {whole:?}");
    }
    // On a machine so busy that half a core is more than its share, the quota changes nothing.
    if group.throttled() == before {
        println!(
            "the quota never took effect, as the machine is busy: only the choice of threads was tested"
        );
    }
}
