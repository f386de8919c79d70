//! Repeats a decision with another input.

use std::ops::RangeInclusive;
use std::sync::Arc;

use autoscaling::explanation::{DecisionPath, Explanation, LimitingStep, MetricExplanation, PodGroup};
use autoscaling::history::{Direction, History, Recommendation};
use autoscaling::query::{Answer, QueryError};
use autoscaling::spec::{SelectPolicy, Spec};
use autoscaling::status::Limit;
use autoscaling::{Evaluation, Hpa, Overlap, Scale, plan};
use jiff::{SignedDuration, Timestamp};
use policies::choice::FallbackStep;
use policies::guards::{GuardInputs, GuardStep, guard};
use policies::history::{MetricHistory, PolicyHistory};
use policies::resolve::{self, NextChange, RuleChange, resolve};
use policies::spec::Combine;
use policies::steps::Step;
use policies::{Earlier, TargetState};

use super::search::{CriticalLevel, extreme};
use super::{Change, HeldBy, Situation, thresholds};
use crate::situation::Source;
use coexist::shadow::replay::at_level;
use engine::store::HpaRecord;

/// A situation with a decision that can be repeated.
pub(super) struct Trial<'a> {
    pub(super) situation: &'a Situation,
    record: &'a HpaRecord,
    /// The spec with the bounds of the schedules.
    spec: Arc<Spec>,
    scale: Scale,
    /// The history of the metrics, as far as the policy used it.
    earlier: PolicyHistory,
    pub(super) explanation: &'a Explanation,
}

/// The history that a decision uses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Past {
    /// The known history.
    Known,
    /// The known history, and the explained proposal in all syncs from then on.
    Continued,
    /// A history without effect, as if every window and every period had passed.
    Settled,
}

