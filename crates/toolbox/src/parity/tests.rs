use std::collections::BTreeMap;
use std::time::Duration;

use autoscaling::settings::Settings;
use jiff::Timestamp;
use serde_json::{Value, json};

use super::summary::{Answer, Summary};
use super::{page, text};
use crate::explain::{Style, Zone};
use controller::record::wire::ControllerInfo;
use controller::shadow::wire::ShadowReport;

const DAY: Duration = Duration::from_hours(24);

fn change(at: &str, name: &str, result: &str, builtin: &Value, ours: Option<i32>, sentence: &str) -> Value {
    json!({
        "at": format!("2030-01-02T{at}Z"), "namespace": "shop", "name": name, "uid": "u", "result": result,
        "builtin": builtin,
        "ours": {"at": format!("2030-01-02T{at}Z"), "from": 4, "to": ours, "sentence": sentence},
        "said": {"metrics": ["queue 13750m"], "conditions": [
            "AbleToScale=True SucceededRescale: the HPA controller was able to update the target scale to 6",
            "ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count",
        ]},
    })
}

fn report(changes: &[Value]) -> ShadowReport {
    let mut counts = BTreeMap::<String, serde_json::Map<String, Value>>::new();
    for change in changes {
        let results = counts.entry(change["name"].as_str().unwrap().to_owned()).or_default();
        let result = change["result"].as_str().unwrap();
        let count = results.get(result).and_then(Value::as_u64).unwrap_or(0);
        results.insert(result.to_owned(), json!(count + 1));
    }
    let hours: Vec<Value> = counts
        .into_iter()
        .map(|(name, counts)| {
            json!({"hour": "2030-01-02T11:00:00Z", "namespace": "shop", "name": name, "counts": counts})
        })
        .collect();
    let controller = ControllerInfo {
        version: "0.1.0".to_owned(),
        sync_period: Duration::from_secs(15),
        settings: (&Settings::default()).into(),
    };
    serde_json::from_value(json!({
        "apiVersion": "concertina/v1", "kind": "ShadowReport", "controller": controller,
        "since": "2030-01-01T18:00:00Z", "now": "2030-01-02T12:00:00Z", "hpas": 3,
        "lastSign": "2030-01-02T11:59:50Z", "hours": hours, "changes": changes,
    }))
    .unwrap()
}

fn went(to: i32) -> Value {
    json!({"at": "2030-01-02T11:00:00Z", "from": 4, "to": to})
}

/// Creates a report with two equal changes, one difference of each kind, and one change that was not judged.
fn mixed() -> ShadowReport {
    let mut doubted = change("11:01:00", "api", "unknown", &went(5), None, "no count: nothing can be read");
    doubted["doubt"] = json!("undecided");
    report(&[
        change(
            "11:40:00",
            "web",
            "onlyBuiltin",
            &went(6),
            Some(4),
            "stays at 4: queue <is> within tolerance",
        ),
        change("11:30:00", "web", "onlyOurs", &Value::Null, Some(7), "goes from 4 to 7: queue is above"),
        change("11:20:00", "api", "different", &went(6), Some(5), "goes from 4 to 5: queue is above"),
        change("11:10:00", "web", "same", &went(6), Some(6), "goes from 4 to 6"),
        doubted,
        change("11:00:30", "web", "same", &went(6), Some(6), "goes from 4 to 6"),
    ])
}

fn plain(summary: &Summary) -> String {
    text::render(summary, Style { colours: false, width: None }, &Zone::utc())
}

#[test]
fn report_shows_each_difference_with_both_reasons() {
    let text = plain(&Summary::new(&mixed(), DAY, None));
    let expected = "\
Not the same: of 5 changes in 18 h, 3 differ
2030-01-01 18:00:00Z to 2030-01-02 12:00:00Z, 3 HPAs, Concertina 0.1.0; running for 18 h only

Differences
  11:40:00Z shop/web a change by the built-in controller only
    built-in   4 → 6: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    stays at 4: queue <is> within tolerance
  11:30:00Z shop/web a change by the dry run only
    built-in   changed nothing: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    goes from 4 to 7: queue is above
  11:20:00Z shop/api another count
    built-in   4 → 6: queue 13750m; ScalingLimited=True TooManyReplicas: the desired replica count is more than the maximum replica count
    dry run    goes from 4 to 5: queue is above
  both controllers must run with the same --horizontal-pod-autoscaler-… flags; the dry run has sync-period=15s tolerance=0.1 downscale-stabilization=5m0s cpu-initialization-period=5m0s initial-readiness-delay=30s

Not judged
  1 × the dry run could compute no count

NAMESPACE  HPA  SAME  DIFFERENT  NOT JUDGED
shop       web     2          2           -
shop       api     -          1           1
";
    assert_eq!(text, expected);
}

#[test]
fn report_without_differences_starts_with_the_verdict() {
    let same = change("11:10:00", "web", "same", &went(6), Some(6), "goes from 4 to 6");
    let summary = Summary::new(&report(&[same.clone(), same]), Duration::from_hours(1), None);
    assert_eq!(summary.verdict, Answer::Same);
    let expected = "No differences: the built-in controller made 2 changes in 1 h that can be compared, and Concertina \
                    would have made each of them\n";
    assert!(plain(&summary).starts_with(expected), "{}", plain(&summary));
    assert!(!summary.is_younger);
}

#[test]
fn report_without_changes_is_not_a_pass() {
    let summary = Summary::new(&report(&[]), DAY, None);
    assert_eq!(summary.verdict, Answer::Nothing);
    assert!(plain(&summary).starts_with("Nothing to compare: no replica count changed in 18 h\n"));
    let silent = ShadowReport { last_sign: None, ..report(&[]) };
    assert!(
        Summary::new(&silent, DAY, None).sentence.contains("no write of a built-in controller was observed")
    );
}

#[test]
fn summary_covers_the_time_span_and_the_namespace() {
    let counts = |minutes, namespace| Summary::new(&mixed(), Duration::from_mins(minutes), namespace).counts;
    assert_eq!((counts(45, None).differences(), counts(45, None).same), (3, 0));
    assert_eq!(counts(25, None).only_builtin, 1);
    assert_eq!(counts(24 * 60, Some("other")).total(), 0);
}

#[test]
fn dropped_changes_are_counted_by_hour() {
    let mut report = mixed();
    report.changes.pop();
    let summary = Summary::new(&report, DAY, None);
    assert!(summary.is_by_hours);
    assert_eq!(
        (summary.counts.same, summary.from),
        (2, "2030-01-01T18:00:00Z".parse::<Timestamp>().unwrap())
    );
}

#[test]
fn page_has_no_scripts_and_escapes_its_text() {
    let html = page::render(&Summary::new(&mixed(), DAY, None), &Zone::utc());
    assert!(html.contains("queue &lt;is&gt; within tolerance") && !html.contains("<is>"));
    assert!(html.contains("default-src 'none'") && !html.contains("<script"));
    assert!(html.contains("<h1 class=\"different\">Not the same: of 5 changes in 18 h, 3 differ</h1>"));
}
