//! The reasons against an advice, and the findings.

use std::sync::LazyLock;

use super::*;
use crate::advise::findings::{findings, findings_of_objects};
use crate::advise::objects::Objects;
use crate::advise::outcome::Refusal;

/// Four days of a web service. A replay takes seconds in a build for debugging.
static RECORDED: LazyLock<Recording> = LazyLock::new(|| record(PAST, Service::Linear, daily));

/// The reason why a changed past has no load.
fn unknown(change: impl Fn(&mut Recording)) -> String {
    let mut recording = RECORDED.clone();
    change(&mut recording);
    recording.load().unwrap_err().to_string()
}

/// The reason why nothing is advised from a changed past.
fn refused(change: impl Fn(&mut Recording)) -> String {
    let mut recording = RECORDED.clone();
    change(&mut recording);
    let row = row(&hpa(PAST), &recording);
    row.why.unwrap_or_else(|| panic!("{:?}", row.advice))
}

fn set_all(recording: &mut Recording, column: Column, minutes: std::ops::Range<usize>, value: f64) {
    minutes.for_each(|minute| recording.set(column, minute, value));
}

/// A copy without a column.
fn without(recording: &Recording, dropped: &[Column]) -> Recording {
    let mut copy = Recording::new(recording.start, recording.minutes);
    for column in Column::ALL.into_iter().filter(|column| !dropped.contains(column)) {
        recording.known(column, 0).for_each(|(minute, value)| copy.set(column, minute, value));
    }
    copy
}

#[test]
fn unknown_past_has_a_reason() {
    let all = 0..4 * DAY;
    for (expected, found) in [
        (
            "Prometheus has no container_cpu_usage_seconds_total of its pods: scrape cAdvisor",
            unknown(|recording| *recording = without(recording, &[Column::Usage])),
        ),
        (
            "its pods have no cpu requests in kube_pod_container_resource_requests: set them first",
            unknown(|recording| {
                *recording = without(recording, &[Column::LowestRequest, Column::HighestRequest]);
            }),
        ),
        (
            "2 days of its load are known: three are needed",
            unknown(|recording| {
                let usage: Vec<_> = recording.known(Column::Usage, 2 * DAY).collect();
                *recording = without(recording, &[Column::Usage]);
                for (minute, value) in usage {
                    recording.set(Column::Usage, minute, value);
                }
            }),
        ),
        (
            "Prometheus has no values of its metric after 2026-11-04T23:59:00Z: repair the scrape",
            unknown(|recording| {
                let usage: Vec<_> = recording.known(Column::Usage, 0).take(3 * DAY - 2).collect();
                *recording = without(recording, &[Column::Usage]);
                for (minute, value) in usage {
                    recording.set(Column::Usage, minute + 2, value);
                }
                set_all(recording, Column::HighestRequest, 4 * DAY - 1..4 * DAY, 0.5);
            }),
        ),
        (
            "its target was created at 2026-11-04T00:00:00Z: ask again three days after it",
            unknown(|recording| recording.set(Column::Age, 3 * DAY, DAY as f64 * 60.0)),
        ),
        (
            "a rollout ended at 2026-11-04T00:00:00Z: ask again three days after it",
            unknown(|recording| set_all(recording, Column::ReplicaSets, 2870..2881, 2.0)),
        ),
        (
            "its cpu requests changed at 2026-11-03T23:59:00Z: ask again three days after it",
            unknown(|recording| set_all(recording, Column::LowestRequest, 0..2880, 0.25)),
        ),
    ] {
        assert_eq!(found, expected);
    }
    let found = refused(|recording| set_all(recording, Column::Replicas, all.clone(), 40.0));
    assert!(found.starts_with("a replay of today's settings costs "), "{found}");
    assert!(found.ends_with(" were recorded: something else scales it, or its settings changed"), "{found}");
    let found = refused(|recording| set_all(recording, Column::Target, all.clone(), 70.0));
    assert_eq!(found, "its settings changed in the last minutes: ask again three days after it");
}

