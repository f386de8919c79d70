//! Deciding again, with one thing changed.

use autoscaling::condition::Limit;
use autoscaling::explanation::{
    Explanation, LimitingStep, Measure, MetricExplanation, MetricReading, PodGroup,
};
use autoscaling::history::{Direction, History, Recommendation};
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{SelectPolicy, Spec};
use autoscaling::{Answers, Hpa, Overlap, Scale, decide, plan};
use jiff::{SignedDuration, Timestamp};

use super::{Change, Situation, Threshold};
use crate::shadow::level::at_level;
use crate::store::HpaRecord;

/// The level at which a metric shows nothing.
pub(super) const LOWEST: f64 = 0.0;
/// A level at which a metric shows more than any HPA can follow.
const HIGHEST: f64 = 1e12;
/// Halvings of a search, at most: then two neighbours among the floats are left.
const HALVINGS: usize = 56;

/// One situation to be decided again.
pub(super) struct Trial<'a> {
    situation: &'a Situation,
    record: &'a HpaRecord,
    scale: Scale,
    pub(super) explanation: &'a Explanation,
}

/// Which past a decision is told of.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// What is known of it.
    Known,
    /// None that counts: every window and every period has passed.
    Settled,
}

/// A level of a metric at which the result differs.
pub(super) struct Beyond {
    pub(super) place: usize,
    pub(super) level: f64,
    pub(super) threshold: Threshold,
}

impl<'a> Trial<'a> {
    /// `None` if what was decided from is not at hand, or does not give the decision that is explained.
    pub(super) fn new(situation: &'a Situation) -> Option<Self> {
        let explanation = &situation.explanation;
        // The pods are selected already; a decision looks at the selector only to see whether there is one.
        let scale = Scale::new(explanation.current, explanation.status_replicas, "selected=already").ok()?;
        let trial = Self { situation, record: situation.hpa.as_deref()?, scale, explanation };
        let again = trial.decide(&[], Past::Known, &trial.record.spec, situation.at);
        (again.desired == explanation.desired && again.metrics.len() == explanation.metrics.len())
            .then_some(trial)
    }

    /// The places of the metrics that can be read.
    pub(super) fn readings(&self) -> impl Iterator<Item = usize> {
        self.explanation
            .metrics
            .iter()
            .enumerate()
            .filter(|(_, metric)| metric.reading().is_some())
            .map(|(at, _)| at)
    }

    /// All readable metrics at one level.
    pub(super) fn levels(&self, level: f64) -> Vec<(usize, f64)> {
        self.readings().map(|place| (place, level)).collect()
    }

    /// The count that follows if some metrics are at other levels.
    pub(super) fn desired(&self, levels: &[(usize, f64)], past: Past) -> Option<i32> {
        self.at_levels(levels, past).desired
    }

    /// What limits the count however far all metrics go in a direction.
    pub(super) fn limit_at_extreme(&self, direction: Direction) -> Option<LimitingStep> {
        let level = if direction == Direction::Up { HIGHEST } else { LOWEST };
        self.at_levels(&self.levels(level), Past::Settled).limiting_step()
    }

    /// The level of one metric at which, the others being as they are, the count fulfils `differs`.
    pub(super) fn alone(&self, place: usize, past: Past, differs: impl Fn(i32) -> bool) -> Option<Beyond> {
        self.search(place, HIGHEST, &[], past, differs)
    }

    /// The levels that metrics must all fall to for the count to fulfil `differs`: of each metric the one that does while
    /// the others show nothing. Metrics that stand in nobody's way are left out.
    pub(super) fn together(&self, past: Past, differs: impl Fn(i32) -> bool) -> Vec<Beyond> {
        let places: Vec<usize> = self.readings().collect();
        let needed = places.iter().filter_map(|place| {
            let others: Vec<(usize, f64)> =
                places.iter().filter(|other| *other != place).map(|other| (*other, LOWEST)).collect();
            if self.desired(&others, past).is_some_and(&differs) {
                return None;
            }
            self.search(*place, LOWEST, &others, past, &differs)
        });
        needed.collect()
    }

