//! Scales answers of the metrics APIs to another level.

use std::sync::Arc;

use autoscaling::explanation::{Measure, MetricReading};
use autoscaling::pod::ResourceList;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage};
use autoscaling::spec::MetricSource;

/// Returns the answer with every value of the metric multiplied by `level`. With `from_zero`, for a metric
/// without a value, every value instead becomes `level` times the target.
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
                    // The target is a percentage of the pod's request.
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
