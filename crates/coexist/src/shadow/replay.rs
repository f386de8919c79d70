//! Replays a decision for an earlier state of a target: from earlier readings, and at other instants of the same
//! period.
//!
//! Two controllers never sync at the same instant. For one of them, a stabilization window or a policy's period can end
//! up to one sync period earlier or later. Pods can start and stop in between. Such deviations are no differences
//! between the controllers.
//!
//! Compares the metrics of two statuses, and scales responses of metrics APIs to the values in another controller's
//! status.
//!
//! Concertina reads metrics a moment after the other controller. If a metric has changed in between, the response is
//! scaled to the value in the other controller's status. Both controllers then decide from the same metrics and build
//! the same history.

use std::sync::Arc;

use autoscaling::explanation::{Explanation, Measure, MetricReading};
use autoscaling::history::History;
use autoscaling::pod::{Pod, ResourceList};
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage, QueryError};
use autoscaling::settings::Settings;
use autoscaling::spec::{MetricSource, Spec, ValueTarget};
use autoscaling::status::{MetricStatus, MetricValueStatus, Status};
use autoscaling::{Answers, Hpa, Overlap, Scale, decide, plan};
use jiff::{SignedDuration, Timestamp};

use super::wire::{Builtin, ForeignStatus};
use engine::store::HpaRecord;

/// Maximum number of instants immediately after the expiry of a history entry, in one replay.
const MOMENTS: usize = 24;

/// The inputs of a sync.
#[derive(Debug, Clone)]
pub(super) struct Inputs {
    pub(super) scale: Scale,
    pub(super) metrics: Vec<Option<Result<Answer, QueryError>>>,
    pub(super) pods: Vec<Arc<Pod>>,
    /// The metrics in the status that resulted from the sync.
    pub(super) shown: Vec<MetricStatus>,
}

/// Returns the time span of the history on which a decision for this spec can depend.
pub(super) fn memory(spec: &Spec, settings: &Settings) -> SignedDuration {
    windows(spec, settings).into_iter().chain(periods(spec)).max().unwrap_or_default()
}

/// Returns the stabilization windows for scale-ups and for scale-downs.
fn windows(spec: &Spec, settings: &Settings) -> [SignedDuration; 2] {
    let seconds = |seconds: i32| SignedDuration::from_secs(seconds.into());
    let flag = SignedDuration::try_from(settings.downscale_stabilization).unwrap_or(SignedDuration::MAX);
    let behavior = spec.behavior.as_ref();
    let up = behavior.and_then(|behavior| behavior.scale_up.stabilization_window_seconds);
    let down = behavior.and_then(|behavior| behavior.scale_down.stabilization_window_seconds);
    [up.map_or(SignedDuration::ZERO, seconds), down.map_or(flag, seconds)]
}

/// Returns the periods of all rate policies.
fn periods(spec: &Spec) -> impl Iterator<Item = SignedDuration> {
    let rules = spec.behavior.iter().flat_map(|behavior| [&behavior.scale_up, &behavior.scale_down]);
    let policies = rules.flat_map(|rules| &rules.policies);
    policies.map(|policy| SignedDuration::from_secs(policy.period_seconds.into()))
}

/// A target with the state for a replay of its decision.
#[derive(Debug, Clone, Copy)]
pub(super) struct Replay<'a> {
    pub(super) hpa: &'a HpaRecord,
    pub(super) from: i32,
    pub(super) history: &'a History,
    pub(super) settings: &'a Settings,
    pub(super) period: SignedDuration,
    pub(super) now: Timestamp,
}

