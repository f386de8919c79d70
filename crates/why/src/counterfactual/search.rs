//! Finds the levels of a metric at which the count changes.

use std::cmp::Ordering;
use std::ops::RangeInclusive;

use autoscaling::explanation::{Measure, MetricExplanation, MetricReading, PodGroup};
use autoscaling::history::Direction;
use autoscaling::pod::{ConditionStatus, Phase};

use super::trial::{Past, Trial};
use super::{Threshold, Until};

/// Returns the level of zero usage, or a level that gives more pods than the maximum of any HPA.
pub(super) fn extreme(direction: Direction) -> f64 {
    match direction {
        Direction::Up => 1e12,
        Direction::Down => 0.0,
    }
}

/// Maximum number of bisection steps. A floating-point number has 53 significant bits, so more steps hardly change the
/// result.
const HALVINGS: usize = 56;

/// A level of a metric at which the result differs.
pub(super) struct CriticalLevel {
    /// The index of the metric.
    pub(super) index: usize,
    pub(super) level: f64,
    pub(super) threshold: Threshold,
}

/// The result at a level of a metric.
#[derive(Debug, Clone)]
struct Point {
    level: f64,
    /// The side of the accepted counts on which the count is.
    side: Ordering,
    reading: MetricReading,
}

impl Point {
    /// The side of the tolerance on which the ratio is.
    fn zone(&self) -> Ordering {
        let reading = &self.reading;
        if reading.ratio < reading.lowest_tolerated {
            Ordering::Less
        } else if reading.ratio > reading.highest_tolerated {
            Ordering::Greater
        } else {
            Ordering::Equal
        }
    }
}

/// A search along the levels of one metric, from the current level to an extreme.
struct Search<'a> {
    trial: &'a Trial<'a>,
    index: usize,
    /// The levels of the other metrics that are changed.
    others: &'a [(usize, f64)],
    past: Past,
    wanted: &'a RangeInclusive<i32>,
    /// The number of milli-units in a level of 1.
    finest: f64,
}

impl Trial<'_> {
    /// Finds the next level of one metric in a direction at which the count is one of `wanted`, with the other metrics
    /// unchanged.
    pub(super) fn level_of(
        &self,
        index: usize,
        direction: Direction,
        past: Past,
        wanted: &RangeInclusive<i32>,
    ) -> Option<CriticalLevel> {
        Search::new(self, index, &[], past, wanted)?.run(extreme(direction))
    }

    /// Finds the levels to which all metrics must rise or fall for the count to be one of `wanted`. The level of each
    /// metric is found with all other metrics at the extreme. Metrics that do not prevent the change are omitted.
    pub(super) fn levels_of_all(
        &self,
        direction: Direction,
        past: Past,
        wanted: &RangeInclusive<i32>,
    ) -> Vec<CriticalLevel> {
        let indexes: Vec<usize> = self.readings().collect();
        let needed = indexes.iter().filter_map(|index| {
            let others = indexes.iter().filter(|other| *other != index);
            let others: Vec<(usize, f64)> = others.map(|other| (*other, extreme(direction))).collect();
            if self.desired(&others, past).is_some_and(|desired| wanted.contains(&desired)) {
                return None;
            }
            Search::new(self, *index, &others, past, wanted)?.run(extreme(direction))
        });
        needed.collect()
    }

    /// Returns the current level of a metric. Levels are factors, so the current level is 1. For a value of zero or
    /// less, which cannot be multiplied, the level is 0.
    pub(super) fn level_now(&self, index: usize) -> f64 {
        if self.reading(index).is_some_and(|reading| shown(reading) <= 0) { 0.0 } else { 1.0 }
    }

    fn reading(&self, index: usize) -> Option<&MetricReading> {
        self.explanation.metrics.get(index).and_then(MetricExplanation::reading)
    }

    /// Whether a higher value of a metric may give a lower proposal: if its ratio is multiplied by another number of
    /// pods than the current count, which the metric proposes within tolerance.
    pub(super) fn may_turn(&self, index: usize) -> bool {
        let Some(reading) = self.reading(index) else { return false };
        let counted = if reading.pods.is_empty() && reading.unlisted.is_empty() {
            let is_ready = |pod: &autoscaling::pod::Pod| {
                let ready = pod.ready.is_some_and(|ready| ready.status == ConditionStatus::True);
                pod.phase == Phase::Running && ready
            };
            self.situation.pods.iter().filter(|pod| is_ready(pod)).count()
        } else {
            reading.count(|group| group == PodGroup::Ready)
        };
        reading.total.is_none() && i32::try_from(counted).ok() != Some(self.explanation.current)
    }
}

