//! The decision of [`autoscaling`] with the rules of a policy.

use autoscaling::explanation::DecisionPath;
use autoscaling::history::History;
use autoscaling::pod::{ConditionStatus, Phase, Pod};
use autoscaling::{Decision, Evaluation, Verdict};
use jiff::Timestamp;

use crate::bounds::ScheduleStep;
use crate::burst::{self, BurstState};
use crate::choice::choose;
use crate::guards::{GuardInputs, Rollout, guard};
use crate::history::{PolicyHistory, states};
use crate::mode;
use crate::resolve::Rules;
use crate::steps::{PolicyEffect, Step};

/// The state of the target and its pods, for the guards.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct TargetState {
    /// The number of pods that are pending and not terminating.
    pub pending: i32,
    /// The number of these pods that the scheduler cannot place.
    pub unschedulable: i32,
    /// The rollout of the target. `None` if no rollout is in progress, or if this is unknown.
    pub rollout: Option<Rollout>,
}

/// Counts the pods that are running, Ready and not terminating, for the windows of `burst`.
pub fn ready_pods<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> i32 {
    let is_ready = |pod: &&Pod| {
        let is_true = pod.ready.as_ref().is_some_and(|ready| ready.status == ConditionStatus::True);
        is_true && pod.phase == Phase::Running && !pod.terminating
    };
    i32::try_from(pods.into_iter().filter(is_ready).count()).unwrap_or(i32::MAX)
}

impl TargetState {
    /// Counts the pending pods. The caller sets the other fields.
    pub fn new<'a>(pods: impl IntoIterator<Item = &'a Pod>) -> Self {
        let pending = pods.into_iter().filter(|pod| pod.phase == Phase::Pending && !pod.terminating).count();
        Self { pending: i32::try_from(pending).unwrap_or(i32::MAX), ..Self::default() }
    }
}

/// The result of [`Rules::decide`]: a decision with `burst`, corrections, fallbacks and `combine`, but without guards and
/// mode.
#[derive(Debug)]
pub struct PolicyDecision {
    /// The decision. [`Rules::apply`] applies guards and mode to it.
    pub decision: Decision,
    /// The steps of `burst`, corrections, fallbacks and `combine` that have an effect.
    pub steps: Vec<Step>,
    /// The history after the sync. The caller stores it with the history of the HPA.
    pub history: PolicyHistory,
    /// The windows of `burst` after the sync. The caller keeps them in memory.
    pub burst: Option<BurstState>,
}

/// The state from earlier syncs.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    /// The history of the metrics.
    pub metrics: &'a PolicyHistory,
    /// The windows of `burst`. `None` after a restart, or without `burst`.
    pub burst: Option<&'a BurstState>,
}

impl Rules {
    /// Decides by the evaluated metrics. `ready` is the number of ready pods. Without an effect of the policy, the decision
    /// is that of the reference.
    pub fn decide(
        &self,
        evaluation: Evaluation<'_>,
        history: &History,
        earlier: Earlier<'_>,
        ready: i32,
        now: Timestamp,
    ) -> PolicyDecision {
        let mut states = states(&evaluation);
        let Some(current) = evaluation.current().filter(|_| !states.is_empty()) else {
            let decision = evaluation.decide(history, now);
            let (history, burst) = (earlier.metrics.clone(), earlier.burst.cloned());
            return PolicyDecision { decision, steps: Vec::new(), history, burst };
        };
        let (burst, burst_step) = match &self.policy.spec.burst {
            Some(spec) => burst::apply(spec, &evaluation, &mut states, earlier.burst, ready, now),
            None => (None, None),
        };
        let observed = earlier.metrics.observe(&states, now);
        let chosen = choose(&self.policy.spec, current, &states, &observed, now);
        let mut steps = chosen.steps();
        steps.extend(burst_step.map(Step::Burst));
        let decision = match chosen.choice {
            Some(choice) => evaluation.decide_by(choice, history, now),
            None => evaluation.decide(history, now),
        };
        PolicyDecision { decision, steps, history: observed, burst }
    }

    /// Applies guards and mode to a decision, and moves its steps to the effect. `schedules` contains the steps of
    /// [`crate::bounds::ActiveBounds::spec`].
    pub fn apply(
        &self,
        decided: &mut PolicyDecision,
        target: &TargetState,
        schedules: &[ScheduleStep],
    ) -> PolicyEffect {
        let PolicyDecision { decision, steps, history, .. } = decided;
        let current = decision.current();
        let recommended = decision.count();
        let explanation = decision.explanation();
        let (min, max, path) = (explanation.min, explanation.max, explanation.path);
        let mut steps = std::mem::take(steps);
        let mut count = recommended;
        if let Some(recommended) = recommended {
            let TargetState { pending, unschedulable, rollout } = *target;
            let zero_since = history.zero_since.filter(|_| path == DecisionPath::Metrics);
            let inputs = GuardInputs { current, min, max, pending, unschedulable, rollout, zero_since };
            let guarded = guard(&self.policy.spec.guards, &inputs, recommended);
            steps.extend(guarded.steps.into_iter().map(Step::Guard));
            count = Some(guarded.replicas);
        }
        // A mode has no effect without a Scale or an HPA. If several HPAs control the same pods, their pinned counts could
        // conflict.
        let has_count = *decision.verdict() != Verdict::NoScale
            && !matches!(path, DecisionPath::Ambiguous | DecisionPath::Deleted);
        let mut applied = count;
        if has_count {
            let (moded, step) = mode::apply(&self.mode, current, count);
            applied = moded;
            steps.extend(step.map(Step::Mode));
        }
        steps.extend(schedules.iter().cloned().map(Step::Schedule));
        steps.sort_by_key(Step::reason);
        if let Some(to) = applied.filter(|_| applied != recommended) {
            let reason = steps.first().map_or("", |step| step.reason().as_str());
            decision.replace_count(to, format!("scaling policy: {reason}"));
        }
        PolicyEffect { recommended, applied, steps, problems: self.policy.problem_text(), next: None }
    }
}

#[cfg(test)]
mod tests {
    use autoscaling::pod::ReadyCondition;

    use super::*;

    #[test]
    fn ready_and_pending_pods_are_counted() {
        let pod = |phase, terminating, status| Pod {
            name: "web-1".into(),
            labels: std::sync::Arc::default(),
            requests: std::sync::Arc::default(),
            phase,
            terminating,
            ready: Some(ReadyCondition { status, since: None }),
            start_time: None,
        };
        let (yes, no) = (ConditionStatus::True, ConditionStatus::False);
        let pods = [
            pod(Phase::Running, false, yes),
            pod(Phase::Running, false, yes),
            pod(Phase::Running, false, no),
            pod(Phase::Running, true, yes),
            pod(Phase::Pending, false, yes),
            pod(Phase::Pending, false, no),
            pod(Phase::Pending, true, no),
            Pod { ready: None, ..pod(Phase::Running, false, yes) },
        ];
        assert_eq!(ready_pods(&pods), 2);
        assert_eq!(TargetState::new(&pods), TargetState { pending: 2, ..TargetState::default() });
    }
}
