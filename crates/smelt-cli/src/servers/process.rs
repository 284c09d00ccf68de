//! Processes: when they were started, and asking them to stop.

use std::io;

/// When a process was started, in ticks since the machine was. With its id, it names a process for ever.
#[cfg(target_os = "linux")]
pub(super) fn start_time(pid: u32) -> Option<u64> {
    let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
    // The program's name is the second field, in brackets, and may hold anything; the time is the 22nd.
    let (_, behind_name) = stat.rsplit_once(')')?;
    behind_name.split_whitespace().nth(19)?.parse().ok()
}

#[cfg(not(target_os = "linux"))]
pub(super) fn start_time(_pid: u32) -> Option<u64> {
    None
}

#[cfg(unix)]
pub(super) fn terminate(pid: u32) -> io::Result<()> {
    use rustix::process::{Pid, Signal, kill_process};
    let pid = i32::try_from(pid).ok().filter(|pid| *pid > 1).and_then(Pid::from_raw);
    let pid = pid.ok_or_else(|| io::Error::new(io::ErrorKind::InvalidData, "no server has such an id"))?;
    Ok(kill_process(pid, Signal::TERM)?)
}

#[cfg(not(unix))]
pub(super) fn terminate(_pid: u32) -> io::Result<()> {
    Err(io::ErrorKind::Unsupported.into())
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    #[test]
    fn a_process_was_started_once() {
        let own = super::start_time(std::process::id());
        assert!(own.is_some_and(|time| time > 0));
        assert_eq!(own, super::start_time(std::process::id()));
        assert_eq!(super::start_time(u32::MAX), None);
    }
}