#[test]
fn settings_without_better_ones_are_right() {
    let past = Past { target: 75, min: 1, ..PAST };
    let row = row(&hpa(past), &record(past, Service::Linear, daily));
    let why = row.why.unwrap_or_else(|| panic!("{:?}", row.advice));
    assert!(why.starts_with("the settings are right: "), "{why}");
}

#[test]
fn rollout_before_three_days_starts_the_load() {
    let mut recording = RECORDED.clone();
    set_all(&mut recording, Column::ReplicaSets, 0..5, 2.0);
    let load = recording.load().unwrap();
    assert_eq!((load.from, load.series.loads.len()), (5, 4 * DAY - 5));
    assert_eq!(load.series.start, recording.time(5));
}

/// A counter that jumps, values that are no numbers, and a day without values.
#[test]
fn bad_values_hardly_change_the_load() {
    let usual = RECORDED.load().unwrap();
    let mut recording = RECORDED.clone();
    let jump = recording.at(Column::Usage, 3000).unwrap();
    recording.set(Column::Usage, 3000, 1000.0 * jump);
    for value in [f64::NAN, f64::INFINITY, -1.0] {
        recording.set(Column::Usage, 3001, value);
    }
    let load = recording.load().unwrap();
    let pods = recording.at(Column::Ready, 3000).unwrap();
    assert_eq!(load.capacity, usual.capacity);
    assert_eq!(load.series.loads[3000], Some(1.5 * pods));
    assert_eq!(load.series.loads[3001], usual.series.loads[3001]);
    let mut gap = without(&recording, &[Column::Usage]);
    for (minute, value) in RECORDED.known(Column::Usage, 0) {
        if !(2 * DAY..3 * DAY - 5).contains(&minute) {
            gap.set(Column::Usage, minute, value);
        }
    }
    let load = gap.load().unwrap();
    assert!((load.days() - 3.0).abs() < 0.01, "{}", load.days());
    // Seven tenths of the known minutes.
    assert_eq!(load.minute_of(0.7), 3 * DAY + 143);
}

#[test]
fn workload_without_load_is_refused() {
    let found = refused(|recording| set_all(recording, Column::Usage, 0..4 * DAY, 0.0));
    assert!(found.starts_with("a replay of today's settings costs "), "{found}");
}

#[test]
fn unsuitable_metrics_have_a_reason() {
    let with = |metrics: Value| {
        let mut hpa = hpa(PAST);
        hpa["spec"]["metrics"] = metrics;
        let found = Hpa::new(&hpa);
        found.today.unwrap_err().to_string()
    };
    let only = "only targets of cpu and of queries of KEDA can be replayed, and this HPA scales on ";
    let cpu = json!({"type": "Resource", "resource": {"name": "cpu", "target": {"type": "Utilization", "averageUtilization": 0}}});
    let jobs = json!({"type": "External", "external": {
        "metric": {"name": "jobs"}, "target": {"type": "AverageValue", "averageValue": "10"}}});
    assert_eq!(with(json!([])), format!("{only}no metric"));
    assert!(with(json!([jobs])).starts_with(only));
    assert_eq!(
        with(json!([cpu])),
        "the HPA cannot be replayed: its target is 0 %, and its replicas are 2 to 50"
    );
    let mut named = hpa(PAST);
    named["spec"]["scaleTargetRef"]["name"] = json!("web\"} or vector(1)");
    assert!(matches!(Hpa::new(&named).today, Err(Refusal::Invalid { .. })));
}

/// HPAs of files with a VerticalPodAutoscaler of their target, without namespaces.
fn shared(metrics: &[&str], policies: &Value) -> Hpa {
    let folder = Folder::new("vpa");
    let file = folder.0.join("objects.yaml");
    let mut hpa = hpa(PAST);
    let metric = |name: &&str| {
        json!({"type": "Resource", "resource": {
            "name": name, "target": {"type": "Utilization", "averageUtilization": 60}}})
    };
    hpa["spec"]["metrics"] = metrics.iter().map(metric).collect();
    let mut vpa = vpa("all", json!({"resourcePolicy": {"containerPolicies": policies}}));
    for object in [&mut hpa, &mut vpa] {
        object["metadata"]["namespace"].take();
    }
    std::fs::write(&file, json!({"items": [hpa, vpa]}).to_string()).unwrap();
    Objects::read_files(&[file], None).unwrap().hpas.remove(0)
}

