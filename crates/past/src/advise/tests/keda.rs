//! HPAs of KEDA on the query of a trigger.

use backtest::replay::{Metric, World, replay};
use backtest::series::Series;

use super::command::Rig;
use super::*;
use crate::advise::outcome::Refusal;

const RATE: &str = "sum(rate(http_requests_total{app=\"web\"}[2m])) # of all pods";
const QUEUE: &str = "sum(queue_length)";

/// The HPA that KEDA creates, with a target of 10 per pod, and its ScaledObject with a query.
fn objects(query: &str) -> [Value; 2] {
    let mut hpa = hpa(Past { min: 10, ..PAST });
    hpa["metadata"]["name"] = json!("keda-hpa-web");
    hpa["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject", "name": "web"}]);
    hpa["spec"]["metrics"] = json!([{"type": "External", "external": {
        "metric": {"name": "s1-prometheus", "selector": {"matchLabels": {"scaledobject.keda.sh/name": "web"}}},
        "target": {"type": "AverageValue", "averageValue": "10"}}}]);
    let trigger = json!({"type": "prometheus", "metadata": {
        "serverAddress": "http://prometheus:9090", "query": query, "threshold": "10"}});
    let scaled = json!({
        "apiVersion": "keda.sh/v1alpha1", "kind": "ScaledObject",
        "metadata": {"namespace": "shop", "name": "web"},
        "spec": {"scaleTargetRef": {"name": "web"}, "triggers": [{"type": "cron"}, trigger]},
    });
    [hpa, scaled]
}

/// Four days under the HPA, with a load from 3 to 11 targets.
fn recording() -> Recording {
    let start = "2026-11-02T00:00:00Z".parse().unwrap();
    let world = World {
        metric: Metric::External,
        target: 100,
        min_replicas: 10,
        max_replicas: 50,
        behavior: None,
        pod_start: (60.0, 120.0),
        metric_age: 45,
        seed: 7,
    };
    let series = Series { start, loads: (0..4 * DAY).map(|minute| Some(daily(minute))).collect() };
    let counts = replay(&series, &world, &[], 0).unwrap().counts;
    let mut recording = Recording::new(start, counts.len());
    for (minute, count) in counts.into_iter().enumerate() {
        for (column, value) in [
            (Column::Usage, 10.0 * daily(minute)),
            (Column::Replicas, f64::from(count)),
            (Column::Ready, f64::from(count)),
            (Column::ReplicaSets, 1.0),
            (Column::Min, 10.0),
            (Column::Max, 50.0),
            (Column::Target, 10.0),
        ] {
            recording.set(column, minute, value);
        }
    }
    recording
}

/// The only row of the answer about files with some objects, and the query.
async fn row_of(test: &str, objects: &[Value]) -> (Value, String) {
    let rig = Rig::new(&[], [("keda-hpa-web", recording())].into());
    let folder = Folder::new(test);
    let (file, page) = (folder.0.join("objects.yaml"), folder.0.join("page.html"));
    std::fs::write(&file, json!({"items": objects}).to_string()).unwrap();
    let flags =
        ["-f", file.to_str().unwrap(), "-o", "json", "--days", "4", "--report", page.to_str().unwrap()];
    let document: Value = serde_json::from_str(&rig.run(&flags).await.unwrap()).unwrap();
    let mut row = document["hpas"][0].clone();
    row["charts"] = json!(std::fs::read_to_string(page).unwrap().matches("<svg").count());
    (row, rig.servers.requests().first().map(|request| request.query.clone()).unwrap_or_default())
}

#[tokio::test]
async fn rate_of_a_trigger_is_the_load() {
    let (row, query) = row_of("rate", &objects(RATE)).await;
    let settings = &row["advice"]["settings"];
    // What a pod can serve is not known, so that the target stays.
    assert_eq!((&settings["target"], &row["today"]["target"]), (&json!(100), &json!(100)), "{row}");
    assert!(settings["minReplicas"].as_i64().unwrap() < 10, "{row}");
    assert_eq!(row["averageValue"], json!({"today": "10", "advised": "10"}));
    assert_eq!((&row["metric"], row.get("request")), (&json!("s1-prometheus"), None));
    assert_eq!(row["findings"], json!([]));
    let judged = &row["advice"]["judged"];
    assert_eq!(judged["today"]["unservedPpm"], judged["advised"]["unservedPpm"]);
    assert!(
        query.contains("label_replace(sum(sum(rate(http_requests_total{app=\"web\"}[2m]))\n), "),
        "{query}"
    );
    assert!(query.contains("metric_name=\"s1-prometheus\",metric_target_type=\"average\""), "{query}");
    assert!(!query.contains("resource_requests") && promql::Query::parse(&query, None).is_ok(), "{query}");
}

#[tokio::test]
async fn queue_of_a_trigger_is_shown_and_not_advised_on() {
    let (row, _) = row_of("queue", &objects(QUEUE)).await;
    assert_eq!(row["refused"], json!({"reason": "noRate", "metric": "s1-prometheus"}));
    assert_eq!(
        row["why"],
        "s1-prometheus is not known to be a sum of rates: with fewer pods, a queue can become longer"
    );
    assert_eq!((&row["charts"], &row["days"]), (&json!(1), &json!(4.0)));
}

#[test]
fn metric_without_a_known_query_has_a_reason() {
    let read = |objects: &[Value]| {
        let folder = Folder::new("keda-unknown");
        let file = folder.0.join("objects.yaml");
        std::fs::write(&file, json!({"items": objects}).to_string()).unwrap();
        let read = crate::advise::objects::Objects::read_files(&[file], None).unwrap();
        read.hpas[0].today.clone().map(|today| today.external)
    };
    let is_other = |objects: &[Value]| matches!(read(objects), Err(Refusal::OtherMetrics { .. }));
    let [hpa, scaled] = objects(RATE);
    let external = read(&[hpa.clone(), scaled.clone()]).unwrap().unwrap();
    assert_eq!((external.name.as_str(), external.is_rate), ("s1-prometheus", true));
    // Its pods' requests do not count.
    let vertical = vpa("web", json!({}));
    assert!(read(&[hpa.clone(), scaled.clone(), vertical]).is_ok());
    assert!(is_other(std::slice::from_ref(&hpa)), "no ScaledObject");
    let changed = |pointer: &str, value: Value| {
        let (mut hpa, mut scaled) = (hpa.clone(), scaled.clone());
        let object = if hpa.pointer(pointer).is_some() { &mut hpa } else { &mut scaled };
        *object.pointer_mut(pointer).unwrap() = value;
        [hpa, scaled]
    };
    for (pointer, value) in [
        ("/metadata/ownerReferences/0/kind", json!("Other")),
        ("/spec/metrics/0/external/metric/name", json!("s0-prometheus")),
        ("/spec/metrics/0/external/metric/name", json!("s7-prometheus")),
        ("/spec/metrics/0/external/target", json!({"type": "Value", "value": "10"})),
        ("/spec/triggers/1/type", json!("kafka")),
    ] {
        assert!(is_other(&changed(pointer, value.clone())), "{pointer} {value}");
    }
    let invalid = read(&changed("/spec/triggers/1/metadata/query", json!("sum(rate("))).unwrap_err();
    let expected = "the HPA cannot be replayed: s1-prometheus of ScaledObject web: the query is invalid: ";
    assert!(invalid.to_string().starts_with(expected), "{invalid}");
}
