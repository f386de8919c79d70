#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::sync::Arc;

use clock::SystemClock;
use cluster::decode;
use cluster::decode::HpaObject;
use serde_json::{Value, json};

use super::*;
use crate::row::Row;
use crate::store::Store;

/// Returns an answer with one advice and one refusal, for the HPAs of [`hpa`].
pub(crate) fn report() -> Value {
    let measured = |hours: f64, ppm: f64| json!({"podHoursAWeek": hours, "unservedPpm": ppm, "minutesAbove80AWeek": 0.5, "rescalesAWeek": 12.0});
    let settings = |target: i32, min: i32, window: i32| json!({"target": target, "minReplicas": min, "maxReplicas": 9, "scaleDownWindowSeconds": window});
    let compared = |today: f64, advised: f64| json!({"today": measured(today, 20.0), "advised": measured(advised, 10.0)});
    let advice = json!({
        "settings": settings(72, 3, 60), "fitted": compared(300.0, 258.0), "judged": compared(310.0, 269.4),
        "sureness": "high", "isShort": false, "lookAt": "the latency",
        "withFloor": {"settings": settings(75, 3, 60), "fitted": compared(300.0, 240.0), "judged": compared(310.0, 248.0)},
    });
    json!({
        "apiVersion": "concertina/v1", "kind": "AdviceReport", "to": "2030-01-15T00:00:00Z", "lacked": [],
        "hpas": [
            {"namespace": "shop", "name": "web", "target": "Deployment/web", "today": settings(60, 6, 300),
                "advice": advice, "findings": [], "days": 14.0},
            {"namespace": "shop", "name": "queue", "target": "Deployment/queue", "refused": {"reason": "noUsage"},
                "why": "Prometheus has no usage", "findings": [], "days": 0.0},
        ],
    })
}

fn advice(report: &Value) -> AllAdvice {
    serde_json::from_value::<Report>(report.clone()).unwrap().into_advice()
}

fn cpu(target: &Value) -> Value {
    json!({"type": "Resource", "resource": {"name": "cpu", "target": target}})
}

pub(crate) fn hpa(name: &str) -> Value {
    json!({
        "metadata": {"namespace": "shop", "name": name},
        "spec": {
            "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
            "minReplicas": 6, "maxReplicas": 9,
            "metrics": [cpu(&json!({"type": "Utilization", "averageUtilization": 60}))],
        },
    })
}

pub(crate) fn decoded(hpa: &Value) -> HpaObject {
    decode::hpa(hpa.to_string().as_bytes()).unwrap()
}

/// Returns the row of an HPA with the advice of its name.
fn row(report: &Value, hpa: &Value) -> Row {
    let row = Row::new(&decoded(hpa), Vec::new());
    let all = advice(report);
    let advice = all.get(&(row.namespace.clone(), row.name.clone())).map(Arc::as_ref);
    row.with_advice(advice)
}

pub(crate) const BRIEF: &str =
    "-41 pod-hours a week: cpu 60 % → 72 %, minReplicas 6 → 3, window 300 s → 60 s";

#[test]
fn row_names_the_changes_and_only_of_an_advice() {
    let cell = row(&report(), &hpa("web")).advice.unwrap();
    assert_eq!((cell.text.as_str(), cell.rank), (BRIEF, Some(0)));
    for name in ["queue", "other"] {
        let row = row(&report(), &hpa(name));
        assert_eq!(row.advice, None, "{name}");
        assert!(!serde_json::to_string(&row).unwrap().contains("advice"), "{name}");
    }
}

#[test]
fn other_settings_than_those_of_the_advice_are_a_change() {
    let utilization = |percent: i32| cpu(&json!({"type": "Utilization", "averageUtilization": percent}));
    let external = json!({"type": "External", "external": {
        "metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    let memory = json!({"type": "Resource", "resource": {
        "name": "memory", "target": {"type": "Utilization", "averageUtilization": 80}}});
    let down = |window: i32| json!({"scaleDown": {"stabilizationWindowSeconds": window}});
    for (path, value, is_same) in [
        ("/spec/behavior", down(300), true),
        ("/spec/metrics", json!([utilization(60), memory]), true),
        ("/metadata/labels", json!({"a": "b"}), true),
        ("/spec/behavior", down(60), false),
        ("/spec/minReplicas", json!(5), false),
        ("/spec/maxReplicas", json!(10), false),
        ("/spec/metrics", json!([utilization(61)]), false),
        ("/spec/metrics", json!([utilization(60), external]), false),
        ("/spec/metrics", json!([cpu(&json!({"type": "AverageValue", "averageValue": "60m"}))]), false),
        ("/spec/metrics", json!([]), false),
        ("/spec/scaleTargetRef/name", json!("web2"), false),
    ] {
        let mut changed = hpa("web");
        terminal::values::set(&mut changed, path, Some(value));
        let cell = row(&report(), &changed).advice.unwrap();
        let expected = if is_same { (BRIEF, Some(0)) } else { (CHANGED, None) };
        assert_eq!((cell.text.as_str(), cell.rank), expected, "{path}: {changed}");
    }
}

