//! The text of a decision in one sentence, with the effect of a scaling policy. Every text about a decision comes from
//! [`Decided::sentence`]: the record, `why`, the console, simulations, logs and events.

use autoscaling::explanation::{Amendments, Explanation, LimitingStep, ReplacedCount, trimmed};
use burst::{Clamp, Limit};
use jiff::Timestamp;

use crate::burst::BurstStep;
use crate::choice::FallbackStep;
use crate::guards::{GuardStep, MaxStepStep, PendingPodsStep, RolloutStep, ZeroMetricsStep};
use crate::spec::{Cause, Mode};
use crate::steps::{PolicyEffect, Step};

/// A decision as data, with the effect of the scaling policy.
#[derive(Debug, Clone, Copy)]
pub struct Decided<'a> {
    /// The steps of the HPA.
    pub explanation: &'a Explanation,
    /// The effect of the policy. `None` without a policy.
    pub policy: Option<&'a PolicyEffect>,
}

impl<'a> Decided<'a> {
    /// Creates a decision from its parts.
    pub fn new(explanation: &'a Explanation, policy: Option<&'a PolicyEffect>) -> Self {
        Self { explanation, policy }
    }

    /// The count that is applied. `None` if no count is applied.
    pub fn count(&self) -> Option<i32> {
        self.policy.map_or(self.explanation.desired, |policy| policy.applied)
    }

    /// The step of the policy that replaces the count of the HPA. `None` if the policy applies that count.
    pub fn replaced_by(&self) -> Option<&'a Step> {
        let policy = self.policy.filter(|policy| policy.applied.is_some())?;
        let replaces = |step: &&Step| match step {
            Step::Mode(mode) => mode.mode == Some(Mode::Pinned) || mode.applied != mode.recommended,
            Step::Forecast(forecast) => forecast.raises(),
            step => matches!(step, Step::Guard(_)),
        };
        let steps = || policy.steps.iter().filter(replaces);
        // Guards are in the order in which they apply. The floor of a forecast applies before them, and a mode after
        // them. The count would be the same without the earlier steps.
        let mode = steps().find(|step| matches!(step, Step::Mode(_)));
        let guard = || steps().rfind(|step| matches!(step, Step::Guard(_)));
        mode.or_else(guard).or_else(|| steps().next_back())
    }

    /// Prints the decision in one sentence without a full stop. `now` is the time of the decision.
    ///
    /// Each step that determined the count has a clause, and no other step has one. Example:
    /// `stays at 8: paused; the metrics ask for 9`.
    pub fn sentence(&self, now: Timestamp) -> String {
        self.explanation.amended_sentence(&self.amendments(), now)
    }

    fn amendments(&self) -> Amendments {
        let mut amendments = Amendments::default();
        let Some(policy) = self.policy else { return amendments };
        for step in &policy.steps {
            if let Step::Schedule(schedule) = step {
                let by = match &*schedule.field {
                    "minReplicas" => &mut amendments.minimum_by,
                    _ => &mut amendments.maximum_by,
                };
                *by = format!(" by schedule {}", schedule.schedule);
            }
        }
        (amendments.origin, amendments.remark) = self.origin(policy);
        let reason = self.replaced_by().and_then(|step| match (step, &policy.forecast) {
            (Step::Forecast(_), Some(forecast)) => Some(format!("the forecast asks for {}", forecast.reason)),
            _ => reason(step),
        });
        amendments.replaced = policy.applied.zip(reason).map(|(to, reason)| ReplacedCount { to, reason });
        amendments
    }

    /// The clause of a proposal that is not that of the winning metric, and a remark about the choice.
    fn origin(&self, policy: &PolicyEffect) -> (Option<String>, String) {
        let Some(proposal) = self.explanation.proposal else { return (None, String::new()) };
        let winner = self.explanation.winning_metric();
        let (mut origin, mut remark) = (None, String::new());
        for step in &policy.steps {
            match step {
                Step::Fallback(fallback) if winner.is_none() && origin.is_none() => {
                    origin = (fallback.proposal == Some(proposal))
                        .then(|| format!("{}, so its fallback asks for {proposal}", failing(fallback)));
                }
                // Without the fallback, the failed metric would prevent a scale-down.
                Step::Fallback(fallback)
                    if winner.is_some() && proposal < self.explanation.current && remark.is_empty() =>
                {
                    let effect = match fallback.proposal {
                        Some(count) => format!("its fallback asks for only {count}"),
                        None => "it is ignored".to_owned(),
                    };
                    remark = format!(" ({}, so {effect})", failing(fallback));
                }
                Step::Burst(burst)
                    if burst.replicas == proposal
                        && winner.is_some_and(|metric| metric.subject().to_string() == *burst.metric) =>
                {
                    origin = Some(burst_text(burst));
                }
                Step::Combine(combine) => match &combine.failed {
                    Some(metric) => {
                        origin = Some(format!(
                            "{metric} cannot be read and may ask for the lowest count, so combine: Min holds {proposal}"
                        ));
                    }
                    None => remark = format!(" (the lowest proposal, the highest is {})", combine.highest),
                },
                _ => {}
            }
        }
        (origin, remark)
    }
}

