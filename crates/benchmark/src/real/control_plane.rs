//! The control plane of the end-to-end tests: etcd and kube-apiserver on loopback, with a client.

#![allow(dead_code, reason = "this program uses only a part of these modules")]
#![allow(
    clippy::indexing_slicing,
    reason = "tests index JSON only, where a missing field is null instead of a panic"
)]
#![allow(missing_debug_implementations, reason = "tests do not need Debug")]

#[path = "../../../../tests/e2e/extensions.rs"]
pub(super) mod aggregation;
#[path = "../../../../tests/e2e/audit.rs"]
mod audit;
#[path = "../../../../tests/e2e/controlplane.rs"]
pub(super) mod controlplane;
#[path = "../../../../tests/e2e/outcome.rs"]
mod outcome;
#[path = "../../../../tests/e2e/rest.rs"]
mod rest;

pub(super) use self::controlplane::{ADMIN_TOKEN, ControlPlane};
pub(super) use self::outcome::Outcome;
pub(super) use self::rest::{Rest, collection};

/// Converts the error of a function of the end-to-end tests.
pub(super) fn convert_error<T>(outcome: Outcome<T>) -> Result<T, crate::Failure> {
    outcome.map_err(|outcome::Failure(reason)| reason.into())
}
