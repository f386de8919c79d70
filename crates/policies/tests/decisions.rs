//! Decisions with policies, for HPAs with External metrics whose values propose `value / 10` replicas.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::sync::Arc;

use autoscaling::failure::MetricFailureClass;
use autoscaling::history::History;
use autoscaling::query::{Answer, ExternalValue, QueryError};
use autoscaling::settings::{Settings, Version};
use autoscaling::spec::Spec;
use autoscaling::status::Status;
use autoscaling::{Decision, Evaluation, Hpa, Overlap, Scale, Verdict, WriteOutcome, conclude, plan};
use jiff::{SignedDuration, Timestamp};
use policies::burst::BurstState;
use policies::history::{PolicyHistory, states};
use policies::merge::{Policy, Source};
use policies::resolve::resolve;
use policies::spec::{Level, parse};
use policies::steps::{PolicyEffect, StepReason};
use policies::{Earlier, PolicyDecision, TargetState};
use proptest::prelude::*;

/// The value of a metric, or `None` if the metric fails.
type Total = Option<i64>;

const START: Timestamp = Timestamp::UNIX_EPOCH;

fn policy(text: &str) -> Arc<Policy> {
    let parsed = Arc::new(parse(text, Level::Annotation));
    assert!(parsed.problems.iter().all(|problem| !problem.path.is_empty()), "{text}");
    let source = Source { level: Level::Annotation, name: "".into(), created: None, parsed };
    Arc::new(Policy::merge(vec![source]))
}

/// An HPA with its target and its histories.
struct Target {
    spec: Arc<Spec>,
    status: Status,
    replicas: i32,
    history: History,
    known: PolicyHistory,
    burst: Option<BurstState>,
    overlap: Overlap,
    now: Timestamp,
}

impl Target {
    fn new(replicas: i32, metrics: usize) -> Self {
        let metric = |index: usize| {
            serde_json::json!({"type": "External", "external": {
                "metric": {"name": format!("m{index}")}, "target": {"type": "AverageValue", "averageValue": "10"},
            }})
        };
        let spec = serde_json::from_value(serde_json::json!({
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 40, "metrics": (0..metrics).map(metric).collect::<Vec<_>>(),
        }));
        let (history, known) = (History::default(), PolicyHistory::default());
        Self {
            spec: Arc::new(spec.unwrap()),
            status: Status::default(),
            replicas,
            history,
            known,
            burst: None,
            overlap: Overlap::None,
            now: START,
        }
    }

    fn evaluated<T>(
        &self,
        spec: &Arc<Spec>,
        settings: &Settings,
        totals: &[Total],
        decide: impl FnOnce(Evaluation<'_>) -> T,
    ) -> T {
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec, status: &self.status };
        let scale = Scale::new(self.replicas, self.replicas, "app=web", Version::default()).unwrap();
        let plan = plan(&hpa, Ok(scale), |_| self.overlap.clone(), settings);
        let mut evaluation = Evaluation::new(&hpa, &plan, settings);
        for (index, total) in totals.iter().enumerate().take(evaluation.metrics()) {
            let answer = match total {
                Some(total) => {
                    let value = ExternalValue {
                        value: total.to_string().parse().unwrap(),
                        timestamp: Some(self.now),
                    };
                    Ok(Answer::External([value].into()))
                }
                None => Err(QueryError::new(MetricFailureClass::Other, "no")),
            };
            evaluation.evaluate(index, Some(&answer), &[], self.now);
        }
        decide(evaluation)
    }

    fn reference(&self, totals: &[Total]) -> Decision {
        self.evaluated(&self.spec, &Settings::default(), totals, |evaluation| {
            evaluation.decide(&self.history, self.now)
        })
    }

    /// Runs one sync with a policy, without the write. Returns the decision and the effect of the policy.
    fn decide(
        &mut self,
        policy: &Arc<Policy>,
        totals: &[Total],
        state: &TargetState,
    ) -> (Decision, PolicyEffect) {
        let rules = resolve(policy, self.now);
        let (spec, schedules) = rules.bounds.spec(&self.spec);
        let settings = policies::bounds::settings(&policy.spec, &Settings::default());
        let mut decided: PolicyDecision = self.evaluated(&spec, &settings, totals, |evaluation| {
            let earlier = Earlier { metrics: &self.known, burst: self.burst.as_ref(), forecast: None };
            rules.decide(evaluation, &self.history, earlier, self.replicas, self.now)
        });
        let effect = rules.apply(&mut decided, state, &schedules);
        self.known = decided.history;
        self.burst = decided.burst;
        (decided.decision, effect)
    }