impl<'a> Trial<'a> {
    /// Creates a trial. Returns `None` if the inputs of the decision are missing, or do not reproduce the
    /// explained decision.
    pub(super) fn new(situation: &'a Situation) -> Option<Self> {
        if matches!(situation.source, Source::Record { .. }) {
            // A record does not contain the responses of the metrics APIs.
            return None;
        }
        if situation.rules.as_ref().is_some_and(|rules| rules.policy.spec.burst.is_some()) {
            // The windows of `burst` are unknown.
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
        let earlier = failures(situation);
        let trial = Self { situation, record, spec, scale, earlier, explanation };
        let repeated = trial.decide(&[], Past::Known, &trial.spec, situation.at);
        let is_same = repeated.desired == explanation.desired
            && repeated.metrics.len() == explanation.metrics.len()
            && trial.applied(&repeated) == situation.decided().count();
        is_same.then_some(trial)
    }

    /// Returns the count of a decision with the guards and the mode of the scaling policy. The guards see the target as
    /// in the explained decision.
    pub(super) fn applied(&self, decided: &Explanation) -> Option<i32> {
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

    /// Whether a count in a direction needs that all metrics propose it. Otherwise one metric is enough.
    pub(super) fn needs_all(&self, direction: Direction) -> bool {
        let combine = self.situation.rules.as_ref().and_then(|rules| rules.policy.spec.combine);
        // The highest proposal is used, or the lowest.
        (direction == Direction::Down) != (combine == Some(Combine::Min))
    }

    /// Returns the number of seconds after which the past limits no change in a direction any more.
    pub(super) fn settles_in(&self, direction: Direction) -> i64 {
        let Situation { past, settings, at, .. } = self.situation;
        let default = match direction {
            Direction::Up => 0,
            Direction::Down => i64::try_from(settings.downscale_stabilization.as_secs()).unwrap_or(i64::MAX),
        };
        let Some(behavior) = &self.spec.behavior else { return default };
        let rules = match direction {
            Direction::Up => &behavior.scale_up,
            Direction::Down => &behavior.scale_down,
        };
        let window = rules.stabilization_window_seconds.map_or(default, i64::from);
        let History { scale_ups, scale_downs, unknown_up, unknown_down, .. } = &past.history;
        let rescales = scale_ups.iter().chain(scale_downs).map(|event| event.at);
        let newest = rescales.chain(*unknown_up).chain(*unknown_down).max();
        let period = rules.policies.iter().map(|policy| i64::from(policy.period_seconds)).max();
        let rest = newest.zip(period).map(|(newest, period)| period - at.duration_since(newest).as_secs());
        window.max(rest.unwrap_or(0))
    }

    /// Finds the values that would give one of the `wanted` counts, as alternatives. `direction` is that of the accepted
    /// counts.
    pub(super) fn alternatives(
        &self,
        direction: Direction,
        past: Past,
        wanted: &RangeInclusive<i32>,
    ) -> Vec<(Direction, Vec<CriticalLevel>)> {
        let one = |index, direction| -> (Direction, Vec<CriticalLevel>) {
            (direction, self.level_of(index, direction, past, wanted).into_iter().collect())
        };
        let mut found = if self.needs_all(direction) {
            vec![(direction, self.levels_of_all(direction, past, wanted))]
        } else {
            self.readings().map(|index| one(index, direction)).collect()
        };
        let turns = self.readings().filter(|index| self.may_turn(*index));
        found.extend(turns.map(|index| one(index, opposite(direction))));
        found.retain(|(_, levels)| {
            let to = self.desired(&levels_of(levels), past);
            !levels.is_empty() && to.is_some_and(|to| wanted.contains(&to))
        });
        found
    }

    /// Finds the metric values that would have kept the count, for a decision that changes the count. `direction` is the
    /// usual direction from the current values to these values.
    pub(super) fn kept(&self, direction: Direction) -> Vec<Change> {
        let current = self.explanation.current;
        let Some(winner) = self.explanation.winner else { return Vec::new() };
        let exact = current..=current;
        let one = |index, direction| -> Vec<CriticalLevel> {
            self.level_of(index, direction, Past::Known, &exact).into_iter().collect()
        };
        let found = if self.needs_all(direction) {
            let up_to = match direction {
                Direction::Down => i32::MIN..=current,
                Direction::Up => current..=i32::MAX,
            };
            let all = self.levels_of_all(direction, Past::Known, &up_to);
            match &all[..] {
                [only] => one(only.index, direction),
                _ if self.desired(&levels_of(&all), Past::Known) == Some(current) => all,
                _ => Vec::new(),
            }
        } else {
            one(winner, direction)
        };
        let back = if self.may_turn(winner) { one(winner, opposite(direction)) } else { Vec::new() };
        let keep = |(direction, found): (Direction, Vec<CriticalLevel>)| {
            (!found.is_empty()).then(|| Change::Keep {
                direction,
                thresholds: thresholds(found),
                to: current,
            })
        };
        [(direction, found), (opposite(direction), back)].into_iter().filter_map(keep).collect()
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
        let extreme = self.at_levels(&self.levels(extreme(direction)), Past::Settled);
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
    /// depends on steps other than modes and schedules, because their inputs at that time are unknown, or if another
    /// count comes before it and a bound does not replace that.
    pub(super) fn after_change(&self, next: &NextChange) -> Option<i32> {
        let (rules, effect) = (self.situation.rules.as_ref()?, self.situation.policy.as_ref()?);
        let unknown = |step: &Step| !matches!(step, Step::Mode(_) | Step::Schedule(_));
        if next.changes.contains(&RuleChange::FallbackStarts) || effect.steps.iter().any(unknown) {
            return None;
        }
        let rules = resolve(&rules.policy, next.at);
        let (spec, _) = rules.bounds.spec(&self.record.spec);
        let current = self.explanation.current;
        let before = next.at.checked_sub(SignedDuration::from_nanos(1)).ok()?;
        let before = self.applied(&self.decide(&[], Past::Continued, &self.spec, before))?;
        let later = self.decide(&[], Past::Continued, &spec, next.at);
        let is_certain = match later.path {
            _ if before == current => true,
            DecisionPath::AboveMax => before > later.max,
            DecisionPath::BelowMin => before < later.min,
            _ => false,
        };
        resolve::apply(&rules.mode, current, later.desired).0.filter(|_| is_certain)
    }

    pub(super) fn at_levels(&self, levels: &[(usize, f64)], past: Past) -> Explanation {
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
        let other;
        let history = match past {
            Past::Known => &situation.past.history,
            Past::Continued => {
                let mut continued = situation.past.history.clone();
                let proposal = self.explanation.proposal.map(|proposal| proposal.max(0));
                let newest = proposal.map(|replicas| Recommendation { at: now, replicas });
                continued.recommendations.extend(newest);
                other = continued;
                &other
            }
            Past::Settled => {
                // An expired recommendation has no effect. Without any recommendation, the decision would add the
                // current count.
                let ancient = Recommendation { at: Timestamp::MIN, replicas: self.explanation.current };
                other = History { recommendations: vec![ancient], ..History::default() };
                &other
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
        let (pods, settings) = (&situation.pods, &situation.settings);
        let plan = plan(&hpa, Ok(self.scale.clone()), |_| Overlap::None, settings);
        let mut evaluation = Evaluation::new(&hpa, &plan, settings);
        for index in 0..evaluation.metrics() {
            evaluation.evaluate(index, metrics.get(index).and_then(Option::as_ref), pods, now);
        }
        let decision = match &situation.rules {
            Some(rules) => {
                let earlier = Earlier { metrics: &self.earlier, burst: None, forecast: None };
                rules.decide(evaluation, history, earlier, 0, now).decision
            }
            None => evaluation.decide(history, now),
        };
        decision.explanation().clone()
    }
}

/// Returns the history of the metrics from which the fallbacks of a policy followed.
fn failures(situation: &Situation) -> PolicyHistory {
    let mut history = PolicyHistory::default();
    let steps = situation.policy.iter().flat_map(|policy| &policy.steps);
    for step in steps {
        let Step::Fallback(FallbackStep { metric, cause, since, proposal, .. }) = step else { continue };
        let mut subjects = situation.explanation.metrics.iter().map(MetricExplanation::subject);
        let Some(subject) = subjects.find(|subject| *subject.to_string() == **metric) else { continue };
        let known = MetricHistory {
            failing: Some((*since, *cause)),
            last_proposal: *proposal,
            ..MetricHistory::default()
        };
        history.metrics.insert(format!("{}/{subject}", subject.kind).into(), known);
    }
    history
}

fn opposite(direction: Direction) -> Direction {
    match direction {
        Direction::Up => Direction::Down,
        Direction::Down => Direction::Up,
    }
}

/// Returns the levels of metrics by their indices.
pub(super) fn levels_of(found: &[CriticalLevel]) -> Vec<(usize, f64)> {
    found.iter().map(|critical| (critical.index, critical.level)).collect()
}
