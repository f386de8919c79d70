//! Publishes the results of syncs: events, statuses, histories, metrics and log lines. Computes gauges on every scrape:
//! sizes, ages, and counts of other components.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::condition::FAILED_UPDATE_SCALE;
use autoscaling::event::EventKind;
use autoscaling::explanation::LimitingStep;
use autoscaling::query::{Answer, Api};
use autoscaling::{Answers, Conclusion, WriteOutcome, failed_update_status};
use jiff::Timestamp;
use policies::history::PolicyHistory;
use policies::steps::PolicyEffect;

use super::histories::ClockReading;
use super::{Controller, WorkerPermit, event_target};
use crate::store::{HpaRecord, Key};
use cluster::gate::WritePermit;
use cluster::status::StatusTarget;
use cluster::watch::{Informer, WatchStatus};

impl Controller {
    /// Records the age of each answer of a metrics API. The oldest sample determines the age, and a sample from the
    /// future has age 0. Answers of sources have a separate metric.
    pub(super) fn count_ages(&self, answers: &Answers<'_>, of_sources: &BTreeSet<usize>, now: Timestamp) {
        let of_apis = answers.metrics.iter().enumerate().filter(|(index, _)| !of_sources.contains(index));
        for answer in of_apis.filter_map(|(_, answer)| answer.as_ref()?.as_ref().ok()) {
            let (api, oldest) = match answer {
                Answer::Resource(pods) => (Api::Resource, pods.iter().filter_map(|pod| pod.timestamp).min()),
                Answer::Custom(values) => {
                    (Api::Custom, values.iter().filter_map(|value| value.timestamp).min())
                }
                Answer::External(values) => {
                    (Api::External, values.iter().filter_map(|value| value.timestamp).min())
                }
            };
            if let Some(oldest) = oldest {
                let age = Duration::try_from(now.duration_since(oldest)).unwrap_or_default();
                self.telemetry.metrics_age(api, age);
            }
        }
    }

    /// Counts failures by the reasons of their events, except for the reason that only summarizes others.
    pub(super) fn count_failures(&self, conclusion: &Conclusion) {
        for (reason, count) in &conclusion.unsent_events {
            self.telemetry.syncs_failed(reason, *count);
        }
        let events = conclusion.events.iter().chain(&conclusion.last_event);
        for event in events.filter(|event| event.kind == EventKind::Warning) {
            match event.reason {
                "FailedComputeMetricsReplicas" => {}
                // Counted under the reason of the condition.
                "FailedRescale" => self.telemetry.sync_failed(FAILED_UPDATE_SCALE),
                "SelectorRequired" => self.telemetry.sync_failed("InvalidSelector"),
                reason => self.telemetry.sync_failed(reason),
            }
        }
    }
}

/// Logs a decision whose rescale was written or withheld. A failed write has a separate line. Warnings are also sent as
/// events, so they are logged at level `debug`.
pub(super) fn log(
    key: &Key,
    conclusion: &Conclusion,
    effect: Option<&PolicyEffect>,
    outcome: &WriteOutcome,
    at: Timestamp,
) {
    if matches!(outcome, WriteOutcome::Done | WriteOutcome::Withheld) {
        let explanation = &conclusion.explanation;
        let metric = explanation.winning_metric().map(|metric| metric.subject().to_string());
        tracing::info!(
            hpa = %key,
            from = explanation.current,
            to = effect.map_or(explanation.desired, |effect| effect.applied),
            policy = effect.and_then(PolicyEffect::sentence),
            metric = metric.as_deref(),
            limited_by = explanation.limiting_step().map(LimitingStep::as_str),
            withheld = (*outcome == WriteOutcome::Withheld).then_some(true),
            "{}",
            explanation.sentence(at)
        );
    }
    for event in conclusion.events.iter().chain(&conclusion.last_event) {
        if event.kind == EventKind::Warning {
            tracing::debug!(hpa = %key, reason = event.reason, "{}", event.message);
        }
    }
}

