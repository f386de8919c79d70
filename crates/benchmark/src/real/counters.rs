//! Counters of a controller's requests, from the metrics of the API server, and of its bytes on TCP connections, from
//! the kernel. The kernel's counters are available on Linux only.

use std::collections::{BTreeMap, BTreeSet};
use std::io::{Read as _, Write as _};
use std::time::Duration;

use socket2::{Domain, Protocol, Socket, Type};

use super::control_plane::{Rest, convert_error};
use crate::Failure;
use crate::observations::{RequestCount, request_title};

/// The request counters of the API server at one time, by verb and resource.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Counters(BTreeMap<(String, String), Kind>);

#[derive(Debug, Clone, Copy, Default, PartialEq)]
struct Kind {
    count: f64,
    failed: f64,
    received: f64,
    sent: f64,
}

impl Counters {
    pub(super) async fn read(api: &Rest) -> Result<Self, Failure> {
        let answer = convert_error(api.send(http::Method::GET, "/metrics", &[], None).await)?;
        if answer.code != 200 {
            return Err(format!(
                "failed to read the metrics of the API server: {} {}",
                answer.code,
                answer.text.trim()
            )
            .into());
        }
        Ok(Self::parse(&answer.text))
    }

    fn parse(page: &str) -> Self {
        let mut counters = Self::default();
        for line in page.lines() {
            let Some((name, rest)) = line.split_once('{') else { continue };
            let Some((labels, value)) = rest.rsplit_once("} ") else { continue };
            let Ok(value) = value.parse::<f64>() else { continue };
            let label = |name: &str| label(labels, name);
            let kind = |verb| (verb, request_title(label("group"), label("resource"), label("subresource")));
            match name {
                "apiserver_request_total" => {
                    let kind = counters.0.entry(kind(verb(label("verb")))).or_default();
                    kind.count += value;
                    if !label("code").starts_with('2') {
                        kind.failed += value;
                    }
                }
                "apiserver_response_sizes_sum" => {
                    counters.0.entry(kind(verb(label("verb")))).or_default().sent += value;
                }
                "apiserver_request_body_size_bytes_sum" => {
                    // This metric has Kubernetes verbs in place of HTTP methods. Its label `resource` contains the
                    // subresource, if any.
                    let resource = label("resource");
                    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
                    let title = request_title(label("group"), resource, subresource);
                    counters.0.entry((label("verb").to_lowercase(), title)).or_default().received += value;
                }
                _ => {}
            }
        }
        counters
    }

    /// Returns the requests since the counters `before`, which were read `time` seconds earlier. Subtracts the requests
    /// of the idle server.
    pub(super) fn since(&self, before: &Self, idle: &Idle, time: f64) -> Vec<RequestCount> {
        let mut counted = Vec::new();
        for (kind, now) in &self.0 {
            let earlier = before.0.get(kind).copied().unwrap_or_default();
            let usual = idle.0.get(kind).copied().unwrap_or(0.0) * time;
            let count = whole(now.count - earlier.count - usual);
            if count == 0 {
                continue;
            }
            let (verb, resource) = kind.clone();
            counted.push(RequestCount {
                verb,
                resource,
                count,
                failed: whole(now.failed - earlier.failed),
                received: whole(now.received - earlier.received),
                sent: whole(now.sent - earlier.sent),
                ..RequestCount::default()
            });
        }
        counted
    }
}

/// Requests per second of the idle API server to itself, by verb and resource.
#[derive(Debug, Clone, Default)]
pub(super) struct Idle(BTreeMap<(String, String), f64>);

impl Idle {
    pub(super) fn between(before: &Counters, after: &Counters, time: f64) -> Self {
        let rate = |(kind, now): (&(String, String), &Kind)| {
            let earlier = before.0.get(kind).map_or(0.0, |kind| kind.count);
            (kind.clone(), (now.count - earlier) / time)
        };
        Self(after.0.iter().map(rate).filter(|(_, rate)| *rate > 0.0).collect())
    }
}

fn label<'a>(labels: &'a str, name: &str) -> &'a str {
    let mut pairs = labels.split("\",").filter_map(|pair| pair.split_once("=\""));
    pairs.find(|(key, _)| *key == name).map_or("", |(_, value)| value.trim_end_matches('"'))
}

