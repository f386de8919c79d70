//! The recent past of a cluster's HPA as a [`Run`], the input of figures, scores and pages.
//!
//! The sources are the recorded decisions of a controller, the observations of a watch, and events. A recorded decision
//! applies from its first sync to the next decision. Before the first recorded decision, counts and values come from
//! the watch and from events.

use std::cmp::Reverse;
use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{
    DecisionPath, Explanation, Measure, MetricExplanation, MetricReading, PodGroup, Subject,
};
use autoscaling::settings::Settings;
use autoscaling::spec::{MetricSource, Spec, ValueTarget};
use jiff::{SignedDuration, Timestamp};
use policies::sentence::Decided;
use policies::steps::PolicyEffect;

use super::observe::{PolicySpans, in_unit, series, set_target, steps_of};
use super::run::{DecisionPoint, EventMark, HpaRun, MetricSeries, Run, Sample, Scores, TimelineEvent};
use super::scoring::{Unserved, scores};

/// The minimum length of a run.
const SHORTEST: SignedDuration = SignedDuration::from_mins(1);
/// The time between a sample and the next sync. The sample does not include the effect of that sync.
const SYNCED: Duration = Duration::from_millis(1);
/// The maximum number of sampling periods in a run. The periods of a long run are longer than the sync period.
const SAMPLES: u32 = 6_000;
/// The maximum number of metrics of a run. The steps of decisions contain all metrics.
const METRICS: usize = 6;

/// The recent past of an HPA.
#[derive(Debug, Clone)]
pub struct Past {
    /// `metadata.namespace`.
    pub namespace: String,
    /// `metadata.name`.
    pub name: String,
    /// The scale target, as `Kind/name`.
    pub target: String,
    /// The spec.
    pub spec: Arc<Spec>,
    /// The settings of the controller.
    pub settings: Settings,
    /// The time between two syncs of the HPA.
    pub period: Duration,
    /// The end, usually the current time.
    pub to: Timestamp,
    /// The recorded decisions, oldest first. Empty if the record of the controller is unavailable.
    pub decisions: Vec<PastDecision>,
    /// The decision at the time `to`.
    pub current: PastDecision,
    /// The observations of a watch, oldest first.
    pub observations: Vec<PastStatus>,
    /// The replica counts from events and from the watch, oldest first.
    pub counts: Vec<(Timestamp, i32)>,
    /// Events about the HPA, oldest first: the time, whether the event is a warning, the reason, and the message.
    pub events: Vec<(Timestamp, bool, String, String)>,
    /// Changes of the leader, and the last writes of field managers, oldest first, as time and description.
    pub happenings: Vec<(Timestamp, String)>,
}

/// A decision, or several consecutive decisions with the same steps.
#[derive(Debug, Clone)]
pub struct PastDecision {
    /// The time of the first sync.
    pub first: Timestamp,
    /// The time of the last sync, which the explanation describes.
    pub last: Timestamp,
    /// The number of syncs.
    pub syncs: u32,
    /// The steps of the decision.
    pub explanation: Arc<Explanation>,
    /// The effect of the scaling policy. `None` without a policy.
    pub policy: Option<Arc<PolicyEffect>>,
    /// The count after the decision. `None` if the count is unknown.
    pub wanted: Option<i32>,
    /// The short name of each metric, with its lowest and its highest ratio in all syncs.
    pub ratios: Vec<(String, f64, f64)>,
}

/// The status of the HPA at a time.
#[derive(Debug, Clone)]
pub struct PastStatus {
    /// The time at which the watch delivered the status.
    pub at: Timestamp,
    /// `status.currentReplicas`.
    pub current: i32,
    /// `status.desiredReplicas`.
    pub desired: i32,
    /// The values of the metrics of the spec, in order, in percent or units. The list may be shorter than the spec.
    pub values: Vec<Option<f64>>,
}

