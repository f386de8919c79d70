//! The sentence of a decision, and its limiting step.

use autoscaling::explanation::{
    Assumed, Corrected, DecisionPath, Explanation, LimitStep, LimitingStep, Measure, MetricExplanation,
    MetricReading, PodGroup, PodVerdict, ProposalReason, StabilizationStep, Subject, milli,
};
use autoscaling::history::{Direction, History, Recommendation};
use autoscaling::settings::Settings;
use autoscaling::spec::{Behavior, PolicyKind, ScalingPolicy, SelectPolicy, ValueTarget};
use autoscaling::status::Limit;
use jiff::Timestamp;

use crate::workload::{NOW, Workload, asking_for, external_metric, external_value};

fn reading(why: ProposalReason, value: i32, proposal: i32) -> MetricReading {
    MetricReading {
        subject: Subject { kind: "Resource".into(), name: "cpu".into(), ..Subject::default() },
        name: "cpu".into(),
        target: Measure::Percent(80),
        value: Measure::Percent(value),
        total: None,
        ratio: f64::from(value) / 80.0,
        lowest_tolerated: 0.9,
        highest_tolerated: 1.1,
        pods: Vec::new(),
        unlisted: Vec::new(),
        unmatched: None,
        ready_pods: None,
        corrected: None,
        why,
        proposal,
    }
}

fn decided(reading: MetricReading, current: i32, desired: i32) -> Explanation {
    Explanation {
        current,
        status_replicas: current,
        min: 1,
        max: 10,
        proposal: Some(reading.proposal),
        metrics: vec![MetricExplanation::Valid(reading)],
        winner: Some(0),
        desired: Some(desired),
        ..Explanation::default()
    }
}

fn limited(explanation: Explanation, before: i32, after: i32, limit: Limit) -> Explanation {
    let step = LimitStep {
        before,
        after,
        limit,
        direction: None,
        select: None,
        policies: Vec::new(),
        rate_allows: None,
    };
    Explanation { limit: Some(step), ..explanation }
}

#[test]
fn each_limiting_step_is_one_word() {
    use LimitingStep::{
        Failure, Maximum, Minimum, MissingPods, ScaleDownPolicy, ScaleDownWindow, ScaleUpPolicy,
        ScaleUpWindow, Tolerance,
    };
    let steps = [
        Failure,
        Tolerance,
        MissingPods,
        ScaleUpWindow,
        ScaleDownWindow,
        ScaleUpPolicy,
        ScaleDownPolicy,
        Maximum,
        Minimum,
    ];
    assert_eq!(
        steps.map(LimitingStep::as_str),
        [
            "failure",
            "tolerance",
            "missingPods",
            "scaleUpWindow",
            "scaleDownWindow",
            "scaleUpPolicy",
            "scaleDownPolicy",
            "maximum",
            "minimum"
        ]
    );
}

#[test]
fn each_path_has_its_sentence_and_its_step() {
    let of = |path, failure: Option<&str>| {
        let explanation = Explanation {
            path,
            current: if path == DecisionPath::Disabled { 0 } else { 4 },
            min: 5,
            max: 3,
            failure: failure.map(Into::into),
            ..Explanation::default()
        };
        (explanation.sentence(NOW), explanation.limiting_step())
    };
    let expected = |sentence: &str, step| (sentence.to_owned(), step);
    assert_eq!(
        of(DecisionPath::NoScale, Some("gone")),
        expected("does nothing: the target's scale cannot be read: gone", Some(LimitingStep::Failure))
    );
    assert_eq!(
        of(DecisionPath::NoScale, None),
        expected(
            "does nothing: the target's scale cannot be read: the cause is unknown",
            Some(LimitingStep::Failure)
        )
    );
    assert_eq!(
        of(DecisionPath::Disabled, None),
        expected("stays at 0: the target has 0 replicas, which disables autoscaling", None)
    );
    assert_eq!(
        of(DecisionPath::AboveMax, None),
        expected("goes from 4 to 3: maxReplicas is 3", Some(LimitingStep::Maximum))
    );
    assert_eq!(
        of(DecisionPath::BelowMin, None),
        expected("goes from 4 to 5: minReplicas is 5", Some(LimitingStep::Minimum))
    );
    assert_eq!(
        of(DecisionPath::Ambiguous, Some("two HPAs")),
        expected("stays at 4: two HPAs", Some(LimitingStep::Failure))
    );
    assert_eq!(of(DecisionPath::Deleted, None), expected("was deleted during the sync", None));
    assert_eq!(
        of(DecisionPath::Metrics, None),
        expected("stays at 4: it has no metrics", Some(LimitingStep::Failure))
    );
}

