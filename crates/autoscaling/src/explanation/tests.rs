use super::*;
use crate::failure::MetricFailureClass;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

fn cpu() -> Subject {
    Subject { kind: "Resource".into(), name: "cpu".into(), container: None, object: None }
}

fn reading(percent: i32, proposal: i32, why: ProposalReason) -> MetricExplanation {
    MetricExplanation::Valid(MetricReading {
        subject: cpu(),
        name: "cpu resource utilization (percentage of request)".into(),
        target: Measure::Percent(80),
        value: Measure::Percent(percent),
        total: None,
        ratio: f64::from(percent) / 80.0,
        lowest_tolerated: 0.9,
        highest_tolerated: 1.1,
        pods: Vec::new(),
        unlisted: Vec::new(),
        unmatched: None,
        ready_pods: None,
        corrected: None,
        why,
        proposal,
    })
}

/// A decision without limits, for a cpu metric with a target of 80 %.
fn decided(current: i32, percent: i32, proposal: i32) -> Explanation {
    Explanation {
        current,
        status_replicas: current,
        min: 2,
        max: 10,
        metrics: vec![reading(percent, proposal, ProposalReason::Ratio)],
        winner: Some(0),
        proposal: Some(proposal),
        desired: Some(proposal),
        ..Explanation::default()
    }
}

fn limited(explanation: Explanation, before: i32, after: i32, limit: Limit) -> Explanation {
    let step = LimitStep {
        before,
        after,
        limit,
        direction: Some(if after > explanation.current { Direction::Up } else { Direction::Down }),
        select: Some(SelectPolicy::Max),
        policies: Vec::new(),
        rate_allows: Some(after),
    };
    Explanation { desired: Some(after), limit: Some(step), ..explanation }
}

#[test]
fn unlimited_decision_names_the_metric_and_its_proposal() {
    let explanation = decided(5, 130, 9);
    assert_eq!(explanation.sentence(at(0)), "goes from 5 to 9: cpu is at 130 %, above its target of 80 %");
    assert_eq!(explanation.limiting_step(), None);
}

#[test]
fn sentence_mentions_a_count_that_rounding_keeps() {
    let sentence = decided(4, 68, 4).sentence(at(0));
    assert_eq!(sentence, "stays at 4: cpu is at 68 %, which still requires 4 for its target of 80 %");
}

#[test]
fn growth_by_foreign_pods_is_not_called_above_target() {
    let mut explanation = decided(5, 68, 9);
    if let Some(MetricExplanation::Valid(reading)) = explanation.metrics.first_mut() {
        reading.unlisted.push(PodCount { group: PodGroup::Ready, pods: 10 });
    }
    assert_eq!(
        explanation.sentence(at(0)),
        "goes from 5 to 9: cpu is at 68 %, below its target of 80 %, but over 10 pods asks for 9"
    );
}

#[test]
fn value_is_shown_undivided_at_zero_replicas() {
    let mut explanation = Explanation { min: 0, status_replicas: 0, ..decided(0, 0, 1) };
    if let Some(MetricExplanation::Valid(reading)) = explanation.metrics.first_mut() {
        reading.subject = Subject { kind: "External".into(), name: "jobs".into(), ..Subject::default() };
        (reading.target, reading.value) = (Measure::MilliPerPod(100_000), Measure::MilliPerPod(30_000));
        (reading.total, reading.why) = (Some(30_000), ProposalReason::PerPod);
    }
    assert_eq!(
        explanation.sentence(at(0)),
        "goes from 0 to 1: jobs is at 30 in total, its target is 100 per pod"
    );
}

