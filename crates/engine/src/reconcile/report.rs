//! Interfaces for observers of concluded syncs and of the watch. Observers are,
//! for example, the record of decisions, a simulation, and `why`.
//!
//! Publishes the results of syncs: events, statuses, histories, metrics and log lines. Computes gauges on every scrape:
//! sizes, ages, and counts of other components.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::event::EventKind;
use autoscaling::explanation::LimitingStep;
use autoscaling::history::History;
use autoscaling::precision::{WrittenStatus, withholds};
use autoscaling::query::{Answer, Api};
use autoscaling::settings::Settings;
use autoscaling::status::FAILED_UPDATE_SCALE;
use autoscaling::{Answers, Conclusion, Plan, Scale, WriteOutcome, failed_update_status};
use jiff::{SignedDuration, Timestamp};
use policies::resolve::Rules;
use policies::sentence::Decided;
use policies::steps::{PolicyEffect, SourceReading};

use super::guests::{Standpoint, SyncRules};
use super::histories::ClockReading;
use super::{Controller, WorkerPermit, event_target};
use crate::store::{HpaRecord, Key};
use cluster::gate::WritePermit;
use cluster::status::StatusTarget;
use cluster::watch::{Informer, WatchStatus};

/// Observes every concluded sync before its status is written, and the HPAs from the watch. The methods must not block.
pub trait Observer: fmt::Debug + Send + Sync + 'static {
    /// Handles a concluded sync.
    fn concluded(&self, sync: &ConcludedSync<'_>);

    /// Handles the same sync with its plan and its history, right after [`Self::concluded`]. An observer that replays
    /// syncs needs these inputs.
    fn evaluated(&self, sync: &ConcludedSync<'_>, plan: &Plan, history: &History) {
        let _ = (sync, plan, history);
    }

    /// Handles an HPA from the watch or a list. `old` is the previous version of the same object, or `None` for a new
    /// object. Called in the order of the watch, after the update of the store and before any other reaction.
    fn seen(&self, old: Option<&HpaRecord>, new: &HpaRecord) {
        let _ = (old, new);
    }

    /// Handles a status write that failed because the HPA has changed since the sync read it.
    fn conflicted(&self, key: &Key) {
        let _ = key;
    }

    /// Handles the deletion of an HPA, or its replacement by another HPA with the same name.
    fn forgotten(&self, key: &Key, uid: &str) {
        let _ = (key, uid);
    }
}

/// One concluded sync.
#[derive(Debug, Clone, Copy)]
pub struct ConcludedSync<'a> {
    /// The HPA at the start of the sync.
    pub hpa: &'a HpaRecord,
    /// Time of the decision.
    pub at: Timestamp,
    /// Time of the conclusion.
    pub ended: Timestamp,
    /// Sum of all clock jumps before the decision, since the first reading of the clock.
    pub set: SignedDuration,
    /// Metrics and pods that the sync read.
    pub answers: &'a Answers<'a>,
    /// The outcome of the scale write.
    pub outcome: &'a WriteOutcome,
    /// The status, events and explanation that result from the sync.
    pub conclusion: &'a Conclusion,
    /// Whether the status is not written, because it says nothing new (`--status-precision`).
    pub withholds_status: bool,
    /// The effect of the scaling policy. `None` for an HPA without a policy.
    pub policy: Option<&'a PolicyEffect>,
    /// The rules of the scaling policy. `None` for an HPA without a policy.
    pub rules: Option<&'a Arc<Rules>>,
    /// The readings of the sources that the policy names.
    pub sources: &'a [SourceReading],
}

/// The observers, in the order of their calls.
pub type Observers = Vec<Arc<dyn Observer>>;

/// A concluded sync with its inputs.
#[derive(Debug, Clone, Copy)]
pub struct ComparedSync<'a> {
    /// The concluded sync and its results.
    pub sync: &'a ConcludedSync<'a>,
    /// The Scale that the sync used. `None` if it could not be read.
    pub scale: Option<&'a Scale>,
    /// The history that the decision used.
    pub history: &'a History,
    /// The state of the target from which the sync decided.
    pub standpoint: &'a Standpoint,
}