/// The past as a run.
#[derive(Debug, Clone)]
pub struct PastRun {
    /// The run.
    pub run: Run,
    /// Whether the number of running pods is known for at least one sample.
    pub has_running: bool,
    /// Whether the number of ready pods is known for at least one sample.
    pub has_ready: bool,
}

impl PastDecision {
    fn readings(&self) -> impl Iterator<Item = &MetricReading> {
        self.explanation.metrics.iter().filter_map(MetricExplanation::reading)
    }

    fn reading(&self, subject: &Subject) -> Option<&MetricReading> {
        self.readings().find(|reading| reading.subject == *subject)
    }

    /// Returns the value of a metric at the time `at`, which is not before the first sync of the decision. Before the
    /// last sync, the value is the middle of the range of ratios, if the range is known. Otherwise, the value is that
    /// of the last sync.
    fn value(&self, subject: &Subject, at: Timestamp) -> Option<f64> {
        let reading = self.reading(subject)?;
        let name = subject.to_string();
        let range = self.ratios.iter().find(|(metric, ..)| *metric == name).filter(|_| at < self.last);
        let value = match range {
            Some((_, low, high)) => f64::midpoint(*low, *high) * in_unit(reading.target),
            None => in_unit(reading.value),
        };
        Some(value).filter(|value| value.is_finite())
    }

    /// Returns the number of ready pods, if a metric counts them.
    fn ready(&self) -> Option<i32> {
        self.readings().find_map(|reading| {
            let is_per_pod = !reading.pods.is_empty() || !reading.unlisted.is_empty();
            let counted = || reading.count(|group| group == PodGroup::Ready);
            let ready = reading.ready_pods.and_then(|pods| i32::try_from(pods).ok());
            ready.or_else(|| is_per_pod.then(|| i32::try_from(counted()).unwrap_or(i32::MAX)))
        })
    }

    /// Returns the number of pods that exist. `None` if the scale subresource was unavailable.
    fn running(&self) -> Option<i32> {
        let explanation = &self.explanation;
        (explanation.path != DecisionPath::NoScale).then_some(explanation.status_replicas)
    }
}

impl Past {
    /// Returns the earliest time with known data.
    pub fn since(&self) -> Timestamp {
        let firsts = [
            self.decisions.first().map(|decision| decision.first),
            self.observations.first().map(|status| status.at),
            self.counts.first().map(|(at, _)| *at),
        ];
        firsts.into_iter().flatten().min().unwrap_or(self.to)
    }

