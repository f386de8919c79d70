//! Repeats a decision with another input.

use std::sync::Arc;

use autoscaling::explanation::{
    Explanation, LimitingStep, Measure, MetricExplanation, MetricReading, PodGroup,
};
use autoscaling::history::{Direction, History, Recommendation};
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{SelectPolicy, Spec};
use autoscaling::status::Limit;
use autoscaling::{Answers, Hpa, Overlap, Scale, decide, plan};
use jiff::{SignedDuration, Timestamp};
use policies::TargetState;
use policies::guards::{GuardInputs, GuardStep, guard};
use policies::resolve::{self, NextChange, RuleChange, resolve};
use policies::steps::Step;

use super::{Change, HeldBy, Situation, Threshold};
use crate::situation::Source;
use coexist::shadow::replay::at_level;
use engine::store::HpaRecord;

/// The level of zero usage.
pub(super) const LOWEST: f64 = 0.0;
/// A level that gives more pods than the maximum of any HPA.
const HIGHEST: f64 = 1e12;
/// Maximum number of bisection steps. A floating-point number has 53 significant bits, so more steps hardly change the
/// result.
const HALVINGS: usize = 56;

/// A situation with a decision that can be repeated.
pub(super) struct Trial<'a> {
    situation: &'a Situation,
    record: &'a HpaRecord,
    /// The spec with the bounds of the schedules.
    spec: Arc<Spec>,
    scale: Scale,
    pub(super) explanation: &'a Explanation,
}

/// The history that a decision uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// The known history.
    Known,
    /// A history without effect, as if every window and every period had passed.
    Settled,
}

/// A level of a metric at which the result differs.
pub(super) struct CriticalLevel {
    /// The index of the metric.
    pub(super) index: usize,
    pub(super) level: f64,
    pub(super) threshold: Threshold,
}

impl<'a> Trial<'a> {
    /// Creates a trial. Returns `None` if the inputs of the decision are missing, or do not reproduce the
    /// explained decision.
    pub(super) fn new(situation: &'a Situation) -> Option<Self> {
        if matches!(situation.source, Source::Record { .. }) {
            // A record does not contain the responses of the metrics APIs.
            return None;
        }
        let explanation = &situation.explanation;
        // The pods are already selected. A decision only checks that the selector is present.
        let scale = Scale::new(
            explanation.current,
            explanation.status_replicas,
            "selected=already",
            situation.settings.version,
        )
        .ok()?;
        let record = situation.hpa.as_deref()?;
        let bounds = situation.rules.as_ref().map(|rules| &rules.bounds);
        let spec = bounds.map_or_else(|| Arc::clone(&record.spec), |bounds| bounds.spec(&record.spec).0);
        let trial = Self { situation, record, spec, scale, explanation };
        let repeated = trial.decide(&[], Past::Known, &trial.spec, situation.at);
        let is_same = repeated.desired == explanation.desired
            && repeated.metrics.len() == explanation.metrics.len()
            && trial.applied(&repeated) == situation.decided().count();
        is_same.then_some(trial)
    }

    /// Returns the count of a decision with the guards and the mode of the scaling policy. The guards see the target as
    /// in the explained decision.
    fn applied(&self, decided: &Explanation) -> Option<i32> {
        let Some(rules) = &self.situation.rules else { return decided.desired };
        let Explanation { current, min, max, .. } = *self.explanation;
        let mut inputs = GuardInputs {
            current,
            min,
            max,
            pending: TargetState::new(self.situation.pods.iter().map(|pod| &**pod)).pending,
            ..GuardInputs::default()
        };
        let steps = self.situation.policy.iter().flat_map(|policy| &policy.steps);
        for step in steps {
            match step {
                Step::Guard(GuardStep::PendingPods(step)) => {
                    (inputs.pending, inputs.unschedulable) = (step.pending, step.pending);
                }
                Step::Guard(GuardStep::Rollout(step)) => inputs.rollout = Some(step.rollout),
                Step::Guard(GuardStep::ZeroMetrics(step)) => inputs.zero_since = Some(step.since),
                _ => {}
            }
        }
        let guards = &rules.policy.spec.guards;
        let guarded = decided.desired.map(|desired| guard(guards, &inputs, desired).replicas);
        resolve::apply(&rules.mode, current, guarded).0
    }

