//! Computes the proposal of one metric from ratios, tolerance, and missing and unready pods (rules:
//! docs/concepts/how-hpa-decides.md).

use std::sync::Arc;

use jiff::Timestamp;

use crate::explanation::{
    Assumed, Corrected, Measure, MetricReading, PodGroup, PodVerdict, ProposalReason, Subject,
    UnmatchedSamples,
};
use crate::failure::{Failure, MetricFailureClass, NO_PODS, NO_SAMPLES, NO_VALUES};
use crate::number::{ceil_to_count, ceil_to_milli, length_to_i64, saturate_to_i32, saturate_to_i64};
use crate::pod::{ConditionStatus, Phase, Pod};
use crate::readiness::{GroupedPods, Sample, request_of};
use crate::settings::Settings;
use crate::spec::{Behavior, ResourceTarget, ValueTarget};

/// The inputs that all metrics of a sync share. The subject and the name of the computed readings are empty.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Calculator<'a> {
    /// `spec.replicas` of the Scale.
    pub(crate) current: i32,
    /// `status.replicas` of the Scale.
    pub(crate) status_replicas: i32,
    /// The pods that the selector matches, sorted by name.
    pub(crate) pods: &'a [Arc<Pod>],
    pub(crate) tolerance: Tolerance,
    pub(crate) settings: &'a Settings,
    pub(crate) now: Timestamp,
}

/// The lowest and the highest ratio for which the count does not change.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Tolerance {
    pub(crate) lowest: f64,
    pub(crate) highest: f64,
}

impl Tolerance {
    /// The tolerance of `behavior.*.tolerance` if the field is set and its feature gate is enabled, otherwise that of
    /// the flag.
    pub(crate) fn new(behavior: Option<&Behavior>, settings: &Settings) -> Self {
        let effective = |rule: Option<crate::quantity::Quantity>| match rule {
            Some(tolerance) if settings.configurable_tolerance => tolerance.as_f64(),
            _ => settings.tolerance,
        };
        let down = effective(behavior.and_then(|behavior| behavior.scale_down.tolerance));
        let up = effective(behavior.and_then(|behavior| behavior.scale_up.tolerance));
        Self { lowest: 1.0 - down, highest: 1.0 + up }
    }

    fn holds(self, ratio: f64) -> bool {
        self.lowest <= ratio && ratio <= self.highest
    }
}