    /// Returns the past as a run, which covers at least `SHORTEST` and at most `longest`.
    pub fn run(&self, longest: SignedDuration) -> PastRun {
        let before = |length| self.to.checked_sub(length).unwrap_or(Timestamp::MIN);
        let start = self.since().clamp(before(longest.max(SHORTEST)), before(SHORTEST));
        // The times of figures are whole seconds.
        let start = Timestamp::from_second(start.as_second()).unwrap_or(start);
        let length = Duration::try_from(self.to.duration_since(start)).unwrap_or_default();
        let period = self.period.max(length / SAMPLES).max(Duration::from_secs(1));
        let after = |at: Timestamp| Duration::try_from(at.duration_since(start)).unwrap_or_default();
        let within = |at: Timestamp| at >= start && at <= self.to;

        let mut metrics = self.series();
        let mut samples = Vec::new();
        let (mut has_running, mut has_ready) = (false, false);
        let mut at = Duration::ZERO;
        while at <= length {
            // The sample is taken shortly before the next sync, so that it includes the effect of the sync at `at`.
            let time =
                start.checked_add((at + period).saturating_sub(SYNCED)).unwrap_or(self.to).min(self.to);
            let decision = self.decision(time);
            let status = self.status(time);
            let wanted = self.wanted(time);
            let running =
                decision.and_then(PastDecision::running).or_else(|| status.map(|status| status.current));
            let ready = decision.and_then(PastDecision::ready);
            has_running |= running.is_some();
            has_ready |= ready.is_some();
            let steps = if let Some(decision) = decision {
                steps_of(&decision.explanation, decision.policy.as_deref())
            } else {
                let Explanation { min, max, .. } = *self.current.explanation;
                Sample { min, max, ..Sample::default() }
            };
            let running = running.unwrap_or(wanted);
            samples.push(Sample { at, wanted, running, ready: ready.unwrap_or(running), ..steps });
            for (index, series) in &mut metrics {
                series.values.push(self.value(*index, &series.subject, time));
            }
            at += period;
        }
        let metrics: Vec<_> = metrics.into_iter().map(|(_, series)| series).collect();
        let mut spans = PolicySpans::default();
        let recorded = || self.decisions.iter().filter(|decision| decision.last >= start);
        for decision in recorded() {
            spans.note(after(decision.first), decision.policy.as_deref());
        }
        let current = Some(&self.current).filter(|_| self.decisions.is_empty());
        let decisions = recorded().chain(current).map(|decision| {
            let at = decision.first.max(start);
            DecisionPoint {
                at: after(at),
                sentence: Decided::new(&decision.explanation, decision.policy.as_deref()).sentence(at),
                explanation: Arc::clone(&decision.explanation),
                policy: decision.policy.clone(),
            }
        });
        let events = self.events.iter().filter(|(at, ..)| within(*at));
        let events = events.cloned().map(|(at, warning, reason, message)| EventMark {
            at: after(at),
            reason,
            warning,
            message,
        });
        let mut happenings = self.happenings.clone();
        happenings.extend(self.foreign_scales());
        happenings.sort();
        let happenings = happenings.into_iter().filter(|(at, _)| within(*at)).map(|(at, what)| {
            let at = after(at);
            TimelineEvent { from: at, to: at, what }
        });
        let mut hpa = HpaRun {
            namespace: self.namespace.clone(),
            name: self.name.clone(),
            target: self.target.clone(),
            unit: String::new(),
            scores: Scores::default(),
            metrics,
            policies: spans.finish(length),
            events: events.collect(),
            decisions: decisions.collect(),
            period,
            interval: period,
            samples,
        };
        let rescales: Vec<_> = hpa.rescales().collect();
        let unserved = Unserved::Lost { units: 0.0, arrived: 0.0 };
        hpa.scores = scores(&hpa.samples, &hpa.metrics, &rescales, length, unserved);
        let run = Run {
            title: format!("{}/{}", self.namespace, self.name),
            variant: "what happened".to_owned(),
            seed: 0,
            start,
            duration: length,
            period,
            happenings: happenings.collect(),
            hpas: vec![hpa],
        };
        PastRun { run, has_running, has_ready }
    }

    /// Returns the load that the metric at `index` of the spec measured, as times and totals of all pods, oldest first.
    /// A total is in percent of the request of one pod, or in units.
    pub fn totals(&self, index: usize) -> Vec<(Timestamp, f64)> {
        let Some(metric) = self.spec.metrics.get(index) else { return Vec::new() };
        let subject = metric.subject(&self.namespace);
        let first = self.decisions.first().map_or(self.to, |decision| decision.first);
        let seen = self.observations.iter().filter(|status| status.at < first).filter_map(|status| {
            let value = status.values.get(index).copied().flatten()?;
            let pods = if is_total(metric) { 1.0 } else { f64::from(status.current) };
            Some((status.at, value * pods))
        });
        let recorded = self.decisions.iter().flat_map(|decision| {
            let total = |at: Timestamp| {
                let reading = decision.reading(&subject)?;
                let value = decision.value(&subject, at)?;
                let pods = match reading.value {
                    Measure::Milli(_) => 1.0,
                    _ => f64::from(decision.ready().or_else(|| decision.running()).unwrap_or_default()),
                };
                Some((at, value * pods))
            };
            let half = decision.last.duration_since(decision.first) / 2;
            let middle = decision.first.checked_add(half).ok().filter(|_| decision.syncs > 1);
            [middle.and_then(total), total(decision.last)].into_iter().flatten().collect::<Vec<_>>()
        });
        seen.chain(recorded).filter(|(_, total)| total.is_finite() && *total >= 0.0).collect()
    }

