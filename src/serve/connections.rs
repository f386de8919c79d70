//! Accepts connections. Their number is bounded, and idle connections are closed first.
//!
//! New connections are admitted to a port at a limited rate, because each TLS handshake costs CPU time. Waiting
//! connections are admitted round robin by source address. A flood from some addresses therefore delays a client at
//! another address, such as a kubelet, by at most one handshake per flooding address.

use std::collections::{BTreeMap, VecDeque};
use std::future::pending;
use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use parking_lot::Mutex;
use socket2::{Domain, Protocol, Socket, Type};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

use cluster::limit::TokenBucket;

/// The maximum number of connections per port. A scraper or a probe keeps one or two connections. With TLS, a
/// connection takes a few dozen kilobytes.
pub(super) const MAX_CONNECTIONS: usize = 256;
/// The time without a byte in either direction after which a connection is closed.
pub(super) const IDLE: Duration = Duration::from_secs(75);
/// Time limit for requests in flight at shutdown.
const DRAIN: Duration = Duration::from_secs(5);
/// The pause after a failed accept. While the process has no free file descriptors, every accept fails at once.
const ACCEPT_PAUSE: Duration = Duration::from_millis(500);
/// The maximum number of connections that the system queues until they are accepted. Linux limits this number further.
const BACKLOG: i32 = 1024;

/// Listens on an address. As in Go, an unspecified address means IPv4 and IPv6. On a system without IPv6, 0.0.0.0 means
/// only IPv4.
pub(super) fn listen(address: SocketAddr, share_port: bool) -> io::Result<TcpListener> {
    let socket = if address.ip().is_unspecified() {
        let both = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), address.port());
        match Socket::new(Domain::IPV6, Type::STREAM, Some(Protocol::TCP)) {
            Ok(socket) => {
                socket.set_only_v6(false)?;
                bind(&socket, both, share_port).map(|()| socket)
            }
            Err(error) => Err(error),
        }
        .or_else(|error| {
            if error.kind() == io::ErrorKind::AddrInUse || address.is_ipv6() {
                return Err(error);
            }
            one_family(address, share_port)
        })?
    } else {
        one_family(address, share_port)?
    };
    socket.listen(BACKLOG)?;
    socket.set_nonblocking(true)?;
    TcpListener::from_std(socket.into())
}

fn one_family(address: SocketAddr, share_port: bool) -> io::Result<Socket> {
    let socket = Socket::new(Domain::for_address(address), Type::STREAM, Some(Protocol::TCP))?;
    bind(&socket, address, share_port)?;
    Ok(socket)
}

fn bind(socket: &Socket, address: SocketAddr, share_port: bool) -> io::Result<()> {
    // These options have another meaning on Windows.
    #[cfg(unix)]
    {
        socket.set_reuse_address(true)?;
        socket.set_reuse_port(share_port)?;
    }
    #[cfg(not(unix))]
    let _ = share_port;
    socket.bind(&address.into())
}

/// Passes every admitted connection to `serve` until `stop`. Then waits at most [`DRAIN`] until all open connections
/// are served.
pub(super) async fn accept<F>(
    listener: TcpListener,
    mut admission: Admission<TcpStream>,
    stop: &CancellationToken,
    serve: impl Fn(Watched<TcpStream>) -> F,
) where
    F: Future<Output = ()> + Send + 'static,
{
    let tasks = TaskTracker::new();
    let open = Arc::new(Open::default());
    // The drop of the guard at the end aborts the remaining connections.
    let abort = CancellationToken::new();
    let _abort = abort.clone().drop_guard();
    loop {
        let accepted = tokio::select! {
            biased;
            () = stop.cancelled() => break,
            stream = admission.next() => {
                let connection = open.add(abort.child_token());
                let activity = Arc::clone(&connection.activity);
                let served = serve(Watched { stream, activity: Arc::clone(&activity) });
                // Each connection has a separate task, so that a panic closes only this connection.
                tasks.spawn(async move {
                    tokio::select! {
                        biased;
                        () = connection.abort.cancelled() => {}
                        () = served => {}
                        () = activity.idle() => {}
                    }
                });
                continue;
            }
            accepted = listener.accept() => accepted,
        };
        match accepted {
            Ok((stream, client)) => admission.add(client.ip(), stream),
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection");
                tokio::select! {
                    biased;
                    () = stop.cancelled() => break,
                    () = tokio::time::sleep(ACCEPT_PAUSE) => {}
                }
            }
        }
    }
    tasks.close();
    // After the time limit, the drop of the guard aborts the remaining connections.
    let _ = tokio::time::timeout(DRAIN, tasks.wait()).await;
}