impl Calculator<'_> {
    /// Computes a Resource or ContainerResource metric. Returns the reading, and the average per pod in milli-units.
    pub(crate) fn resource(
        &self,
        samples: Vec<Sample<'_>>,
        resource: &str,
        container: Option<&str>,
        target: ResourceTarget,
    ) -> Result<(MetricReading, i64), Failure> {
        let grouped = self.group(samples, resource == "cpu")?;
        match target {
            ResourceTarget::Utilization(percent) => self.utilization(grouped, resource, container, percent),
            ResourceTarget::AverageValue(average) => Ok(self.average(grouped, average.milli_value())),
        }
    }

    /// Computes a Pods metric.
    pub(crate) fn per_pod(
        &self,
        samples: Vec<Sample<'_>>,
        target_milli: i64,
    ) -> Result<MetricReading, Failure> {
        Ok(self.average(self.group(samples, false)?, target_milli).0)
    }

    /// Computes an Object metric. `value` is in milli-units.
    pub(crate) fn object(&self, value: i64, target: ValueTarget) -> Result<MetricReading, Failure> {
        self.single(value, target, self.settings.version.shows_saturated_objects_undivided())
    }

    /// Computes an External metric. `total` is in milli-units.
    pub(crate) fn external(&self, total: i64, target: ValueTarget) -> Result<MetricReading, Failure> {
        self.single(total, target, true)
    }

    /// `undivided`: the status shows a saturated value as it is, even with a target per pod.
    fn single(&self, value: i64, target: ValueTarget, undivided: bool) -> Result<MetricReading, Failure> {
        match target {
            ValueTarget::Value(target) => self.ratio_of_value(value, target.milli_value()),
            ValueTarget::AverageValue(target) => {
                Ok(self.value_per_pod(value, target.milli_value(), undivided))
            }
        }
    }

    fn group(&self, samples: Vec<Sample<'_>>, cpu: bool) -> Result<GroupedPods, Failure> {
        if self.pods.is_empty() {
            return Err(Failure::new(MetricFailureClass::NoPods, NO_PODS));
        }
        let grouped = GroupedPods::new(self.pods, samples, cpu, self.settings, self.now);
        if grouped.samples_left() == 0 {
            return Err(Failure::new(MetricFailureClass::NoSamples, NO_SAMPLES));
        }
        Ok(grouped)
    }

    fn utilization(
        &self,
        mut grouped: GroupedPods,
        resource: &str,
        container: Option<&str>,
        target: i32,
    ) -> Result<(MetricReading, i64), Failure> {
        for (verdict, pod) in grouped.pods.iter_mut().zip(self.pods) {
            verdict.request = Some(request_of(pod, resource, container, self.settings)?);
        }
        let requested = |pod: &PodVerdict| i128::from(pod.request.unwrap_or(0));
        let usage = grouped.ready_sum();
        let requests: i128 = grouped.ready_pods().map(requested).sum();
        let (percent, ratio) = utilization_ratio(usage, requests, target).ok_or_else(|| {
            Failure::new(MetricFailureClass::NoValues, format!("{NO_VALUES} matched known pods"))
        })?;
        let average = average_of(usage, length_to_i64(grouped.ready));

        let filled_percent = i128::from(target.max(100));
        let (proposal, why, corrected) = self.propose(&grouped, ratio, |fill| {
            let mut usage = usage;
            let mut requests = requests;
            for pod in &grouped.pods {
                if pod.group == PodGroup::Missing && fill.missing.is_some() {
                    let assumed = if fill.missing == Some(Assumed::Target) {
                        i128::from(saturate_to_i64(requested(pod) * filled_percent / 100))
                    } else {
                        0
                    };
                    usage += assumed;
                    requests += requested(pod);
                } else if pod.group.is_unready() && fill.unready {
                    requests += requested(pod);
                }
            }
            utilization_ratio(usage, requests, target).map_or(ratio, |(_, ratio)| ratio)
        });
        let (target, value) = (Measure::Percent(target), Measure::Percent(percent));
        let reading = MetricReading {
            unmatched: unmatched_samples(&grouped),
            pods: grouped.pods,
            corrected,
            ..self.reading(target, value, ratio, proposal, why)
        };
        Ok((reading, average))
    }

    fn average(&self, grouped: GroupedPods, target: i64) -> (MetricReading, i64) {
        let usage = grouped.ready_sum() + grouped.unmatched_sum;
        let count = length_to_i64(grouped.samples_left());
        let (average, ratio) = average_ratio(usage, count, target);
        let (proposal, why, corrected) = self.propose(&grouped, ratio, |fill| {
            let assumed = match fill.missing {
                Some(Assumed::Target) => i128::from(target) * i128::from(length_to_i64(grouped.missing)),
                _ => 0,
            };
            average_ratio(usage + assumed, fill.values, target).1
        });
        let (target, value) = (Measure::MilliPerPod(target), Measure::MilliPerPod(average));
        let reading = MetricReading {
            unmatched: unmatched_samples(&grouped),
            pods: grouped.pods,
            corrected,
            ..self.reading(target, value, ratio, proposal, why)
        };
        (reading, average)
    }

    /// Computes the proposal from the first ratio. `refill` computes the ratio with missing and unready pods filled in.
    fn propose(
        &self,
        grouped: &GroupedPods,
        ratio: f64,
        refill: impl FnOnce(Fill) -> f64,
    ) -> (i32, ProposalReason, Option<Corrected>) {
        let fill_unready = grouped.unready > 0 && ratio > 1.0;
        if grouped.missing == 0 && !fill_unready {
            return if self.tolerance.holds(ratio) {
                (self.current, ProposalReason::WithinTolerance, None)
            } else {
                let ready = length_to_i64(grouped.ready) as f64;
                (ceil_to_count(ratio * ready), ProposalReason::Ratio, None)
            };
        }
        let missing = match (grouped.missing, ratio) {
            (0, _) => None,
            (_, ratio) if ratio < 1.0 => Some(Assumed::Target),
            (_, ratio) if ratio > 1.0 => Some(Assumed::Zero),
            _ => None,
        };
        let values = length_to_i64(
            grouped.samples_left()
                + missing.map_or(0, |_| grouped.missing)
                + if fill_unready { grouped.unready } else { 0 },
        );
        let new_ratio = refill(Fill { missing, unready: fill_unready, values });
        let corrected = Some(Corrected { ratio: new_ratio, values, missing, unready: fill_unready });
        if self.tolerance.holds(new_ratio) {
            return (self.current, ProposalReason::CorrectedWithinTolerance, corrected);
        }
        if (ratio < 1.0 && new_ratio > 1.0) || (ratio > 1.0 && new_ratio < 1.0) {
            return (self.current, ProposalReason::DirectionReversed, corrected);
        }
        let proposal = ceil_to_count(new_ratio * values as f64);
        if (new_ratio < 1.0 && proposal > self.current) || (new_ratio > 1.0 && proposal < self.current) {
            return (self.current, ProposalReason::CountReversed, corrected);
        }
        (proposal, ProposalReason::CorrectedRatio, corrected)
    }

    fn ratio_of_value(&self, value: i64, target: i64) -> Result<MetricReading, Failure> {
        let ratio = value as f64 / target as f64;
        let mut ready_pods = None;
        let (proposal, why) = if self.current == 0 {
            (ceil_to_count(ratio), ProposalReason::FromZero)
        } else if self.tolerance.holds(ratio) {
            (self.current, ProposalReason::WithinTolerance)
        } else {
            let ready = self.running_and_ready()?;
            ready_pods = Some(ready);
            (ceil_to_count(ratio * ready as f64), ProposalReason::Ratio)
        };
        let (target, value) = (Measure::Milli(target), Measure::Milli(value));
        Ok(MetricReading { ready_pods, ..self.reading(target, value, ratio, proposal, why) })
    }

    fn value_per_pod(&self, value: i64, target: i64, undivided: bool) -> MetricReading {
        let replicas = f64::from(self.status_replicas);
        let ratio = value as f64 / (target as f64 * replicas);
        let (proposal, why) = if self.status_replicas != 0 && self.tolerance.holds(ratio) {
            (self.status_replicas, ProposalReason::WithinTolerance)
        } else {
            (ceil_to_count(value as f64 / target as f64), ProposalReason::PerPod)
        };
        // As in upstream, a value counts as saturated if its float64 is 2⁶³.
        let shown = if undivided && value as f64 >= i64::MAX as f64 {
            i64::MAX
        } else if self.status_replicas == 0 {
            0
        } else {
            ceil_to_milli(value as f64 / replicas)
        };
        let (target, shown) = (Measure::MilliPerPod(target), Measure::MilliPerPod(shown));
        MetricReading { total: Some(value), ..self.reading(target, shown, ratio, proposal, why) }
    }

    fn reading(
        &self,
        target: Measure,
        value: Measure,
        ratio: f64,
        proposal: i32,
        why: ProposalReason,
    ) -> MetricReading {
        MetricReading {
            subject: Subject::default(),
            name: Arc::default(),
            target,
            value,
            total: None,
            ratio,
            lowest_tolerated: self.tolerance.lowest,
            highest_tolerated: self.tolerance.highest,
            pods: Vec::new(),
            unlisted: Vec::new(),
            unmatched: None,
            ready_pods: None,
            corrected: None,
            why,
            proposal,
        }
    }

    /// The number of running and Ready pods, including terminating pods.
    fn running_and_ready(&self) -> Result<i64, Failure> {
        if self.pods.is_empty() {
            let text = format!("unable to calculate ready pods: {NO_PODS}");
            return Err(Failure::new(MetricFailureClass::NoPods, text));
        }
        let ready = self.pods.iter().filter(|pod| {
            pod.phase == Phase::Running
                && pod.ready.is_some_and(|ready| ready.status == ConditionStatus::True)
        });
        Ok(length_to_i64(ready.count()))
    }
}

