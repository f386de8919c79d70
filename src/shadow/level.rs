//! Answers of the metrics APIs as they would be at another level.

use std::sync::Arc;

use autoscaling::explanation::{Measure, MetricReading};
use autoscaling::pod::ResourceList;
use autoscaling::quantity::Quantity;
use autoscaling::query::{Answer, ContainerUsage, CustomValue, ExternalValue, PodUsage};
use autoscaling::spec::MetricSource;

/// The answer with every value of the metric multiplied by `level`; `from_zero`: of a metric that shows nothing, with
/// every value at `level` times its target instead.
pub(crate) fn at_level(
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
    let at = |value: Quantity| {
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
                let at = reading.pods.binary_search_by(|verdict| (*verdict.name).cmp(pod)).ok()?;
                reading.pods.get(at)?.request
            };
            let of = |usage: &PodUsage| {
                let whole = match reading.target {
                    // Percent of what the pod requests.
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
                            (true, false) => at(value),
                            (true, true) => Quantity::from_milli(rounded(share * level), value.format()),
                        };
                        (Arc::from(name), value)
                    });
                    ContainerUsage { name: Arc::clone(&each.name), usage: ResourceList::new(entries) }
                });
                PodUsage { containers: containers.collect(), ..usage.clone() }
            };
            Answer::Resource(usages.iter().map(of).collect())
        }
        Answer::Custom(values) => Answer::Custom(
            values.iter().map(|value| CustomValue { value: at(value.value), ..value.clone() }).collect(),
        ),
        Answer::External(values) => Answer::External(
            values.iter().map(|value| ExternalValue { value: at(value.value), ..value.clone() }).collect(),
        ),
    }
}

/// The nearest whole number of milli-units; what is out of range becomes the nearest that there is, NaN 0.
#[expect(
    clippy::cast_possible_truncation,
    reason = "`as` from a float saturates, and NaN gives 0: both are wanted"
)]
fn rounded(milli: f64) -> i64 {
    milli.round() as i64
}