    /// Runs one sync with a policy, with the write and the commit of the changes.
    fn sync(&mut self, policy: &Arc<Policy>, totals: &[Total]) -> PolicyEffect {
        let (decision, effect) = self.decide(policy, totals, &TargetState::default());
        let rules = resolve(policy, self.now);
        let (spec, _) = rules.bounds.spec(&self.spec);
        let settings = policies::bounds::settings(&policy.spec, &Settings::default());
        let hpa = Hpa { namespace: "shop", name: "web", generation: None, spec: &spec, status: &self.status };
        let outcome = match decision.verdict() {
            Verdict::Rescale { .. } => WriteOutcome::Done,
            _ => WriteOutcome::NotNeeded,
        };
        let conclusion = conclude(&hpa, decision, &outcome, &settings, self.now);
        assert!(effect.applied.is_none() || conclusion.desired == effect.applied);
        self.history.commit(&conclusion.changes);
        if let Some(status) = conclusion.status {
            self.status = (*status).clone();
        }
        self.replicas = effect.applied.unwrap_or(self.replicas);
        self.now += SignedDuration::from_secs(15);
        effect
    }
}

#[test]
fn each_mode_applies_what_it_allows() {
    for (text, total, applied, recommended, reason) in [
        ("{}", 80, 8, 8, None),
        ("{mode: Auto}", 80, 8, 8, None),
        ("{mode: Paused}", 80, 4, 8, Some(StepReason::Paused)),
        ("{mode: DryRun}", 80, 4, 8, Some(StepReason::DryRun)),
        ("{mode: ScaleDownOnly}", 80, 4, 8, Some(StepReason::ScaleDownOnly)),
        ("{mode: ScaleUpOnly}", 80, 8, 8, Some(StepReason::ScaleUpOnly)),
        ("{mode: Pinned, replicas: 50}", 80, 50, 8, Some(StepReason::Pinned)),
        ("{mode: Pinned, replicas: 0}", 80, 0, 8, Some(StepReason::Pinned)),
        ("{mode: Pause}", 80, 4, 8, Some(StepReason::InvalidMode)),
        ("{mode: Paused, until: 1960-01-01T00:00:00Z}", 80, 8, 8, None),
        ("{mode: Paused, until: 1970-01-01T00:00:00Z}", 80, 8, 8, None),
        ("{mode: Paused, until: 1970-01-01T00:00:01Z}", 80, 4, 8, Some(StepReason::Paused)),
    ] {
        let mut target = Target::new(4, 1);
        let (decision, effect) = target.decide(&policy(text), &[Some(total)], &TargetState::default());
        assert_eq!((effect.applied, effect.recommended), (Some(applied), Some(recommended)), "{text}");
        assert_eq!(effect.reason(), reason, "{text}");
        assert_eq!(decision.count(), Some(applied), "{text}");
        assert_eq!(decision.explanation().desired, Some(recommended), "{text}");
    }
}

#[test]
fn mode_does_not_apply_to_pods_of_several_hpas() {
    let both = vec!["shop/other".to_owned(), "shop/web".to_owned()];
    for (overlap, applied) in
        [(Overlap::Shared(both), None), (Overlap::Deleted, None), (Overlap::None, Some(9))]
    {
        let mut target = Target::new(4, 1);
        target.overlap = overlap;
        let policy = policy("{mode: Pinned, replicas: 9}");
        let (_, effect) = target.decide(&policy, &[Some(80)], &TargetState::default());
        assert_eq!(effect.applied, applied);
    }
}

