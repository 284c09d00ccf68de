//! Servers on this machine, as their files tell.
//!
//! Each server has a file in `servers/` of the state directory, and a lock on it for its whole life. The system takes the
//! lock away however a process ends, so a file that isn't locked is of the past, and is removed by who finds it. No file's
//! name comes twice, so who removes one removes nobody else's.
//!
//! Architecture Invariant: a process is told to stop only while it holds the lock of its file and was started when the file
//! says. None is ever found by its name.

mod client;
mod detach;
mod holder;
mod process;

use std::fs::{self, File, TryLockError};
use std::io::{self, ErrorKind, Write};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::{Context as _, Result};
use serde::{Deserialize, Serialize};
use tempfile::TempPath;

pub(crate) use self::client::{Client, Running};
pub(crate) use self::detach::{Detached, is_detached, log_path};
pub(crate) use self::holder::{Holder, port_holder};

/// Bytes that a server's file may have.
const MAX_BYTES: u64 = 1 << 20;

/// What a server tells of itself.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Record {
    pub(crate) pid: u32,
    /// When the process was started, in ticks since the machine was; `None` where the system doesn't tell.
    pub(crate) start_time: Option<u64>,
    /// Where it listens.
    pub(crate) address: SocketAddr,
    /// Whether it speaks TLS there.
    pub(crate) tls: bool,
    pub(crate) version: String,
    pub(crate) models: Vec<Served>,
    /// Seconds since 1970.
    pub(crate) since: u64,
    /// A key of its own that it takes from who may read this file, where it asks for keys.
    pub(crate) key: Option<String>,
    /// What `serve -d` was started with.
    pub(crate) detached: Option<Detached>,
}

impl Record {
    /// Of this process.
    pub(crate) fn new(address: SocketAddr, tls: bool, models: Vec<Served>, key: Option<String>) -> Self {
        let pid = std::process::id();
        Self {
            pid,
            start_time: process::start_time(pid),
            address,
            tls,
            version: env!("CARGO_PKG_VERSION").to_owned(),
            models,
            since: SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs()),
            key,
            detached: None,
        }
    }

    fn scheme(&self) -> &'static str {
        if self.tls { "https" } else { "http" }
    }

    /// Where it listens, for people: 0.0.0.0 is no address to ask, but says that all of the machine's are.
    pub(crate) fn listens(&self) -> String {
        format!("{}://{}", self.scheme(), self.address)
    }

    /// Its address for programs of this machine.
    pub(crate) fn url(&self) -> String {
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(match address {
                SocketAddr::V4(_) => std::net::Ipv4Addr::LOCALHOST.into(),
                SocketAddr::V6(_) => std::net::Ipv6Addr::LOCALHOST.into(),
            });
        }
        format!("{}://{address}", self.scheme())
    }
}

/// A model of a server.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Served {
    /// What clients ask for.
    pub(crate) name: String,
    /// Its file, without links on the way.
    pub(crate) file: PathBuf,
    /// Tokens of its context, where it isn't what the model was trained on.
    pub(crate) context: Option<usize>,
}

/// The file of this process; it goes with it.
#[derive(Debug)]
pub(crate) struct Registration {
    // In this order: the lock is held until the file is gone.
    _path: TempPath,
    _lock: File,
}

/// Tells other processes of this server.
///
/// # Errors
/// If the file can't be written.
pub(crate) fn register(state: &Path, record: &Record) -> Result<Registration> {
    let folder = folder(state);
    let register = || -> io::Result<Registration> {
        fs::create_dir_all(&folder)?;
        // For nobody else to read, and under another name until it is locked.
        let mut file = tempfile::Builder::new().prefix(".new-").tempfile_in(&folder)?;
        file.as_file().lock()?;
        file.write_all(&serde_json::to_vec_pretty(record)?)?;
        let path = folder.join(format!("{}-{:08x}.json", record.pid, fastrand::u32(..)));
        let lock = file.persist(&path)?;
        Ok(Registration { _path: TempPath::try_from_path(path)?, _lock: lock })
    };
    register().with_context(|| format!("cannot keep the server's file in {}", folder.display()))
}

fn folder(state: &Path) -> PathBuf {
    state.join("servers")
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Server {
    pub(crate) record: Record,
    file: File,
}

/// The servers that run.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    /// Those that can be talked to, the oldest first.
    pub(crate) known: Vec<Server>,
    /// What stands in the way of others.
    pub(crate) problems: Vec<String>,
}

/// The servers that run. Files that can't be understood are told as problems: another version may have written them.
///
/// # Errors
/// If their folder can't be read.
pub(crate) fn running(state: &Path) -> Result<Servers> {
    let folder = folder(state);
    let read = || -> io::Result<Servers> {
        let mut servers = Servers::default();
        let entries = match fs::read_dir(&folder) {
            Err(e) if e.kind() == ErrorKind::NotFound => return Ok(servers),
            entries => entries?,
        };
        for entry in entries {
            let path = entry?.path();
            if path.extension().is_none_or(|extension| extension != "json") {
                continue;
            }
            match read_one(&path) {
                Ok(server) => servers.known.extend(server),
                Err(e) => servers.problems.push(format!("{} tells of no server: {e}", path.display())),
            }
        }
        servers.known.sort_by_key(|server| (server.record.since, server.record.address));
        Ok(servers)
    };
    read().with_context(|| format!("cannot read the servers' files in {}", folder.display()))
}

/// The server of a file; `None` if it ended.
fn read_one(path: &Path) -> io::Result<Option<Server>> {
    let file = match File::open(path) {
        // It ended since the folder was read.
        Err(e) if e.kind() == ErrorKind::NotFound => return Ok(None),
        file => file?,
    };
    match file.try_lock_shared() {
        Err(TryLockError::WouldBlock) => {}
        Err(TryLockError::Error(e)) => return Err(e),
        Ok(()) => {
            // What remains of a server that had no time to tidy up. Another reader may be first.
            let _ = fs::remove_file(path);
            return Ok(None);
        }
    }
    let record = serde_json::from_reader(io::Read::take(&file, MAX_BYTES));
    let record = record.map_err(|e| {
        io::Error::new(ErrorKind::InvalidData, format!("{e}; another version of smelt may run"))
    })?;
    Ok(Some(Server { record, file }))
}

impl Server {
    /// Asks it to stop, as SIGTERM does.
    ///
    /// # Errors
    /// If its process can't be told, or isn't the one of the file.
    pub(crate) fn terminate(&self) -> Result<()> {
        let Record { pid, start_time, .. } = self.record;
        let is_it = self.is_running() && process::start_time(pid) == start_time;
        anyhow::ensure!(
            is_it,
            "the process {pid} isn't the server on {}; does that run in another container?",
            self.record.url()
        );
        process::terminate(pid).with_context(|| format!("cannot stop the process {pid}"))
    }

    fn is_running(&self) -> bool {
        match self.file.try_lock_shared() {
            Ok(()) => {
                // Whatever was looked at and let go is as it was.
                let _ = self.file.unlock();
                false
            }
            Err(_) => true,
        }
    }

    /// Waits until its process is gone.
    ///
    /// # Errors
    /// If the system can't tell.
    pub(crate) fn wait(&self) -> Result<()> {
        self.file.lock_shared().context("cannot wait for the server's end")
    }
}
