//! What people compare between variants, computed from a run's samples.

use std::time::Duration;

use super::run::{MetricSeries, Sample, Scores};

/// What became of the work that nobody took.
#[derive(Debug, Clone, Copy, PartialEq)]
pub(super) enum Unserved {
    /// So many units were lost, of so many that came in.
    Lost { units: f64, of: f64 },
    /// They wait, as the samples tell.
    Waits,
}

/// The scores of one HPA's run. Each sample counts for the time until the next; `rescales` are the writes of its replica
/// count, from and to.
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
        Unserved::Lost { units, of } => (units, if of > 0.0 { units / of } else { 0.0 }),
        Unserved::Waits => (integral(&|sample| sample.queued), 0.0),
    };
    let above: Vec<Vec<bool>> = metrics.iter().map(above).collect();
    let any_above = |place: usize| above.iter().any(|metric| metric.get(place) == Some(&true));
    Scores {
        above_target: spans
            .iter()
            .enumerate()
            .filter(|(place, _)| any_above(*place))
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

/// In which samples a metric is above its tolerance. One that cannot be read is where it was.
fn above(metric: &MetricSeries) -> Vec<bool> {
    let mut last = false;
    let of = |value: &Option<f64>| {
        if let Some(value) = value {
            last = *value > metric.tolerated.1;
        }
        last
    };
    metric.values.iter().map(of).collect()
}

/// The longest stretch of samples that hold.
fn longest(holds: &[bool], spans: &[(&Sample, Duration)]) -> Duration {
    let mut longest = Duration::ZERO;
    let mut stretch = Duration::ZERO;
    for (holds, (_, length)) in holds.iter().zip(spans) {
        stretch = if *holds { stretch + *length } else { Duration::ZERO };
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

    const NOTHING: Unserved = Unserved::Lost { units: 0.0, of: 0.0 };

    /// Samples 10 s apart of running pods and of what waits.
    fn samples(of: &[(i32, f64)]) -> Vec<Sample> {
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
        };
        of.iter().enumerate().map(sample).collect()
    }

    fn metric(values: &[Option<f64>]) -> MetricSeries {
        MetricSeries {
            subject: Subject::default(),
            unit: "%",
            target: 50.0,
            tolerated: (45.0, 55.0),
            values: values.to_vec(),
        }
    }

    #[test]
    fn each_sample_counts_until_the_next_and_the_last_until_the_end() {
        let scores = scores(&samples(&[(2, 0.0), (4, 0.0), (3, 0.0)]), &[], &[], secs(26), NOTHING);
        assert_eq!(scores.pod_hours, (20.0 + 40.0 + 18.0) / 3_600.0);
        assert_eq!(scores.peak, 4);
    }

    #[test]
    fn of_a_queue_what_waits_is_unserved() {
        let samples = samples(&[(1, 0.0), (1, 30.0), (1, 60.0), (1, 40.0)]);
        let scores = scores(&samples, &[], &[], secs(30), Unserved::Waits);
        assert_eq!((scores.unserved, scores.unserved_fraction), (900.0, 0.0));
    }

    #[test]
    fn time_above_target_is_that_of_any_metric_and_a_reaction_that_of_one() {
        let samples = samples(&[(1, 0.0); 7]);
        let one = metric(&[None, Some(60.0), None, Some(56.0), Some(55.0), Some(50.0), Some(70.0)]);
        let other = metric(&[Some(80.0), Some(50.0), Some(0.0), Some(0.0), Some(0.0), Some(80.0), Some(0.0)]);
        let scores = scores(&samples, &[one, other], &[], secs(60), NOTHING);
        assert_eq!(scores.above_target, secs(50), "0 to 40 and 50 to 60; the last sample has no length");
        assert_eq!(scores.longest_reaction, secs(30), "a metric that cannot be read is where it was");
    }

    #[test]
    fn a_direction_changes_when_a_rescale_goes_back() {
        let rescales = [(secs(0), 2, 4), (secs(1), 4, 8), (secs(2), 8, 6), (secs(3), 6, 5), (secs(4), 5, 7)];
        let scores = scores(&[], &[], &rescales, secs(60), NOTHING);
        assert_eq!((scores.rescales, scores.direction_changes), (5, 2));
    }

    #[test]
    fn what_is_lost_is_a_part_of_what_came_in() {
        let scores_of = |unserved| scores(&[], &[], &[], secs(10), unserved);
        let scores = scores_of(Unserved::Lost { units: 200.0, of: 1_000.0 });
        assert_eq!((scores.unserved, scores.unserved_fraction), (200.0, 0.2));
        assert_eq!(scores_of(NOTHING).unserved_fraction, 0.0);
    }
}