/// Converts an HTTP method to the verb by which the embedded server counts requests.
fn verb(verb: &str) -> String {
    match verb {
        "PUT" => "update".to_owned(),
        "POST" => "create".to_owned(),
        other => other.to_lowercase(),
    }
}

/// Rounds to a non-negative integer.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "the cast saturates at 0")]
fn whole(count: f64) -> u64 {
    count.round() as u64
}

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
/// Bit mask of socket states: established and closing connections, without listening sockets and sockets in TIME_WAIT.
const STATES: u32 = 0b11_1011_0010;
/// Sizes of `nlmsghdr` and `inet_diag_msg`, and the offset of the inode in `inet_diag_msg`.
const HEADER: usize = 16;
const MESSAGE: usize = 72;
const INODE: usize = 68;
/// Offsets of `tcpi_bytes_acked` and `tcpi_bytes_received` in `tcp_info`.
const ACKED: usize = 120;
const RECEIVED: usize = 128;
/// Size of the receive buffer. The kernel sends no larger datagram.
const DATAGRAM: usize = 1 << 16;
const TIMEOUT: Duration = Duration::from_secs(5);

/// The numbers of bytes sent and received.
type Bytes = (u64, u64);

/// Counts the bytes on the connections of one process to one port. If a connection closes between two samples, its
/// bytes since the earlier sample are lost.
#[derive(Debug)]
pub(super) struct Meter {
    process: u32,
    port: u16,
    /// Bytes by the inode of the socket, in the first and in the last sample.
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

    /// Reads the counters of all open connections.
    pub(super) fn sample(&mut self) -> Result<(), Failure> {
        let process_inodes = inodes(self.process)?;
        for (inode, bytes) in connections(self.port)? {
            if process_inodes.contains(&inode) {
                self.last.insert(inode, bytes);
            }
        }
        Ok(())
    }

    /// Returns the bytes from the start to the last sample.
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

/// Returns the inodes of a process's open sockets, from `/proc/PID/fd`.
fn inodes(process: u32) -> Result<BTreeSet<u64>, Failure> {
    let mut inodes = BTreeSet::new();
    for file in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        // A failure means that the process has closed the file.
        let Ok(target) = std::fs::read_link(file?.path()) else { continue };
        let target = target.to_string_lossy();
        let inode = target.strip_prefix("socket:[").and_then(|rest| rest.strip_suffix(']'));
        inodes.extend(inode.and_then(|inode| inode.parse::<u64>().ok()));
    }
    Ok(inodes)
}

/// Returns the inode and the bytes of every client connection to a local port, over netlink (`sock_diag(7)`).
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

/// Builds the netlink request for the counters of all connections to a port.
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

/// Reads the inode and the bytes from an `inet_diag_msg`. Returns `None` if the socket is not a client of `port`.
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
    fn two_pages_give_the_requests_between_them_except_those_of_the_server() {
        let page = |status: u32, lease: u32| {
            Counters::parse(&format!(
                "# TYPE apiserver_request_total counter\n\
                 apiserver_request_total{{code=\"200\",group=\"autoscaling\",resource=\"horizontalpodautoscalers\",subresource=\"status\",verb=\"PUT\",version=\"v2\"}} {status}\n\
                 apiserver_request_total{{code=\"409\",group=\"autoscaling\",resource=\"horizontalpodautoscalers\",subresource=\"status\",verb=\"PUT\",version=\"v2\"}} 2\n\
                 apiserver_request_total{{code=\"200\",group=\"coordination.k8s.io\",resource=\"leases\",subresource=\"\",verb=\"PUT\",version=\"v1\"}} {lease}\n"
            ))
        };
        let (first, second, third) = (page(0, 0), page(0, 4), page(100, 8));
        let idle = Idle::between(&first, &second, 10.0);
        let counted = third.since(&second, &idle, 10.0);
        let [only] = counted.as_slice() else { panic!("{counted:?}") };
        assert_eq!(
            (only.verb.as_str(), only.resource.as_str(), only.count, only.failed),
            ("update", "horizontalpodautoscalers.autoscaling/status", 100, 0)
        );
    }

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
