//! All requests to the cluster.

pub mod kubeconfig;
