//! The invariants of every decision.

use arbitrary::{Result, Unstructured};
use autoscaling::explanation::{DecisionPath, MetricExplanation, PodGroup};
use autoscaling::history::{Direction, History, LONGEST_PERIOD};
use autoscaling::pod::{ConditionStatus, Phase};
use autoscaling::quantity::Quantity;
use autoscaling::query::Answer;
use autoscaling::spec::{
    MetricSource, PolicyKind, ResourceTarget, ScalingRules, SelectPolicy, Spec, ValueTarget,
};
use autoscaling::status::Status;
use autoscaling::{Answers, Conclusion, Decision, Hpa, Plan, Verdict, decide};
use jiff::{SignedDuration, Timestamp};

use crate::world::{self, Step, World};
use crate::{Pods, plant, recomputation};

/// The inputs of a sync.
pub struct Sync<'a> {
    pub world: &'a World,
    pub step: &'a Step,
    pub history: &'a History,
    /// Every rescale of the run.
    pub rescales: &'a [Rescale],
    /// Whether the history was rebuilt from cluster state. A rebuilt history covers only [`LONGEST_PERIOD`].
    pub rebuilt: bool,
    pub answers: &'a Answers<'a>,
}

/// A rescale that this controller has written, possibly without success.
#[derive(Debug, Clone, Copy)]
pub struct Rescale {
    pub at: Timestamp,
    pub change: i64,
    pub to: i32,
    /// Whether the rescale may be missing in the history of the core. The causes are:
    /// - a later foreign rescale or backward clock jump
    /// - a lost write
    /// - at a later rescale in the same direction, an age of at least the longest period of the direction
    pub doubtful: bool,
}

/// Marks rescales as doubtful if the history may drop them at a new rescale. Their age is at least the longest period
/// of the direction.
pub fn forget(rescales: &mut [Rescale], spec: &Spec, up: bool, now: Timestamp) {
    let Some(behavior) = &spec.behavior else { return };
    let rules = if up { &behavior.scale_up } else { &behavior.scale_down };
    let longest = rules.policies.iter().map(|policy| policy.period_seconds).max().unwrap_or(0);
    let start = now.checked_sub(SignedDuration::from_secs(longest.into())).unwrap_or(Timestamp::MIN);
    for one in rescales.iter_mut().filter(|one| (one.change > 0) == up && one.at <= start) {
        one.doubtful = true;
    }
}

