//! Counts and logs what a sync read and concluded. Gauges that no code path updates are computed on every scrape:
//! sizes, ages, and counts of other components.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::condition::FAILED_UPDATE_SCALE;
use autoscaling::event::EventKind;
use autoscaling::explanation::LimitingStep;
use autoscaling::query::{Answer, Api};
use autoscaling::{Answers, Conclusion, WriteOutcome};
use cluster::watch::{Informer, WatchStatus};
use jiff::Timestamp;
use policies::steps::PolicyEffect;

use super::Controller;
use crate::store::Key;

impl Controller {
    /// Records the age of the answers of metrics APIs, each by its oldest sample. A sample from the future has the
    /// age 0. Sources have a separate metric.
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
                // This failure is counted by the reason of the condition.
                "FailedRescale" => self.telemetry.sync_failed(FAILED_UPDATE_SCALE),
                "SelectorRequired" => self.telemetry.sync_failed("InvalidSelector"),
                reason => self.telemetry.sync_failed(reason),
            }
        }
    }
}

/// Logs a decision that changes the target, or would change it if the write were not withheld. A failed write has a
/// separate line. Warnings that are also sent as events are logged for debugging only.
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

impl Controller {
    /// Registers the sizes of queue and caches, the dropped events and the state of `informers` with the
    /// metrics. The registration lasts for the lifetime of the controller.
    pub fn register_gauges(self: &Arc<Self>, informers: Vec<Informer>) {
        // The controller owns the metrics, which must not keep it alive.
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