impl<'a> Search<'a> {
    fn new(
        trial: &'a Trial<'a>,
        index: usize,
        others: &'a [(usize, f64)],
        past: Past,
        wanted: &'a RangeInclusive<i32>,
    ) -> Option<Self> {
        let now = trial.reading(index)?;
        // At the level 0, levels are in units of the target, not of the samples.
        let finest = if trial.level_now(index) == 0.0 {
            let requests = now.pods.iter().filter_map(|pod| pod.request).max().unwrap_or(1000) as f64;
            let target = shown_target(now.target);
            if matches!(now.target, Measure::Percent(_)) { requests * target / 100.0 } else { target }
        } else {
            now.pods.iter().filter_map(|pod| pod.sample).max().unwrap_or_else(|| shown(now)) as f64
        };
        let finest = if finest > 0.0 { finest } else { f64::INFINITY };
        Some(Self { trial, index, others, past, wanted, finest })
    }

    /// Finds the first level towards `extreme` with one of the accepted counts, and the last level from which on the count
    /// is another again.
    fn run(&self, extreme: f64) -> Option<CriticalLevel> {
        let now = self.at(self.trial.level_now(self.index)).filter(|now| now.side != Ordering::Equal)?;
        let mut found: Option<(Point, Point)> = None;
        let mut until = None;
        let mut before = now.clone();
        for (near, far) in self.pieces(&now, &self.at(extreme)?) {
            let mut from = near;
            if found.is_none() {
                let entry = match from.side {
                    Ordering::Equal => (before, from),
                    side if far.side == side => {
                        before = far;
                        continue;
                    }
                    side => self.edge(&from, &far, |point| point.side != side),
                };
                // The count may leap over the accepted counts.
                if entry.1.side != Ordering::Equal {
                    before = far;
                    continue;
                }
                from = entry.1.clone();
                found = Some(entry);
            } else if from.side != Ordering::Equal {
                until = Some((before, from));
                break;
            }
            if far.side != Ordering::Equal {
                until = Some(self.edge(&from, &far, |point| point.side != Ordering::Equal));
                break;
            }
            before = far;
        }
        let (last, first) = found?;
        let threshold = Threshold {
            until: until.map(|(last, beyond)| Until::new(&last.reading, &beyond.reading)),
            ..threshold(self.trial.reading(self.index)?, &last.reading, &first.reading)
        };
        Some(CriticalLevel { index: self.index, level: first.level, threshold })
    }

    fn at(&self, level: f64) -> Option<Point> {
        let mut levels = self.others.to_vec();
        levels.push((self.index, level));
        let decided = self.trial.at_levels(&levels, self.past);
        // Without a count, the target keeps its count.
        let count = self.trial.applied(&decided).unwrap_or(self.trial.explanation.current);
        let side = if count < *self.wanted.start() {
            Ordering::Less
        } else if count > *self.wanted.end() {
            Ordering::Greater
        } else {
            Ordering::Equal
        };
        let reading = decided.metrics.get(self.index)?.reading()?.clone();
        Some(Point { level, side, reading })
    }