impl Controller {
    /// Records the age of each answer of a metrics API. The oldest sample determines the age, and a sample from the
    /// future has age 0. Answers of sources have a separate metric.
    pub(super) fn count_ages(&self, answers: &Answers<'_>, of_sources: &[usize], now: Timestamp) {
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

    /// Counts failures by the reasons of their events, except for the reason that only summarizes other failures.
    pub(super) fn count_failures(&self, conclusion: &Conclusion) {
        for (reason, count) in &conclusion.unsent_events {
            self.telemetry.syncs_failed(reason, *count);
        }
        let events = conclusion.events.iter().chain(&conclusion.last_event);
        for event in events.filter(|event| event.kind == EventKind::Warning) {
            match event.reason {
                "FailedComputeMetricsReplicas" => {}
                // A failed rescale counts under the reason of its condition.
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
        let decided = Decided::new(explanation, effect);
        let metric = explanation.winning_metric().map(|metric| metric.subject().to_string());
        tracing::info!(
            hpa = %key,
            from = explanation.current,
            to = decided.count(),
            policy = effect.and_then(PolicyEffect::sentence),
            metric = metric.as_deref(),
            limited_by = explanation.limiting_step().map(LimitingStep::as_str),
            withheld = (*outcome == WriteOutcome::Withheld).then_some(true),
            "{}",
            decided.sentence(at)
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
    /// The permission to write the status.
    pub(super) charge: WritePermit,
    /// The worker of the sync.
    pub(super) worker: &'a mut WorkerPermit,
    /// The rules of the sync.
    pub(super) rules: &'a mut dyn SyncRules,
    /// The number of removals of HPAs before the sync.
    pub(super) removals: u64,
}

impl Controller {
    /// Returns whether the new status of a sync is not written, because it says nothing new. A status that another
    /// client wrote is always replaced.
    pub(super) fn withholds_status(
        &self,
        record: &HpaRecord,
        conclusion: &Conclusion,
        settings: &Settings,
        now: Timestamp,
    ) -> bool {
        let (Some(status), Some(at)) =
            (&conclusion.status, record.status_written_by(self.clients.statuses.field_manager()))
        else {
            return false;
        };
        let written = WrittenStatus { status: &record.status, at };
        withholds(settings, &record.uid, &record.spec, written, status, now, self.period)
    }

    /// Sends events and status, unless the rescale was withheld. Commits the history, unless the HPA was deleted or
    /// replaced during the sync. Returns false if the status write failed.
    pub(super) async fn finish(
        &self,
        record: &HpaRecord,
        outcome: &WriteOutcome,
        conclusion: &Conclusion,
        writes: Writes<'_>,
    ) -> bool {
        let Writes { moment, charge, worker, rules, removals } = writes;
        // The gate may have opened after it withheld the rescale. A status must not report a rescale that was withheld.
        let published =
            *outcome == WriteOutcome::Withheld || self.publish(record, conclusion, charge, worker).await;
        if self.is_there(record, removals) {
            self.stores.histories.commit(&record.uid, &conclusion.changes, moment);
            rules.commit(&self.stores.histories, moment);
            // As in upstream, a sync without a count, or with a failed write, leaves the series unchanged.
            let decided = conclusion.explanation.desired.is_some();
            if let (Some(desired), true) = (conclusion.desired, decided && !failed(outcome)) {
                self.telemetry.desired(&record.key, desired);
            }
            let status = conclusion.status.as_ref().unwrap_or(&record.status);
            self.telemetry.conditions(&record.key, &status.conditions);
        }
        published
    }

    /// Sends events and status. Returns false if the status write failed.
    async fn publish(
        &self,
        record: &HpaRecord,
        conclusion: &Conclusion,
        charge: WritePermit,
        worker: &mut WorkerPermit,
    ) -> bool {
        let about = event_target(record);
        let (mut needs_refresh, mut written) = (false, true);
        for event in &conclusion.events {
            self.clients.events.record(about.clone(), event.clone());
        }
        if let Some(status) = &conclusion.status {
            // The sync holds its status permit while it waits at the rate limit. Few syncs therefore wait there ahead
            // of the syncs of new HPAs.
            worker.send_status(&record.key.namespace).await;
            let permission = self.clients.statuses.turn(&record.key.namespace).await.for_write(Some(charge));
            self.stores.hpas.sends(&record.key, &record.uid, Arc::clone(status));
            match self.clients.statuses.put(permission, status_target(record), status).await {
                Ok(resource_version) => self.stores.hpas.wrote(&record.key, &record.uid, &resource_version),
                Err(error) if error.is_refused() => {}
                Err(error) => {
                    if error.is_conflict() {
                        for observer in &self.guests.observers {
                            observer.conflicted(&record.key);
                        }
                    }
                    tracing::warn!(hpa = %record.key, %error, "failed to update status");
                    written = false;
                    let event = failed_update_status(&error.to_string());
                    self.telemetry.sync_failed(event.reason);
                    self.clients.events.record(about.clone(), event);
                    needs_refresh = error.is_conflict() || error.outcome_unknown();
                }
            }
        }
        if let Some(event) = &conclusion.last_event {
            self.clients.events.record(about, event.clone());
        }
        if needs_refresh {
            self.refresh_hpa(record).await;
        }
        written
    }

    /// Reads and applies an HPA after a status write that conflicted, has an unknown outcome, or was not delivered by
    /// the watch. Ignores a deletion, because the watch delivers it.
    pub(super) async fn refresh_hpa(&self, record: &HpaRecord) {
        match self.clients.statuses.read(&record.key.namespace, &record.key.name).await {
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
        self.runtime.queue.publish();
        telemetry.cache_objects("pods", self.stores.pods.len());
        telemetry.cache_objects("horizontalpodautoscalers.autoscaling", self.stores.hpas.len());
        self.guests.scope.publish(telemetry);
        let events = self.clients.events.stats();
        telemetry.events_dropped("spam", events.spam);
        telemetry.events_dropped("queue_full", events.overflow);
        telemetry.events_dropped("not_delivered", events.failed);
        telemetry.events_dropped("withheld", events.refused);
        for status in informers.iter().map(Informer::status) {
            self.update_watch_gauges(&status);
        }
        if let Some(targets) = &self.stores.targets {
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
