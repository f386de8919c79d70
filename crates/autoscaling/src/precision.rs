//! Statuses that are withheld, because they say nothing new (`--status-precision`). Upstream writes every changed status.

use std::time::Duration;

use jiff::Timestamp;

use crate::hash::fnv1a;
use crate::quantity::Quantity;
use crate::settings::{Settings, StatusPrecision};
use crate::spec::{MetricSource, ResourceTarget, Spec, ValueTarget};
use crate::status::{Condition, MetricStatus, MetricValueStatus, Status};

/// The number of sync periods in which a changed status is written at least once.
pub const LONGEST_PERIODS: u32 = 10;

/// A status in the cluster that this controller wrote, or another replica of it.
#[derive(Debug, Clone, Copy)]
pub struct WrittenStatus<'a> {
    /// The status.
    pub status: &'a Status,
    /// The time of the write.
    pub at: Timestamp,
}

/// Returns whether the write of `status` is withheld. `uid` is that of the HPA, `spec` contains the targets, and `period`
/// is the sync period.
///
/// A status is written if a count, `lastScaleTime`, `observedGeneration`, or the status or the reason of a condition has
/// changed since the last write, if a metric has moved by more than the precision, or has crossed its target and is
/// outside of the tolerance, or once in [`LONGEST_PERIODS`]. The UIDs of HPAs spread these last writes, which would
/// otherwise be a burst ten periods after each start. Within the tolerance, the noise of a metric crosses the target in
/// every other sync. The numbers in the message of a true condition only repeat the values of metrics.
pub fn withholds(
    settings: &Settings,
    uid: &str,
    spec: &Spec,
    written: WrittenStatus<'_>,
    status: &Status,
    now: Timestamp,
    period: Duration,
) -> bool {
    if settings.status_precision == StatusPrecision::default() {
        return false;
    }
    let turn = turns(uid, period * LONGEST_PERIODS);
    turn(written.at) == turn(now) && is_repeated(settings, spec, written.status, status)
}

/// Returns the number of turns of an HPA until a time, as a function. Turns have the length `each`, and start at another
/// time for each HPA.
fn turns(uid: &str, each: Duration) -> impl Fn(Timestamp) -> i128 {
    let each = i128::try_from(each.as_nanos()).unwrap_or(i128::MAX).max(1);
    let offset = i128::from(fnv1a(uid.as_bytes())).rem_euclid(each);
    move |at| at.as_nanosecond().saturating_add(offset).div_euclid(each)
}

fn is_repeated(settings: &Settings, spec: &Spec, old: &Status, new: &Status) -> bool {
    let Status {
        observed_generation,
        last_scale_time,
        current_replicas,
        desired_replicas,
        current_metrics,
        conditions,
    } = new;
    let mut metrics = old.current_metrics.iter().zip(current_metrics).enumerate();
    let mut pairs = old.conditions.iter().zip(conditions);
    old.observed_generation == *observed_generation
        && old.last_scale_time == *last_scale_time
        && old.current_replicas == *current_replicas
        && old.desired_replicas == *desired_replicas
        && old.current_metrics.len() == current_metrics.len()
        && metrics.all(|(index, (old, new))| {
            old == new || is_near(settings, spec.metrics.get(index), old, new).unwrap_or(false)
        })
        && old.conditions.len() == conditions.len()
        && pairs.all(|(old, new)| is_same_condition(old, new))
}

/// Returns whether a metric has moved by at most the precision, and has not crossed its target. `None` if the values
/// cannot be compared.
fn is_near(
    settings: &Settings,
    source: Option<&MetricSource>,
    old: &MetricStatus,
    new: &MetricStatus,
) -> Option<bool> {
    let target = Target::of(source?)?;
    let (old, new) = values(old, new)?;
    let (old, new, target) = (target.value(old)?, target.value(new)?, target.amount());
    let change = new.saturating_sub(old).saturating_abs();
    let most = target.saturating_abs().saturating_mul(settings.status_precision.0.into());
    let tolerance = target as f64 * settings.tolerance.max(0.0);
    let distance = new as f64 - target as f64;
    let has_crossed = old <= target && distance > tolerance || old >= target && -distance > tolerance;
    Some(change.saturating_mul(100) <= most && !has_crossed)
}

/// Returns whether a condition has not changed, apart from numbers in the message of a true condition.
fn is_same_condition(old: &Condition, new: &Condition) -> bool {
    let Condition { kind, status, observed_generation, last_transition_time, reason, message } = new;
    old.kind == *kind
        && old.status == *status
        && old.observed_generation == *observed_generation
        && old.last_transition_time == *last_transition_time
        && old.reason == *reason
        && (old.message == *message || status == "True" && words(&old.message).eq(words(message)))
}

