//! Whole runs of both programs: time to the first token, and peak memory.

use std::fs;
use std::io::Read;
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::models::Selection;
use super::table::{median, print, with_spread};
use super::{Model, Setup, text};
use crate::workspace;

/// What a run of a program was like.
pub(super) struct Run {
    pub(super) stdout: String,
    pub(super) stderr: String,
    /// From the start of the process to the first byte on stdout; `None` when it wrote none.
    first_output: Option<Duration>,
    /// The most resident memory, in bytes; `None` where the system does not tell (it is read from /proc).
    peak_memory: Option<u64>,
}

/// How often a process's memory is read. What is read is the system's own high-water mark, so only what grows in the
/// last interval of its life can be missed.
const MEMORY_INTERVAL: Duration = Duration::from_millis(2);

/// Runs `command` to its end and measures it.
pub(super) fn measure(command: &mut Command) -> Result<Run> {
    let context = || format!("can't run {}", workspace::describe(command));
    let start = Instant::now();
    let pipes = Command::new(command.get_program())
        .args(command.get_args())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = pipes.with_context(context)?;
    let mut stdout = child.stdout.take().with_context(context)?;
    let mut stderr = child.stderr.take().with_context(context)?;
    let errors = thread::spawn(move || {
        let mut bytes = Vec::new();
        stderr.read_to_end(&mut bytes).map(|_| bytes)
    });
    let (first, first_output) = mpsc::channel();
    let output = thread::spawn(move || {
        let mut bytes = vec![0];
        let count = stdout.read(&mut bytes)?;
        bytes.truncate(count);
        if count > 0 {
            // The receiver outlives this thread, which is joined below.
            let _ = first.send(start.elapsed());
        }
        stdout.read_to_end(&mut bytes).map(|_| bytes)
    });
    let status_file = format!("/proc/{}/status", child.id());
    let mut peak_memory = None;
    let status = loop {
        peak_memory =
            peak_memory.max(fs::read_to_string(&status_file).ok().as_deref().and_then(high_water_mark));
        if let Some(status) = child.try_wait().with_context(context)? {
            break status;
        }
        thread::sleep(MEMORY_INTERVAL);
    };
    let joined = |reader: thread::JoinHandle<std::io::Result<Vec<u8>>>| -> Result<String> {
        let bytes = reader.join().map_err(|_| anyhow::anyhow!("a reader of its output panicked"))??;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    };
    let (stdout, stderr) = (joined(output).with_context(context)?, joined(errors).with_context(context)?);
    if !status.success() {
        bail!("{} failed: {status}\n{}", workspace::describe(command), stderr.trim_end());
    }
    Ok(Run { stdout, stderr, first_output: first_output.try_recv().ok(), peak_memory })
}

/// The line `VmHWM:    12345 kB` of /proc/PID/status, in bytes.
fn high_water_mark(status: &str) -> Option<u64> {
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    let kibibytes: u64 = line.trim().strip_suffix("kB")?.trim_end().parse().ok()?;
    Some(kibibytes * 1024)
}

/// Both programs that continue a raw text greedily.
fn continuations(setup: &Setup, model: &Model, prompt: &str, n_gen: u32) -> [Command; 2] {
    let n_gen = n_gen.to_string();
    let mut smelt =
        setup.smelt(&["run", "--raw", "--ignore-eos", "--temp", "0", "--max-tokens", &n_gen], model);
    smelt.arg(prompt);
    let mut llama = setup.llama("llama-completion", model);
    llama.args(["--no-conversation", "--no-display-prompt", "--simple-io", "--ignore-eos", "--temp", "0"]);
    llama.args(["-n", &n_gen, "-p", prompt]);
    [smelt, llama]
}

/// Time from the start of the process to the first token of a short prompt, with the file in the page cache.
pub(super) fn compare_startup(setup: &Setup, selection: &Selection) -> Result<()> {
    const PROMPT: &str = "The capital of France is";
    let mut rows = Vec::new();
    for model in selection.models() {
        let model = &model?;
        eprintln!("startup: {}", model.name);
        // Both read the whole file once before anything counts.
        fs::read(&model.path).with_context(|| format!("can't read {}", model.path.display()))?;
        let mut samples = [Vec::new(), Vec::new()];
        for _ in 0..setup.rounds {
            for (mut command, samples) in continuations(setup, model, PROMPT, 4).into_iter().zip(&mut samples)
            {
                let run = measure(&mut command)?;
                let first = run.first_output;
                let first =
                    first.with_context(|| format!("{} printed nothing", workspace::describe(&command)))?;
                samples.push(first.as_secs_f64() * 1e3);
            }
        }
        let [ours, theirs] = samples;
        let ratio = median(&ours) / median(&theirs);
        rows.push([
            model.name.clone(),
            model.format.clone(),
            with_spread(&ours, 0),
            with_spread(&theirs, 0),
            format!("{ratio:.2}"),
        ]);
    }
    let title =
        format!("Start to first token, milliseconds, warm, median of {} runs ± half range", setup.rounds);
    print(&title, ["model", "format", "smelt", "llama.cpp", "ratio"], &rows);
    Ok(())
}

/// Peak resident memory of reading a prompt of some hundred tokens and writing 64.
pub(super) fn compare_memory(setup: &Setup, selection: &Selection) -> Result<()> {
    /// About 400 tokens of English.
    const PROMPT_BYTES: usize = 1_800;
    const MIB: f64 = (1 << 20) as f64;
    let text = fs::read_to_string(text()).with_context(|| format!("can't read {}", text().display()))?;
    let prompt: String = text.chars().take(PROMPT_BYTES).collect();
    let mut rows = Vec::new();
    for model in selection.models() {
        let model = &model?;
        eprintln!("memory: {}", model.name);
        let mut peaks = [0.0; 2];
        for (mut command, peak) in continuations(setup, model, &prompt, 64).into_iter().zip(&mut peaks) {
            let run = measure(&mut command)?;
            *peak =
                run.peak_memory.context("this system has no /proc to read peak memory from")? as f64 / MIB;
        }
        let file = fs::metadata(&model.path)?.len() as f64 / MIB;
        let [ours, theirs] = peaks;
        let cells = [file, ours, theirs].map(|value| format!("{value:.0}"));
        let [file, ours_cell, theirs_cell] = cells;
        let (name, format) = (model.name.clone(), model.format.clone());
        rows.push([name, format, file, ours_cell, theirs_cell, format!("{:.2}", ours / theirs)]);
    }
    print("Peak memory, MiB", ["model", "format", "file", "smelt", "llama.cpp", "ratio"], &rows);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn high_water_marks_are_read() {
        assert_eq!(high_water_mark("Name:\tx\nVmHWM:\t    2048 kB\nVmRSS:\t 1 kB\n"), Some(2 << 20));
        assert_eq!(high_water_mark("Name:\tx\n"), None);
    }

    #[test]
    fn a_failing_program_is_an_error() {
        let missing = measure(Command::new(workspace::cargo().get_program()).arg("no-such-command"));
        assert!(missing.is_err());
    }
}