#[test]
fn resources_that_a_vertical_autoscaler_shares_are_found() {
    let memory = json!({"containerName": "*", "controlledResources": ["memory"]});
    for (metrics, policies, resources, is_refused) in [
        (&["cpu"][..], json!([]), "cpu", true),
        (&["cpu", "memory"], json!([]), "cpu and memory", true),
        (&["cpu", "memory"], json!([memory]), "memory", false),
        (&["cpu"], json!([memory]), "", false),
        (&["cpu"], json!([{"containerName": "*", "mode": "Off"}]), "", false),
        // The other containers have no policy.
        (&["cpu"], json!([{"containerName": "proxy", "mode": "Off"}]), "cpu", true),
    ] {
        let hpa = shared(metrics, &policies);
        let is_vpa = matches!(hpa.today, Err(Refusal::Vpa { .. }));
        assert_eq!(is_vpa, is_refused, "{metrics:?} {policies}");
        let found = findings_of_objects(&hpa).first().map(ToString::to_string).unwrap_or_default();
        let expected = format!(
            "scales on {resources}, whose requests VerticalPodAutoscaler all changes: let only one of them control \
             {resources}"
        );
        assert_eq!(
            found,
            if resources.is_empty() { String::new() } else { expected },
            "{metrics:?} {policies}"
        );
    }
}

#[test]
fn findings_state_what_was_seen() {
    let mut recording = RECORDED.clone();
    let found = |recording: &Recording, memory| {
        let load = recording.load().ok();
        let found = findings(&Hpa { memory, ..Hpa::new(&hpa(PAST)) }, recording, load.as_ref());
        found.iter().map(ToString::to_string).collect::<Vec<_>>()
    };
    // Peaks of ten minutes each half hour.
    let mut hourly = recording.clone();
    for minute in 0..4 * DAY {
        hourly.set(Column::Usage, minute, if minute % 30 < 10 { 2.0 } else { 0.5 });
    }
    let mut long = hpa(PAST);
    long["spec"]["behavior"] = json!({"scaleDown": {"stabilizationWindowSeconds": 2400}});
    let load = hourly.load().unwrap();
    let found_long = findings(&Hpa::new(&long), &hourly, Some(&load));
    let expected = "its window of scale-downs keeps the pods of each peak for 2400 seconds, and its load is 25 % of \
                    the highest of a window in the median: shorten it";
    assert_eq!(found_long[1].to_string(), expected);
    assert!(!found(&hourly, None).contains(&expected.to_owned()));
    let never = "never below 6 replicas: minReplicas has no effect";
    assert_eq!(found(&recording, None), [never]);
    set_all(&mut recording, Column::Memory, 0..4 * DAY, 0.68);
    set_all(&mut recording, Column::Replicas, 0..2 * DAY, 50.0);
    for minute in (2 * DAY..3 * DAY).step_by(10) {
        recording.set(Column::Replicas, minute, 49.0);
    }
    for column in [Column::LowestRequest, Column::HighestRequest] {
        set_all(&mut recording, column, 0..4 * DAY, 5.0);
    }
    let all = found(&recording, Some(0.7));
    let starts = [
        "at maxReplicas for 2 days: raise it, or the requests",
        "never below ",
        "changes direction within ten minutes ",
        "memory never fell below 68 % of its requests with a target of 70 %: it prevents every scale-down",
        "its pods use 4.8 % of their cpu requests in the median: correct the requests",
    ];
    assert_eq!(all.len(), starts.len(), "{all:?}");
    for (found, start) in all.iter().zip(starts) {
        assert!(found.starts_with(start), "{found:?} {start:?}");
    }
}
