//! Sends the events and the status of a sync, and commits its history.

use std::sync::Arc;

use autoscaling::{Conclusion, WriteOutcome, failed_update_status};
use policies::history::PolicyHistory;

use super::histories::ClockReading;
use super::worker_pool::WorkerPermit;
use super::{Controller, event_target};
use crate::store::HpaRecord;
use cluster::gate::WritePermit;
use cluster::status::StatusTarget;

/// The inputs of a sync's writes, in addition to its conclusion.
pub(super) struct Writes<'a> {
    /// Time of the decision.
    pub(super) moment: ClockReading,
    /// The permission to write about the HPA. `None` if all HPAs are in scope.
    pub(super) charge: Option<WritePermit>,
    /// The worker of the sync.
    pub(super) permit: &'a mut WorkerPermit,
    /// The metrics of this sync, if the policy of the HPA needs them.
    pub(super) metrics: Option<PolicyHistory>,
}

impl Controller {
    /// Sends events and status, unless the rescale was withheld. Commits the history, unless the HPA was deleted or
    /// replaced during the sync. Returns false if the status write failed.
    pub(super) async fn finish(
        &self,
        record: &HpaRecord,
        outcome: &WriteOutcome,
        conclusion: &Conclusion,
        mut writes: Writes<'_>,
    ) -> bool {
        let (moment, metrics) = (writes.moment, writes.metrics.take());
        // The gate may have opened since: a status must not report a rescale that was withheld.
        let published = *outcome == WriteOutcome::Withheld || self.publish(record, conclusion, writes).await;
        if self.is_there(record) {
            self.histories.commit(&record.uid, &conclusion.changes, moment);
            if !self.policies.is_empty() {
                self.histories.commit_policy(&record.uid, metrics, moment);
            }
            // A sync without a count, or with a failed write, leaves the series unchanged, as upstream does.
            let decided = conclusion.explanation.desired.is_some();
            if let (Some(desired), true) = (conclusion.desired, decided && !failed(outcome)) {
                self.telemetry.desired(&record.key.namespace, &record.key.name, desired);
            }
            let status = conclusion.status.as_ref().unwrap_or(&record.status);
            self.telemetry.conditions(&record.key.namespace, &record.key.name, &status.conditions);
        }
        published
    }

    /// Sends events and status. Returns false if the status write failed.
    async fn publish(&self, record: &HpaRecord, conclusion: &Conclusion, writes: Writes<'_>) -> bool {
        let Writes { charge, permit, .. } = writes;
        let about = event_target(record);
        let (mut needs_refresh, mut written) = (false, true);
        for event in &conclusion.events {
            self.events.record(about.clone(), event.clone());
        }
        if let Some(status) = &conclusion.status {
            // A sync that waits at the rate limit keeps its status permit, so that new HPAs find a short queue
            // at the limit.
            permit.send_status(&record.key.namespace).await;
            let permission = self.statuses.turn(&record.key.namespace).await.for_write(charge);
            self.hpas.sends(&record.key, &record.uid, Arc::clone(status));
            match self.statuses.put(permission, status_target(record), status).await {
                Ok(resource_version) => self.hpas.wrote(&record.key, &record.uid, &resource_version),
                Err(error) if error.is_refused() => {}
                Err(error) => {
                    if error.is_conflict() {
                        for observer in &self.observers {
                            observer.conflicted(&record.key);
                        }
                    }
                    tracing::warn!(hpa = %record.key, %error, "failed to update status");
                    written = false;
                    let event = failed_update_status(&error.to_string());
                    self.telemetry.sync_failed(event.reason);
                    self.events.record(about.clone(), event);
                    needs_refresh = error.is_conflict() || error.outcome_unknown();
                }
            }
        }
        if let Some(event) = &conclusion.last_event {
            self.events.record(about, event.clone());
        }
        if needs_refresh {
            self.refresh_hpa(record).await;
        }
        written
    }

    /// Reads an HPA with a status write that conflicted, has an unknown outcome, or was not delivered by the watch.
    /// A deletion arrives by the watch.
    pub(super) async fn refresh_hpa(&self, record: &HpaRecord) {
        match self.statuses.read(&record.key.namespace, &record.key.name).await {
            Ok(Some(object)) => self.apply_fresh(record, object),
            Ok(None) => {}
            Err(error) => tracing::debug!(hpa = %record.key, %error, "failed to refresh the HPA"),
        }
    }
}

/// Whether the rescale failed, or has an unknown outcome.
pub(super) fn failed(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::Failed(_) | WriteOutcome::Unknown(_))
}

/// Returns the HPA as the object of a status write.
fn status_target(record: &HpaRecord) -> StatusTarget<'_> {
    StatusTarget {
        namespace: &record.key.namespace,
        name: &record.key.name,
        metadata: &record.metadata,
        spec: &record.spec_raw,
    }
}
