//! What statuses show of metrics, and metrics taken back to what another controller's status shows.
//!
//! We read a moment after the other controller has. Where a metric moved in that moment, its status tells what it saw: our
//! answer is brought to that value, so that both decide from the same, and remember the same.

use autoscaling::explanation::Explanation;
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{MetricSource, Spec, ValueTarget};
use autoscaling::status::{MetricStatus, MetricValueStatus};

use super::level::at_level;

/// Values that differ by less are the same, rounded another way.
const ROUNDING: f64 = 0.001;
/// How far beyond our own two readings the other one's may lie for it to be a metric that moves. More is a difference in
/// reading, and must be seen.
const NOISE: f64 = 0.05;

/// A metric status that may differ from ours because the metric moved.
pub(super) struct Moved<'a> {
    pub(super) spec: &'a Spec,
    pub(super) explanation: &'a Explanation,
    pub(super) theirs: &'a [MetricStatus],
    pub(super) ours: &'a [MetricStatus],
    /// Ours of the sync before.
    pub(super) before: Option<&'a [MetricStatus]>,
    /// As many pods exist as at the sync before. Some values are shown per pod.
    pub(super) is_size_steady: bool,
}

impl Moved<'_> {
    /// The answers as the other controller got them; `None` if they need no change, or it cannot be said which.
    pub(super) fn back(
        &self,
        answers: &[Option<Result<Answer, QueryError>>],
    ) -> Option<Vec<Option<Result<Answer, QueryError>>>> {
        if self.theirs.len() != self.ours.len() {
            return None;
        }
        let mut all = answers.to_vec();
        let mut is_changed = false;
        for (place, answer) in all.iter_mut().enumerate() {
            let Some(Ok(read)) = answer else { continue };
            if let Some((source, level)) = self.level(place)
                && let Some(reading) = self.explanation.metrics.get(place).and_then(|metric| metric.reading())
            {
                *answer = Some(Ok(at_level(source, read, reading, level, false)));
                is_changed = true;
            }
        }
        is_changed.then_some(all)
    }

    /// By what a metric must be multiplied.
    fn level(&self, place: usize) -> Option<(&MetricSource, f64)> {
        let source = self.spec.metrics.get(place)?;
        let is_per_pod = matches!(
            source,
            MetricSource::Object { target: ValueTarget::AverageValue(_), .. }
                | MetricSource::External { target: ValueTarget::AverageValue(_), .. }
        );
        if is_per_pod && !self.is_size_steady {
            return None;
        }
        let theirs = amount(self.theirs.get(place)?)?;
        let ours = amount(self.ours.get(place)?)?;
        let before = self.before.and_then(|before| amount(before.get(place)?)).unwrap_or(ours);
        if ours == 0.0 || (ours - theirs).abs() <= theirs * ROUNDING {
            return None;
        }
        let (low, high) = (ours.min(before), ours.max(before));
        (theirs >= low - low * NOISE && theirs <= high + high * NOISE).then_some((source, theirs / ours))
    }
}

/// Whether two statuses show the same of all metrics.
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

/// What a metric is at, in milli-units, as finely as it is shown; `None` if it failed.
fn amount(metric: &MetricStatus) -> Option<f64> {
    let current = value(metric)?;
    let quantity = current.value.or(current.average_value)?;
    Some(quantity.milli_value() as f64)
}

fn value(metric: &MetricStatus) -> Option<&MetricValueStatus> {
    let resource = metric.resource.as_ref().map(|of| &of.current);
    let container = metric.container_resource.as_ref().map(|of| &of.current);
    let pods = metric.pods.as_ref().or(metric.external.as_ref()).map(|of| &of.current);
    resource.or(container).or(pods).or_else(|| metric.object.as_ref().map(|of| &of.current))
}
