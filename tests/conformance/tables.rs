//! Checks of the tables: quantities, selectors, label selectors, durations, event correlation.

use std::path::Path;

use autoscaling::duration::GoDuration;
use autoscaling::event::{EventIntent, EventKind};
use cluster::events::{Correlated, Correlator, EventTarget, Verdict};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::rows::{self, Comparison};

/// Checks one table and returns the number of its rows. Panics if the table is empty or unknown.
pub(crate) fn check(file: &Path, rows: &[Value], differences: &mut Vec<String>) -> usize {
    assert!(!rows.is_empty(), "{} is empty", file.display());
    let name = file.file_name().unwrap().to_string_lossy();
    let table = name.strip_suffix(".jsonl.gz").unwrap();
    let row_check: fn(&Value) -> Vec<Comparison> = match table {
        "quantities" => rows::quantity,
        "selectors" => rows::selector,
        "label-selectors" => rows::label_selector,
        "durations" => duration,
        "event-correlation" => correlation,
        other => panic!("{}: unknown table {other}", file.display()),
    };
    for row in rows {
        for (part, expected, got) in row_check(row) {
            if expected != got {
                differences
                    .push(format!("{table}: {part} of {row}\n    expected {expected}\n    got      {got}"));
            }
        }
    }
    rows.len()
}

fn duration(row: &Value) -> Vec<Comparison> {
    let expected = json!([row["nanos"], row["printed"], row["error"]]);
    let got = match row["text"].as_str().unwrap().parse::<GoDuration>() {
        Ok(duration) => json!([duration.0, duration.to_string(), null]),
        Err(error) => json!([null, null, error.to_string()]),
    };
    vec![("duration", expected, got)]
}

/// Checks a sequence of events on one correlator.
fn correlation(row: &Value) -> Vec<Comparison> {
    let mut correlator = Correlator::default();
    let start: Timestamp = "2000-01-01T00:00:00Z".parse().unwrap();
    let steps = row["steps"].as_array().unwrap().iter();
    let compared = steps.filter_map(|step| {
        let now = start + SignedDuration::from_secs(step["at"].as_i64().unwrap());
        let object = step["object"].as_str().unwrap();
        let target = EventTarget {
            namespace: "shop".into(),
            name: object.into(),
            uid: object.into(),
            resource_version: "1".into(),
        };
        let intent = EventIntent {
            kind: if step["type"] == "Normal" { EventKind::Normal } else { EventKind::Warning },
            reason: reason(step["reason"].as_str().unwrap()),
            message: step["message"].as_str().unwrap().to_owned(),
        };
        let outcome = |verb: &str, event: &Correlated| {
            let first = event.first.duration_since(start).as_secs();
            json!({ "count": event.count, "firstSeconds": first, "message": event.message, "verb": verb })
        };
        let got = match correlator.correlate(&target, &intent, now, || "name".to_owned()) {
            Verdict::Drop => json!({ "verb": "none" }),
            Verdict::Create(event) => outcome("POST", &event),
            Verdict::Update(event) => outcome("PATCH", &event),
        };
        let expected = &step["expect"];
        if expected["any"] == true {
            return None;
        }
        let expected = if expected["verb"] == "none" { json!({ "verb": "none" }) } else { expected.clone() };
        Some(("step", expected, got))
    });
    compared.collect()
}

/// Leaks the text, since reasons are constants in the controller.
fn reason(text: &str) -> &'static str {
    Box::leak(text.to_owned().into_boxed_str())
}