#[test]
fn missing_pods_that_limit_a_count_are_mentioned() {
    let within = decided(reading(ProposalReason::CorrectedWithinTolerance, 100, 4), 4, 4);
    assert_eq!(
        within.sentence(NOW),
        "stays at 4: cpu is at 100 %, above its target of 80 %, but within tolerance once missing and unready pods are \
         filled in"
    );
    assert_eq!(within.limiting_step(), Some(LimitingStep::MissingPods));
    let reversed = decided(reading(ProposalReason::DirectionReversed, 100, 4), 4, 4);
    assert_eq!(
        reversed.sentence(NOW),
        "stays at 4: cpu is at 100 %, above its target of 80 %, but below it once missing and unready pods are filled in"
    );
    assert_eq!(reversed.limiting_step(), Some(LimitingStep::MissingPods));
}

#[test]
fn count_that_moves_against_the_ratio_is_mentioned_with_its_pods() {
    let pod = |name: &str, group| PodVerdict { name: name.into(), group, sample: None, request: None };
    let mut late = reading(ProposalReason::CountReversed, 5, 1);
    late.pods = vec![pod("web-1", PodGroup::Ready), pod("web-2", PodGroup::Missing)];
    late.corrected =
        Some(Corrected { ratio: 0.53, values: 2, missing: Some(Assumed::Target), unready: false });
    let explanation = decided(late, 1, 1);
    assert_eq!(
        explanation.sentence(NOW),
        "stays at 1: cpu is at 5 %, below its target of 80 %, but asks for 2 once 1 missing pod is filled in, which would \
         scale up"
    );
    assert_eq!(explanation.limiting_step(), Some(LimitingStep::MissingPods));
}

#[test]
fn ready_pods_that_shrink_a_value_above_its_target_are_mentioned() {
    let mut unready = reading(ProposalReason::Ratio, 240, 0);
    unready.ready_pods = Some(0);
    let explanation = limited(decided(unready, 6, 2), 0, 2, Limit::Minimum);
    assert_eq!(
        Explanation { min: 2, ..explanation }.sentence(NOW),
        "goes from 6 to 2: cpu is at 240 %, above its target of 80 %, but over 0 pods asks for 0, and minReplicas is 2"
    );
}

#[test]
fn steps_that_restore_the_proposal_have_no_clause() {
    let mut explanation = limited(decided(reading(ProposalReason::Ratio, 96, 6), 5, 6), 8, 6, Limit::Maximum);
    explanation.max = 6;
    explanation.stabilization = Some(StabilizationStep {
        before: 6,
        after: 8,
        up_window_seconds: None,
        down_window_seconds: 300,
        held_by: None,
        recommendations: Vec::new(),
    });
    assert_eq!(explanation.sentence(NOW), "goes from 5 to 6: cpu is at 96 %, above its target of 80 %");
    assert_eq!(explanation.limiting_step(), None);
}

#[test]
fn rate_from_one_replica_is_not_called_doubling() {
    let explanation =
        limited(decided(reading(ProposalReason::Ratio, 800, 10), 1, 4), 10, 4, Limit::ScaleUpRate);
    assert_eq!(
        explanation.sentence(NOW),
        "goes from 1 to 4: cpu asks for 10, but without a behavior one sync from 1 goes to at most 4"
    );
}

#[test]
fn bound_and_disabled_direction_that_limit_equally_are_both_mentioned() {
    let mut explanation =
        limited(decided(reading(ProposalReason::Ratio, 200, 20), 10, 10), 20, 10, Limit::Maximum);
    if let Some(limit) = &mut explanation.limit {
        (limit.direction, limit.select) = (Some(Direction::Up), Some(SelectPolicy::Disabled));
    }
    assert_eq!(
        explanation.sentence(NOW),
        "stays at 10: cpu asks for 20, but scaling up is disabled, and maxReplicas is 10"
    );
    assert_eq!(explanation.limits(), [LimitingStep::ScaleUpPolicy, LimitingStep::Maximum]);
}

#[test]
fn unlimited_count_has_no_limiting_step() {
    for why in [
        ProposalReason::Ratio,
        ProposalReason::CorrectedRatio,
        ProposalReason::PerPod,
        ProposalReason::FromZero,
    ] {
        let explanation = decided(reading(why, 40, 2), 4, 2);
        assert_eq!(explanation.limiting_step(), None, "{why:?}");
        assert_eq!(explanation.sentence(NOW), "goes from 4 to 2: cpu is at 40 %, below its target of 80 %");
    }
}

#[test]
fn value_at_its_target_is_described_as_such() {
    let explanation = decided(reading(ProposalReason::WithinTolerance, 80, 4), 4, 4);
    assert_eq!(explanation.sentence(NOW), "stays at 4: cpu is at its target of 80 %");
}

