//! `why` against the embedded cluster: its answers, the actions of a real controller, its requests.

#![cfg(feature = "tools")]
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

#[allow(dead_code, unused_imports, reason = "shared with the tests of the whole loop, which use all of it")]
mod support;

#[path = "why/answers.rs"]
mod answers;
#[path = "why/ask.rs"]
mod ask;
#[path = "why/front.rs"]
mod front;
#[path = "why/leader.rs"]
mod leader;
#[path = "why/past.rs"]
mod past;
#[path = "why/permissions.rs"]
mod permissions;
#[path = "why/process.rs"]
mod process;
#[path = "why/records.rs"]
mod records;
#[path = "why/surroundings.rs"]
mod surroundings;
#[path = "why/watches.rs"]
mod watches;
