use autoscaling::explanation::{PodCount, ProposalReason, StabilizationStep};
use serde_json::json;

use super::*;

/// The time `seconds` before the end of the past.
pub(crate) fn ago(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_900_000_000 - seconds).unwrap()
}

fn spec() -> Arc<Spec> {
    let spec = json!({
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
        "minReplicas": 2, "maxReplicas": 12,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}],
    });
    Arc::new(serde_json::from_value(spec).unwrap())
}

/// A decision with `current` pods, all ready, at `percent` of their requests.
pub(crate) fn decision(first: i64, last: i64, (current, wanted): (i32, i32), percent: i32) -> PastDecision {
    let reading = MetricReading {
        subject: spec().metrics[0].subject(),
        name: "cpu resource utilization (percentage of request)".into(),
        target: Measure::Percent(60),
        value: Measure::Percent(percent),
        total: None,
        ratio: f64::from(percent) / 60.0,
        lowest_tolerated: 0.9,
        highest_tolerated: 1.1,
        pods: Vec::new(),
        unlisted: vec![PodCount { group: PodGroup::Ready, pods: u32::try_from(current).unwrap() }],
        unmatched: None,
        ready_pods: None,
        corrected: None,
        why: ProposalReason::Ratio,
        proposal: wanted,
    };
    let explanation = Explanation {
        current,
        status_replicas: current,
        min: 2,
        max: 12,
        metrics: vec![MetricExplanation::Valid(reading)],
        winner: Some(0),
        proposal: Some(wanted),
        stabilization: Some(StabilizationStep {
            before: wanted,
            after: wanted,
            up_window_seconds: None,
            down_window_seconds: 300,
            held_by: None,
            recommendations: Vec::new(),
        }),
        desired: Some(wanted),
        ..Explanation::default()
    };
    PastDecision {
        first: ago(first),
        last: ago(last),
        syncs: if first == last { 1 } else { 10 },
        explanation: Arc::new(explanation),
        policy: None,
        wanted: Some(wanted),
        ratios: Vec::new(),
    }
}

/// The past of `shop/web` with the given recorded decisions.
pub(crate) fn past(decisions: Vec<PastDecision>) -> Past {
    Past {
        namespace: "shop".to_owned(),
        name: "web".to_owned(),
        target: "Deployment/web".to_owned(),
        spec: spec(),
        settings: Settings::default(),
        period: Duration::from_secs(15),
        to: ago(0),
        decisions,
        current: decision(0, 0, (4, 4), 60),
        observations: Vec::new(),
        counts: Vec::new(),
        events: Vec::new(),
        happenings: Vec::new(),
    }
}

fn status(seconds: i64, (current, desired): (i32, i32), value: Option<f64>) -> PastStatus {
    PastStatus { at: ago(seconds), current, desired, values: vec![value, None, None, None] }
}

/// The desired, running and ready pods and the value of the metric at a sample.
fn sample(run: &Run, seconds_ago: u64) -> (i32, i32, i32, Option<f64>) {
    let hpa = &run.hpas[0];
    let at = run.duration.as_secs() - seconds_ago;
    let index = hpa.samples.iter().position(|sample| sample.at.as_secs() == at).unwrap();
    let sample = &hpa.samples[index];
    (sample.wanted, sample.running, sample.ready, hpa.metrics[0].values[index])
}

const DAY: SignedDuration = SignedDuration::from_hours(24);

#[test]
fn recorded_decision_holds_until_the_next_one() {
    let past = past(vec![
        decision(3_600, 1_815, (4, 4), 61),
        decision(1_800, 1_800, (4, 8), 120),
        decision(1_785, 15, (8, 8), 58),
    ]);
    let PastRun { run, has_running, has_ready } = past.run(DAY);
    assert!(has_running && has_ready);
    assert_eq!((run.start, run.duration.as_secs()), (ago(3_600), 3_600));
    assert_eq!(sample(&run, 1_815), (4, 4, 4, Some(61.0)));
    assert_eq!(sample(&run, 1_800), (8, 4, 4, Some(120.0)));
    assert_eq!(sample(&run, 0), (8, 8, 8, Some(58.0)));
    let hpa = &run.hpas[0];
    assert_eq!(hpa.decisions.len(), 3);
    assert_eq!(hpa.scores.rescales, 1);
    assert_eq!((hpa.scores.pod_hours * 10.0).round() / 10.0, 6.0);
    assert_eq!((hpa.metrics[0].target, hpa.metrics[0].tolerated_to.round()), (60.0, 66.0));
    assert_eq!(hpa.samples[0].proposal, Some(4));
}

#[test]
fn counts_and_values_before_the_record_are_those_of_the_watch() {
    let mut past = past(vec![decision(600, 0, (8, 8), 58)]);
    past.observations = vec![status(3_000, (3, 5), Some(90.0)), status(1_200, (5, 8), None)];
    past.counts = vec![(ago(9_000), 2), (ago(3_000), 5), (ago(1_200), 8)];
    let run = past.run(SignedDuration::from_hours(1)).run;
    assert_eq!(run.duration.as_secs(), 3_600);
    assert_eq!(sample(&run, 3_600).0, 2);
    assert_eq!(sample(&run, 3_000), (5, 3, 3, Some(90.0)));
    assert_eq!(sample(&run, 1_200), (8, 5, 5, None));
    assert_eq!(sample(&run, 600), (8, 8, 8, Some(58.0)));
}

#[test]
fn past_without_record_has_the_current_decision() {
    let mut bare = past(Vec::new());
    let PastRun { run, has_running, has_ready } = bare.run(DAY);
    assert!(!has_running && !has_ready);
    assert_eq!((run.duration.as_secs(), run.hpas[0].decisions.len()), (60, 1));
    bare.counts = vec![(ago(300), 7)];
    assert_eq!(sample(&bare.run(DAY).run, 0).0, 7);
}

#[test]
fn long_past_has_a_longer_period() {
    let run = past(vec![decision(86_400 * 3, 0, (4, 4), 60)]);
    let mut long = run;
    long.period = Duration::from_secs(1);
    let run = long.run(DAY).run;
    assert_eq!(run.duration.as_secs(), 86_400);
    assert!(run.hpas[0].samples.len() <= 6_001, "{}", run.hpas[0].samples.len());
}

#[test]
fn count_that_no_decision_explains_is_a_foreign_write() {
    let past = past(vec![
        decision(900, 615, (4, 4), 60),
        decision(600, 315, (9, 9), 60),
        decision(300, 300, (9, 6), 40),
        decision(285, 0, (6, 6), 60),
    ]);
    let run = past.run(DAY).run;
    let texts: Vec<_> = run.happenings.iter().map(|it| (it.from.as_secs(), it.what.as_str())).collect();
    assert_eq!(texts, [(300, "foreign write: 9 replicas instead of 4")]);
}

#[test]
fn total_of_a_metric_is_that_of_all_pods() {
    let mut merged = decision(900, 300, (4, 4), 60);
    merged.ratios = vec![("cpu".to_owned(), 1.0, 1.5)];
    let mut past = past(vec![merged, decision(285, 285, (4, 8), 120)]);
    past.observations = vec![status(1_200, (2, 2), Some(50.0)), status(600, (9, 9), Some(99.0))];
    let totals: Vec<_> =
        past.totals(0).into_iter().map(|(at, total)| (ago(0).duration_since(at).as_secs(), total)).collect();
    // For the syncs before the last one, the value is the middle of the range of ratios.
    assert_eq!(totals, [(1_200, 100.0), (600, 300.0), (300, 240.0), (285, 480.0)]);
    assert_eq!(past.totals(1), []);
}