impl Sync<'_> {
    fn hpa(&self) -> Hpa<'_> {
        let World { spec, status, generation, .. } = self.world;
        Hpa { namespace: "shop", name: "web", generation: *generation, spec, status }
    }

    fn decide(&self, plan: &Plan, answers: &Answers<'_>) -> Decision {
        decide(&self.hpa(), plan, answers, self.history, &self.world.settings, self.step.now)
    }

    /// Checks that the explanation alone gives the result.
    pub fn explanation_gives_the_result(&self, decision: &Decision) {
        let explanation = serde_json::to_value(decision.explanation()).unwrap();
        let computed = recomputation::recompute(&explanation);
        assert_eq!(computed, Ok(desired(decision).map(i64::from)), "{explanation:#}");
    }

    /// Checks that equal inputs give an equal decision.
    pub fn is_deterministic(&self, plan: &Plan, decision: &Decision) {
        let again = self.decide(plan, self.answers);
        assert_eq!(again.verdict(), decision.verdict());
        assert_eq!(again.metrics(), decision.metrics());
        // A ratio of NaN is not equal to itself, so the texts of explanations are compared.
        let printed = |decision: &Decision| format!("{:?}", decision.explanation());
        assert!(again == *decision || printed(&again) == printed(decision));
    }

    /// Checks that the count is within the bounds of the HPA, and is 0 only if 0 is allowed.
    pub fn within_bounds(&self, decision: &Decision) {
        let spec = &self.world.spec;
        let (min, max) = (spec.min_replicas.unwrap_or(1), spec.max_replicas);
        let Some(mut count) = desired(decision) else { return };
        if plant::planted("decision-bounds") && spec.metrics.len() == 2 && count == max && max > 7 {
            count += 1;
        }
        let path = decision.explanation().path;
        match path {
            DecisionPath::Disabled => assert_eq!(count, 0),
            DecisionPath::AboveMax => assert_eq!(count, max),
            DecisionPath::BelowMin => assert_eq!(count, min),
            _ if min <= max => assert!((min..=max).contains(&count), "{count} of {min} to {max}"),
            _ => {}
        }
        // The count is negative only if the minimum or the current count is negative, or if the count equals a bound.
        let starts_below = min < 0 || decision.current() < 0;
        assert!(count >= 0 || starts_below || [min, max].contains(&count), "{count} of {min} to {max}");
        if count == 0 && decision.current() > 0 {
            assert!(min <= 0 || max == 0 || min > max, "down to 0 of {min} to {max}");
        }
    }

    /// Checks that no scale-down occurs with a failed metric.
    pub fn no_scale_down_with_a_missing_metric(&self, decision: &Decision) {
        let explanation = decision.explanation();
        let failed = explanation.metrics.iter().any(|metric| matches!(metric, MetricExplanation::Failed(_)));
        if failed && let Some(count) = desired(decision) {
            assert!(count >= decision.current(), "{} to {count}", decision.current());
        }
    }

    /// Checks that a rescale obeys the rate policies. In contrast to a history, this check keeps all rescales.
    pub fn within_rates(&self, decision: &Decision) {
        let Some(behavior) = &self.world.spec.behavior else { return };
        if decision.explanation().path != DecisionPath::Metrics
            || decision.explanation().lifted_to_min.is_some()
        {
            return;
        }
        let Verdict::Rescale { to, .. } = *decision.verdict() else { return };
        let current = decision.current();
        let direction = if to > current { Direction::Up } else { Direction::Down };
        let rules = if direction == Direction::Up { &behavior.scale_up } else { &behavior.scale_down };
        let reaches = |seconds: i32| i64::from(seconds) <= LONGEST_PERIOD.as_secs();
        if self.rebuilt && !rules.policies.iter().all(|policy| reaches(policy.period_seconds)) {
            return;
        }
        let mut to = i64::from(to);
        if plant::planted("decision-rate") && self.rescales.len() == 2 && rules.policies.len() == 1 {
            to += (to - i64::from(current)).signum();
        }
        let allowed = self.allowed(rules, direction, current);
        let holds = if direction == Direction::Up { to <= allowed } else { to >= allowed };
        assert!(
            holds,
            "{current} to {to}, past {allowed}: {rules:?} after {:?} at {}",
            self.rescales, self.step.now
        );
    }

    fn allowed(&self, rules: &ScalingRules, direction: Direction, current: i32) -> i64 {
        let current = i64::from(current);
        if rules.select_policy == SelectPolicy::Disabled {
            return current;
        }
        let up = direction == Direction::Up;
        let mut before = 0;
        let each = rules.policies.iter().map(|policy| {
            let period = SignedDuration::from_secs(policy.period_seconds.into());
            let start = self.step.now.checked_sub(period).unwrap_or(Timestamp::MIN);
            let counted = || self.rescales.iter().filter(|one| one.at > start);
            let certain: i64 = counted().filter(|one| !one.doubtful).map(|one| one.change).sum();
            // A doubtful rescale is included only if it permits a larger change.
            let doubtful = || counted().filter(|one| one.doubtful).map(|one| one.change);
            let maximum: i64 = doubtful().filter(|change| *change > 0).sum();
            let minimum: i64 = doubtful().filter(|change| *change < 0).sum();
            let ends = [maximum, minimum].map(|change| narrow(current - certain - change));
            let value = i64::from(policy.value);
            let share = value as f64 / 100.0;
            let allows = |start: i64| match (policy.kind, up) {
                (PolicyKind::Pods, true) => narrow(start + value),
                (PolicyKind::Pods, false) => narrow(start - value),
                (PolicyKind::Percent, true) => narrow((start as f64 * (1.0 + share)).ceil() as i64),
                (PolicyKind::Percent, false) => narrow((start as f64 * (1.0 - share)).trunc() as i64),
                (PolicyKind::Unknown, _) => before,
            };
            let [one, other] = ends.map(allows);
            before = if up { one.max(other) } else { one.min(other) };
            before
        });
        let maximum = up == (rules.select_policy == SelectPolicy::Max);
        let allowed = if maximum { each.max() } else { each.min() };
        let allowed = allowed.unwrap_or(if maximum { i64::MIN } else { i64::MAX });
        if up { allowed.max(current) } else { allowed.min(current) }
    }

    /// Checks that more load never lowers the count, except in the cases of [`Self::steady`].
    pub fn more_load_never_lowers_the_count(
        &self,
        u: &mut Unstructured<'_>,
        plan: &Plan,
        decision: &Decision,
    ) -> Result<()> {
        if !plan.reads_metrics() || self.world.spec.metrics.is_empty() {
            return Ok(());
        }
        let place = u.int_in_range(0..=self.world.spec.metrics.len() - 1)?;
        let Some(Some(Ok(answer))) = self.answers.metrics.get(place) else { return Ok(()) };
        if !self.steady(place, answer, decision) {
            return Ok(());
        }
        let Some(raised) = world::raise(u, answer)? else { return Ok(()) };
        let mut answers = self.answers.clone();
        answers.metrics[place] = Some(Ok(raised.clone()));
        let more = self.decide(plan, &answers);
        let count = |decision: &Decision| desired(decision).unwrap_or(decision.current());
        let mut after = count(&more);
        if plant::planted("decision-monotone") && after == 11 && place == 1 {
            after = 1;
        }
        assert!(
            after >= count(decision),
            "{} replicas, but {after} with more load: {answer:?}, then {raised:?}\n{:#?}\n{:#?}",
            count(decision),
            decision.explanation(),
            more.explanation(),
        );
        Ok(())
    }

    /// Returns whether a higher value of the metric at index `place` must not lower the count. Kubernetes lowers the
    /// count in these cases:
    /// - The number of pods with metrics differs from the current count. Within the tolerance, the proposal is the
    ///   current count. Outside the tolerance, the proposal is the number of pods times the ratio. The proposal
    ///   therefore jumps at the limits of the tolerance.
    /// - A target is not above zero, or a value or a request is below zero. The ratio then decreases with the load.
    fn steady(&self, place: usize, answer: &Answer, decision: &Decision) -> bool {
        let current = i64::from(decision.current());
        let positive = |quantity: Quantity| quantity.milli_value() > 0;
        let none_negative = match answer {
            Answer::Resource(usages) => usages
                .iter()
                .flat_map(|usage| &usage.containers)
                .flat_map(|container| container.usage.iter())
                .all(|(_, quantity)| quantity >= Quantity::ZERO),
            Answer::Custom(values) => values.iter().all(|value| value.value >= Quantity::ZERO),
            Answer::External(values) => values.iter().all(|value| value.value >= Quantity::ZERO),
        };
        let requests_positive = self
            .step
            .pods
            .iter()
            .flat_map(|pod| &pod.requests.containers)
            .all(|container| container.requests.iter().all(|(_, quantity)| positive(quantity)));
        let read_per_pod = || match decision.explanation().metrics.get(place) {
            Some(MetricExplanation::Valid(reading)) => {
                let counted = reading.count(|group| !PodGroup::is_ignored(group));
                reading.unmatched.is_none() && i64::try_from(counted) == Ok(current)
            }
            _ => true,
        };
        none_negative
            && match &self.world.spec.metrics[place] {
                MetricSource::Resource { target, .. } | MetricSource::ContainerResource { target, .. } => {
                    let target = match target {
                        ResourceTarget::Utilization(percent) => *percent > 0 && requests_positive,
                        ResourceTarget::AverageValue(average) => positive(*average),
                    };
                    target && read_per_pod()
                }
                MetricSource::Pods { average, .. } => positive(*average) && read_per_pod(),
                MetricSource::Object { target, .. } | MetricSource::External { target, .. } => match target {
                    ValueTarget::Value(target) => positive(*target) && ready(&self.step.pods) == current,
                    ValueTarget::AverageValue(target) => positive(*target),
                },
                MetricSource::Invalid(_) => true,
            }
    }

    /// Checks that the status decodes and encodes to equal JSON, and that its conditions are valid.
    pub fn status_round_trips(&self, conclusion: &Conclusion) {
        let Some(status) = &conclusion.status else { return };
        let json = serde_json::to_string(status).unwrap();
        let read: Status = serde_json::from_str(&json).unwrap();
        assert_eq!(serde_json::to_string(&read).unwrap(), json);
        for (at, condition) in status.conditions.iter().enumerate() {
            let again = status.conditions[..at].iter().any(|other| other.kind == condition.kind);
            assert!(!again, "duplicate condition {}", condition.kind);
            assert!(matches!(&*condition.status, "True" | "False" | "Unknown"));
        }
        assert!(status.last_scale_time.is_none_or(|time| time.subsec_nanosecond() == 0));
        assert_eq!(
            conclusion.desired,
            Some(status.desired_replicas).filter(|_| conclusion.desired.is_some())
        );
    }
}

fn desired(decision: &Decision) -> Option<i32> {
    match decision.verdict() {
        Verdict::NoScale | Verdict::NoCount(_) => None,
        Verdict::Disabled => Some(0),
        Verdict::Keep => Some(decision.current()),
        Verdict::Rescale { to, .. } => Some(*to),
    }
}

fn ready(pods: &Pods) -> i64 {
    let is_ready = |status: Option<ConditionStatus>| status == Some(ConditionStatus::True);
    let ready = pods
        .iter()
        .filter(|pod| pod.phase == Phase::Running && is_ready(pod.ready.map(|ready| ready.status)));
    i64::try_from(ready.count()).unwrap()
}

fn narrow(wide: i64) -> i64 {
    wide.clamp(i32::MIN.into(), i32::MAX.into())
}