    /// Returns the count with the current metrics.
    pub(super) fn now(&self) -> Option<i32> {
        self.situation.decided().count()
    }

    /// Finds the metric values that would have kept the count, for a decision that changes the count.
    pub(super) fn kept(&self, direction: Direction) -> Option<Change> {
        let current = self.explanation.current;
        let found = match direction {
            // The highest proposal is used, so no metric may propose more than the current count.
            Direction::Down => self.levels_of_all(Past::Known, |desired| desired <= current),
            // One metric that proposes at least the current count is enough.
            Direction::Up => {
                let winner = self.explanation.winner?;
                self.level_of(winner, Past::Known, |desired| desired >= current).into_iter().collect()
            }
        };
        let thresholds: Vec<Threshold> = found.into_iter().map(|found| found.threshold).collect();
        (!thresholds.is_empty()).then_some(Change::Keep { direction, thresholds, to: current })
    }

    /// Returns the indices of the valid metrics.
    pub(super) fn readings(&self) -> impl Iterator<Item = usize> {
        self.explanation
            .metrics
            .iter()
            .enumerate()
            .filter(|(_, metric)| metric.reading().is_some())
            .map(|(at, _)| at)
    }

    /// Returns the levels with every valid metric at `level`.
    pub(super) fn levels(&self, level: f64) -> Vec<(usize, f64)> {
        self.readings().map(|index| (index, level)).collect()
    }

    /// Returns the resulting count with some metrics at other levels.
    pub(super) fn desired(&self, levels: &[(usize, f64)], past: Past) -> Option<i32> {
        self.applied(&self.at_levels(levels, past))
    }

    /// Returns what limits the count with all metrics at the extreme of a direction.
    pub(super) fn limit_at_extreme(&self, direction: Direction) -> Option<HeldBy> {
        let level = if direction == Direction::Up { HIGHEST } else { LOWEST };
        let extreme = self.at_levels(&self.levels(level), Past::Settled);
        if self.applied(&extreme) != extreme.desired {
            return Some(HeldBy::Policy);
        }
        let current = self.explanation.current;
        let is_stuck = extreme.proposal.is_some_and(|proposal| match direction {
            Direction::Up => proposal <= current,
            Direction::Down => proposal >= current,
        });
        // Too few pods count for the proposal itself to change, so no bound limits it.
        let has_pods = extreme.metrics.iter().filter_map(MetricExplanation::reading).any(|reading| {
            let uncounted = reading.count(|group| group == PodGroup::Missing || group.is_unready());
            uncounted > 0 || reading.ready_pods.is_some_and(|ready| ready < i64::from(current))
        });
        if is_stuck && has_pods && extreme.desired.is_some() {
            return Some(HeldBy::Step(LimitingStep::MissingPods));
        }
        extreme.limits().first().copied().or_else(|| extreme.limiting_step()).map(HeldBy::Step)
    }

    /// Finds the level of one metric at which the count satisfies `differs`, with the other metrics
    /// unchanged.
    pub(super) fn level_of(
        &self,
        index: usize,
        past: Past,
        differs: impl Fn(i32) -> bool,
    ) -> Option<CriticalLevel> {
        self.search(index, HIGHEST, &[], past, differs)
    }

    /// Finds the levels to which all metrics must fall for the count to satisfy `differs`. The level of each metric is
    /// found with all other metrics at zero. Metrics that do not prevent the change are omitted.
    pub(super) fn levels_of_all(&self, past: Past, differs: impl Fn(i32) -> bool) -> Vec<CriticalLevel> {
        let indexes: Vec<usize> = self.readings().collect();
        let needed = indexes.iter().filter_map(|index| {
            let others: Vec<(usize, f64)> =
                indexes.iter().filter(|other| *other != index).map(|other| (*other, LOWEST)).collect();
            if self.desired(&others, past).is_some_and(&differs) {
                return None;
            }
            self.search(*index, LOWEST, &others, past, &differs)
        });
        needed.collect()
    }

