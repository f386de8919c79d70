//! Proof by exhaustion of the core's arithmetic: over bounded domains every input, against a second, naive formulation
//! in whole numbers. docs/reliability/proofs.md tells the domains and what is proven.
//!
//! `cargo test --release -p autoscaling --test exhaustive` goes through the whole domains; a build with debug
//! assertions through smaller ones of the same kind.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a test fails by panicking")]

#[path = "exhaustive/bounds.rs"]
mod bounds;
#[path = "exhaustive/metric_model.rs"]
mod metric_model;
#[path = "exhaustive/model.rs"]
mod model;
#[path = "exhaustive/monotonicity.rs"]
mod monotonicity;
/// The conversions, which the crate keeps to itself.
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
#[path = "exhaustive/several.rs"]
mod several;
#[path = "exhaustive/stabilization.rs"]
mod stabilization;
#[path = "exhaustive/workload.rs"]
mod workload;
