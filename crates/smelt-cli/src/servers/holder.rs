//! Who holds a port.

use std::fmt;
use std::net::IpAddr;

/// A process that listens on a port.
#[derive(Debug, PartialEq, Eq)]
pub(crate) enum Holder {
    /// One that may be looked at.
    Process { pid: u32, program: String },
    /// Another user's.
    User(u32),
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Process { pid, program } => write!(f, "the process {pid} ({program})"),
            Self::User(uid) => write!(f, "a process of the user with the id {uid}"),
        }
    }
}

/// The process that listens on a port of this address; `None` if the system doesn't tell.
#[cfg(target_os = "linux")]
pub(crate) fn port_holder(address: IpAddr, port: u16) -> Option<Holder> {
    let sockets =
        ["/proc/net/tcp", "/proc/net/tcp6"].map(|table| std::fs::read_to_string(table).unwrap_or_default());
    let mut listening = sockets.iter().flat_map(|table| table.lines().filter_map(linux::listening));
    let socket = listening.find(|socket| {
        let same = |a: IpAddr, b: IpAddr| a == b || a.is_unspecified() || b.is_unspecified();
        socket.port == port && same(socket.address, address)
    })?;
    Some(linux::owner(socket.inode).unwrap_or(Holder::User(socket.uid)))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn port_holder(_address: IpAddr, _port: u16) -> Option<Holder> {
    None
}

/// The tables of `/proc`, as proc_pid_net(5) describes them.
#[cfg(target_os = "linux")]
mod linux {
    use std::fs;
    use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
    use std::path::Path;

    use super::Holder;

    /// A socket that listens.
    #[derive(Debug, PartialEq, Eq)]
    pub(super) struct Socket {
        pub(super) address: IpAddr,
        pub(super) port: u16,
        pub(super) uid: u32,
        pub(super) inode: u64,
    }

    /// The state of a socket that listens.
    const LISTEN: &str = "0A";

    /// The socket of a line, if it listens.
    pub(super) fn listening(line: &str) -> Option<Socket> {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let [_, local, _, LISTEN, _, _, _, uid, _, inode, ..] = fields[..] else { return None };
        let (address, port) = local.split_once(':')?;
        let words: Option<Vec<u32>> = (0..address.len() / 8)
            .map(|i| u32::from_str_radix(address.get(i * 8..)?.get(..8)?, 16).ok())
            .collect();
        // Each word is in the order of this machine's memory.
        let bytes: Vec<u8> = words?.into_iter().flat_map(u32::to_ne_bytes).collect();
        let address: IpAddr = match <[u8; 4]>::try_from(bytes.as_slice()) {
            Ok(v4) => Ipv4Addr::from(v4).into(),
            Err(_) => Ipv6Addr::from(<[u8; 16]>::try_from(bytes.as_slice()).ok()?).into(),
        };
        let port = u16::from_str_radix(port, 16).ok()?;
        Some(Socket { address, port, uid: uid.parse().ok()?, inode: inode.parse().ok()? })
    }

    /// The process that has a socket open.
    pub(super) fn owner(inode: u64) -> Option<Holder> {
        let target = format!("socket:[{inode}]");
        let has_it = |folder: &Path| {
            let mut files = fs::read_dir(folder.join("fd")).into_iter().flatten().flatten();
            files.any(|file| fs::read_link(file.path()).is_ok_and(|link| link.as_os_str() == target.as_str()))
        };
        fs::read_dir("/proc").ok()?.flatten().find_map(|entry| {
            let pid = entry.file_name().to_str()?.parse().ok()?;
            let program = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
            has_it(&entry.path()).then(|| Holder::Process { pid, program: program.trim().to_owned() })
        })
    }

    #[cfg(test)]
    mod tests {
        use super::*;

        #[test]
        fn the_tables_are_read() {
            let v4 = "  0: 0100007F:2CAB 00000000:0000 0A 00000000:00000000 00:00000000 00000000  1000        0 31337 1 x";
            let socket = listening(v4).unwrap();
            assert_eq!((socket.port, socket.uid, socket.inode), (11435, 1000, 31337));
            let open = v4.replace(" 0A ", " 01 ");
            for line in [
                open.as_str(),
                "",
                "  sl  local_address rem_address   st tx_queue rx_queue",
                "0: :: 0 0A 0 0 0 0 0 0",
            ] {
                assert_eq!(listening(line), None, "{line}");
            }
        }

        #[test]
        fn a_port_has_its_process() {
            for address in ["127.0.0.1:0", "[::1]:0"] {
                let Ok(listener) = std::net::TcpListener::bind(address) else { continue };
                let address = listener.local_addr().unwrap();
                let holder = super::super::port_holder(address.ip(), address.port());
                assert!(
                    matches!(holder, Some(Holder::Process { pid, .. }) if pid == std::process::id()),
                    "{holder:?}"
                );
            }
        }
    }
}