fn failing(fallback: &FallbackStep) -> String {
    let state = match fallback.cause {
        Cause::Error => "has failed",
        Cause::Empty => "has had no value",
    };
    format!("{} {state} since {:.0}", fallback.metric, fallback.since)
}

/// The proposal of `burst` with the window and the limit that determine it.
fn burst_text(burst: &BurstStep) -> String {
    let BurstStep { metric, target_milli, stable, panic, replicas, .. } = burst;
    let unit = |milli: i64| trimmed(milli as f64 / 1000.0, 1);
    let (window, clamp) = match burst.limit {
        Limit::Stable(clamp) => (stable, clamp),
        Limit::Panic(clamp) => (panic, clamp),
        Limit::PanicHighest => {
            return format!("{metric} is in panic mode, which keeps its highest proposal, {replicas}");
        }
        Limit::ScaleDownDelay => {
            return format!("scaleDownDelaySeconds keeps the highest proposal of {metric}, {replicas}");
        }
    };
    let target = trimmed(*target_milli as f64 / 1000.0, 3);
    let average = format!("{metric} averages {} over {} s", unit(window.average_milli), window.seconds);
    match clamp {
        Clamp::None => format!("{average}, which asks for {replicas} at {target} per pod"),
        Clamp::ScaleUpRate => format!("{average}, and the largest step up is to {replicas}"),
        Clamp::ScaleDownRate => format!("{average}, and the largest step down is to {replicas}"),
        Clamp::ActivationScale => format!("{average}, and activationReplicas is {replicas}"),
    }
}

/// The reason for which a step replaces the count.
fn reason(step: &Step) -> Option<String> {
    Some(match step {
        Step::Mode(mode) => {
            let until = mode.until.map(|until| format!(" until {until}")).unwrap_or_default();
            match mode.mode {
                None => "the mode of the policy is invalid".to_owned(),
                Some(Mode::Auto) => return None,
                Some(Mode::Paused) => format!("paused{until}"),
                Some(Mode::ScaleUpOnly) => format!("only scale-ups are allowed{until}"),
                Some(Mode::ScaleDownOnly) => format!("only scale-downs are allowed{until}"),
                Some(Mode::Pinned) => format!("pinned{until}"),
                Some(Mode::DryRun) => format!("dry run of the policy{until}"),
            }
        }
        Step::Guard(GuardStep::PendingPods(PendingPodsStep {
            pending, maximum, unschedulable_only, ..
        })) => {
            let state = if *unschedulable_only { "unschedulable" } else { "pending" };
            let (noun, verb) = if *pending == 1 { ("pod", "is") } else { ("pods", "are") };
            format!("{pending} {noun} {verb} {state}, more than {maximum}")
        }
        Step::Guard(GuardStep::Rollout(RolloutStep { rollout, .. })) => {
            format!("the target rolls out, {} of {} pods are updated", rollout.updated, rollout.total)
        }
        Step::Guard(GuardStep::ZeroMetrics(ZeroMetricsStep { since, .. })) => {
            format!("all metrics dropped to 0 at once at {since:.0}")
        }
        Step::Guard(GuardStep::MaxStep(MaxStepStep { to, .. })) => format!("the largest step is to {to}"),
        _ => return None,
    })
}