/// The inputs of a sync's writes, in addition to its conclusion.
pub(super) struct Writes<'a> {
    /// Time of the decision.
    pub(super) moment: ClockReading,
    /// The permission to write the status. `None` if all HPAs are in scope.
    pub(super) charge: Option<WritePermit>,
    /// The worker of the sync.
    pub(super) permit: &'a mut WorkerPermit,
    /// The metrics of this sync, if a rule of the HPA's policy needs them in later syncs.
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
        // The gate may have opened after it withheld the rescale. A status must not report a rescale that was withheld.
        let published = *outcome == WriteOutcome::Withheld || self.publish(record, conclusion, writes).await;
        if self.is_there(record) {
            self.histories.commit(&record.uid, &conclusion.changes, moment);
            if !self.policies.is_empty() {
                self.histories.commit_policy(&record.uid, metrics, moment);
            }
            // As in upstream, a sync without a count, or with a failed write, leaves the series unchanged.
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
            // The sync holds its status permit while it waits at the rate limit, so that few syncs wait there before
            // those of new HPAs.
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

    /// Reads and applies an HPA after a status write that conflicted, has an unknown outcome, or was not delivered by
    /// the watch. Ignores a deletion, because the watch delivers it.
    pub(super) async fn refresh_hpa(&self, record: &HpaRecord) {
        match self.statuses.read(&record.key.namespace, &record.key.name).await {
            Ok(Some(object)) => self.apply_fresh(record, object),
            Ok(None) => {}
            Err(error) => tracing::debug!(hpa = %record.key, %error, "failed to refresh the HPA"),
        }
    }
}

/// Returns whether a write of the Scale failed, or has an unknown outcome.
pub(super) fn failed(outcome: &WriteOutcome) -> bool {
    matches!(outcome, WriteOutcome::Failed(_) | WriteOutcome::Unknown(_))
}

fn status_target(record: &HpaRecord) -> StatusTarget<'_> {
    StatusTarget {
        namespace: &record.key.namespace,
        name: &record.key.name,
        metadata: &record.metadata,
        spec: &record.spec_raw,
    }
}

impl Controller {
    /// Updates gauges before each scrape: the sizes of queue and caches, the dropped events, and the states of
    /// `informers`.
    pub fn register_gauges(self: &Arc<Self>, informers: Vec<Informer>) {
        // The controller owns the metrics, so a strong reference to the controller would be a cycle.
        let controller = Arc::downgrade(self);
        self.telemetry.before_render(move || {
            if let Some(controller) = controller.upgrade() {
                controller.update_gauges(&informers);
            }
        });
    }

    fn update_gauges(&self, informers: &[Informer]) {
        let telemetry = &self.telemetry;
        self.queue.publish();
        telemetry.cache_objects("pods", self.pods.len());
        telemetry.cache_objects("horizontalpodautoscalers.autoscaling", self.hpas.len());
        if let Some(charges) = self.hpas.charges() {
            telemetry.handover(charges.counts(), charges.last_proof());
        }
        let events = self.events.stats();
        telemetry.events_dropped("spam", events.spam);
        telemetry.events_dropped("queue_full", events.overflow);
        telemetry.events_dropped("not_delivered", events.failed);
        telemetry.events_dropped("withheld", events.refused);
        for status in informers.iter().map(Informer::status) {
            self.update_watch_gauges(&status);
        }
        if let Some(targets) = &self.targets {
            let (watched, removed) = targets.levels();
            for resource in removed {
                telemetry.unwatched(&resource);
            }
            for (status, objects) in watched {
                telemetry.cache_objects(&status.resource, objects);
                self.update_watch_gauges(&status);
            }
        }
    }

    fn update_watch_gauges(&self, status: &WatchStatus) {
        self.telemetry.watch_age(&status.resource, status.age);
        for (reason, total) in &status.restarts {
            self.telemetry.watch_restarts(&status.resource, reason.as_str(), *total);
        }
    }
}
