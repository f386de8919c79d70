use std::sync::Arc;

use serde_json::json;

use super::super::past::tests::{ago, decision, past};
use super::loads::LoadOrigin;
use super::*;
use crate::process::fake::FAKE;
use sources::PastReading;

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
        process: FAKE,
    }
}

/// A past of two hours: 4 pods at 60 %, but twice this load for half an hour.
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

/// A question about an HPA with an external metric. Its status contained up to 25 jobs for each of its 4 pods.
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
        .map(|(seconds, value)| super::super::past::PastStatus {
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
