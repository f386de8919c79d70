//! Long runs: the state of a controller after a day of churn, and its use of system memory. Ignored by
//! default: `cargo test --release --test soak -- --ignored --nocapture`.

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
#[allow(dead_code, reason = "other test binaries use the rest")]
mod network;
#[path = "soak/tcp.rs"]
mod tcp;

use peak_alloc::PeakAlloc;

/// Counts the allocated bytes that are not freed.
#[global_allocator]
static HEAP: PeakAlloc = PeakAlloc;

/// Growth from `before` to `after`, in percent.
fn growth(before: f64, after: f64) -> f64 {
    (after - before) / before * 100.0
}