/// The open connections of a port.
#[derive(Debug, Default)]
struct Open {
    connections: Mutex<BTreeMap<u64, (Arc<Activity>, CancellationToken)>>,
    next: AtomicU64,
}

/// An entry of an open connection in [`Open`]. A drop removes the entry.
#[derive(Debug)]
struct Connection {
    number: u64,
    activity: Arc<Activity>,
    abort: CancellationToken,
    open: Arc<Open>,
}

/// The time of the last byte of a connection, and whether its client is authorized.
#[derive(Debug)]
pub(super) struct Activity {
    since: Instant,
    /// The time of the last byte, in milliseconds after `since`.
    last: AtomicU64,
    authorized: AtomicBool,
}

impl Open {
    /// Adds a connection. At the maximum, first closes the unauthorized connection that has been idle longest. Without
    /// an unauthorized connection, closes the authorized connection that has been idle longest.
    fn add(self: &Arc<Self>, abort: CancellationToken) -> Connection {
        let activity = Arc::new(Activity {
            since: Instant::now(),
            last: AtomicU64::new(0),
            authorized: AtomicBool::new(false),
        });
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let mut connections = self.connections.lock();
        while connections.len() >= MAX_CONNECTIONS {
            let worst = connections.iter().min_by_key(|(_, (activity, _))| activity.rank());
            let Some(worst) = worst.map(|(number, _)| *number) else { break };
            if let Some((_, abort)) = connections.remove(&worst) {
                abort.cancel();
            }
        }
        connections.insert(number, (Arc::clone(&activity), abort.clone()));
        drop(connections);
        Connection { number, activity, abort, open: Arc::clone(self) }
    }
}

impl Drop for Connection {
    fn drop(&mut self) {
        self.open.connections.lock().remove(&self.number);
    }
}

impl Activity {
    /// Marks the connection as authorized, after an allowed request.
    pub(super) fn mark_authorized(&self) {
        self.authorized.store(true, Ordering::Relaxed);
    }

    fn rank(&self) -> (bool, Instant) {
        (self.authorized.load(Ordering::Relaxed), self.last())
    }

    fn last(&self) -> Instant {
        self.since + Duration::from_millis(self.last.load(Ordering::Relaxed))
    }

    fn used(&self) {
        let millis = u64::try_from(self.since.elapsed().as_millis()).unwrap_or(u64::MAX);
        self.last.store(millis, Ordering::Relaxed);
    }

    /// Waits until the connection has been idle for [`IDLE`].
    async fn idle(&self) {
        loop {
            let until = self.last() + IDLE;
            if until <= Instant::now() {
                return;
            }
            tokio::time::sleep_until(until).await;
        }
    }
}

/// A stream that records the time of its last byte.
#[derive(Debug)]
pub(super) struct Watched<S> {
    stream: S,
    pub(super) activity: Arc<Activity>,
}

impl Watched<TcpStream> {
    /// Returns the address that [`network`] counts for the client. The unspecified address if the connection has ended.
    pub(super) fn source(&self) -> IpAddr {
        self.stream.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| network(peer.ip()))
    }
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(context, buffer);
        if read.is_ready() {
            self.activity.used();
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(context, buffer);
        if written.is_ready() {
            self.activity.used();
        }
        written
    }

    // Vectored writes avoid a copy of a large response.
    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffers: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(context, buffers);
        if written.is_ready() {
            self.activity.used();
        }
        written
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

/// Admitted connections per second. With an RSA key of 4,096 bits, their handshakes take a quarter of a core.
const PER_SECOND: f32 = 50.0;
/// The number of connections that are admitted at once after a pause.
const BURST: u32 = 50;
/// The maximum number of waiting connections. At [`PER_SECOND`], no connection waits much longer than 5 s.
pub(super) const MAX_WAITING: usize = 256;

