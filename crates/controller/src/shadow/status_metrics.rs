//! Compares the metrics of two statuses. Scales metric answers to the values in another controller's status.
//!
//! Concertina reads metrics a moment after the other controller. If a metric changed in between, the other
//! controller's status contains the value that the other controller read. The answer is scaled to that value, so that
//! both controllers decide from the same metrics and build the same history. This module also summarizes such
//! statuses.

use autoscaling::explanation::Explanation;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{MetricSource, Spec, ValueTarget};
use autoscaling::status::{MetricStatus, MetricValueStatus, Status};

use super::scaled_metrics::at_level;
use super::wire::ForeignStatus;

/// Relative difference up to which two values count as equal, because of rounding.
const ROUNDING: f64 = 0.001;
/// Relative margin around the range of our two readings. If the other controller's value lies within it, the metric
/// changed between the readings. A value outside of it means that the two controllers read the metric differently,
/// which must be reported.
const NOISE: f64 = 0.05;

/// The metrics of two statuses that may differ because a metric changed between the readings.
pub(super) struct MovedMetrics<'a> {
    pub(super) spec: &'a Spec,
    pub(super) explanation: &'a Explanation,
    pub(super) theirs: &'a [MetricStatus],
    pub(super) ours: &'a [MetricStatus],
    /// Our metrics of the previous sync.
    pub(super) before: Option<&'a [MetricStatus]>,
    /// Whether the target has the same number of pods as at the previous sync. Statuses show some values per
    /// pod.
    pub(super) is_size_steady: bool,
}

impl MovedMetrics<'_> {
    /// Returns the answers as the other controller read them. `None` if no answer changes, or if the statuses have
    /// different numbers of metrics.
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

    /// Returns the source of a metric, and the factor that scales our value to the other controller's value.
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

/// Whether two statuses contain equal metrics.
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

/// Returns the value of a metric in milli-units, as precisely as the status contains it. `None` if the metric
/// failed.
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
