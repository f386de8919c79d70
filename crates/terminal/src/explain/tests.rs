use autoscaling::explanation::{
    Corrected, LimitStep, Measure, MetricReading, PodCount, PodGroup, PodVerdict, PolicyUse, ProposalReason,
    StabilizationStep, UnlistedMetrics, UnmatchedSamples, WindowEntry,
};
use autoscaling::history::{Direction, Recommendation};
use autoscaling::spec::{PolicyKind, SelectPolicy};
use autoscaling::status::Limit;
use jiff::SignedDuration;

use super::*;

fn now() -> Timestamp {
    "2026-07-01T12:00:00Z".parse().unwrap()
}

fn ago(seconds: i64) -> Timestamp {
    now() - SignedDuration::from_secs(seconds)
}

fn text_of(explanation: &Explanation) -> String {
    terminal(&steps(explanation, now(), &Zone::utc()), Style::default())
}

fn cpu() -> Subject {
    Subject { kind: "Resource".into(), name: "cpu".into(), container: None, object: None }
}

fn reading(target: Measure, value: Measure, ratio: f64) -> MetricReading {
    MetricReading {
        subject: cpu(),
        name: "cpu".into(),
        target,
        value,
        total: None,
        ratio,
        lowest_tolerated: 0.9,
        highest_tolerated: 1.1,
        pods: Vec::new(),
        unlisted: Vec::new(),
        unmatched: None,
        ready_pods: None,
        corrected: None,
        why: ProposalReason::WithinTolerance,
        proposal: 5,
    }
}

fn explained(reading: MetricReading) -> Explanation {
    Explanation {
        current: 5,
        status_replicas: 5,
        min: 2,
        max: 10,
        proposal: Some(reading.proposal),
        desired: Some(reading.proposal),
        metrics: vec![MetricExplanation::Valid(reading)],
        winner: Some(0),
        ..Explanation::default()
    }
}

fn pod(name: &str, group: PodGroup, sample: i64) -> PodVerdict {
    PodVerdict { name: name.into(), group, sample: Some(sample), request: Some(500) }
}

#[test]
fn uncounted_pods_are_named_up_to_ten() {
    let mut reading = reading(Measure::Percent(80), Measure::Percent(86), 1.075);
    reading.pods = vec![pod("web-1", PodGroup::Ready, 400), pod("web-2", PodGroup::Ready, 460)];
    reading
        .pods
        .extend((10..25).map(|number| pod(&format!("web-{number}"), PodGroup::IgnoredTerminating, 0)));
    let text = text_of(&explained(reading));
    assert!(
        text.contains("counted    2 pods: 430m of 500m on average, from 80 % (web-1) to 92 % (web-2)\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "ignored    15 pods, being deleted: web-10, web-11, web-12, web-13, web-14, web-15, web-16, web-17, web-18, web-19 \
             and 5 more\n"
        ),
        "{text}"
    );
}

#[test]
fn unlisted_pods_of_a_record_are_counted() {
    let mut reading = reading(Measure::Percent(80), Measure::Percent(86), 1.075);
    reading.pods = vec![pod("web-9", PodGroup::Missing, 0)];
    reading.unlisted =
        vec![PodCount { group: PodGroup::Ready, pods: 12 }, PodCount { group: PodGroup::Missing, pods: 3 }];
    let text = text_of(&explained(reading));
    assert!(text.contains("counted    12 pods\n"), "{text}");
    assert!(
        text.contains("missing    4 pods, no sample in the metrics API response: web-9 and 3 more\n"),
        "{text}"
    );
}

#[test]
fn each_uncounted_group_states_its_reason() {
    let groups = [
        PodGroup::Missing,
        PodGroup::UnreadyPending,
        PodGroup::UnreadyNoCondition,
        PodGroup::UnreadyNotStarted,
        PodGroup::UnreadyInitializing,
        PodGroup::UnreadySampleTooOld,
        PodGroup::UnreadyNeverReady,
        PodGroup::IgnoredTerminating,
        PodGroup::IgnoredFailed,
        PodGroup::IgnoredSucceeded,
    ];
    let mut reading = reading(Measure::Percent(80), Measure::Percent(86), 1.075);
    reading.pods =
        groups.iter().enumerate().map(|(number, group)| pod(&format!("p{number}"), *group, 0)).collect();
    let text = text_of(&explained(reading));
    for number in 0..groups.len() {
        assert!(text.contains(&format!(": p{number}\n")), "p{number} in {text}");
    }
    assert!(text.contains("unready    1 pod, became ready after its sample started"), "{text}");
}

