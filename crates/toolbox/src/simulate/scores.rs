//! Computes the scores of a run, which compare variants, from its samples.

use std::time::Duration;

use super::run::{MetricSeries, Sample, Scores};

/// The consequence of work beyond the capacity.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unserved {
    /// The excess is lost: `units` of the `arrived` units.
    Lost { units: f64, arrived: f64 },
    /// The excess waits in a queue. The samples contain the length of the queue.
    Waits,
}

/// Computes the scores of one HPA's run. A sample applies until the next sample, or until `duration`. `rescales` are
/// the writes of the replica count, as time, previous count and new count.
pub(super) fn scores(
    samples: &[Sample],
    metrics: &[MetricSeries],
    rescales: &[(Duration, i32, i32)],
    duration: Duration,
    unserved: Unserved,
) -> Scores {
    let ends = samples.iter().skip(1).map(|sample| sample.at).chain([duration]);
    let spans: Vec<_> =
        samples.iter().zip(ends).map(|(sample, end)| (sample, end.saturating_sub(sample.at))).collect();
    let integral = |amount: &dyn Fn(&Sample) -> f64| -> f64 {
        spans.iter().map(|(sample, length)| amount(sample) * length.as_secs_f64()).sum()
    };
    let (unserved, unserved_fraction) = match unserved {
        Unserved::Lost { units, arrived } => (units, if arrived > 0.0 { units / arrived } else { 0.0 }),
        Unserved::Waits => (integral(&|sample| sample.queued), 0.0),
    };
    let above: Vec<Vec<bool>> = metrics.iter().map(above).collect();
    let any_above = |index: usize| above.iter().any(|metric| metric.get(index) == Some(&true));
    Scores {
        above_target: spans
            .iter()
            .enumerate()
            .filter(|(index, _)| any_above(*index))
            .map(|(_, (_, length))| *length)
            .sum(),
        unserved,
        unserved_fraction,
        pod_hours: integral(&|sample| f64::from(sample.running)) / 3_600.0,
        rescales: u32::try_from(rescales.len()).unwrap_or(u32::MAX),
        direction_changes: direction_changes(rescales),
        longest_reaction: above.iter().map(|metric| longest(metric, &spans)).max().unwrap_or_default(),
        peak: samples.iter().map(|sample| sample.running).max().unwrap_or(0),
    }
}

/// Returns for each sample whether the metric is above its tolerance. A sample without a value has the state of the
/// previous sample.
fn above(metric: &MetricSeries) -> Vec<bool> {
    let mut last = false;
    let is_above = |value: &Option<f64>| {
        if let Some(value) = value {
            last = *value > metric.tolerated_to;
        }
        last
    };
    metric.values.iter().map(is_above).collect()
}

/// Returns the longest time for which the metric is continuously above its tolerance.
fn longest(above: &[bool], spans: &[(&Sample, Duration)]) -> Duration {
    let mut longest = Duration::ZERO;
    let mut stretch = Duration::ZERO;
    for (above, (_, length)) in above.iter().zip(spans) {
        stretch = if *above { stretch + *length } else { Duration::ZERO };
        longest = longest.max(stretch);
    }
    longest
}

fn direction_changes(rescales: &[(Duration, i32, i32)]) -> u32 {
    let directions = rescales.iter().map(|(_, from, to)| to.cmp(from)).filter(|direction| direction.is_ne());
    let directions: Vec<_> = directions.collect();
    let changes = directions.windows(2).filter(|pair| pair.first() != pair.last()).count();
    u32::try_from(changes).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use autoscaling::explanation::Subject;

    use super::*;

    const fn secs(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    const NOTHING: Unserved = Unserved::Lost { units: 0.0, arrived: 0.0 };

    /// Returns samples at intervals of 10 s, from pairs of running pods and queue length.
    fn samples(points: &[(i32, f64)]) -> Vec<Sample> {
        let sample = |(index, (running, queued)): (usize, &(i32, f64))| Sample {
            at: secs(10 * index as u64),
            wanted: *running,
            running: *running,
            ready: *running,
            demand: 0.0,
            capacity: 0.0,
            queued: *queued,
            min: 1,
            max: 10,
            proposal: None,
            stabilized: None,
            rate_allows: None,
            withheld: None,
        };
        points.iter().enumerate().map(sample).collect()
    }

    fn metric(values: &[Option<f64>]) -> MetricSeries {
        MetricSeries {
            subject: Subject::default(),
            unit: "%",
            target: 50.0,
            tolerated_from: 45.0,
            tolerated_to: 55.0,
            values: values.to_vec(),
        }
    }

    #[test]
    fn scores_count_each_sample_until_the_next_or_the_end() {
        let scores = scores(&samples(&[(2, 0.0), (4, 0.0), (3, 0.0)]), &[], &[], secs(26), NOTHING);
        assert_eq!(scores.pod_hours, (20.0 + 40.0 + 18.0) / 3_600.0);
        assert_eq!(scores.peak, 4);
    }

    #[test]
    fn scores_count_queued_items_as_unserved() {
        let samples = samples(&[(1, 0.0), (1, 30.0), (1, 60.0), (1, 40.0)]);
        let scores = scores(&samples, &[], &[], secs(30), Unserved::Waits);
        assert_eq!((scores.unserved, scores.unserved_fraction), (900.0, 0.0));
    }

    #[test]
    fn scores_take_any_metric_for_time_above_and_one_for_reaction() {
        let samples = samples(&[(1, 0.0); 7]);
        let one = metric(&[None, Some(60.0), None, Some(56.0), Some(55.0), Some(50.0), Some(70.0)]);
        let other = metric(&[Some(80.0), Some(50.0), Some(0.0), Some(0.0), Some(0.0), Some(80.0), Some(0.0)]);
        let scores = scores(&samples, &[one, other], &[], secs(60), NOTHING);
        assert_eq!(scores.above_target, secs(50), "0 to 40 and 50 to 60; the last sample has no length");
        assert_eq!(scores.longest_reaction, secs(30), "a missing value repeats the previous state");
    }

    #[test]
    fn scores_count_direction_changes_of_rescales() {
        let rescales = [(secs(0), 2, 4), (secs(1), 4, 8), (secs(2), 8, 6), (secs(3), 6, 5), (secs(4), 5, 7)];
        let scores = scores(&[], &[], &rescales, secs(60), NOTHING);
        assert_eq!((scores.rescales, scores.direction_changes), (5, 2));
    }

    #[test]
    fn scores_take_lost_units_as_a_fraction_of_arrived_units() {
        let scores_of = |unserved| scores(&[], &[], &[], secs(10), unserved);
        let scores = scores_of(Unserved::Lost { units: 200.0, arrived: 1_000.0 });
        assert_eq!((scores.unserved, scores.unserved_fraction), (200.0, 0.2));
        assert_eq!(scores_of(NOTHING).unserved_fraction, 0.0);
    }
}
