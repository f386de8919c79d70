//! Clients of an embedded cluster, over connections within the process.

use concertina::api::client::{ClientOptions, Clients};
use concertina::embedded::Cluster;

/// Clients whose every connection is a pipe to `cluster`, with real HTTP on it.
pub(crate) fn clients(cluster: &Cluster, options: &ClientOptions) -> Clients {
    Clients::over(cluster.connector(), options).unwrap()
}
