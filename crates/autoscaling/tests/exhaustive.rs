//! Proofs of the core's arithmetic by exhaustion: every input of bounded domains is compared with a second, naive
//! implementation in integer arithmetic. docs/internals/proofs.md lists the domains and the proven properties.
//!
//! `cargo test --release -p autoscaling --test exhaustive` covers the whole domains. A build with debug assertions covers
//! smaller domains.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "exhaustive/model.rs"]
mod model;
#[path = "exhaustive/monotonicity.rs"]
mod monotonicity;
/// A copy of the module, which is private to the crate.
#[path = "../src/number.rs"]
mod number;
#[path = "exhaustive/pods.rs"]
mod pods;
#[path = "exhaustive/rates.rs"]
mod rates;
#[path = "exhaustive/saturation.rs"]
mod saturation;
#[path = "exhaustive/stabilization.rs"]
mod stabilization;
#[path = "exhaustive/workload.rs"]
mod workload;