    /// Halves the way from the level that a metric has to `extreme` until the two sides of the change are found.
    fn search(
        &self,
        place: usize,
        extreme: f64,
        others: &[(usize, f64)],
        past: Past,
        differs: impl Fn(i32) -> bool,
    ) -> Option<Beyond> {
        let now = self.explanation.metrics.get(place)?.reading()?;
        let at = |level: f64| {
            let mut levels = others.to_vec();
            levels.push((place, level));
            let decided = self.at_levels(&levels, past);
            (decided.desired.is_some_and(&differs), decided.metrics.into_iter().nth(place))
        };
        let mut same = self.level_now(place);
        let mut beyond =
            if extreme > same { first_beyond(same, extreme, |level| at(level).0)? } else { extreme };
        if !at(beyond).0 {
            return None;
        }
        let largest = now.pods.iter().filter_map(|pod| pod.sample).max().unwrap_or_else(|| shown(now));
        let finest = if largest > 0 { largest as f64 } else { f64::INFINITY };
        let reading = |level: f64| at(level).1.and_then(|metric| metric.reading().cloned());
        let (mut last, mut first) = (now.clone(), reading(beyond)?);
        for _ in 0..HALVINGS {
            // Values are whole milli-units: closer than that, nothing differs.
            if (beyond - same).abs() * finest < 1.0 {
                break;
            }
            let middle = f64::midpoint(same, beyond);
            let (is_beyond, metric) = at(middle);
            let Some(MetricExplanation::Valid(reading)) = metric else {
                break;
            };
            if is_beyond {
                (beyond, first) = (middle, reading);
            } else {
                (same, last) = (middle, reading);
            }
        }
        Some(Beyond { place, level: beyond, threshold: threshold(now, &last, &first) })
    }

    /// The level at which a metric is: levels are factors, unless it shows nothing that could be multiplied.
    fn level_now(&self, place: usize) -> f64 {
        let shows = self.explanation.metrics.get(place).and_then(MetricExplanation::reading).map(shown);
        if shows == Some(0) { 0.0 } else { 1.0 }
    }

    /// When time alone gives another count.
    pub(super) fn wait(&self) -> Option<Change> {
        let stabilization = self.explanation.stabilization.iter().flat_map(|step| &step.recommendations);
        let policies = self.explanation.limit.iter().flat_map(|limit| &limit.policies);
        let mut moments: Vec<Timestamp> = stabilization
            .flat_map(|held| [held.leaves_up, held.leaves_down])
            .chain(policies.map(|policy| policy.frees_at))
            .flatten()
            .filter(|moment| *moment >= self.situation.at)
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let step = self.explanation.limiting_step()?;
        moments.into_iter().find_map(|until| {
            // What counts to the end of its window is gone an instant later.
            let after = until.checked_add(SignedDuration::from_nanos(1)).ok()?;
            let later = self.decide(&[], Past::Known, &self.record.spec, after);
            let to = later.desired.filter(|to| Some(*to) != self.explanation.desired)?;
            (later.proposal == self.explanation.proposal).then_some(Change::Wait { until, step, to })
        })
    }

    /// The field of the HPA that holds the count back.
    pub(super) fn field(&self) -> Option<Change> {
        let limit = self.explanation.limit.as_ref().filter(|limit| limit.before != limit.after)?;
        let mut spec = Spec::clone(&self.record.spec);
        let (path, now) = match (limit.limit, limit.select, &mut spec.behavior) {
            (Limit::Maximum, ..) => {
                spec.max_replicas = i32::MAX;
                ("spec.maxReplicas", self.explanation.max.to_string())
            }
            (Limit::Minimum, ..) => {
                spec.min_replicas = Some(i32::from(self.explanation.min > 1));
                ("spec.minReplicas", self.explanation.min.to_string())
            }
            (Limit::ScaleUpRate, Some(SelectPolicy::Disabled), Some(behavior)) => {
                behavior.scale_up.select_policy = SelectPolicy::Max;
                ("spec.behavior.scaleUp.selectPolicy", "Disabled".to_owned())
            }
            (Limit::ScaleDownRate, Some(SelectPolicy::Disabled), Some(behavior)) => {
                behavior.scale_down.select_policy = SelectPolicy::Max;
                ("spec.behavior.scaleDown.selectPolicy", "Disabled".to_owned())
            }
            _ => return None,
        };
        let to = self.decide(&[], Past::Known, &spec, self.situation.at).desired?;
        let must_be = match limit.limit {
            Limit::Maximum => format!("{to} or more"),
            Limit::Minimum => format!("{to} or less"),
            _ => "Max or Min".to_owned(),
        };
        (Some(to) != self.explanation.desired).then_some(Change::Field { path, now, must_be, to })
    }

