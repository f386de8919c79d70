//! Exhaustive fault plans. `cargo test --release --test plans`.

#![cfg(feature = "tools")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "simulation/plans/mod.rs"]
mod plans;
