//! Tests of the past of an HPA, and of its simulation with other fields.

use std::sync::Arc;
use std::time::Duration;

use autoscaling::explanation::{
    Explanation, Measure, MetricExplanation, MetricReading, PodCount, PodGroup, ProposalReason,
    StabilizationStep,
};
use autoscaling::settings::Settings;
use autoscaling::spec::Spec;
use jiff::Timestamp;
use policies::steps::PolicyEffect;
use serde_json::json;

use super::*;
use crate::from_cluster::measure::LoadOrigin;
use crate::past::{PastDecision, PastRun, PastStatus};
use crate::run::Run;
use sources::PastReading;

/// Returns the time `seconds` before the end of the past.
fn ago(seconds: i64) -> Timestamp {
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

/// Returns a decision with `current` pods, all ready, at `percent` of their requests.
fn decision(first: i64, last: i64, (current, wanted): (i32, i32), percent: i32) -> PastDecision {
    let reading = MetricReading {
        subject: spec().metrics[0].subject("shop"),
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

/// Returns the past of `shop/web` with the given recorded decisions.
fn past(decisions: Vec<PastDecision>) -> Past {
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

/// Returns the desired, running and ready pods and the value of the metric at a sample.
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

/// Returns a decision with 4 pods and a floor of 9, and an expected load of 5 to 8 pods.
fn with_floor(first: i64, last: i64, applies: bool) -> PastDecision {
    let forecast = json!({"applies": applies, "state": "Pays", "floor": 9, "candidate": "", "reason": "9: a peak",
        "band": {"usual": 5, "upper": 8}, "benefit": null});
    let policy =
        PolicyEffect { forecast: Some(serde_json::from_value(forecast).unwrap()), ..PolicyEffect::default() };
    PastDecision { policy: Some(Arc::new(policy)), ..decision(first, last, (4, 4), 60) }
}

#[test]
fn drawing_shows_the_floor_of_a_forecast_and_marks_a_preview() {
    let decisions =
        vec![decision(900, 615, (4, 4), 60), with_floor(600, 315, false), with_floor(300, 0, true)];
    let drawn = crate::page::draw(&past(decisions), DAY);
    for part in ["s-floor", "s-preview", "f-expected", "floor of the forecast", "floor in preview"] {
        assert!(drawn.markup.contains(part), "{part}: {}", drawn.markup);
    }
    let columns = drawn.data["courses"][0]["columns"].as_array().unwrap();
    let of = |ink: &str| columns.iter().find(|column| column["ink"] == ink).unwrap()["values"].clone();
    assert_eq!((of("preview"), of("floor")), (json!([null, 9, null]), json!([null, 9])));
    assert!(drawn.data["texts"].as_array().unwrap().contains(&json!("preview, 9: a peak")));
    let without = crate::page::draw(&past(vec![decision(900, 0, (4, 4), 60)]), DAY);
    assert!(!["s-floor", "s-preview", "f-expected"].iter().any(|part| without.markup.contains(part)));
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
    // Before the last sync of a decision, the value is the middle of the range of ratios.
    assert_eq!(totals, [(1_200, 100.0), (600, 300.0), (300, 240.0), (285, 480.0)]);
    assert_eq!(past.totals(1), []);
}

fn hpa() -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"},
            "minReplicas": 2, "maxReplicas": 12,
            "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 60}}}],
        },
        "status": {"currentReplicas": 4},
    })
}

fn objects() -> Objects {
    let container =
        json!({"name": "app", "resources": {"requests": {"cpu": "500m"}, "limits": {"cpu": "1"}}});
    Objects(ClusterObjects {
        hpa: hpa(),
        target: Some(json!({"spec": {"template": {"spec": {"containers": [container]}}}})),
        replicas: 4,
        usage: vec![json!({"containers": [{"usage": {"cpu": "300m", "memory": "64Mi"}}]}); 4],
        ..ClusterObjects::default()
    })
}

fn question(past: Past) -> Question {
    Question {
        objects: objects(),
        past,
        length: SignedDuration::from_hours(6),
        sources: SourceLoads::default(),
        changed: hpa(),
        flags: vec![("horizontal-pod-autoscaler-sync-period", "15s".to_owned())],
    }
}

/// Returns a past of two hours: 4 pods at 60 %, but twice this load for half an hour.
fn two_hours() -> Past {
    past(vec![
        decision(7_200, 3_615, (4, 4), 60),
        decision(3_600, 3_600, (4, 8), 120),
        decision(3_585, 1_815, (8, 8), 60),
        decision(1_800, 1_500, (8, 8), 30),
        decision(1_485, 1_485, (8, 4), 30),
        decision(1_470, 0, (4, 4), 60),
    ])
}

fn cell<'a>(answer: &'a Answer, run: &str, title: &str) -> Option<&'a str> {
    let column = answer.heads.iter().position(|(head, _)| *head == title).unwrap();
    let row = answer.rows.iter().find(|row| row.name == run).unwrap_or_else(|| panic!("{run}"));
    row.cells[column].as_deref()
}

#[test]
fn load_of_the_past_is_played_with_both_sets_of_fields() {
    let mut question = question(two_hours());
    question.changed["spec"]["maxReplicas"] = json!(5);
    let answer = play(&question, &CancellationToken::new()).unwrap();
    let names: Vec<_> = answer.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["what happened", "as it is", "with these fields"]);
    assert_eq!(cell(&answer, "what happened", "unserved"), None);
    assert_eq!(cell(&answer, "what happened", "peak"), Some("8"));
    assert_eq!(cell(&answer, "as it is", "peak"), Some("8"), "{:?}", answer.rows);
    assert_eq!(cell(&answer, "with these fields", "peak"), Some("5"));
    assert!(
        answer.sentence.contains("pod-hours") && answer.sentence.contains("unserved"),
        "{}",
        answer.sentence
    );
    assert!(answer.notes.iter().any(|note| note.contains("recorded values of cpu")), "{:?}", answer.notes);
    assert!(
        answer.notes.iter().any(|note| note.starts_with("The known past covers 2 h")),
        "{:?}",
        answer.notes
    );
    assert!(answer.drawing.markup.contains("s-variant2"), "{}", answer.drawing.markup);
    assert_eq!(answer.drawing.data["courses"].as_array().unwrap().len(), 4);
}

