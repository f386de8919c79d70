//! The address of a replica, as the Lease publishes it.

use std::net::SocketAddr;

use cluster::fingerprint::Fingerprint;

/// The address of a replica and its serving certificate. The Lease contains the leader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Peer {
    /// The replica's secure port, at an address that the other replicas can reach.
    pub address: SocketAddr,
    /// The fingerprint of the replica's certificate. A server with another certificate is rejected.
    pub certificate: Fingerprint,
}
