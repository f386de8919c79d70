//! Clients of an embedded cluster over connections within the process.

use cluster::client::{ClientOptions, Clients};
use fake_cluster::Cluster;

/// Clients that connect to `cluster` through in-process pipes with real HTTP.
pub(crate) fn clients(cluster: &Cluster, options: &ClientOptions) -> Clients {
    Clients::over(cluster.connector(), options).unwrap()
}