#[test]
fn sentence_shows_the_cause_of_an_error() {
    let cause = |error: &str| {
        let reason = "FailedGetResourceMetric".into();
        let failed = FailedMetric { subject: cpu(), reason, class: None, error: error.into() };
        failed.cause().to_owned()
    };
    let unfetched = "failed to get cpu utilization: unable to get metrics for resource cpu: unable to fetch metrics \
                     from resource metrics API: the server is currently unable to handle the request";
    assert_eq!(cause(unfetched), "the server is currently unable to handle the request");
    let none = "unable to get external metric shop/jobs/&LabelSelector{MatchLabels:map[string]string{queue: a,},}: no \
                metrics returned from external metrics API";
    assert_eq!(cause(none), "no metrics returned from external metrics API");
    let request = "failed to get cpu utilization: missing request for cpu in container app of Pod web-1";
    assert_eq!(cause(request), "missing request for cpu in container app of Pod web-1");
    assert_eq!(cause("plain: words"), "plain: words");
}

#[test]
fn limiting_window_shows_its_remaining_time() {
    let held = Recommendation { at: at(100), replicas: 5 };
    let explanation = Explanation {
        desired: Some(5),
        stabilization: Some(StabilizationStep {
            before: 3,
            after: 5,
            up_window_seconds: None,
            down_window_seconds: 300,
            held_by: Some(held),
            recommendations: Vec::new(),
        }),
        ..decided(5, 40, 3)
    };
    assert_eq!(
        explanation.sentence(at(270)),
        "stays at 5: cpu asks for 3, but the 5 min scale-down window still holds 5, for another 2 min 10 s"
    );
    assert_eq!(explanation.limiting_step(), Some(LimitingStep::ScaleDownWindow));
    let at_its_end = explanation.sentence(at(400));
    assert!(at_its_end.ends_with("the 5 min scale-down window still holds 5"), "{at_its_end}");
}

#[test]
fn window_is_not_named_when_a_rate_overrides_it() {
    let mut explanation = limited(decided(5, 500, 30), 20, 8, Limit::ScaleUpRate);
    explanation.max = 40;
    explanation.stabilization = Some(StabilizationStep {
        before: 30,
        after: 20,
        up_window_seconds: Some(60),
        down_window_seconds: 300,
        held_by: Some(Recommendation { at: at(0), replicas: 20 }),
        recommendations: Vec::new(),
    });
    assert_eq!(
        explanation.sentence(at(10)),
        "goes from 5 to 8: cpu asks for 30, but the scale-up policies allow 8"
    );
    assert_eq!(explanation.limiting_step(), Some(LimitingStep::ScaleUpPolicy));
}

#[test]
fn window_is_not_named_when_a_bound_overrides_it() {
    let held = StabilizationStep {
        before: 1,
        after: 2,
        up_window_seconds: None,
        down_window_seconds: 300,
        held_by: Some(Recommendation { at: at(0), replicas: 2 }),
        recommendations: Vec::new(),
    };
    let at_min = Explanation { stabilization: Some(held), desired: Some(2), ..decided(2, 30, 1) };
    assert_eq!(at_min.sentence(at(10)), "stays at 2: cpu asks for 1, but minReplicas is 2");
    assert_eq!(at_min.limiting_step(), Some(LimitingStep::Minimum));
    let held = StabilizationStep {
        before: 30,
        after: 20,
        up_window_seconds: Some(60),
        down_window_seconds: 300,
        held_by: Some(Recommendation { at: at(0), replicas: 20 }),
        recommendations: Vec::new(),
    };
    let mut at_max = limited(decided(5, 500, 30), 20, 10, Limit::Maximum);
    at_max.stabilization = Some(held);
    assert_eq!(at_max.sentence(at(10)), "goes from 5 to 10: cpu asks for 30, but maxReplicas is 10");
    assert_eq!(at_max.limiting_step(), Some(LimitingStep::Maximum));
}

