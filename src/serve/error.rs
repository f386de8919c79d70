//! What keeps the server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::api::client::ClientError;
use crate::api::kubeconfig::KubeconfigError;

/// Why it cannot be served as the flags say.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The port cannot be had.
    #[error(
        "cannot listen on {address} (--bind-address, --secure-port): {source}; another port may be named, or 0 for none"
    )]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// The port without TLS cannot be had.
    #[error("cannot listen on {address} (--health-address): {source}")]
    ListenPlain {
        /// The address and port.
        address: SocketAddr,
        /// What the system says.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {source}", path.display())]
    Read {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// A file holds nothing of use.
    #[error("{} ({flag}) cannot be used: {reason}", path.display())]
    Unusable {
        /// The flag that names it.
        flag: &'static str,
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The TLS settings contradict each other, or no certificate could be made.
    #[error("TLS cannot be served: {0}")]
    Tls(String),
    /// A kubeconfig of its own is unusable.
    #[error("{flag}: {source}")]
    Kubeconfig {
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong.
        source: Box<KubeconfigError>,
    },
    /// No client can be made of it.
    #[error("{flag}: {source}")]
    Client {
        /// The flag that names it.
        flag: &'static str,
        /// What is wrong.
        source: Box<ClientError>,
    },
}
