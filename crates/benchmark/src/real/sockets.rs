//! Bytes on the TCP connections of another process, from the kernel's counters of each socket. Linux
//! only.
//!
//! The counters come over netlink (`sock_diag(7)`), and `/proc/PID/fd` lists the sockets of a process.
//! If a connection closes between two samples, its bytes since the first of them are lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use crate::Failure;

const AF_INET: u8 = 2;
const AF_NETLINK: i32 = 16;
const NETLINK_SOCK_DIAG: i32 = 4;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
/// `NLM_F_REQUEST | NLM_F_DUMP`.
const DUMP: u16 = 0x301;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
const IPPROTO_TCP: u8 = 6;
const INET_DIAG_INFO: u16 = 2;
/// Set of socket states: established and closing connections, but neither listening sockets nor sockets in TIME_WAIT.
const STATES: u32 = 0b11_1011_0010;
/// Sizes of `nlmsghdr` and `inet_diag_msg`, and the offset of the inode in the latter.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
const INODE: usize = 68;
/// Offsets of `tcpi_bytes_acked` and `tcpi_bytes_received` in `tcp_info`.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// Size of the receive buffer, larger than any datagram of the kernel.
const DATAGRAM: usize = 1 << 16;
const TIMEOUT: Duration = Duration::from_secs(5);

/// Bytes sent and received.
type Bytes = (u64, u64);

/// The bytes on the connections of one process to one port.
#[derive(Debug)]
pub(super) struct Meter {
    process: u32,
    port: u16,
    /// Bytes by inode in the first and in the last sample. The first sample lacks connections that were opened later.
    first: BTreeMap<u64, Bytes>,
    last: BTreeMap<u64, Bytes>,
}

impl Meter {
    pub(super) fn start(process: u32, port: u16) -> Result<Self, Failure> {
        let mut meter = Self { process, port, first: BTreeMap::new(), last: BTreeMap::new() };
        meter.sample()?;
        meter.first.clone_from(&meter.last);
        Ok(meter)
    }

    /// Samples all connections.
    pub(super) fn sample(&mut self) -> Result<(), Failure> {
        let process_inodes = inodes(self.process)?;
        for (inode, bytes) in connections(self.port)? {
            if process_inodes.contains(&inode) {
                self.last.insert(inode, bytes);
            }
        }
        Ok(())
    }

    /// Bytes that the process sent and received from the start to the last sample.
    pub(super) fn total(&self) -> Bytes {
        let mut total = (0, 0);
        for (inode, (sent, received)) in &self.last {
            let (sent_before, received_before) = self.first.get(inode).copied().unwrap_or_default();
            total.0 += sent - sent_before.min(*sent);
            total.1 += received - received_before.min(*received);
        }
        total
    }
}

/// The inodes of a process's open sockets.
fn inodes(process: u32) -> Result<BTreeSet<u64>, Failure> {
    let mut inodes = BTreeSet::new();
    for file in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        // The file may be closed by now.
        let Ok(target) = std::fs::read_link(file?.path()) else { continue };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(inodes)
}

/// Every connection to a port of this machine, by inode, with the bytes that its client sent and
/// received.
fn connections(port: u16) -> Result<Vec<(u64, Bytes)>, Failure> {
    let family = Domain::from(AF_NETLINK);
    let mut socket = Socket::new(family, Type::DGRAM, Some(Protocol::from(NETLINK_SOCK_DIAG)))?;
    socket.set_read_timeout(Some(TIMEOUT))?;
    socket.write_all(&dump_request(port))?;
    let mut found = Vec::new();
    let mut buffer = vec![0; DATAGRAM];
    loop {
        let length = socket.read(&mut buffer)?;
        let mut rest = buffer.get(..length).unwrap_or_default();
        if rest.is_empty() {
            return Err("the kernel's list of sockets is truncated".into());
        }
        while let (Some(length), Some(kind)) = (number::<4>(rest, 0), number::<2>(rest, 4)) {
            let kind = u16::from_ne_bytes(kind);
            let length = usize::try_from(u32::from_ne_bytes(length))?;
            match kind {
                NLMSG_DONE => return Ok(found),
                NLMSG_ERROR => return Err("the kernel refused the socket counters (sock_diag)".into()),
                _ => {}
            }
            let message = rest.get(HEADER..length).ok_or("a message of sock_diag is too short")?;
            found.extend(connection(message, port));
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// A request for the counters of all connections to a port.
fn dump_request(port: u16) -> Vec<u8> {
    let mut request = Vec::new();
    request.extend(72_u32.to_ne_bytes());
    request.extend(SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request.extend(DUMP.to_ne_bytes());
    request.extend([0; 8]);
    request.extend([AF_INET, IPPROTO_TCP, 1 << (INET_DIAG_INFO - 1), 0]);
    request.extend(STATES.to_ne_bytes());
    request.extend([0; 2]);
    request.extend(port.to_be_bytes());
    request.resize(72, 0);
    request
}

/// The inode and the bytes of a socket. `None` if the socket does not belong to a client of `port`.
fn connection(message: &[u8], port: u16) -> Option<(u64, Bytes)> {
    if u16::from_be_bytes(number(message, 6)?) != port {
        return None;
    }
    let inode = u64::from(u32::from_ne_bytes(number(message, INODE)?));
    let mut rest = message.get(MESSAGE..)?;
    while let (Some(length), Some(kind)) = (number::<2>(rest, 0), number::<2>(rest, 2)) {
        let length = usize::from(u16::from_ne_bytes(length));
        if u16::from_ne_bytes(kind) == INET_DIAG_INFO {
            let info = rest.get(4..length)?;
            let counter = |offset| Some(u64::from_ne_bytes(number(info, offset)?));
            return Some((inode, (counter(ACKED)?, counter(RECEIVED)?)));
        }
        rest = rest.get(length.max(4).next_multiple_of(4)..)?;
    }
    None
}

fn number<const N: usize>(bytes: &[u8], offset: usize) -> Option<[u8; N]> {
    bytes.get(offset..)?.first_chunk().copied()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_of_a_connection_are_counted() {
        let listener = std::net::TcpListener::bind((std::net::Ipv4Addr::LOCALHOST, 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let mut stream = std::net::TcpStream::connect(address).unwrap();
        let mut meter = Meter::start(std::process::id(), address.port()).unwrap();
        let (mut other, _) = listener.accept().unwrap();
        stream.write_all(&[1; 3_000]).unwrap();
        other.read_exact(&mut [0; 3_000]).unwrap();
        other.write_all(&[1; 500]).unwrap();
        stream.read_exact(&mut [0; 500]).unwrap();
        meter.sample().unwrap();
        assert_eq!(meter.total(), (3_000, 500));
    }
}