#[test]
fn policy_shows_when_it_allows_more() {
    let mut explanation = limited(decided(5, 500, 30), 30, 8, Limit::ScaleUpRate);
    if let Some(limit) = &mut explanation.limit {
        limit.policies.push(PolicyUse {
            kind: PolicyKind::Pods,
            value: 4,
            period_seconds: 60,
            added: 1,
            removed: 0,
            start: 4,
            allows: 8,
            frees_at: Some(at(40)),
            unknown_rescale: None,
        });
    }
    assert_eq!(
        explanation.sentence(at(0)),
        "goes from 5 to 8: cpu asks for 30, but the scale-up policies allow 8, for another 40 s"
    );
    assert!(explanation.sentence(at(40)).ends_with("policies allow 8"), "the policy allows more from now on");
    let mut disabled = limited(decided(5, 40, 3), 3, 5, Limit::ScaleDownRate);
    if let Some(limit) = &mut disabled.limit {
        (limit.select, limit.direction) = (Some(SelectPolicy::Disabled), Some(Direction::Down));
    }
    assert_eq!(disabled.sentence(at(0)), "stays at 5: cpu asks for 3, but scaling down is disabled");
    assert_eq!(disabled.limiting_step(), Some(LimitingStep::ScaleDownPolicy));
}

#[test]
fn policy_shows_when_a_rescale_of_unknown_size_limits_it() {
    let held = PolicyUse {
        kind: PolicyKind::Pods,
        value: 4,
        period_seconds: 60,
        added: 0,
        removed: 0,
        start: 5,
        allows: 5,
        frees_at: Some(at(40)),
        unknown_rescale: Some(at(-20)),
    };
    let mut explanation = limited(decided(5, 500, 30), 30, 5, Limit::ScaleUpRate);
    if let Some(limit) = &mut explanation.limit {
        (limit.direction, limit.policies) = (Some(Direction::Up), vec![held]);
    }
    assert_eq!(
        explanation.sentence(at(0)),
        "stays at 5: cpu asks for 30, but the scale-up policies allow 5 (a rescale of unknown size 20 s ago counts as \
         the full allowance), for another 40 s"
    );
    // A policy that the rescale of unknown size does not affect allows more.
    if let Some(limit) = &mut explanation.limit {
        (limit.after, limit.rate_allows) = (7, Some(7));
        limit.policies.push(PolicyUse { allows: 7, frees_at: None, unknown_rescale: None, ..held });
    }
    let sentence = explanation.sentence(at(0));
    assert!(sentence.ends_with("but the scale-up policies allow 7, for another 40 s"), "{sentence}");
}

#[test]
fn tolerance_is_shown_with_value_and_target() {
    let explanation =
        Explanation { metrics: vec![reading(86, 5, ProposalReason::WithinTolerance)], ..decided(5, 86, 5) };
    assert_eq!(
        explanation.sentence(at(0)),
        "stays at 5: cpu is at 86 %, within tolerance of its target of 80 %"
    );
    assert_eq!(explanation.limiting_step(), Some(LimitingStep::Tolerance));
}

#[test]
fn failed_metric_is_shown_with_its_error() {
    let failed = MetricExplanation::Failed(FailedMetric {
        subject: Subject { kind: "External".into(), name: "queue_length".into(), ..Subject::default() },
        reason: "FailedGetExternalMetric".into(),
        class: Some(MetricFailureClass::NoValues),
        error: "no such metric".into(),
    });
    assert_eq!(failed.subject().name.as_ref(), "queue_length");
    assert_eq!(reading(40, 3, ProposalReason::Ratio).subject(), &cpu());
    let alone =
        Explanation { metrics: vec![failed.clone()], winner: None, desired: None, ..decided(5, 40, 3) };
    assert_eq!(alone.sentence(at(0)), "stays at 5: queue_length cannot be read: no such metric");
    let partial = Explanation { metrics: vec![reading(40, 3, ProposalReason::Ratio), failed], ..alone };
    assert_eq!(
        partial.sentence(at(0)),
        "stays at 5: cpu asks for 3, but nothing is scaled down while queue_length cannot be read: no such metric"
    );
    assert_eq!(partial.limiting_step(), Some(LimitingStep::Failure));
}

#[test]
fn paths_without_metrics_have_their_own_sentences() {
    let of = |path, failure: Option<&str>| Explanation {
        path,
        current: 12,
        min: 2,
        max: 10,
        failure: failure.map(Into::into),
        ..Explanation::default()
    };
    let sentence = |path, failure| of(path, failure).sentence(at(0));
    assert_eq!(sentence(DecisionPath::AboveMax, None), "goes from 12 to 10: maxReplicas is 10");
    assert_eq!(
        sentence(DecisionPath::NoScale, Some("not found")),
        "does nothing: the target's scale cannot be read: not found"
    );
    assert_eq!(sentence(DecisionPath::NoSelector, None), "stays at 12: the target's scale has no selector");
}

