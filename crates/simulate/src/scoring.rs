//! The scores of a run, computed sync by sync, and the samples that a run keeps.

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

/// Computes the scores of one HPA's run. A sample applies until the next sample, or until `duration`. The first sample
/// also applies before its time. `rescales` are the writes of the replica count, as time, previous count and new count.
pub(super) fn scores(
    samples: &[Sample],
    metrics: &[MetricSeries],
    rescales: &[(Duration, i32, i32)],
    duration: Duration,
    unserved: Unserved,
) -> Scores {
    let mut scoring = Scoring::default();
    for (index, sample) in samples.iter().enumerate() {
        let values = metrics.iter().map(|metric| metric.values.get(index).copied().flatten());
        scoring.add(sample, &values.zip(metrics).collect::<Vec<_>>());
    }
    scoring.finish(rescales, duration, unserved)
}

/// The scores of an HPA up to its last sample.
#[derive(Debug, Clone, Default)]
pub(super) struct Scoring {
    last: Option<Sample>,
    /// The time from which the last sample applies.
    from: Duration,
    /// For each metric, whether it is above its tolerance, and for how long. A sample without a value has the state of
    /// the previous sample.
    above: Vec<(bool, Duration)>,
    above_target: Duration,
    longest_reaction: Duration,
    /// The integral of the queue length, in item-seconds.
    queued: f64,
    /// The integral of the number of existing pods, in pod-seconds.
    pods: f64,
    peak: i32,
}

impl Scoring {
    /// Adds the sample of the next sync, with the value of each metric.
    pub(super) fn add(&mut self, sample: &Sample, metrics: &[(Option<f64>, &MetricSeries)]) {
        if self.last.is_some() {
            self.close(sample.at);
        }
        self.last = Some(*sample);
        self.peak = self.peak.max(sample.running);
        self.above.resize(metrics.len(), (false, Duration::ZERO));
        for ((is_above, _), (value, metric)) in self.above.iter_mut().zip(metrics) {
            if let Some(value) = value {
                *is_above = *value > metric.tolerated_to;
            }
        }
    }

    /// Ends the time in which the last sample applies.
    fn close(&mut self, end: Duration) {
        let Some(sample) = self.last else { return };
        let length = end.saturating_sub(self.from);
        self.from = end;
        for (is_above, stretch) in &mut self.above {
            *stretch = if *is_above { *stretch + length } else { Duration::ZERO };
            self.longest_reaction = self.longest_reaction.max(*stretch);
        }
        if self.above.iter().any(|(is_above, _)| *is_above) {
            self.above_target += length;
        }
        self.queued += sample.queued * length.as_secs_f64();
        self.pods += f64::from(sample.running) * length.as_secs_f64();
    }

    /// Returns the scores of a run of length `duration`.
    pub(super) fn finish(
        mut self,
        rescales: &[(Duration, i32, i32)],
        duration: Duration,
        unserved: Unserved,
    ) -> Scores {
        self.close(duration);
        let (unserved, unserved_fraction) = match unserved {
            Unserved::Lost { units, arrived } => (units, if arrived > 0.0 { units / arrived } else { 0.0 }),
            Unserved::Waits => (self.queued, 0.0),
        };
        Scores {
            above_target: self.above_target,
            unserved,
            unserved_fraction,
            pod_hours: self.pods / 3_600.0,
            rescales: u32::try_from(rescales.len()).unwrap_or(u32::MAX),
            direction_changes: direction_changes(rescales),
            longest_reaction: self.longest_reaction,
            peak: self.peak,
        }
    }
}

fn direction_changes(rescales: &[(Duration, i32, i32)]) -> u32 {
    let directions = rescales.iter().map(|(_, from, to)| to.cmp(from)).filter(|direction| direction.is_ne());
    let directions: Vec<_> = directions.collect();
    let changes = directions.windows(2).filter(|pair| pair.first() != pair.last()).count();
    u32::try_from(changes).unwrap_or(u32::MAX)
}

/// The samples of an HPA with their values of the metrics. Beyond a maximum number, one sample stands for several syncs:
/// the one with the most pods, or the last of these.
#[derive(Debug, Clone)]
pub(super) struct KeptSamples {
    /// The maximum number, which is even.
    most: usize,
    samples: Vec<(Sample, Vec<Option<f64>>)>,
    /// The number of syncs for which one sample stands.
    syncs: u32,
    /// The number of syncs for which the last sample stands so far.
    merged: u32,
}

impl KeptSamples {
    /// Creates an empty list of at most about `most` samples.
    pub(super) fn new(most: usize) -> Self {
        Self { most: most.max(2).next_multiple_of(2), samples: Vec::new(), syncs: 1, merged: 1 }
    }

    /// Adds the sample of the next sync, with the value of each metric.
    pub(super) fn add(&mut self, sample: Sample, values: Vec<Option<f64>>) {
        let next = (sample, values);
        if self.merged < self.syncs
            && let Some(last) = self.samples.pop()
        {
            self.merged += 1;
            self.samples.push(higher(last, next));
            return;
        }
        if self.samples.len() >= self.most {
            let mut all = std::mem::take(&mut self.samples).into_iter();
            while let Some(first) = all.next() {
                self.samples.push(match all.next() {
                    Some(second) => higher(first, second),
                    None => first,
                });
            }
            self.syncs *= 2;
        }
        self.samples.push(next);
        self.merged = 1;
    }

    /// Returns the number of syncs for which one sample stands.
    pub(super) fn syncs(&self) -> u32 {
        self.syncs
    }

    /// Returns the samples, and sets the values of the metrics.
    pub(super) fn finish(self, metrics: &mut [MetricSeries]) -> Vec<Sample> {
        let mut samples = Vec::with_capacity(self.samples.len());
        for (sample, values) in self.samples {
            samples.push(sample);
            for (metric, value) in metrics.iter_mut().zip(values) {
                metric.values.push(value);
            }
        }
        samples
    }
}

/// Returns the sample with more pods, or the later of two with the same number.
fn higher<T>(first: (Sample, T), second: (Sample, T)) -> (Sample, T) {
    let pods = |(sample, _): &(Sample, T)| sample.wanted.max(sample.running);
    if pods(&first) > pods(&second) { first } else { second }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_run_keeps_few_samples_and_its_highest_count() {
        let mut kept = KeptSamples::new(10);
        for second in 0..1_000 {
            let wanted = if second == 501 { 9 } else { 2 };
            let sample = Sample { at: Duration::from_secs(second), wanted, ..Sample::default() };
            kept.add(sample, vec![Some(f64::from(wanted))]);
        }
        assert_eq!(kept.syncs(), 128);
        let mut metrics = [MetricSeries {
            subject: autoscaling::explanation::Subject::default(),
            unit: "",
            target: 1.0,
            tolerated_from: 1.0,
            tolerated_to: 1.0,
            values: Vec::new(),
        }];
        let samples = kept.finish(&mut metrics);
        let seconds: Vec<_> = samples.iter().map(|sample| sample.at.as_secs()).collect();
        assert_eq!(seconds, [127, 255, 383, 501, 639, 767, 895, 999]);
        assert_eq!(metrics[0].values.iter().filter(|value| **value == Some(9.0)).count(), 1);
    }

    #[test]
    fn short_run_keeps_every_sample() {
        let mut kept = KeptSamples::new(10);
        for second in 0..10 {
            kept.add(Sample { at: Duration::from_secs(second), ..Sample::default() }, Vec::new());
        }
        assert_eq!((kept.syncs(), kept.finish(&mut []).len()), (1, 10));
    }
}