#[test]
fn samples_of_unknown_pods_are_shown_where_they_count() {
    let unmatched = Some(UnmatchedSamples { samples: 3, sum: 1_500 });
    let average =
        MetricReading { unmatched, ..reading(Measure::MilliPerPod(500), Measure::MilliPerPod(480), 0.96) };
    let text = text_of(&explained(average));
    assert!(
        text.contains("others     3 samples of unknown pods also count in the average, 1.5 in total\n"),
        "{text}"
    );
    let percent = MetricReading { unmatched, ..reading(Measure::Percent(80), Measure::Percent(86), 1.075) };
    assert!(!text_of(&explained(percent.clone())).contains("others"));
    let corrected = Some(Corrected { ratio: 1.0, values: 7, missing: None, unready: true });
    let text = text_of(&explained(MetricReading { corrected, ..percent }));
    assert!(text.contains("others     3 samples of unknown pods: they have no request"), "{text}");
}

#[test]
fn a_ratio_near_the_tolerance_is_not_rounded_onto_it() {
    let mut near = reading(Measure::MilliPerPod(500_000), Measure::MilliPerPod(550_400), 1.1008);
    (near.why, near.proposal) = (ProposalReason::Ratio, 6);
    near.pods = (0..5).map(|number| pod(&format!("p{number}"), PodGroup::Ready, 550_400)).collect();
    let text = text_of(&explained(near));
    assert!(text.contains("ratio      1.1008: above the tolerance (0.9 to 1.1)\n"), "{text}");
    assert!(text.contains("asks for   6: 1.1008 × 5 pods = 5.504, rounded up\n"), "{text}");
}

#[test]
fn at_zero_replicas_there_is_no_ratio() {
    for ratio in [f64::INFINITY, f64::NAN] {
        let mut zero = reading(Measure::MilliPerPod(30_000), Measure::MilliPerPod(100_000), ratio);
        (zero.total, zero.why, zero.proposal) = (Some(100_000), ProposalReason::PerPod, 4);
        zero.subject = Subject { kind: "External".into(), name: "jobs".into(), ..Subject::default() };
        let explanation = Explanation { current: 0, status_replicas: 0, ..explained(zero) };
        let text = text_of(&explanation);
        assert!(text.contains("value      100 in total; no replicas to divide it by\n"), "{text}");
        assert!(text.contains("ratio      none: the divisor is 0\n"), "{text}");
    }
}

#[test]
fn equal_recommendations_are_folded_and_old_ones_counted() {
    let held = |seconds: i64, replicas| WindowEntry {
        at: ago(seconds),
        replicas,
        expires_up: None,
        expires_down: Some(ago(seconds - 300)),
    };
    let mut explanation = explained(reading(Measure::Percent(80), Measure::Percent(40), 0.5));
    explanation.stabilization = Some(StabilizationStep {
        before: 3,
        after: 5,
        up_window_seconds: None,
        down_window_seconds: 300,
        held_by: Some(Recommendation { at: ago(100), replicas: 5 }),
        recommendations: vec![held(290, 4), held(100, 5), held(85, 5), held(70, 5), held(10, 3)],
    });
    let text = text_of(&explanation);
    assert!(
        text.contains("Stabilization: a window of 5 min for scaling down, no window for scaling up\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "  proposed   5 from 11:58:20Z to 11:58:50Z (3 times); the last leaves the scale-down window at 12:03:50Z (in 3 min \
             50 s)\n"
        ),
        "{text}"
    );
    let step = explanation.stabilization.as_mut().unwrap();
    step.recommendations =
        (0..20).map(|number| held(290 - number * 10, 4 + i32::try_from(number % 2).unwrap())).collect();
    let text = text_of(&explanation);
    assert!(text.contains("  earlier    12 earlier runs of recommendations\n"), "{text}");
    assert_eq!(text.matches("  proposed ").count(), 8);
}

#[test]
fn status_replicas_are_shown() {
    let mut explanation = explained(reading(Measure::Percent(80), Measure::Percent(86), 1.075));
    assert!(
        text_of(&explanation)
            .contains("replicas   5 in spec.replicas of the target, the same in status.replicas\n")
    );
    explanation.status_replicas = 7;
    let text = text_of(&explanation);
    assert!(text.contains("replicas   5 in spec.replicas of the target, 7 in status.replicas\n"), "{text}");
}

