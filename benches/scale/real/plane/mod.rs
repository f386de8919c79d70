//! The control plane of the end-to-end tests: etcd and kube-apiserver on loopback, and how to talk to them.

#![allow(dead_code, reason = "shared with tests/e2e.rs, which uses all of it")]
#![allow(
    clippy::indexing_slicing,
    reason = "only JSON is indexed, where a missing field is null and no panic"
)]
#![allow(missing_debug_implementations, reason = "tests need none")]

#[path = "../../../../tests/e2e/aggregation.rs"]
pub(super) mod aggregation;
#[path = "../../../../tests/e2e/assets.rs"]
pub(super) mod assets;
#[path = "../../../../tests/e2e/audit.rs"]
mod audit;
#[path = "../../../../tests/e2e/controlplane.rs"]
mod controlplane;
#[path = "../../../../tests/e2e/outcome.rs"]
mod outcome;
#[path = "../../../../tests/e2e/process.rs"]
mod process;
#[path = "../../../../tests/e2e/rest.rs"]
mod rest;

pub(super) use self::controlplane::{ADMIN_TOKEN, ControlPlane};
pub(super) use self::outcome::Outcome;
pub(super) use self::rest::{Rest, collection};

/// As the failures of this program.
pub(super) fn told<T>(outcome: Outcome<T>) -> Result<T, crate::Failure> {
    outcome.map_err(|outcome::Failure(reason)| reason.into())
}