    /// Bisects between the current level of a metric and `extreme` until the values on both sides of the change are
    /// found.
    fn search(
        &self,
        index: usize,
        extreme: f64,
        others: &[(usize, f64)],
        past: Past,
        differs: impl Fn(i32) -> bool,
    ) -> Option<CriticalLevel> {
        let now = self.explanation.metrics.get(index)?.reading()?;
        let at = |level: f64| {
            let mut levels = others.to_vec();
            levels.push((index, level));
            let decided = self.at_levels(&levels, past);
            (self.applied(&decided).is_some_and(&differs), decided.metrics.into_iter().nth(index))
        };
        let mut same = self.level_now(index);
        let mut beyond =
            if extreme > same { first_beyond(same, extreme, |level| at(level).0)? } else { extreme };
        if !at(beyond).0 {
            return None;
        }
        // At the level 0, levels are in units of the target, not of the samples.
        let finest = if same == 0.0 {
            let requests = now.pods.iter().filter_map(|pod| pod.request).max().unwrap_or(1000) as f64;
            let target = shown_target(now.target);
            if matches!(now.target, Measure::Percent(_)) { requests * target / 100.0 } else { target }
        } else {
            now.pods.iter().filter_map(|pod| pod.sample).max().unwrap_or_else(|| shown(now)) as f64
        };
        let finest = if finest > 0.0 { finest } else { f64::INFINITY };
        let reading = |level: f64| at(level).1.and_then(|metric| metric.reading().cloned());
        let (mut last, mut first) = (now.clone(), reading(beyond)?);
        for _ in 0..HALVINGS {
            // Values are in whole milli-units, so a smaller difference has no effect.
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
        Some(CriticalLevel { index, level: beyond, threshold: threshold(now, &last, &first) })
    }

    /// Returns the current level of a metric. Levels are factors, so the current level is 1. For a value of zero, which
    /// cannot be multiplied, the level is 0.
    fn level_now(&self, index: usize) -> f64 {
        let shows = self.explanation.metrics.get(index).and_then(MetricExplanation::reading).map(shown);
        if shows == Some(0) { 0.0 } else { 1.0 }
    }

    /// Finds the time at which the count changes without a change of the metrics.
    pub(super) fn wait(&self) -> Option<Change> {
        let stabilization = self.explanation.stabilization.iter().flat_map(|step| &step.recommendations);
        let policies = self.explanation.limit.iter().flat_map(|limit| &limit.policies);
        let mut moments: Vec<Timestamp> = stabilization
            .flat_map(|held| [held.expires_up, held.expires_down])
            .chain(policies.map(|policy| policy.frees_at))
            .flatten()
            .filter(|at| *at >= self.situation.at)
            .collect();
        moments.sort_unstable();
        moments.dedup();
        let step = self.explanation.limiting_step()?;
        moments.into_iter().find_map(|until| {
            // A recommendation has an effect up to and including the end of its window.
            let after = until.checked_add(SignedDuration::from_nanos(1)).ok()?;
            let later = self.decide(&[], Past::Known, &self.spec, after);
            let to = self.applied(&later).filter(|to| Some(*to) != self.now())?;
            (later.proposal == self.explanation.proposal).then_some(Change::Wait { until, step, to })
        })
    }

    /// Finds the field of the HPA that limits the count. A bound of a schedule is not a field of the HPA.
    pub(super) fn field(&self) -> Option<Change> {
        let limit = self.explanation.limit.as_ref().filter(|limit| limit.before != limit.after)?;
        let is_own = match limit.limit {
            Limit::Maximum => self.spec.max_replicas == self.record.spec.max_replicas,
            Limit::Minimum => self.spec.min_replicas == self.record.spec.min_replicas,
            _ => true,
        };
        if !is_own {
            return None;
        }
        let mut spec = Spec::clone(&self.spec);
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
        let to = self.applied(&self.decide(&[], Past::Known, &spec, self.situation.at))?;
        let must_be = match limit.limit {
            Limit::Maximum => format!("{to} or more"),
            Limit::Minimum => format!("{to} or less"),
            _ => "Max or Min".to_owned(),
        };
        (Some(to) != self.now()).then_some(Change::Field { path, now, must_be, to })
    }

    /// Finds the count after the next change of the scaling policy, with the current metrics. `None` if the count
    /// depends on steps other than modes and schedules, because their inputs at that time are unknown.
    pub(super) fn after_change(&self, next: &NextChange) -> Option<i32> {
        let (rules, effect) = (self.situation.rules.as_ref()?, self.situation.policy.as_ref()?);
        let unknown = |step: &Step| !matches!(step, Step::Mode(_) | Step::Schedule(_));
        if next.changes.contains(&RuleChange::FallbackStarts) || effect.steps.iter().any(unknown) {
            return None;
        }
        let rules = resolve(&rules.policy, next.at);
        let (spec, _) = rules.bounds.spec(&self.record.spec);
        let later = self.decide(&[], Past::Known, &spec, next.at);
        resolve::apply(&rules.mode, self.explanation.current, later.desired).0
    }

    fn at_levels(&self, levels: &[(usize, f64)], past: Past) -> Explanation {
        self.decide(levels, past, &self.spec, self.situation.at)
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
                // An expired recommendation has no effect. Without any recommendation, the decision would add the
                // current count.
                let ancient = Recommendation { at: Timestamp::MIN, replicas: self.explanation.current };
                settled = History { recommendations: vec![ancient], ..History::default() };
                &settled
            }
        };
        let metrics: Vec<Option<Result<Answer, QueryError>>> = situation
            .metrics
            .iter()
            .enumerate()
            .map(|(index, answer)| {
                let level = levels.iter().find(|(at, _)| *at == index).map(|(_, level)| *level);
                match (answer, level, spec.metrics.get(index), self.explanation.metrics.get(index)) {
                    (
                        Some(Ok(answer)),
                        Some(level),
                        Some(source),
                        Some(MetricExplanation::Valid(reading)),
                    ) => Some(Ok(at_level(source, answer, reading, level, self.level_now(index) == 0.0))),
                    _ => answer.clone(),
                }
            })
            .collect();
        let answers = Answers { metrics, pods: &situation.pods };
        let plan = plan(&hpa, Ok(self.scale.clone()), |_| Overlap::None, &situation.settings);
        decide(&hpa, &plan, &answers, history, &situation.settings, now).explanation().clone()
    }
}

/// Increases the level exponentially until the result differs. Returns the level as the bound of the bisection.
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

/// Returns the average sample of the counted pods at `first`, rounded away from that at `last`.
fn usage(last: &MetricReading, first: &MetricReading) -> Option<i64> {
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

fn threshold(now: &MetricReading, last: &MetricReading, first: &MetricReading) -> Threshold {
    let requests: Vec<i64> =
        now.pods.iter().filter(|pod| pod.group == PodGroup::Ready).filter_map(|pod| pod.request).collect();
    let sum: i128 = requests.iter().copied().map(i128::from).sum();
    let average = i128::try_from(requests.len()).ok().and_then(|number| sum.checked_div(number));
    let is_same = matches!(first.value, Measure::Percent(_)) && first.value == last.value;
    Threshold {
        usage: usage(last, first).filter(|_| is_same),
        subject: now.subject.clone(),
        now: now.value,
        last: last.value,
        first: first.value,
        totals: now.total.zip(last.total).zip(first.total).map(|((now, last), first)| [now, last, first]),
        request: average.and_then(|average| i64::try_from(average).ok()),
    }
}