#[test]
fn scaling_from_zero_goes_directly_to_the_minimum() {
    let mut explanation = explained(reading(Measure::Milli(100), Measure::Milli(30), 0.3));
    (explanation.current, explanation.lifted_to_min, explanation.desired) = (0, Some(2), Some(2));
    explanation.limit = Some(LimitStep {
        before: 1,
        after: 1,
        limit: Limit::WithinRange,
        direction: None,
        select: None,
        policies: Vec::new(),
        rate_allows: None,
    });
    let text = text_of(&explanation);
    assert!(
        text.contains("Bounds       2: from zero directly to minReplicas\nResult       0 → 2\n"),
        "{text}"
    );
}

#[test]
fn policy_shows_a_rescale_of_unknown_size() {
    let mut explanation = explained(reading(Measure::Percent(80), Measure::Percent(160), 2.0));
    explanation.limit = Some(LimitStep {
        before: 10,
        after: 5,
        limit: Limit::ScaleUpRate,
        direction: Some(Direction::Up),
        select: Some(SelectPolicy::Max),
        policies: vec![PolicyUse {
            kind: PolicyKind::Pods,
            value: 4,
            period_seconds: 60,
            added: 0,
            removed: 0,
            start: 5,
            allows: 5,
            frees_at: Some(ago(-40)),
            unknown_rescale: Some(ago(20)),
        }],
        rate_allows: Some(5),
    });
    let text = text_of(&explanation);
    assert!(text.contains("4 pods per 1 min: at most 5, since a rescale of unknown size at "), "{text}");
    assert!(text.contains(" counts as the full allowance; more from "), "{text}");
}

#[test]
fn lines_break_under_their_text_and_keep_units_with_numbers() {
    let line =
        Line::new("target").plain("nothing changes from ").strong("72 %").plain(" to 88 %, as it should");
    let style = Style { colours: false, width: Some(40) };
    assert_eq!(
        style.line(&line, 2),
        "  target     nothing changes from 72 %\n             to 88 %, as it should"
    );
    let coloured = Style { colours: true, width: None }.line(&line, 0);
    assert_eq!(
        coloured,
        "\x1b[2mtarget    \x1b[0m nothing changes from \x1b[1m72 %\x1b[0m to 88 %, as it should"
    );
}

#[test]
fn metrics_beyond_a_hundred_are_counted() {
    let reading = reading(Measure::Percent(80), Measure::Percent(86), 1.075);
    let mut explanation = explained(reading);
    explanation.metrics = vec![explanation.metrics[0].clone(); 150];
    explanation.winner = Some(120);
    let text = text_of(&explanation);
    assert_eq!(text.matches("Metric ").count(), 101, "{text}");
    assert!(text.contains("Metric 121 of 150") && text.contains("and 49 more"), "{text}");

    // A record lists only the metrics that fit, and counts the rest.
    explanation.metrics.truncate(2);
    explanation.winner = Some(0);
    explanation.unlisted = Some(UnlistedMetrics { valid: 5, failed: 3 });
    let text = text_of(&explanation);
    assert!(text.contains("and 8 more") && !text.contains("Metric 1 of"), "{text}");
    assert!(text.contains("the highest of cpu 5, cpu 5, and 8 more"), "{text}");
}

#[test]
fn times_have_their_offset_and_a_date_only_on_another_day() {
    let at = |text: &str| text.parse::<Timestamp>().unwrap();
    let berlin = Zone::new(TimeZone::fixed(jiff::tz::offset(2)));
    let now = at("2026-07-01T12:03:20Z");
    assert_eq!(berlin.time(now, now), "14:03:20+02:00");
    assert_eq!(Zone::utc().time(now, now), "12:03:20Z");
    let other_name = Zone::new(TimeZone::posix("GMT0").unwrap());
    assert_eq!(other_name.time(now, now), "12:03:20Z");
    assert_eq!(berlin.time(at("2026-06-30T21:59:59Z"), now), "2026-06-30 23:59:59+02:00");
    assert_eq!(Zone::utc().full(now), "2026-07-01 12:03:20Z");
}

#[test]
fn text_of_the_cluster_is_escaped_and_aligned() {
    let rows = [vec![show::plain("a\u{1b}[2J"), show::plain("x")], vec![show::plain(""), show::plain("y")]];
    let text = Style::default().table(&["NAME", "REST"], &rows);
    assert_eq!(text, "NAME       REST\na\\u{1b}[2J x\n-          y\n");
}