#[test]
fn target_in_cores_is_compared_and_changed_in_cores() {
    let mut report = report();
    report["hpas"][0]["averageValue"] = json!({"today": "300m", "advised": "360m"});
    let mut hpa = hpa("web");
    hpa["spec"]["metrics"] = json!([cpu(&json!({"type": "AverageValue", "averageValue": "0.3"}))]);
    let row = row(&report, &hpa);
    assert_eq!(row.advice.unwrap().text, BRIEF.replace("60 % → 72 %", "300m → 360m"));
    let all = advice(&report);
    let fields = all[&("shop".to_owned(), "web".to_owned())].fields(
        "Deployment/web",
        Settings::new(&decoded(&hpa).spec),
        2,
    );
    let fields: Vec<_> = fields.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    assert_eq!(fields, [("metric2", "360m"), ("min", "3"), ("downWindow", "60")]);
}

#[test]
fn hpa_on_an_external_metric_gets_the_default_rates() {
    let mut report = report();
    report["hpas"][0]["metric"] = json!("queue");
    report["hpas"][0]["averageValue"] = json!({"today": "10", "advised": "10"});
    report["hpas"][0]["advice"]["settings"]["scaleUpRates"] = json!("default");
    let mut hpa = hpa("web");
    hpa["spec"]["metrics"] = json!([{"type": "External", "external": {
        "metric": {"name": "queue"}, "target": {"type": "AverageValue", "averageValue": "10"}
    }}]);
    let row = row(&report, &hpa);
    let expected = BRIEF.replace("cpu 60 % → 72 %, ", "") + ", scale-ups at the default rates";
    assert_eq!(row.advice.unwrap().text, expected);
    let all = advice(&report);
    let settings = Settings::new(&decoded(&hpa).spec);
    let web = &all[&("shop".to_owned(), "web".to_owned())];
    let fields = web.fields("Deployment/web", settings, 0);
    let fields: Vec<_> = fields.iter().map(|(name, value)| format!("{name}={value}")).collect();
    assert_eq!(
        fields.join(" "),
        "min=3 downWindow=60 upWindow=0 upSelect=Max upPolicies=Pods:4:15,Percent:100:15"
    );
    let rows = web.shown("Deployment/web", settings, String::new()).rows;
    assert!(rows.contains(&["rates of scale-ups".to_owned(), "its own".to_owned(), "default".to_owned()]));
}

#[test]
fn page_has_the_settings_the_replays_and_what_to_look_at() {
    let (web, all) = (hpa("web"), advice(&report()));
    let settings = Settings::new(&decoded(&web).spec);
    let shown =
        all[&("shop".to_owned(), "web".to_owned())].shown("Deployment/web", settings, "do it".to_owned());
    assert_eq!(
        shown.sentence,
        "Saves 40.6 pod-hours a week (predicted 42). Sureness: high. After the change, look at the latency. With a \
         floor from earlier days and a target of 75 %, it saves 20 %."
    );
    let rows: Vec<_> = shown.rows.iter().map(|row| row.each_ref().map(String::as_str)).collect();
    assert_eq!(
        rows,
        [
            ["cpu", "60 %", "72 %"],
            ["minReplicas", "6", "3"],
            ["maxReplicas", "9", "9"],
            ["window", "300 s", "60 s"],
            ["pod-hours a week, predicted", "300", "258"],
            ["pod-hours a week, judged", "310", "269.4"],
            ["unserved load", "< 0.01 %", "< 0.01 %"],
            ["minutes a week above 80 % of capacity", "0.5", "0.5"],
            ["rescales a week", "12", "12"],
        ]
    );
    let refused =
        all[&("shop".to_owned(), "queue".to_owned())].shown("Deployment/queue", settings, String::new());
    assert_eq!((refused.sentence.as_str(), refused.rows.len()), ("No advice: Prometheus has no usage.", 0));
    let stale = all[&("shop".to_owned(), "web".to_owned())].shown("Deployment/api", settings, String::new());
    assert_eq!(stale.sentence, "The HPA has changed since: run concertina advise again.");
    assert_eq!(stale.rows, Vec::<[String; 3]>::new());
}

#[test]
fn advice_marks_the_rows_that_it_changes() {
    let store = Store::new(Arc::new(SystemClock));
    for name in ["other", "queue", "web"] {
        store.put(&decoded(&hpa(name)));
    }
    let names = |version| {
        let changes = store.since(Some(version));
        (changes.rows.iter().map(|row| row.name.clone()).collect::<Vec<_>>().join(" "), changes.version)
    };
    let version = store.since(None).version;
    store.advised(advice(&report()));
    let (changed, version) = names(version);
    // The reason for the refusal is on the page of its HPA, which the page reads again.
    assert_eq!(changed, "queue web");
    store.advised(advice(&report()));
    assert_eq!(names(version).0, "", "an equal advice is no change");
    store.advised(AllAdvice::default());
    assert_eq!(names(version).0, "queue web");
    assert_eq!(store.since(None).rows.iter().filter(|row| row.advice.is_some()).count(), 0);
}
