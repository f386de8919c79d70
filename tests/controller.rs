//! The whole control loop in virtual time against the embedded cluster: watches, queue, syncs, writes and
//! events.

#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::indexing_slicing,
    reason = "a test fails by panicking"
)]

mod support;

#[path = "controller/adapters.rs"]
mod adapters;
#[path = "controller/bad_input.rs"]
mod bad_input;
#[path = "controller/bad_objects.rs"]
mod bad_objects;
#[path = "controller/checkpoint.rs"]
mod checkpoint;
#[path = "controller/decisions.rs"]
mod decisions;
#[path = "controller/exposed_metrics.rs"]
mod exposed_metrics;
#[path = "controller/failover.rs"]
mod failover;
#[path = "controller/fairness.rs"]
mod fairness;
#[path = "controller/forecast_history.rs"]
mod forecast_history;
#[path = "controller/forecasts.rs"]
mod forecasts;
#[path = "controller/handover.rs"]
mod handover;
#[path = "controller/identity.rs"]
mod identity;
#[path = "controller/kubelets.rs"]
mod kubelets;
#[path = "controller/load.rs"]
mod load;
#[path = "controller/metrics.rs"]
mod metrics;
#[path = "controller/permissions.rs"]
mod permissions;
#[path = "controller/policies.rs"]
mod policies;
#[path = "controller/policy_fields.rs"]
mod policy_fields;
#[path = "controller/precision.rs"]
mod precision;
#[path = "controller/process.rs"]
mod process;
#[path = "controller/restart_bugs.rs"]
mod restart_bugs;
#[path = "controller/server.rs"]
mod server;
#[path = "controller/shadow.rs"]
mod shadow;
#[path = "controller/sources.rs"]
mod sources;
#[path = "controller/takeover.rs"]
mod takeover;
#[path = "controller/targets.rs"]
mod targets;
#[path = "controller/timing.rs"]
mod timing;
#[path = "controller/unknown_writes.rs"]
mod unknown_writes;
#[path = "controller/writes.rs"]
mod writes;
