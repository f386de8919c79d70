//! All requests to the cluster.