impl Decided<'_> {
    /// The last step of the HPA that limited the count. `None` if the policy replaces the count.
    pub fn limiting_step(&self) -> Option<LimitingStep> {
        self.explanation.limiting_step().filter(|_| self.replaced_by().is_none())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bounds::ScheduleStep;
    use crate::resolve::ModeStep;
    use crate::spec::FallbackAction;

    fn explanation(proposal: i32, desired: i32, winner: Option<usize>) -> Explanation {
        serde_json::from_value(serde_json::json!({
            "course": "metrics", "current": 8, "statusReplicas": 8, "min": 2, "max": 20, "metrics": [],
            "winner": winner, "proposal": proposal, "stabilization": null, "limit": null, "liftedToMin": null,
            "desired": desired, "failure": null,
        }))
        .unwrap()
    }

    fn sentence(explanation: &Explanation, applied: i32, steps: Vec<Step>) -> String {
        let effect = PolicyEffect {
            recommended: explanation.desired,
            applied: Some(applied),
            steps,
            ..PolicyEffect::default()
        };
        Decided::new(explanation, Some(&effect)).sentence(Timestamp::UNIX_EPOCH)
    }

    fn mode(mode: Mode, recommended: i32, applied: i32) -> Step {
        let (mode, recommended, applied) = (Some(mode), Some(recommended), Some(applied));
        Step::Mode(ModeStep { mode, until: None, current: 8, recommended, applied })
    }

    #[test]
    fn paused_hpa_stays_and_says_what_it_withholds() {
        let (more, limited) = (explanation(9, 9, None), explanation(30, 16, None));
        let paused = |explanation: &Explanation, recommended| {
            sentence(explanation, 8, vec![mode(Mode::Paused, recommended, 8)])
        };
        assert_eq!(paused(&more, 9), "stays at 8: paused; the metrics ask for 9");
        assert_eq!(
            paused(&limited, 16),
            "stays at 8: paused; the metrics ask for 30, and the HPA would apply 16"
        );
        assert_eq!(
            sentence(&more, 12, vec![mode(Mode::Pinned, 9, 12)]),
            "goes from 8 to 12: pinned; the metrics ask for 9"
        );
        let until = "2026-12-01T08:00:00Z".parse().unwrap();
        let step = ModeStep {
            mode: Some(Mode::ScaleDownOnly),
            until: Some(until),
            current: 8,
            recommended: Some(9),
            applied: Some(8),
        };
        assert_eq!(
            sentence(&more, 8, vec![Step::Mode(step)]),
            "stays at 8: only scale-downs are allowed until 2026-12-01T08:00:00Z; the metrics ask for 9"
        );
    }

    #[test]
    fn bound_of_a_schedule_is_named_with_the_schedule() {
        let mut above = explanation(9, 6, None);
        above.path = autoscaling::explanation::DecisionPath::AboveMax;
        above.max = 6;
        let step = ScheduleStep {
            schedule: "night".into(),
            field: "maxReplicas".into(),
            from: 20,
            to: 6,
            requested: None,
            until: None,
        };
        assert_eq!(
            sentence(&above, 6, vec![Step::Schedule(step)]),
            "goes from 8 to 6: maxReplicas is 6 by schedule night"
        );
    }

    #[test]
    fn fallback_that_decides_is_the_origin() {
        let step = FallbackStep {
            metric: "queue".into(),
            cause: Cause::Error,
            // The clock of a controller has fractions of a second.
            since: Timestamp::new(0, 562_345_678).unwrap(),
            action: FallbackAction::Hold,
            proposal: Some(8),
        };
        assert_eq!(
            sentence(&explanation(8, 8, None), 8, vec![Step::Fallback(step.clone())]),
            "stays at 8: queue has failed since 1970-01-01T00:00:00Z, so its fallback asks for 8"
        );
        let ignored = FallbackStep { action: FallbackAction::Ignore, proposal: None, ..step };
        assert_eq!(ignored.to_string(), "queue has failed since 1970-01-01T00:00:00Z, so it is ignored");
    }

    #[test]
    fn burst_says_its_window_and_its_limit() {
        let step = |limit: serde_json::Value, replicas: i32| -> BurstStep {
            serde_json::from_value(serde_json::json!({
                "metric": "requests", "targetMilli": 10_000, "ready": 4, "reference": 9, "replicas": replicas,
                "stable": {"averageMilli": 333_300, "seconds": 60, "replicas": 34},
                "panic": {"averageMilli": 500_000, "seconds": 6, "replicas": 50},
                "mode": "stable", "limit": limit,
            }))
            .unwrap()
        };
        let text = |limit, replicas| burst_text(&step(limit, replicas));
        assert_eq!(
            text(serde_json::json!({"stable": "none"}), 34),
            "requests averages 333.3 over 60 s, which asks for 34 at 10 per pod"
        );
        assert_eq!(
            text(serde_json::json!({"stable": "scaleDownRate"}), 8),
            "requests averages 333.3 over 60 s, and the largest step down is to 8"
        );
        assert_eq!(
            text(serde_json::json!({"panic": "none"}), 50),
            "requests averages 500 over 6 s, which asks for 50 at 10 per pod"
        );
        assert_eq!(
            text(serde_json::json!("panicHighest"), 50),
            "requests is in panic mode, which keeps its highest proposal, 50"
        );
    }
}