impl Replay<'_> {
    /// Returns the counts that result from the inputs, sorted and without duplicates. Decides at every instant up to
    /// one period earlier or later at which the result may differ.
    pub(super) fn counts(&self, inputs: &[(&Inputs, &Inputs)]) -> Vec<i32> {
        let moments = self.moments();
        let mut counts: Vec<i32> = inputs
            .iter()
            .flat_map(|(metrics, rest)| moments.iter().filter_map(|now| self.decide(metrics, rest, *now)))
            .collect();
        counts.sort_unstable();
        counts.dedup();
        counts
    }

    /// Decides from the metrics of one sync, with the scale and the pods of another sync.
    fn decide(&self, metrics: &Inputs, rest: &Inputs, now: Timestamp) -> Option<i32> {
        let record = self.hpa;
        let hpa = Hpa {
            namespace: &record.key.namespace,
            name: &record.key.name,
            generation: record.generation,
            spec: &record.spec,
            status: &record.status,
        };
        let scale = Scale { replicas: self.from, ..rest.scale.clone() };
        let plan = plan(&hpa, Ok(scale), |_| Overlap::None, self.settings);
        let queries = plan.queries().count();
        if queries > metrics.metrics.iter().flatten().count() {
            return None;
        }
        let answers = Answers { metrics: metrics.metrics.clone(), pods: &rest.pods };
        decide(&hpa, &plan, &answers, self.history, self.settings, now).explanation().desired
    }

    /// Returns now, the instant one period ago, and the instants immediately after the expiry of history entries.
    fn moments(&self) -> Vec<Timestamp> {
        let windows = windows(&self.hpa.spec, self.settings);
        let mut spans = Vec::new();
        for recommendation in &self.history.recommendations {
            spans.extend(windows.map(|window| (recommendation.at, window)));
        }
        for period in periods(&self.hpa.spec) {
            let events = self.history.scale_ups.iter().chain(&self.history.scale_downs);
            spans.extend(events.map(|event| (event.at, period)));
        }
        let ends = spans.into_iter().filter_map(|(at, span)| {
            // An entry is used up to and including the end of its window.
            at.checked_add(span).ok()?.checked_add(SignedDuration::from_nanos(1)).ok()
        });
        let near = |moment: &Timestamp| moment.duration_since(self.now).abs() <= self.period;
        let mut moments: Vec<Timestamp> = ends.filter(near).collect();
        moments.sort_unstable_by_key(|moment| moment.duration_since(self.now).abs());
        moments.truncate(MOMENTS);
        moments.extend([Some(self.now), self.now.checked_sub(self.period).ok()].into_iter().flatten());
        moments
    }
}

/// Reverts the effects of the other controller's rescale on the pods of its target. The watch of pods can be ahead of
/// the watch of HPAs. Removes the pods that the rescale created, and restores the pods that it terminates. `previous`
/// contains the pods of the previous sync, if that sync found the count before the rescale. Both lists are sorted by
/// name.
pub(super) fn undo(pods: Vec<Arc<Pod>>, previous: &[Arc<Pod>], builtin: Builtin) -> Vec<Arc<Pod>> {
    let before = |pod: &Pod| {
        previous
            .binary_search_by(|previous| previous.name.cmp(&pod.name))
            .ok()
            .and_then(|index| previous.get(index))
    };
    if builtin.to < builtin.from {
        // A pod that terminates because of the rescale was not terminating at the previous sync.
        let as_it_was = |pod: Arc<Pod>| match before(&pod) {
            Some(previous) if pod.terminating && !previous.terminating => Arc::clone(previous),
            _ => pod,
        };
        return pods.into_iter().map(as_it_was).collect();
    }
    let previous_count = usize::try_from(builtin.from).unwrap_or(0);
    let running = pods.iter().filter(|pod| !pod.terminating);
    if running.clone().filter(|pod| before(pod).is_some()).count() >= previous_count {
        // The running pods of the previous sync are sufficient for the previous count, so the rescale created all
        // others.
        return pods.into_iter().filter(|pod| before(pod).is_some()).collect();
    }
    // Some of the new pods are from an earlier rescale. The youngest of them are from this rescale.
    let too_many = running.clone().count().saturating_sub(previous_count);
    let is_young = |pod: &Pod| pod.start_time.is_none_or(|started| started >= builtin.at);
    let may_be_new = |pod: &&Arc<Pod>| before(pod).is_none() && is_young(pod);
    let mut new: Vec<Arc<Pod>> = running.filter(may_be_new).map(Arc::clone).collect();
    new.sort_by(|one, other| youngest_last(one).cmp(&youngest_last(other)));
    let new = new.split_off(new.len().saturating_sub(too_many));
    pods.into_iter().filter(|pod| !new.iter().any(|new| new.name == pod.name)).collect()
}

/// Returns a sort key by the start of a pod. Pods that have not started are last. Of the pods that started in the same
/// second, pods without a readiness condition are last.
fn youngest_last(pod: &Pod) -> (bool, Option<Timestamp>, bool, &str) {
    (pod.start_time.is_none(), pod.start_time, pod.ready.is_none(), &pod.name)
}