/// Returns the bytes of a message without its numbers.
fn words(message: &str) -> impl Iterator<Item = u8> + '_ {
    message.bytes().filter(|byte| !byte.is_ascii_digit() && *byte != b'.')
}

/// Returns the values of two statuses of one metric. `None` if they are statuses of different metrics, or of a failed
/// metric.
fn values<'a>(
    old: &'a MetricStatus,
    new: &'a MetricStatus,
) -> Option<(&'a MetricValueStatus, &'a MetricValueStatus)> {
    if let (Some(old), Some(new)) = (&old.resource, &new.resource) {
        return (old.name == new.name).then_some((&old.current, &new.current));
    }
    if let (Some(old), Some(new)) = (&old.container_resource, &new.container_resource) {
        let same = old.name == new.name && old.container == new.container;
        return same.then_some((&old.current, &new.current));
    }
    if let (Some(old), Some(new)) = (&old.object, &new.object) {
        let same = old.metric == new.metric && old.described_object == new.described_object;
        return same.then_some((&old.current, &new.current));
    }
    let (old, new) = old
        .pods
        .as_ref()
        .zip(new.pods.as_ref())
        .or_else(|| old.external.as_ref().zip(new.external.as_ref()))?;
    (old.metric == new.metric).then_some((&old.current, &new.current))
}

/// The target of a metric, which determines the compared field of its status.
#[derive(Debug, Clone, Copy)]
enum Target {
    /// Percent of the pods' requests.
    Utilization(i32),
    /// The average per pod, in billionths.
    Average(i128),
    /// The whole value, in billionths.
    Whole(i128),
}

impl Target {
    fn of(source: &MetricSource) -> Option<Self> {
        Some(match source {
            MetricSource::Resource { target, .. } | MetricSource::ContainerResource { target, .. } => {
                match target {
                    ResourceTarget::Utilization(percent) => Self::Utilization(*percent),
                    ResourceTarget::AverageValue(average) => Self::Average(average.nanos()),
                }
            }
            MetricSource::Pods { average, .. } => Self::Average(average.nanos()),
            MetricSource::Object { target, .. } | MetricSource::External { target, .. } => match target {
                ValueTarget::Value(value) => Self::Whole(value.nanos()),
                ValueTarget::AverageValue(average) => Self::Average(average.nanos()),
            },
            MetricSource::Invalid(_) => return None,
        })
    }

    fn amount(self) -> i128 {
        match self {
            Self::Utilization(percent) => percent.into(),
            Self::Average(nanos) | Self::Whole(nanos) => nanos,
        }
    }

