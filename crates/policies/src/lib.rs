//! The rules of scaling policies as pure functions. They extend the rules of the HPA in [`autoscaling`], called *the
//! reference*. The crate has no I/O, no async, no clock and no logging.
//!
//! A sync of an HPA with policies has these steps:
//!
//! 1. [`spec::parse`] or [`spec::read`] reads each policy once, and [`merge::Policy::merge`] merges the policies of an
//!    HPA.
//! 2. [`resolve::resolve`] computes the [`resolve::Rules`] at a time, with [`schedule`] for recurring schedules. The
//!    rules do not change before their [next edge](field@resolve::Rules::next_edge).
//! 3. [`bounds`] replaces the bounds of the HPA and the settings of the controller in the inputs of
//!    [`autoscaling::plan()`]. [`guards::owned_pods`] and [`choice::ignore_containers`] replace the pods and the
//!    answers of metrics.
//! 4. [`resolve::Rules::decide`] decides by the evaluated metrics, with [`burst`], [`choice`] and their [`history`].
//! 5. [`resolve::Rules::apply`] applies the floor of a [`forecast`], [`guards`] and the mode to the decision, and
//!    returns the [`steps::PolicyEffect`].
//!
//! [`import`] converts objects of other autoscalers to policies.
//!
//! # Example
//!
//! ```
//! use std::sync::Arc;
//!
//! use jiff::Timestamp;
//! use policies::merge::{Policy, Source};
//! use policies::resolve::resolve;
//! use policies::spec::{Level, parse};
//!
//! let parsed = parse(
//!     r#"
//!     mode: ScaleUpOnly
//!     until: 2026-11-24T08:00:00Z
//!     schedules:
//!     - {name: office, timeZone: Europe/Berlin, start: "0 8 * * 1-5", end: "0 19 * * 1-5", minReplicas: 10}
//!     gards: {rollout: Hold}
//!     "#,
//!     Level::Annotation,
//! );
//! assert_eq!(parsed.problems[0].to_string(), "gards: is unknown and has no effect; did you mean guards?");
//!
//! let annotation =
//!     Source { level: Level::Annotation, name: "".into(), created: None, parsed: Arc::new(parsed) };
//! let policy = Arc::new(Policy::merge(vec![annotation]));
//! let monday_noon: Timestamp = "2026-11-23T12:00:00Z".parse()?;
//! let rules = resolve(&policy, monday_noon);
//! let bounded = rules.bounds.apply(2, 20);
//! assert_eq!((bounded.min, bounded.max), (10, 20));
//! assert_eq!(
//!     bounded.steps[0].to_string(),
//!     "schedule office sets minReplicas to 10 instead of 2 until 2026-11-23T18:00:00Z"
//! );
//! assert_eq!(rules.next_edge, Some("2026-11-23T18:00:00Z".parse()?));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

pub mod bounds;
pub mod burst;
pub mod choice;
pub mod forecast;
pub mod guards;
pub mod history;
pub mod import;
pub mod merge;
pub mod resolve;
pub mod schedule;
pub mod sentence;
pub mod spec;
pub mod steps;

#[cfg(test)]
mod tests;

use std::sync::Arc;

use autoscaling::explanation::DecisionPath;
use autoscaling::history::History;
use autoscaling::pod::{ConditionStatus, Phase, Pod};
use autoscaling::{Decision, Evaluation};
use jiff::Timestamp;

use crate::bounds::ScheduleStep;
use crate::burst::BurstState;
use crate::choice::choose;
use crate::forecast::ForecastReport;
use crate::guards::{GuardInputs, Rollout, guard};
use crate::history::{PolicyHistory, states};
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

/// The result of [`Rules::decide`]: a decision with `burst`, corrections, fallbacks and `combine`, but without a floor
/// of a forecast, guards and mode.
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
    /// The forecast for the minute of the sync.
    pub forecast: Option<Arc<ForecastReport>>,
}

/// The state from earlier syncs.
#[derive(Debug, Clone, Copy)]
pub struct Earlier<'a> {
    /// The history of the metrics.
    pub metrics: &'a PolicyHistory,
    /// The windows of `burst`. `None` after a restart, or without `burst`.
    pub burst: Option<&'a BurstState>,
    /// The forecast for the minute of the sync. `None` without `forecast`.
    pub forecast: Option<&'a Arc<ForecastReport>>,
}

impl Rules {
    /// Decides by the evaluated metrics. `ready` is the number of ready pods. Without an effect of the policy, the
    /// decision is that of the reference.
    pub fn decide(
        &self,
        evaluation: Evaluation<'_>,
        history: &History,
        earlier: Earlier<'_>,
        ready: i32,
        now: Timestamp,
    ) -> PolicyDecision {
        let mut states = states(&evaluation);
        let forecast = earlier.forecast.cloned();
        let Some(current) = evaluation.current().filter(|_| !states.is_empty()) else {
            let decision = evaluation.decide(history, now);
            let (history, burst) = (earlier.metrics.clone(), earlier.burst.cloned());
            return PolicyDecision { decision, steps: Vec::new(), history, burst, forecast };
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
        PolicyDecision { decision, steps, history: observed, burst, forecast }
    }

    /// Applies the floor of the forecast, guards and mode to a decision, and moves its steps to the effect. `schedules` contains the steps of
    /// [`crate::bounds::ActiveBounds::spec`].
    pub fn apply(
        &self,
        decided: &mut PolicyDecision,
        target: &TargetState,
        schedules: &[ScheduleStep],
    ) -> PolicyEffect {
        let PolicyDecision { decision, steps, history, forecast, .. } = decided;
        let forecast = forecast.take();
        let current = decision.current();
        let recommended = decision.count();
        let explanation = decision.explanation();
        let (min, max, path) = (explanation.min, explanation.max, explanation.path);
        let mut steps = std::mem::take(steps);
        let mut count = recommended;
        if let Some(forecast) = &forecast {
            let (raised, step) = forecast.apply(path, current, recommended, max);
            count = raised;
            steps.extend(step.map(Step::Forecast));
        }
        if let Some(proposed) = count {
            let TargetState { pending, unschedulable, rollout } = *target;
            let zero_since = history.zero_since.filter(|_| path == DecisionPath::Metrics);
            let inputs = GuardInputs { current, min, max, pending, unschedulable, rollout, zero_since };
            let guarded = guard(&self.policy.spec.guards, &inputs, proposed);
            steps.extend(guarded.steps.into_iter().map(Step::Guard));
            count = Some(guarded.replicas);
        }
        let mut applied = count;
        if path.allows_other_count() {
            let (moded, step) = resolve::apply(&self.mode, current, count);
            applied = moded;
            steps.extend(step.map(Step::Mode));
        }
        steps.extend(schedules.iter().cloned().map(Step::Schedule));
        steps.sort_by_key(Step::reason);
        if let Some(to) = applied.filter(|_| applied != recommended) {
            let reason = steps.first().map_or("", |step| step.reason().as_str());
            decision.replace_count(to, format!("scaling policy: {reason}"));
        }
        PolicyEffect {
            recommended,
            applied,
            steps,
            problems: self.policy.problem_text(),
            next: None,
            forecast,
        }
    }
}