#[test]
fn amounts_have_common_units() {
    let memory = Subject { name: "memory".into(), ..cpu() };
    let custom = Subject { kind: "Pods".into(), name: "cpu".into(), ..Subject::default() };
    assert_eq!(milli(250, &cpu()), "250m");
    assert_eq!(milli(1_500, &cpu()), "1.5");
    assert_eq!(milli(316 * 1024 * 1024 * 1000, &memory), "316 Mi");
    assert_eq!(milli(1_610_612_736 * 1000, &memory), "1.5 Gi");
    assert_eq!(milli(250, &custom), "0.25");
    assert_eq!(milli(-12_000, &custom), "-12");
}

#[test]
fn spans_have_at_most_two_units() {
    let span = |seconds| Span::seconds(seconds).to_string();
    assert_eq!([span(0), span(45), span(60), span(130)], ["0 s", "45 s", "1 min", "2 min 10 s"]);
    assert_eq!([span(3600), span(3_900), span(90_061)], ["1 h", "1 h 5 min", "1 d 1 h"]);
    let second_start = Timestamp::from_nanosecond(1_000_000_001).unwrap();
    assert_eq!(Span::between(at(0), second_start).to_string(), "2 s");
}

#[test]
fn explanation_survives_a_json_round_trip() {
    let mut explanation = limited(decided(5, 500, 30), 30, 8, Limit::ScaleUpRate);
    explanation.metrics.push(MetricExplanation::Failed(FailedMetric {
        subject: cpu(),
        reason: "FailedGetResourceMetric".into(),
        class: Some(MetricFailureClass::ApiUnavailable),
        error: "none".into(),
    }));
    let text = serde_json::to_string(&explanation).unwrap();
    assert!(text.contains(r#""statusReplicas":5"#) && text.contains(r#""target":{"percent":80}"#), "{text}");
    assert_eq!(serde_json::from_str::<Explanation>(&text).unwrap(), explanation);
}

#[test]
fn failure_without_a_class_is_classified_by_its_text() {
    let failed = |class, error: &str| {
        let reason = "FailedGetResourceMetric".into();
        FailedMetric { subject: cpu(), reason, class, error: error.into() }.class()
    };
    let text = "failed to get cpu utilization: missing request for cpu in container app of Pod web-1";
    assert_eq!(failed(None, text), MetricFailureClass::MissingRequest);
    assert_eq!(failed(Some(MetricFailureClass::Other), text), MetricFailureClass::Other);
    let scale = |failure_class| {
        let failure = Some("deployments.apps \"web\" not found".into());
        Explanation { failure, failure_class, ..Explanation::default() }.scale_failure()
    };
    assert_eq!(scale(None), ScaleFailureClass::NotFound);
    assert_eq!(scale(Some(ScaleFailureClass::Other)), ScaleFailureClass::Other);
}

#[test]
fn condensed_explanation_counts_ready_pods_and_lists_few_others() {
    let pod = |number: usize, group| PodVerdict {
        name: format!("web-{number}").into(),
        group,
        sample: Some(1),
        request: None,
    };
    let mut explanation = decided(5, 40, 3);
    if let Some(MetricExplanation::Valid(reading)) = explanation.metrics.first_mut() {
        reading.pods = (0..7).map(|number| pod(number, PodGroup::Ready)).collect();
        reading.pods.extend((7..12).map(|number| pod(number, PodGroup::Missing)));
    }
    let condensed = explanation.condensed(2);
    let reading = condensed.metrics[0].reading().unwrap();
    assert_eq!(reading.pods.len(), 2);
    assert_eq!(reading.count(|group| group == PodGroup::Ready), 7);
    assert_eq!(reading.count(|group| group == PodGroup::Missing), 5);
    assert_eq!(condensed.sentence(at(0)), explanation.sentence(at(0)));
}