    fn value(self, of: &MetricValueStatus) -> Option<i128> {
        match self {
            Self::Utilization(_) => of.average_utilization.map(i128::from),
            Self::Average(_) => of.average_value.map(Quantity::nanos),
            Self::Whole(_) => of.value.map(Quantity::nanos),
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;
    use serde_json::{Value, json};

    use crate::settings::StatusPrecisionError;

    use super::*;

    const SPEC: &str = r#"{"maxReplicas": 9, "metrics": [
        {"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}},
        {"type": "External", "external": {"metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}}},
        {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "web"}, "metric": {"name": "hits"},
            "target": {"type": "Value", "value": "2k"}}}
    ]}"#;

    /// A status with these values, after `change`.
    fn status((cpu, queue, hits): (i32, &str, &str), change: impl FnOnce(&mut Value)) -> Status {
        let mut status = json!({
            "observedGeneration": 1, "lastScaleTime": "2030-01-01T00:00:00Z", "currentReplicas": 3, "desiredReplicas": 3,
            "currentMetrics": [
                {"type": "Resource", "resource": {"name": "cpu", "current": {"averageUtilization": cpu, "averageValue": "50m"}}},
                {"type": "External", "external": {"metric": {"name": "queue"}, "current": {"averageValue": queue}}},
                {"type": "Object", "object": {"describedObject": {"kind": "Service", "name": "web"},
                    "metric": {"name": "hits"}, "current": {"value": hits}}},
            ],
            "conditions": [
                {"type": "AbleToScale", "status": "True", "reason": "ReadyForNewScale", "message": "at 1.5 of 2"},
                {"type": "ScalingLimited", "status": "False", "reason": "DesiredWithinRange", "message": "range 1"},
            ],
        });
        change(&mut status);
        serde_json::from_value(status).unwrap()
    }

    fn withholds(precision: &str, old: &Status, new: &Status, age: i64) -> bool {
        let spec: Spec = serde_json::from_str(SPEC).unwrap();
        let at = first_of_turn("u1");
        let now = at + SignedDuration::from_secs(age);
        let written = WrittenStatus { status: old, at };
        let settings = Settings { status_precision: precision.parse().unwrap(), ..Settings::default() };
        super::withholds(&settings, "u1", &spec, written, new, now, Duration::from_secs(15))
    }

    /// The first second of a turn of ten periods.
    fn first_of_turn(uid: &str) -> Timestamp {
        let turns = turns(uid, Duration::from_secs(150));
        let turn = |second| turns(Timestamp::from_second(second).unwrap());
        let second = (1..=150).find(|second| turn(*second) != turn(second - 1)).unwrap();
        Timestamp::from_second(second).unwrap()
    }

    #[test]
    fn small_change_of_a_metric_is_withheld() {
        let old = (50, "8", "1500");
        let cases = [
            ((50, "8", "1500"), true),
            ((56, "8", "1500"), true),
            ((44, "8", "1500"), true),
            ((57, "8", "1500"), false),
            ((43, "8", "1500"), false),
            ((50, "9", "1700"), true),
            ((50, "9001m", "1500"), false),
            ((50, "6999m", "1500"), false),
            ((50, "8", "1701"), false),
            ((57, "9", "1700"), false),
        ];
        for (new, expected) in cases {
            let found = withholds("10%", &status(old, |_| {}), &status(new, |_| {}), 15);
            assert_eq!(found, expected, "{new:?}");
        }
    }

    #[test]
    fn metric_that_crosses_its_target_beyond_the_tolerance_is_written() {
        let cases = [
            (59, 67, false),
            (60, 67, false),
            (61, 53, false),
            (60, 53, false),
            (59, 66, true),
            (61, 54, true),
            (61, 67, true),
            (59, 53, true),
        ];
        for (old, new, expected) in cases {
            let found =
                withholds("50%", &status((old, "8", "1"), |_| {}), &status((new, "8", "1"), |_| {}), 15);
            assert_eq!(found, expected, "{old} to {new}");
        }
    }

    #[test]
    fn status_is_written_once_in_ten_periods_and_without_a_precision() {
        let (old, new) = (status((50, "8", "1"), |_| {}), status((51, "8", "1"), |_| {}));
        for (age, expected) in [(0, true), (149, true), (150, false), (900, false), (-2, false)] {
            assert_eq!(withholds("10%", &old, &new, age), expected, "{age} s");
        }
        assert!(!withholds("0", &old, &new, 15) && !withholds("0%", &old, &new, 15));
    }

    #[test]
    fn last_writes_of_many_hpas_are_spread() {
        let mut starts = [0; 10];
        for number in 0..10_000_u32 {
            let uid = format!("{number:08x}-0000-4000-8000-{:012x}", number / 7);
            let second = usize::try_from(first_of_turn(&uid).as_second()).unwrap();
            starts[(second - 1) / 15] += 1;
        }
        assert!(starts.iter().all(|count| (850..1_150).contains(count)), "{starts:?}");
    }

    #[test]
    fn every_other_change_is_written() {
        let values = (50, "8", "1");
        let failed = json!({"type": ""});
        let changes: [(&str, Value); 14] = [
            ("/observedGeneration", json!(2)),
            ("/lastScaleTime", json!("2030-01-01T00:00:15Z")),
            ("/currentReplicas", json!(4)),
            ("/desiredReplicas", json!(4)),
            ("/currentMetrics", json!([])),
            ("/currentMetrics/0", failed),
            ("/currentMetrics/0/resource/name", json!("memory")),
            ("/currentMetrics/1/external/metric/name", json!("other")),
            ("/currentMetrics/2/object/describedObject/name", json!("other")),
            ("/conditions", json!([])),
            ("/conditions/0/status", json!("False")),
            ("/conditions/0/reason", json!("ScaleDownStabilized")),
            ("/conditions/0/message", json!("at 1.5 of two")),
            ("/conditions/1/message", json!("range 2")),
        ];
        for (path, value) in changes {
            let new = status(values, |status| *status.pointer_mut(path).unwrap() = value);
            assert!(!withholds("100%", &status(values, |_| {}), &new, 15), "{path}");
            assert!(!withholds("100%", &new, &status(values, |_| {}), 15), "{path}");
        }
    }

    #[test]
    fn numbers_in_the_message_of_a_true_condition_repeat_values() {
        let values = (50, "8", "1");
        let new = status(values, |status| status["conditions"][0]["message"] = json!("at 12 of 2.75"));
        assert!(withholds("1%", &status(values, |_| {}), &new, 15));
    }

    #[test]
    fn precision_is_a_whole_percentage() {
        for text in ["0", "0%", "7%", "100%"] {
            assert!(text.parse::<StatusPrecision>().is_ok(), "{text}");
        }
        for text in ["", "%", "10", "101%", "-1%", "+1%", "1.5%", "1 %", "x%", "256%"] {
            assert_eq!(text.parse::<StatusPrecision>(), Err(StatusPrecisionError), "{text}");
        }
    }
}