fn unmatched_samples(grouped: &GroupedPods) -> Option<UnmatchedSamples> {
    (grouped.unmatched > 0).then(|| UnmatchedSamples {
        samples: length_to_i64(grouped.unmatched),
        sum: saturate_to_i64(grouped.unmatched_sum),
    })
}

/// The assumptions for pods without a usable sample.
#[derive(Debug, Clone, Copy)]
struct Fill {
    missing: Option<Assumed>,
    /// Whether unready pods are values with a usage of 0.
    unready: bool,
    /// The number of values, including assumed values.
    values: i64,
}

/// Returns the utilization in percent, and its ratio to the target. `None` if the requests are 0.
fn utilization_ratio(usage: i128, requests: i128, target: i32) -> Option<(i32, f64)> {
    let percent = saturate_to_i32((usage * 100).checked_div(requests)?);
    Some((percent, f64::from(percent) / f64::from(target)))
}

/// Returns the average in milli-units, and its ratio to the target.
fn average_ratio(usage: i128, count: i64, target: i64) -> (i64, f64) {
    let average = average_of(usage, count);
    (average, average as f64 / target as f64)
}

/// Divides an exact sum of `count` values, towards zero.
fn average_of(sum: i128, count: i64) -> i64 {
    saturate_to_i64(sum / i128::from(count.max(1)))
}
