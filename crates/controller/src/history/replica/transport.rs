//! The interface between replicas: address and certificate of a process, and requests to it.

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use tokio::io::DuplexStream;
use tokio_util::sync::CancellationToken;

use crate::election::Peer;
use cluster::user::Fingerprint;

/// Serves an in-memory connection from another process.
pub type Connect = dyn Fn(DuplexStream, CancellationToken) -> BoxFuture<'static, ()> + Send + Sync;

/// The pages of a process, and the ways to reach them.
pub struct ServedPages {
    /// Serves one connection within the process, until the connection closes or the token is cancelled.
    pub connect: Arc<Connect>,
    /// The HTTPS address, if the pages are served over HTTPS.
    pub address: Option<SocketAddr>,
    /// Returns the fingerprint of the current certificate for clients that send no host name.
    pub certificate: Arc<dyn Fn() -> Option<Fingerprint> + Send + Sync>,
}

impl fmt::Debug for ServedPages {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ServedPages").field("address", &self.address).finish_non_exhaustive()
    }
}

/// Connects the replicas with each other. Each process has one instance.
pub trait PeerTransport: fmt::Debug + Send + Sync + 'static {
    /// Registers the pages of this process. Called once, before the process becomes a candidate.
    fn register(&self, served: ServedPages);

    /// Returns the current address of this process for other replicas, if it has one. Read at every write of the Lease.
    fn advertised(&self) -> Option<Peer>;

    /// Sends a GET for a path and its query, with the credentials of this process for other replicas. The caller limits
    /// the time.
    fn get<'a>(&'a self, peer: &'a Peer, path: &'a str) -> BoxFuture<'a, Result<Bytes, TransportError>>;
}

/// The reason for a failed request to a replica.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TransportError {
    /// No server listens at the address, or the connection broke.
    #[error("failed to reach {peer}: {reason}; the replicas must reach each other's secure ports")]
    Unreachable {
        /// The address of the replica.
        peer: SocketAddr,
        /// The cause.
        reason: String,
    },
    /// Another server listens at the address.
    #[error("{peer} presents another certificate ({shown}) than the Lease names ({pinned})")]
    Certificate {
        /// The address of the replica.
        peer: SocketAddr,
        /// The fingerprint of the certificate that the server presented.
        shown: Fingerprint,
        /// The fingerprint in the Lease.
        pinned: Fingerprint,
    },
    /// The replica responded with an error.
    #[error("{peer} responded with {code}: {message}")]
    Refused {
        /// The address of the replica.
        peer: SocketAddr,
        /// The HTTP status.
        code: u16,
        /// The message of the response.
        message: String,
    },
    /// The credentials of this process are missing or invalid.
    #[error("invalid credentials of this replica: {0}")]
    Credentials(String),
    /// The response is too large.
    #[error("{peer} responded with more than {limit} bytes")]
    TooLarge {
        /// The address of the replica.
        peer: SocketAddr,
        /// The maximum size in bytes.
        limit: usize,
    },
}