/// Connections that wait for a handshake.
#[derive(Debug)]
pub(super) struct Admission<S> {
    /// The limit of the rate. `None` admits every connection at once.
    bucket: Option<TokenBucket>,
    pub(super) waiting: BTreeMap<IpAddr, VecDeque<S>>,
    /// The source addresses with waiting connections, in the order of their turns.
    pub(super) turns: VecDeque<IpAddr>,
    pub(super) count: usize,
}

impl<S> Admission<S> {
    /// Admits at most [`PER_SECOND`] connections per second.
    pub(super) fn limited() -> Self {
        Self { bucket: TokenBucket::new(PER_SECOND, BURST), ..Self::unlimited() }
    }

    /// Admits every connection at once.
    pub(super) fn unlimited() -> Self {
        Self { bucket: None, waiting: BTreeMap::new(), turns: VecDeque::new(), count: 0 }
    }

    /// Adds a connection. Above [`MAX_WAITING`], drops the newest connection of the address with the most waiting
    /// connections.
    pub(super) fn add(&mut self, source: IpAddr, stream: S) {
        let source = network(source);
        let waiting = self.waiting.entry(source).or_default();
        if waiting.is_empty() {
            self.turns.push_back(source);
        }
        waiting.push_back(stream);
        self.count += 1;
        if self.count > MAX_WAITING {
            let most = self.waiting.iter().max_by_key(|(_, waiting)| waiting.len());
            if let Some(most) = most.map(|(source, _)| *source) {
                self.remove(most, VecDeque::pop_back);
            }
        }
    }

    /// Waits for the next admitted connection. A drop of the future loses no connection.
    pub(super) async fn next(&mut self) -> S {
        loop {
            if self.turns.is_empty() {
                pending::<()>().await;
            }
            if let Some(bucket) = &self.bucket {
                bucket.take("").await;
            }
            let Some(source) = self.turns.pop_front() else { continue };
            self.turns.push_back(source);
            if let Some(stream) = self.remove(source, VecDeque::pop_front) {
                return stream;
            }
        }
    }

    fn remove(&mut self, source: IpAddr, take: impl Fn(&mut VecDeque<S>) -> Option<S>) -> Option<S> {
        let waiting = self.waiting.get_mut(&source)?;
        let stream = take(waiting);
        if waiting.is_empty() {
            self.waiting.remove(&source);
            self.turns.retain(|turn| *turn != source);
        }
        self.count -= usize::from(stream.is_some());
        stream
    }
}

/// Returns the address that determines the turns of a connection. For IPv6, this is the /64 network, because a host may
/// use all addresses of a network.
pub(super) fn network(source: IpAddr) -> IpAddr {
    match source.to_canonical() {
        IpAddr::V6(address) => IpAddr::V6(Ipv6Addr::from_bits(address.to_bits() >> 64 << 64)),
        address @ IpAddr::V4(_) => address,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn longest_idle_unauthorized_connection_is_closed_first() {
        let open = Arc::new(Open::default());
        let mut connections = Vec::new();
        for _ in 0..MAX_CONNECTIONS {
            connections.push(open.add(CancellationToken::new()));
            tokio::time::advance(Duration::from_millis(10)).await;
        }
        connections[0].activity.mark_authorized();
        connections[1].activity.used();
        let _one_more = open.add(CancellationToken::new());
        let ended = |index: usize| connections[index].abort.is_cancelled();
        assert_eq!([0, 1, 2, 3].map(ended), [false, false, true, false]);
        assert_eq!(open.connections.lock().len(), MAX_CONNECTIONS);
    }

    #[tokio::test(start_paused = true)]
    async fn connection_is_idle_after_a_while_without_a_byte() {
        let open = Arc::new(Open::default());
        let connection = open.add(CancellationToken::new());
        let start = Instant::now();
        tokio::time::advance(Duration::from_secs(70)).await;
        connection.activity.used();
        connection.activity.idle().await;
        assert_eq!(start.elapsed(), Duration::from_secs(70) + IDLE);
        drop(connection);
        assert!(open.connections.lock().is_empty());
    }
}
