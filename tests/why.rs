//! `why` against the embedded cluster: its answers, the actions of a real controller, its requests.

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
#[path = "why/command.rs"]
mod command;
#[path = "why/context_reads.rs"]
mod context_reads;
#[path = "why/controller_state.rs"]
mod controller_state;
#[path = "why/leader.rs"]
mod leader;
#[path = "why/permissions.rs"]
mod permissions;
#[path = "why/port_forward_proxy.rs"]
mod port_forward_proxy;
#[path = "why/process.rs"]
mod process;
#[path = "why/rebuilt_history.rs"]
mod rebuilt_history;
#[path = "why/records.rs"]
mod records;
#[path = "why/watches.rs"]
mod watches;