#[test]
fn unknown_past_is_a_constant_load() {
    let mut question = question(past(vec![decision(300, 0, (4, 4), 60)]));
    question.length = SignedDuration::from_hours(1);
    let answer = play(&question, &CancellationToken::new()).unwrap();
    let names: Vec<_> = answer.rows.iter().map(|row| row.name.as_str()).collect();
    assert_eq!(names, ["as it is", "with these fields"]);
    assert!(answer.notes.iter().any(|note| note.starts_with("The load is constant")), "{:?}", answer.notes);
    assert_eq!(cell(&answer, "as it is", "rescales"), Some("0"));
}

#[test]
fn load_without_readable_usage_comes_from_the_values_of_the_hpa() {
    let mut question = question(two_hours());
    question.objects.0.usage.clear();
    let answer = play(&question, &CancellationToken::new()).unwrap();
    assert_eq!(cell(&answer, "as it is", "peak"), Some("8"), "{:?}", answer.rows);
}

/// Returns a question about an HPA with an external metric. The status of the HPA contained up to 25 jobs for each of
/// the 4 pods.
fn question_about_jobs() -> Question {
    let mut question = question(two_hours());
    let metric = json!([{"type": "External", "external": {"metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    for hpa in [&mut question.changed, &mut question.objects.0.hpa] {
        hpa["spec"]["metrics"] = metric.clone();
        hpa["status"]["currentMetrics"] = json!([{"type": "External", "external": {"metric": {"name": "jobs"}, "current": {"averageValue": "10"}}}]);
    }
    question.past.spec = Arc::new(serde_json::from_value(question.changed["spec"].clone()).unwrap());
    question.past.decisions.clear();
    question.past.observations = [(7_200, 10.0), (3_600, 25.0), (600, 10.0)]
        .map(|(seconds, value)| PastStatus {
            at: ago(seconds),
            current: 4,
            desired: 4,
            values: vec![Some(value)],
        })
        .into();
    question
}

#[test]
fn custom_metric_drives_its_load() {
    let answer = play(&question_about_jobs(), &CancellationToken::new()).unwrap();
    assert!(answer.notes.iter().any(|note| note.contains("recorded values of jobs")), "{:?}", answer.notes);
    assert_eq!(cell(&answer, "as it is", "peak"), Some("10"), "{:?}", answer.rows);
    let load = MetricLoad { metric: "jobs".to_owned(), origin: LoadOrigin::Seen, problem: None };
    assert_eq!(answer.loads, [load]);
}

#[test]
fn load_from_prometheus_replaces_the_shape_of_recorded_values() {
    let mut question = question_about_jobs();
    let totals = [(7_300, 40.0), (3_600, 70.0), (0, 40.0)].map(|(seconds, total)| (ago(seconds), total));
    let reading = PastReading { server: "main".to_owned(), totals: totals.into() };
    question.sources.by_metric.insert(0, Ok(reading));
    let answer = play(&question, &CancellationToken::new()).unwrap();
    assert_eq!(cell(&answer, "as it is", "peak"), Some("7"), "{:?}", answer.rows);
    assert_eq!(answer.loads[0].origin.to_string(), "Prometheus server main");
    assert_eq!(answer.loads[0].problem, None);
}

#[test]
fn problem_of_prometheus_is_shown_and_the_recorded_values_are_played() {
    for (reading, expected) in [
        (Err(PastError::NoFile("prometheus \"main\"".to_owned())), "in the file of --metric-sources-file"),
        (
            Ok(PastReading { server: "main".to_owned(), totals: vec![(ago(60), 40.0)] }),
            "fewer than two values",
        ),
    ] {
        let mut question = question_about_jobs();
        question.sources.by_metric.insert(0, reading);
        let answer = play(&question, &CancellationToken::new()).unwrap();
        assert_eq!(cell(&answer, "as it is", "peak"), Some("10"), "{:?}", answer.rows);
        assert_eq!(answer.loads[0].origin, LoadOrigin::Seen);
        let problem = answer.loads[0].problem.as_deref().unwrap();
        assert!(problem.contains(expected), "{problem}");
    }
}

#[test]
fn origin_of_each_load_is_named() {
    let answer = play(&question(two_hours()), &CancellationToken::new()).unwrap();
    let loads = serde_json::to_value(&answer.loads).unwrap();
    assert_eq!(loads, json!([{"metric": "cpu", "origin": "the record of the controller", "problem": null}]));
    let unknown = question(past(vec![decision(300, 0, (4, 4), 60)]));
    assert_eq!(range(&unknown.past, SignedDuration::from_hours(1)), None);
    let answer = play(&unknown, &CancellationToken::new()).unwrap();
    assert_eq!(answer.loads[0].origin, LoadOrigin::Constant);
    let range = range(&two_hours(), SignedDuration::from_hours(24)).unwrap();
    assert_eq!((range.start, range.end), (ago(7_200), ago(0)));
}

#[test]
fn stopped_run_ends_early() {
    let stop = CancellationToken::new();
    stop.cancel();
    let error = play(&question(two_hours()), &stop).unwrap_err();
    assert!(matches!(error, PlayError::Run(RunError::Stopped)), "{error}");
}
