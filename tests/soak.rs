//! Long runs: what a controller holds after a day of comings and goings, and what it takes of the system's memory. Ignored
//! by default: `cargo test --release --test soak -- --ignored --nocapture`.

#![cfg(feature = "tools")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[path = "soak/churn.rs"]
mod churn;
#[path = "soak/day.rs"]
mod day;
#[path = "support/link.rs"]
mod link;
#[path = "support/network.rs"]
#[allow(dead_code, reason = "other tests use the rest of it")]
mod network;
#[path = "soak/wire.rs"]
mod wire;

use peak_alloc::PeakAlloc;

/// Knows how many bytes are allocated and not given back.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// By how much one figure exceeds another, in percent.
fn growth(before: f64, after: f64) -> f64 {
    (after - before) / before * 100.0
}