    /// Divides the levels between two points where the ratio enters or leaves the tolerance, unless the count cannot
    /// turn there. In each piece, the count rises or falls.
    fn pieces(&self, from: &Point, to: &Point) -> Vec<(Point, Point)> {
        let (mut pieces, mut near) = (Vec::new(), from.clone());
        while self.trial.may_turn(self.index) && near.zone() != to.zone() && pieces.len() < 2 {
            let zone = near.zone();
            let (inside, outside) = self.edge(&near, to, |point| point.zone() != zone);
            pieces.push((near, inside));
            near = outside;
        }
        pieces.push((near, to.clone()));
        pieces
    }

    /// Finds the level between two points from which on `is_beyond`, which is true for `far` and not for `near`. Returns
    /// the points on both sides of that level.
    fn edge(&self, near: &Point, far: &Point, is_beyond: impl Fn(&Point) -> bool) -> (Point, Point) {
        let (mut same, mut beyond) = (near.clone(), far.clone());
        // Upwards, the step grows exponentially, so that the bisection starts at a level near the result.
        let mut step = 0.125;
        while near.level + step < far.level {
            let Some(point) = self.at(near.level + step) else { break };
            if is_beyond(&point) {
                beyond = point;
                break;
            }
            same = point;
            step *= 4.0;
        }
        for _ in 0..HALVINGS {
            // Values are in whole milli-units, so a smaller difference has no effect.
            if (beyond.level - same.level).abs() * self.finest < 1.0 {
                break;
            }
            let Some(point) = self.at(f64::midpoint(same.level, beyond.level)) else { break };
            if is_beyond(&point) {
                beyond = point;
            } else {
                same = point;
            }
        }
        (same, beyond)
    }
}

/// Returns a target in milli-units, or in percent.
fn shown_target(target: Measure) -> f64 {
    match target {
        Measure::Percent(percent) => percent.into(),
        Measure::Milli(milli) | Measure::MilliPerPod(milli) => milli as f64,
    }
}

/// Returns the total of a reading or else its value: in milli-units, or in percent.
fn shown(reading: &MetricReading) -> i64 {
    match (reading.total, reading.value) {
        (Some(total), _) => total,
        (None, Measure::Percent(percent)) => percent.into(),
        (None, Measure::Milli(milli) | Measure::MilliPerPod(milli)) => milli,
    }
}

/// Returns the average sample of the counted pods at `first`, rounded away from that at `last`, if both are the same
/// percentage.
fn usage(last: &MetricReading, first: &MetricReading) -> Option<i64> {
    if !matches!(first.value, Measure::Percent(_)) || first.value != last.value {
        return None;
    }
    let samples = |reading: &MetricReading| -> (i128, i128) {
        let counted = reading.pods.iter().filter(|pod| pod.group == PodGroup::Ready);
        counted
            .filter_map(|pod| pod.sample)
            .fold((0, 0), |(sum, number), sample| (sum + i128::from(sample), number + 1))
    };
    let ((before, _), (sum, number)) = (samples(last), samples(first));
    let down = sum.checked_div(number)?;
    let up = sum > before && sum % number != 0;
    i64::try_from(down + i128::from(up)).ok()
}

impl Until {
    fn new(last: &MetricReading, beyond: &MetricReading) -> Self {
        Self { last: last.value, total: last.total, usage: usage(beyond, last) }
    }
}

fn threshold(now: &MetricReading, last: &MetricReading, first: &MetricReading) -> Threshold {
    let requests: Vec<i64> =
        now.pods.iter().filter(|pod| pod.group == PodGroup::Ready).filter_map(|pod| pod.request).collect();
    let sum: i128 = requests.iter().copied().map(i128::from).sum();
    let average = i128::try_from(requests.len()).ok().and_then(|number| sum.checked_div(number));
    Threshold {
        usage: usage(last, first),
        subject: now.subject.clone(),
        now: now.value,
        last: last.value,
        first: first.value,
        totals: now.total.zip(last.total).zip(first.total).map(|((now, last), first)| [now, last, first]),
        request: average.and_then(|average| i64::try_from(average).ok()),
        until: None,
    }
}