#[test]
fn bounds_and_rates_name_their_step() {
    let free = || decided(reading(ProposalReason::Ratio, 200, 10), 4, 8);
    let doubled = limited(free(), 10, 8, Limit::ScaleUpRate);
    assert_eq!(
        doubled.sentence(NOW),
        "goes from 4 to 8: cpu asks for 10, but without a behavior one sync at most doubles the count, to 8"
    );
    assert_eq!(doubled.limiting_step(), Some(LimitingStep::ScaleUpPolicy));
    for (limit, step) in [
        (Limit::ScaleDownRate, Some(LimitingStep::ScaleDownPolicy)),
        (Limit::Maximum, Some(LimitingStep::Maximum)),
        (Limit::Minimum, Some(LimitingStep::Minimum)),
        (Limit::WithinRange, None),
    ] {
        assert_eq!(limited(free(), 10, 8, limit).limiting_step(), step, "{limit:?}");
    }
    let lifted =
        Explanation { lifted_to_min: Some(2), ..decided(reading(ProposalReason::FromZero, 40, 1), 0, 2) };
    assert_eq!(lifted.limiting_step(), Some(LimitingStep::Minimum));
    assert_eq!(lifted.sentence(NOW), "goes from 0 to 2: cpu asks for 1, but minReplicas is 2");
}

#[test]
fn window_names_its_direction() {
    let stabilized = |before, after| {
        let step = StabilizationStep {
            before,
            after,
            up_window_seconds: Some(60),
            down_window_seconds: 300,
            held_by: Some(Recommendation { at: Timestamp::UNIX_EPOCH, replicas: after }),
            recommendations: Vec::new(),
        };
        let explanation = decided(reading(ProposalReason::Ratio, 90, before), 5, after);
        Explanation { stabilization: Some(step), ..explanation }.limiting_step()
    };
    assert_eq!(stabilized(3, 5), Some(LimitingStep::ScaleDownWindow));
    assert_eq!(stabilized(8, 5), Some(LimitingStep::ScaleUpWindow));
}

#[test]
fn memory_has_every_binary_unit() {
    let memory = Subject { kind: "Resource".into(), name: "memory".into(), ..Subject::default() };
    let kibi = 1024 * 1000;
    assert_eq!(milli(512_000, &memory), "512");
    assert_eq!(milli(kibi - 1000, &memory), "1023");
    assert_eq!(milli(kibi, &memory), "1 Ki");
    assert_eq!(milli(3 * kibi * 1024 * 1024 * 1024 / 2, &memory), "1.5 Ti");
}

#[test]
fn ratio_that_is_not_a_number_is_null_in_json() {
    let workload = Workload::new(external_metric(ValueTarget::Value("0".parse().unwrap())), 1, 9, 3);
    let decision = workload.decide(external_value(0), &History::default(), NOW);
    assert!(decision.explanation().metrics[0].reading().is_none(), "without pods it fails");
    let mut nan = reading(ProposalReason::Ratio, 0, 0);
    nan.ratio = f64::NAN;
    let json = serde_json::to_value(&nan).unwrap();
    assert!(json["ratio"].is_null());
    let restored: MetricReading = serde_json::from_value(json).unwrap();
    assert!(!restored.ratio.is_finite());
    assert_eq!(Settings::default().tolerance, 0.1);
}

#[test]
fn count_from_zero_is_lifted_to_the_minimum_if_policies_limit_it() {
    let workload = Workload::asked_directly(3, 9, 0).scaled_to_zero();
    let lifted = |workload: &Workload| {
        let decision = workload.decide(asking_for(3), &History::default(), NOW);
        (decision.explanation().desired, decision.explanation().lifted_to_min)
    };
    assert_eq!(lifted(&workload), (Some(3), None));
    // The policy allows no scale-up, because 100 % of zero replicas is zero.
    let mut behavior = Behavior::default();
    behavior.scale_up.policies =
        [ScalingPolicy { kind: PolicyKind::Percent, value: 100, period_seconds: 15 }].into();
    assert_eq!(lifted(&workload.with_behavior(behavior)), (Some(3), Some(3)));
}

#[test]
fn condensed_reading_counts_the_pods_that_it_omits() {
    let pod = |name: &str, group| PodVerdict { name: name.into(), group, sample: None, request: None };
    let mut many = reading(ProposalReason::Ratio, 90, 5);
    many.pods = (0..5).map(|index| pod(&format!("web-{index}"), PodGroup::Ready)).collect();
    many.pods.push(pod("web-5", PodGroup::Missing));
    let mut explanation = decided(many, 5, 5);
    explanation.stabilization = Some(StabilizationStep {
        before: 5,
        after: 5,
        up_window_seconds: None,
        down_window_seconds: 300,
        held_by: None,
        recommendations: vec![autoscaling::explanation::WindowEntry {
            at: NOW,
            replicas: 5,
            expires_up: None,
            expires_down: Some(NOW),
        }],
    });
    let condensed = explanation.condensed(0);
    assert!(condensed.stabilization.unwrap().recommendations.is_empty());
    let reading = condensed.metrics[0].reading().unwrap();
    assert!(reading.pods.is_empty());
    assert_eq!(reading.count(|group| group == PodGroup::Ready), 5);
    assert_eq!(reading.count(|group| group == PodGroup::Missing), 1);
}