#[test]
fn equal_metrics_have_their_own_history() {
    let target = Target { spec: Target::new(4, 1).spec, ..Target::new(4, 0) };
    let mut spec = (*target.spec).clone();
    spec.metrics = vec![spec.metrics[0].clone(); 3].into();
    let keys = target.evaluated(&Arc::new(spec), &Settings::default(), &[Some(1); 3], |evaluation| {
        states(&evaluation).iter().map(|state| state.key.to_string()).collect::<Vec<_>>()
    });
    let [first, second, third] = &keys[..] else { panic!("{keys:?}") };
    assert_eq!((second, third), (&format!("{first}#2"), &format!("{first}#3")));
}

#[test]
fn fallback_starts_after_its_duration_and_ends_with_the_failure() {
    let policy =
        policy("{fallback: [{when: Error, failureDurationSeconds: 30, action: Replicas, replicas: 6}]}");
    let mut target = Target::new(4, 1);
    let mut counts = Vec::new();
    for total in [Some(40), None, None, None, None, Some(80)] {
        let rules = resolve(&policy, target.now);
        counts.push((target.sync(&policy, &[total]).applied, rules.next_edge(&target.known, target.now)));
    }
    let at = |seconds| Some(START + SignedDuration::from_secs(seconds));
    let expected =
        [(Some(4), None), (None, at(45)), (None, None), (Some(6), None), (Some(6), None), (Some(8), None)];
    // After each sync, the clock advances by 15 s, so the edge at 45 s is not in the future after the third sync.
    assert_eq!(counts, expected);
}

#[test]
fn floor_of_a_schedule_applies_at_once_and_guards_do_not_withhold_it() {
    let text = "{schedules: [{name: sale, from: 1960-01-01T00:00:00Z, to: 2030-01-01T00:00:00Z, minReplicas: 20}], \
                guards: {maxStep: {up: 1}, pendingPods: {maximum: 0}}}";
    let mut target = Target::new(4, 1);
    let state = TargetState { pending: 9, ..TargetState::default() };
    let (_, effect) = target.decide(&policy(text), &[Some(40)], &state);
    assert_eq!((effect.applied, effect.reason()), (Some(20), Some(StepReason::ScheduleActive)));
    assert_eq!(
        effect.sentence().unwrap(),
        "schedule sale sets minReplicas to 20 instead of 2 until 2030-01-01T00:00:00Z"
    );
}

#[test]
fn withheld_recommendation_stays_in_the_history() {
    let guarded = policy("{guards: {pendingPods: {maximum: 0}}}");
    let state = TargetState { pending: 1, ..TargetState::default() };
    let mut target = Target::new(4, 1);
    let (decision, effect) = target.decide(&guarded, &[Some(80)], &state);
    assert_eq!((effect.applied, effect.recommended), (Some(4), Some(8)));
    assert_eq!(effect.reason(), Some(StepReason::PendingPods));
    let reference = target.reference(&[Some(80)]);
    assert_eq!(decision.explanation(), reference.explanation());
}

#[test]
fn effect_survives_the_record() {
    let text = "{mode: Paused, until: 2030-01-01T00:00:00Z, combine: Min, \
                fallback: [{when: Error, failureDurationSeconds: 0, action: Hold}], guards: {maxStep: {up: 1}}, \
                schedules: [{name: sale, from: 1960-01-01T00:00:00Z, to: 2030-01-01T00:00:00Z, minReplicas: 3}], x: 1}";
    let (_, effect) =
        Target::new(4, 3).decide(&policy(text), &[None, Some(80), Some(90)], &TargetState::default());
    let reasons: Vec<_> = effect.steps.iter().map(policies::steps::Step::reason).collect();
    assert_eq!(
        reasons,
        [StepReason::Paused, StepReason::FallbackActive, StepReason::CombinedMin, StepReason::ScheduleActive,]
    );
    assert_eq!(effect.problems, "annotation concertina.dev/policy: x: is unknown and has no effect");
    let json = serde_json::to_string(&effect).unwrap();
    assert_eq!(serde_json::from_str::<PolicyEffect>(&json).unwrap(), effect);
}

fn totals() -> impl Strategy<Value = Vec<Vec<Total>>> {
    let total = proptest::option::weighted(0.8, 0..500i64);
    proptest::collection::vec(proptest::collection::vec(total, 2), 1..20)
}