    fn at_levels(&self, levels: &[(usize, f64)], past: Past) -> Explanation {
        self.decide(levels, past, &self.record.spec, self.situation.at)
    }

    fn decide(&self, levels: &[(usize, f64)], past: Past, spec: &Spec, now: Timestamp) -> Explanation {
        let situation = self.situation;
        let hpa = Hpa {
            namespace: &self.record.key.namespace,
            name: &self.record.key.name,
            generation: self.record.generation,
            spec,
            status: &self.record.status,
        };
        let settled;
        let history = match past {
            Past::Known => &situation.past.history,
            Past::Settled => {
                // One that is outdated, as the first of an HPA without history would count.
                let ancient = Recommendation { at: Timestamp::MIN, replicas: self.explanation.current };
                settled = History { recommendations: vec![ancient], ..History::default() };
                &settled
            }
        };
        let metrics: Vec<Option<Result<Answer, QueryError>>> = situation
            .metrics
            .iter()
            .enumerate()
            .map(|(place, answer)| {
                let level = levels.iter().find(|(at, _)| *at == place).map(|(_, level)| *level);
                match (answer, level, spec.metrics.get(place), self.explanation.metrics.get(place)) {
                    (
                        Some(Ok(answer)),
                        Some(level),
                        Some(source),
                        Some(MetricExplanation::Valid(reading)),
                    ) => Some(Ok(at_level(source, answer, reading, level, self.level_now(place) == 0.0))),
                    _ => answer.clone(),
                }
            })
            .collect();
        let answers = Answers { metrics, pods: &situation.pods };
        let plan = plan(&hpa, Ok(self.scale.clone()), |_| Overlap::None, &situation.settings);
        decide(&hpa, &plan, &answers, history, &situation.settings, now).explanation().clone()
    }
}

/// Goes ever further from where a metric is until the result differs, so that little is searched afterwards.
fn first_beyond(from: f64, highest: f64, differs: impl Fn(f64) -> bool) -> Option<f64> {
    let mut step = 0.125;
    while from + step < highest {
        if differs(from + step) {
            return Some(from + step);
        }
        step *= 4.0;
    }
    None
}

/// The finest number that a reading shows.
fn shown(reading: &MetricReading) -> i64 {
    match (reading.total, reading.value) {
        (Some(total), _) => total,
        (None, Measure::Percent(percent)) => percent.into(),
        (None, Measure::Milli(milli) | Measure::MilliPerPod(milli)) => milli,
    }
}

fn threshold(now: &MetricReading, last: &MetricReading, first: &MetricReading) -> Threshold {
    let requests: Vec<i64> =
        now.pods.iter().filter(|pod| pod.group == PodGroup::Ready).filter_map(|pod| pod.request).collect();
    let sum: i128 = requests.iter().copied().map(i128::from).sum();
    let average = i128::try_from(requests.len()).ok().and_then(|number| sum.checked_div(number));
    Threshold {
        subject: now.subject.clone(),
        now: now.value,
        last: last.value,
        first: first.value,
        totals: now.total.zip(last.total).zip(first.total).map(|((now, last), first)| [now, last, first]),
        request: average.and_then(|average| i64::try_from(average).ok()),
    }
}
