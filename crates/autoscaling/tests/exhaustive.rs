//! Proves the core's arithmetic by exhaustion. The proofs compare every input of bounded domains with a
//! second, naive implementation in integer arithmetic. docs/internals/proofs.md lists the domains and the
//! proven properties.
//!
//! `cargo test --release -p autoscaling --test exhaustive` covers the whole domains. A build with debug
//! assertions covers smaller domains of the same kind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "exhaustive/bounds.rs"]
mod bounds;
#[path = "exhaustive/metric_model.rs"]
mod metric_model;
#[path = "exhaustive/model.rs"]
mod model;
#[path = "exhaustive/monotonicity.rs"]
mod monotonicity;
#[path = "exhaustive/multiple_metrics.rs"]
mod multiple_metrics;
/// The conversions, which are private to the crate.
#[path = "../src/number.rs"]
mod number;
#[path = "exhaustive/pods.rs"]
mod pods;
#[path = "exhaustive/rates.rs"]
mod rates;
#[path = "exhaustive/rounding.rs"]
mod rounding;
#[path = "exhaustive/saturation.rs"]
mod saturation;
#[path = "exhaustive/stabilization.rs"]
mod stabilization;
#[path = "exhaustive/workload.rs"]
mod workload;
