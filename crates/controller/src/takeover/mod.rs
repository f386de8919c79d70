//! Takeover: prevents Concertina and another controller from acting on HPAs at the same time.
//!
//! Three signs show another controller:
//!
//! - A field manager other than Concertina's wrote the status of an HPA: its entry in `managedFields` changed. Only
//!   this sign stops Concertina, because every controller of HPAs writes statuses.
//! - A status write by Concertina conflicted although it was based on a fresh read. A changed spec also causes
//!   conflicts, so this sign only triggers a read of the HPA that bypasses the watch cache.
//! - A count that Concertina wrote was undone before the next sync, twice in a row. A tool that manages Deployments
//!   from a repository also undoes counts, and the built-in controller ignores such changes. This sign therefore only
//!   triggers a read of the HPA and a log line. Otherwise a user with permission to scale one Deployment could stop all
//!   scaling in the cluster.
//!
//! `machine` decides. [`TakeOver`] observes, checks, reports, and opens and closes the write gate. `foreign` recognizes
//! foreign writes.

mod driver;
pub mod foreign;
pub mod machine;

use std::sync::Arc;

use autoscaling::WriteOutcome;
use autoscaling::spec::Spec;
use autoscaling::status::{MetricStatus, Status};

pub use self::driver::{Parts, TakeOver};
use crate::reconcile::{ConcludedSync, Controller, WatchedRescale};
use crate::store::HpaRecord;

/// The inputs that are the same for every controller of an HPA, independent of its history and configuration.
#[derive(Debug, Clone, PartialEq)]
pub struct ObservedState {
    /// `spec.replicas` of the target.
    pub replicas: i32,
    /// The current metrics, as in the status.
    pub metrics: Vec<MetricStatus>,
}

/// The part of a concluded sync that the state machines use.
#[derive(Debug, Clone, PartialEq)]
pub struct SyncObservation {
    /// The spec that the sync used.
    pub spec: Arc<Spec>,
    /// The state that the sync read.
    pub found: ObservedState,
    /// The state in the stored status.
    pub stored: ObservedState,
    /// Whether the gate refused a write of the sync.
    pub withheld: bool,
    /// Whether no controller has ever written a status.
    pub untouched: bool,
}

impl SyncObservation {
    /// Creates the observation of a sync.
    pub(crate) fn new(sync: &ConcludedSync<'_>) -> Self {
        let observed = |status: &Status| {
            let (replicas, metrics) = (status.current_replicas, status.current_metrics.clone());
            ObservedState { replicas, metrics }
        };
        let stored = observed(&sync.hpa.status);
        Self {
            spec: Arc::clone(&sync.hpa.spec),
            found: sync.conclusion.status.as_deref().map_or_else(|| stored.clone(), observed),
            stored,
            withheld: *sync.outcome == WriteOutcome::Withheld,
            untouched: sync.hpa.status_writers.is_empty() && *sync.hpa.status == Status::default(),
        }
    }
}

/// Adds a foreign rescale to the history, so that the rate policies of `behavior` apply from the first write of this
/// process.
pub(crate) fn remember(controller: Option<Arc<Controller>>, hpa: &HpaRecord, rescale: WatchedRescale) {
    if let (Some(controller), Some(behavior)) = (controller, &hpa.spec.behavior) {
        controller.histories.remember(&hpa.uid, behavior, rescale, controller.clock.now());
    }
}