    /// Returns the desired count at a time, from the record, the known counts or the watch. If no count is known at
    /// that time, the first later count is used.
    pub fn wanted(&self, at: Timestamp) -> i32 {
        let mut decided = self.until(at).iter().rev().filter_map(|decision| decision.wanted);
        let counted = || self.counts.iter().rev().find(|(time, _)| *time <= at).map(|(_, count)| *count);
        let seen = || self.status(at).map(|status| status.desired);
        let later = || {
            let decision = self.decisions.iter().find(|decision| decision.running().is_some());
            decision.map(|decision| decision.explanation.current)
        };
        let first = || self.counts.first().map(|(_, count)| *count);
        decided
            .next()
            .or_else(counted)
            .or_else(seen)
            .or_else(later)
            .or_else(first)
            .unwrap_or(self.current.explanation.current)
    }

    /// Returns the recorded decisions whose first sync was at or before a time.
    fn until(&self, at: Timestamp) -> &[PastDecision] {
        let count = self.decisions.partition_point(|decision| decision.first <= at);
        self.decisions.get(..count).unwrap_or_default()
    }

    fn decision(&self, at: Timestamp) -> Option<&PastDecision> {
        self.until(at).last()
    }

    fn status(&self, at: Timestamp) -> Option<&PastStatus> {
        let count = self.observations.partition_point(|status| status.at <= at);
        self.observations.get(..count)?.last()
    }

    fn value(&self, index: usize, subject: &Subject, at: Timestamp) -> Option<f64> {
        match self.decision(at) {
            Some(decision) => decision.value(subject, at),
            None => self.status(at)?.values.get(index).copied().flatten(),
        }
    }

    /// Returns the series of at most [`METRICS`] metrics, without values. Each series has the index of its metric in
    /// the spec. The metrics that determined the count most often are first.
    fn series(&self) -> Vec<(usize, MetricSeries)> {
        let decisions = || self.decisions.iter().rev().chain([&self.current]);
        let wins = |subject: &Subject| {
            let won = |decision: &&PastDecision| {
                decision.explanation.winning_metric().is_some_and(|metric| metric.subject() == subject)
            };
            decisions().filter(won).count()
        };
        let mut all: Vec<_> = self.spec.metrics.iter().enumerate().collect();
        all.sort_by_key(|(index, metric)| (Reverse(wins(&metric.subject(&self.namespace))), *index));
        let with_targets = all.into_iter().take(METRICS).map(|(index, metric)| {
            let mut series = series(metric, &self.namespace, &self.settings);
            if let Some(reading) = decisions().find_map(|decision| decision.reading(&series.subject)) {
                set_target(&mut series, reading);
            }
            (index, series)
        });
        with_targets.collect()
    }

    /// Returns the foreign writes of `spec.replicas` between consecutive recorded decisions, as time and description.
    fn foreign_scales(&self) -> Vec<(Timestamp, String)> {
        let pairs = self.decisions.iter().zip(self.decisions.iter().skip(1));
        let writes = pairs.filter_map(|(before, after)| {
            let (left, found) = (before.wanted?, after.explanation.current);
            let is_known = after.running().is_some();
            (is_known && left != found)
                .then(|| (after.first, format!("foreign write: {found} replicas instead of {left}")))
        });
        writes.collect()
    }
}

/// Returns whether the value of a metric is already the total of all pods.
fn is_total(metric: &MetricSource) -> bool {
    matches!(
        metric,
        MetricSource::Object { target: ValueTarget::Value(_), .. }
            | MetricSource::External { target: ValueTarget::Value(_), .. }
    )
}