const POLICIES: [&str; 8] = [
    "{}",
    "{combine: Min}",
    "{fallback: [{when: Error, action: Ignore, failureDurationSeconds: 30}]}",
    "{fallback: [{when: Error, action: Replicas, replicas: 90, failureDurationSeconds: 0}]}",
    "{fallback: [{when: Error, action: Replicas, replicas: 0, failureDurationSeconds: 0}], combine: Min}",
    "{guards: {maxStep: {up: 20%, down: 1}}}",
    "{schedules: [{name: a, from: 1970-01-01T00:01:00Z, to: 1970-01-01T00:02:00Z, minReplicas: 30},\
     {name: b, from: 1970-01-01T00:01:30Z, to: 1970-01-01T00:03:00Z, maxReplicas: 9}]}",
    "{downscaleStabilizationSeconds: 0, fallback: [{when: Error, action: LastValue, failureDurationSeconds: 15}]}",
];

/// A policy without its braces.
fn fields(policy: &str) -> &str {
    policy.strip_prefix('{').and_then(|policy| policy.strip_suffix('}')).unwrap()
}

proptest! {
    #[test]
    fn policy_without_rules_changes_no_decision(totals in totals(), replicas in 0..60i32) {
        let mut target = Target::new(replicas, 2);
        for totals in totals {
            let reference = target.reference(&totals);
            for text in ["{}", "{mode: Auto}", "{combine: Max}", "{mode: Paused, until: 1960-01-01T00:00:00Z}"] {
                let (decision, effect) = target.decide(&policy(text), &totals, &TargetState::default());
                prop_assert_eq!(&decision, &reference);
                prop_assert!(effect.steps.is_empty());
            }
            target.sync(&policy("{}"), &totals);
        }
    }

    #[test]
    fn count_stays_within_the_bounds_of_the_hpa(totals in totals(), replicas in 1..60i32, index in 0..POLICIES.len()) {
        let mut target = Target::new(replicas, 2);
        let policy = policy(POLICIES[index]);
        for totals in totals {
            let before = target.replicas;
            if let Some(applied) = target.sync(&policy, &totals).applied {
                prop_assert!((2..=40).contains(&applied), "{} from {}", applied, before);
            }
        }
    }

    #[test]
    fn one_way_modes_never_turn(totals in totals(), replicas in 1..60i32, index in 0..POLICIES.len()) {
        let rest = fields(POLICIES[index]);
        let with = |mode: &str| policy(&if rest.is_empty() { format!("{{mode: {mode}}}") } else { format!("{{mode: {mode}, {rest}}}") });
        let (up, down, paused) = (with("ScaleUpOnly"), with("ScaleDownOnly"), with("Paused"));
        let (mut rising, mut falling, mut held) = (Target::new(replicas, 2), Target::new(replicas, 2), Target::new(replicas, 2));
        for totals in totals {
            let before = (rising.replicas, falling.replicas);
            rising.sync(&up, &totals);
            falling.sync(&down, &totals);
            held.sync(&paused, &totals);
            prop_assert!(rising.replicas >= before.0 && falling.replicas <= before.1 && held.replicas == replicas);
        }
    }

    #[test]
    fn mode_leaves_nothing_behind_after_its_end(totals in totals(), replicas in 1..60i32, index in 0..POLICIES.len()) {
        let rest = fields(POLICIES[index]);
        let separator = if rest.is_empty() { "" } else { ", " };
        let paused = policy(&format!("{{mode: DryRun, until: 1970-01-01T00:01:00Z{separator}{rest}}}"));
        let plain = policy(POLICIES[index]);
        let (mut one, mut other) = (Target::new(replicas, 2), Target::new(replicas, 2));
        for totals in totals {
            let is_over = one.now >= START + SignedDuration::from_mins(1);
            one.sync(&paused, &totals);
            other.sync(&plain, &totals);
            if is_over {
                prop_assert_eq!((one.replicas, &one.history), (other.replicas, &other.history));
            } else {
                prop_assert_eq!(&one.known, &other.known);
                prop_assert_eq!(one.history.recommendations.len(), other.history.recommendations.len());
                // The states differ only by the rescale that the mode prevented. For the next sync, `other` takes the
                // state of `one`.
                (other.replicas, other.history, other.status) = (one.replicas, one.history.clone(), one.status.clone());
            }
        }
    }
}