/// Maximum relative difference of equal values, because of rounding.
const ROUNDING: f64 = 0.001;
/// The relative margin around the range of Concertina's two readings. If the other controller's value is within this
/// margin, the metric has changed between the readings. Any other value is reported, because the two controllers read
/// the metric differently.
const NOISE: f64 = 0.05;

/// Returns the response with every value of the metric multiplied by `level`. With `from_zero`, replaces every value by
/// `level` times the target instead, because a zero cannot be scaled.
pub fn at_level(
    source: &MetricSource,
    answer: &Answer,
    reading: &MetricReading,
    level: f64,
    from_zero: bool,
) -> Answer {
    let target = match reading.target {
        Measure::Percent(percent) => f64::from(percent),
        Measure::Milli(milli) | Measure::MilliPerPod(milli) => milli as f64,
    };
    let scaled = |value: Quantity| {
        let milli = if from_zero { target } else { value.milli_value() as f64 };
        Quantity::from_milli(rounded(milli * level), value.format())
    };
    match answer {
        Answer::Resource(usages) => {
            let (resource, container) = match source {
                MetricSource::Resource { resource, .. } => (&**resource, None),
                MetricSource::ContainerResource { resource, container, .. } => {
                    (&**resource, Some(&**container))
                }
                _ => return answer.clone(),
            };
            let request = |pod: &str| {
                let index = reading.pods.binary_search_by(|verdict| (*verdict.name).cmp(pod)).ok()?;
                reading.pods.get(index)?.request
            };
            let scaled_usage = |usage: &PodUsage| {
                let whole = match reading.target {
                    // The target is a percentage of the pod's request, which is in milli-units.
                    Measure::Percent(_) => request(&usage.pod).unwrap_or(1000) as f64 * target / 100.0,
                    Measure::Milli(_) | Measure::MilliPerPod(_) => target,
                };
                let chosen = |name: &str| container.is_none_or(|container| container == name);
                let share =
                    whole / usage.containers.iter().filter(|each| chosen(&each.name)).count().max(1) as f64;
                let containers = usage.containers.iter().map(|each| {
                    if !chosen(&each.name) {
                        return each.clone();
                    }
                    let entries = each.usage.iter().map(|(name, value)| {
                        let value = match (name == resource, from_zero) {
                            (false, _) => value,
                            (true, false) => scaled(value),
                            (true, true) => Quantity::from_milli(rounded(share * level), value.format()),
                        };
                        (Arc::from(name), value)
                    });
                    ContainerUsage { name: Arc::clone(&each.name), usage: ResourceList::new(entries) }
                });
                PodUsage { containers: containers.collect(), ..usage.clone() }
            };
            Answer::Resource(usages.iter().map(scaled_usage).collect())
        }
        Answer::Custom(values) => Answer::Custom(
            values.iter().map(|value| CustomValue { value: scaled(value.value), ..value.clone() }).collect(),
        ),
        Answer::External(values) => Answer::External(
            values
                .iter()
                .map(|value| ExternalValue { value: scaled(value.value), ..value.clone() })
                .collect(),
        ),
    }
}

/// Rounds to a whole number of milli-units. Values out of range saturate, NaN becomes 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN becomes 0: both are intended"
)]
fn rounded(milli: f64) -> i64 {
    milli.round() as i64
}

/// The metrics of two statuses, which may differ because a metric changed between the readings.
pub(super) struct MovedMetrics<'a> {
    pub(super) spec: &'a Spec,
    pub(super) explanation: &'a Explanation,
    pub(super) theirs: &'a [MetricStatus],
    pub(super) ours: &'a [MetricStatus],
    /// Concertina's metrics of the previous sync.
    pub(super) before: Option<&'a [MetricStatus]>,
    /// Whether the target has the same number of pods as at the previous sync. Statuses contain some values per pod.
    pub(super) is_size_steady: bool,
}

