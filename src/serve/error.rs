//! The errors that keep the server from starting.

use std::io;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use cluster::client::ClientError;
use cluster::kubeconfig::KubeconfigError;

/// The error that keeps the server or the webhook from starting.
#[derive(Debug, thiserror::Error)]
pub enum ServeError {
    /// The secure port is unavailable.
    #[error(
        "cannot listen on {address} (--bind-address, --secure-port): {source}; choose another port, or 0 for none"
    )]
    Listen {
        /// The address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The port of the webhook is unavailable.
    #[error(
        "cannot listen on {address} (--bind-address, --handover-webhook-port): {source}; choose another port"
    )]
    ListenWebhook {
        /// The address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The port without TLS is unavailable.
    #[error("cannot listen on {address} (--health-address): {source}")]
    ListenPlain {
        /// The address and port.
        address: SocketAddr,
        /// The error of the operating system.
        source: io::Error,
    },
    /// A file cannot be read.
    #[error("cannot read {} ({flag}): {source}", path.display())]
    Read {
        /// The flag that names the file.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The error of the operating system.
        source: io::Error,
    },
    /// The contents of a file are invalid.
    #[error("invalid file {} ({flag}): {reason}", path.display())]
    Unusable {
        /// The flag that names the file.
        flag: &'static str,
        /// The path of the file.
        path: PathBuf,
        /// The fault of the contents.
        reason: String,
    },
    /// The TLS settings contradict each other, or no certificate could be generated.
    #[error("failed to set up TLS: {0}")]
    Tls(String),
    /// The kubeconfig that a flag names is unusable.
    #[error("{flag}: {source}")]
    Kubeconfig {
        /// The flag that names the kubeconfig.
        flag: &'static str,
        /// The error of the kubeconfig loader.
        source: Box<KubeconfigError>,
    },
    /// The client for the kubeconfig that a flag names could not be built.
    #[error("{flag}: {source}")]
    Client {
        /// The flag that names the kubeconfig.
        flag: &'static str,
        /// The error of the HTTP client.
        source: Box<ClientError>,
    },
}

/// Reads the file that a flag names.
pub(super) fn read_file(flag: &'static str, path: &Path) -> Result<Vec<u8>, ServeError> {
    std::fs::read(path).map_err(|source| ServeError::Read { flag, path: path.to_owned(), source })
}