impl MovedMetrics<'_> {
    /// Returns the responses, scaled to the values that the other controller read. `None` if no response changes, or if
    /// the statuses have different numbers of metrics.
    pub(super) fn rescaled_answers(
        &self,
        answers: &[Option<Result<Answer, QueryError>>],
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>> {
        if self.theirs.len() != self.ours.len() {
            return None;
        }
        let mut all = answers.to_vec();
        let mut is_changed = false;
        for (index, answer) in all.iter_mut().enumerate() {
            let Some(Ok(read)) = answer else { continue };
            if let Some((source, level)) = self.level(index)
                && let Some(reading) = self.explanation.metrics.get(index).and_then(|metric| metric.reading())
            {
                *answer = Some(Ok(at_level(source, read, reading, level, false)));
                is_changed = true;
            }
        }
        is_changed.then_some(all)
    }

    /// Returns the source of a metric, and the factor from Concertina's value to the other controller's value.
    fn level(&self, index: usize) -> Option<(&MetricSource, f64)> {
        let source = self.spec.metrics.get(index)?;
        let is_per_pod = matches!(
            source,
            MetricSource::Object { target: ValueTarget::AverageValue(_), .. }
                | MetricSource::External { target: ValueTarget::AverageValue(_), .. }
        );
        if is_per_pod && !self.is_size_steady {
            return None;
        }
        let theirs = amount(self.theirs.get(index)?)?;
        let ours = amount(self.ours.get(index)?)?;
        let before = self.before.and_then(|before| amount(before.get(index)?)).unwrap_or(ours);
        if ours == 0.0 || (ours - theirs).abs() <= theirs * ROUNDING {
            return None;
        }
        let (low, high) = (ours.min(before), ours.max(before));
        (theirs >= low - low * NOISE && theirs <= high + high * NOISE).then_some((source, theirs / ours))
    }
}

/// Returns whether two statuses contain equal metrics, except for rounding.
pub(super) fn are_equal(one: &[MetricStatus], other: &[MetricStatus]) -> bool {
    let is_same = |(one, other): (&MetricStatus, &MetricStatus)| match (amount(one), amount(other)) {
        (Some(one), Some(other)) => is_close(one, other),
        _ => one == other,
    };
    one.len() == other.len() && one.iter().zip(other).all(is_same)
}

fn is_close(one: f64, other: f64) -> bool {
    (one - other).abs() <= (other.abs() * ROUNDING).max(1.0)
}

/// Returns the value or the average of a metric, in milli-units. `None` if the metric has failed.
fn amount(metric: &MetricStatus) -> Option<f64> {
    let current = value(metric)?;
    let quantity = current.value.or(current.average_value)?;
    Some(quantity.milli_value() as f64)
}

fn value(metric: &MetricStatus) -> Option<&MetricValueStatus> {
    let resource = metric.resource.as_ref().map(|source| &source.current);
    let container = metric.container_resource.as_ref().map(|source| &source.current);
    let pods = metric.pods.as_ref().or(metric.external.as_ref()).map(|source| &source.current);
    resource.or(container).or(pods).or_else(|| metric.object.as_ref().map(|source| &source.current))
}

/// Returns a summary of a status, for the report.
pub(super) fn summary(status: &Status) -> ForeignStatus {
    let conditions = status.conditions.iter().map(|condition| {
        let autoscaling::status::Condition { kind, status, reason, message, .. } = condition;
        format!("{kind}={status} {reason}: {message}")
    });
    ForeignStatus {
        metrics: status.current_metrics.iter().map(metric).collect(),
        conditions: conditions.collect(),
    }
}

fn metric(metric: &MetricStatus) -> String {
    let named = |name: &str, value: &MetricValueStatus| format!("{name} {}", shown(value));
    if let Some(source) = &metric.resource {
        named(&source.name, &source.current)
    } else if let Some(source) = &metric.container_resource {
        named(&format!("{} of container {}", source.name, source.container), &source.current)
    } else if let Some(source) = metric.pods.as_ref().or(metric.external.as_ref()) {
        named(&source.metric.name, &source.current)
    } else if let Some(source) = &metric.object {
        let object = &source.described_object;
        named(&format!("{} of {}/{}", source.metric.name, object.kind, object.name), &source.current)
    } else {
        "failed metric".to_owned()
    }
}

fn shown(value: &MetricValueStatus) -> String {
    let text = |quantity: &Option<Quantity>| quantity.as_ref().map(ToString::to_string);
    let amount = text(&value.value).or_else(|| text(&value.average_value)).unwrap_or_default();
    match value.average_utilization {
        Some(percent) => format!("{percent} % ({amount})"),
        None => amount,
    }
}
