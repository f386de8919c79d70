//! Tests of the scores, and of the reports and exports with sample runs.

use std::time::Duration;

use autoscaling::explanation::Subject;
use serde_json::Value;

use super::chart::{self, ChartStyle};
use super::export::{COLUMNS, csv, json, yaml};
use super::run::{Comparison, MetricSeries, Sample};
use super::scoring::{Unserved, scores};
use super::{page, sample};

#[test]
fn csv_has_a_row_per_sample_with_the_documented_columns() {
    let csv = csv(&sample::day());
    let lines: Vec<_> = csv.lines().collect();
    assert_eq!(lines.len(), 5761);
    assert_eq!(lines[0], format!("{},metric:cpu (%)", COLUMNS.join(",")));
    assert!(lines[1].starts_with(",shop,web,2030-01-07T00:00:00Z,0,"), "{}", lines[1]);
    let rescales = csv.lines().filter(|line| line.contains("goes from")).count();
    assert_eq!(rescales, 70);
}

#[test]
fn yaml_has_the_values_of_json() {
    let comparison = sample::outage();
    // YAML includes JSON. The YAML parser reads both texts, because serde_json rounds the last digit of some numbers.
    let [from_yaml, from_json] = [yaml(&comparison), json(&comparison)].map(|text| {
        // The run of a day exceeds the default limit of nodes.
        let mut options = serde_saphyr::Options::default();
        options.budget = None;
        serde_saphyr::from_str_with_options::<Value>(&text, options).unwrap()
    });
    assert_eq!(from_yaml["runs"][0]["start"], from_json["runs"][0]["start"]);
    assert_eq!(from_yaml["runs"][0]["hpas"][0]["decisions"], from_json["runs"][0]["hpas"][0]["decisions"]);
}

#[test]
fn json_has_all_values_under_stable_names() {
    let comparison = sample::outage();
    let value: Value = serde_json::from_str(&json(&comparison)).unwrap();
    let run = &value["runs"][0];
    let hpa = &run["hpas"][0];
    let head = ["apiVersion", "kind", "version"].map(|name| value[name].to_string());
    assert_eq!(head, ["\"concertina/v1\"", "\"Simulation\"", "1"]);
    assert_eq!(run["start"], "2030-01-07T00:00:00Z");
    assert_eq!(hpa["samples"].as_array().unwrap().len(), comparison.runs[0].hpas[0].samples.len());
    assert_eq!(
        hpa["metrics"][0]["values"].as_array().unwrap().len(),
        hpa["samples"].as_array().unwrap().len()
    );
    assert_eq!(hpa["decisions"][0]["explanation"]["metrics"][0]["valid"]["subject"]["name"], "cpu");
    assert_eq!(run["happenings"][0]["fromSeconds"], 39_600);
    let names = |value: &Value| value.as_object().unwrap().keys().cloned().collect::<Vec<_>>().join(" ");
    assert_eq!(
        names(&hpa["scores"]),
        "aboveTargetSeconds directionChanges longestReactionSeconds peak podHours rescales unserved unservedFraction"
    );
    assert_eq!(
        names(&hpa["samples"][0]),
        "capacity demand max min proposal queued rateAllows ready running seconds stabilized wanted withheld"
    );
}

fn plain(width: usize) -> ChartStyle {
    ChartStyle { width, ascii: false, color: false, wraps: true }
}

#[test]
fn chart_of_a_day_fits_80_columns() {
    let chart = chart::render(&sample::day(), &plain(80));
    assert!(
        chart
            .lines()
            .take_while(|line| !line.contains("above tolerance"))
            .all(|line| line.chars().count() <= 80)
    );
    for part in [
        "A shop on a business day",
        "replicas",
        "cpu in %",
        "target 60 %",
        "00:00",
        "largest of 70 rescales",
        "pod-hours",
    ] {
        assert!(chart.contains(part), "{part}\n{chart}");
    }
    assert!(!chart.contains('\u{1b}'));
}

#[test]
fn chart_shows_an_outage_and_groups_its_warnings() {
    let chart = chart::render(&sample::outage(), &plain(100));
    assert!(chart.contains("━━━ resource metrics API is down") && chart.contains('◆'), "{chart}");
    assert_eq!(chart.matches("FailedGetResourceMetric").count(), 1, "{chart}");
}

#[test]
fn messages_are_wrapped_on_a_terminal_and_whole_in_a_pipe() {
    let mut comparison = sample::outage();
    let note = "a note of many words, which is much longer than the terminal is wide ".repeat(3);
    comparison.notes.insert("topic".to_owned(), format!("{note}\nand a second line"));
    let error =
        "failed to get cpu utilization: unable to fetch metrics from the resource metrics API ".repeat(2);
    for event in &mut comparison.runs[0].hpas[0].events {
        error.clone_into(&mut event.message);
    }
    for width in [30, 80] {
        let wrapped = chart::render(&comparison, &plain(width));
        let words = wrapped.split_whitespace().collect::<Vec<_>>().join(" ");
        for message in [&*note, &*error, "topic: and a second line"] {
            assert!(words.contains(message.trim()), "{wrapped}");
        }
        let mut notes = wrapped.lines().skip_while(|line| !line.starts_with("topic: "));
        assert!(notes.all(|line| line.chars().count() <= width), "{wrapped}");
    }
    let whole = chart::render(&comparison, &ChartStyle { wraps: false, ..plain(80) });
    assert!(whole.contains(note.trim()) && whole.contains(error.trim()), "{whole}");
}

#[test]
fn chart_is_ascii_when_the_style_is_ascii() {
    let chart = chart::render(&sample::outage(), &ChartStyle { ascii: true, ..plain(80) });
    assert!(chart.is_ascii(), "{chart}");
}

#[test]
fn chart_has_only_colour_escapes_and_only_in_colour() {
    let chart = chart::render(&sample::many(5), &ChartStyle { color: true, ..plain(80) });
    let without = chart.replace("\u{1b}[", "");
    assert!(!without.contains('\u{1b}'), "{without}");
    let stripped = ["0", "1", "2", "31", "32", "33", "34"]
        .iter()
        .fold(chart, |chart, code| chart.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(stripped, chart::render(&sample::many(5), &plain(80)));
}

#[test]
fn chart_shows_replicas_of_every_variant() {
    let chart = chart::render(&sample::variants(), &plain(80));
    assert_eq!(chart.matches("█ ready").count(), 3);
    assert_eq!(chart.matches("cpu in %").count(), 1);
}

#[test]
fn chart_is_empty_when_there_is_no_run() {
    assert_eq!(chart::render(&Comparison::default(), &plain(80)), "");
    let mut empty = sample::day();
    empty.runs[0].hpas[0].samples.clear();
    empty.runs[0].hpas[0].metrics[0].values.clear();
    assert!(chart::render(&empty, &plain(20)).contains("replicas"));
}

#[test]
fn page_of_a_day_is_smaller_than_a_megabyte() {
    let page = page::render(&sample::day());
    assert!(page.len() < 1_000_000, "{}", page.len());
}

#[test]
fn page_omits_steps_when_a_day_has_too_many_decisions() {
    let mut comparison = sample::day();
    let hpa = &mut comparison.runs[0].hpas[0];
    let points: Vec<_> = hpa.decisions.iter().cycle().take(5760).cloned().collect();
    hpa.decisions = points;
    for (seconds, point) in (0..).step_by(15).zip(&mut hpa.decisions) {
        point.at = Duration::from_secs(seconds);
    }
    let page = page::render(&comparison);
    assert!(page.len() < 1_000_000, "{}", page.len());
    assert!(page.contains("decisions without effect show only their sentence"));
}

#[test]
fn page_has_the_same_bytes_for_the_same_comparison() {
    assert_eq!(page::render(&sample::variants()), page::render(&sample::variants()));
    assert!(page::render(&Comparison::default()).contains("</html>"));
}

#[test]
fn page_has_no_content_that_its_policy_forbids() {
    let page = page::render(&sample::outage());
    assert!(!page.contains(" style=") && !page.contains("unsafe-inline"));
    let inline = page.matches("<script").count();
    assert_eq!((inline, page.matches("<style>").count()), (2, 1));
    let attributes = ["onclick=", "onerror=", "javascript:", "src=", "@import", "http-equiv=\"refresh\""];
    for attribute in attributes {
        assert!(!page.contains(attribute), "{attribute}");
    }
}

#[test]
fn page_escapes_markup_in_names() {
    let page = page::render(&sample::many(5));
    assert!(!page.contains("<script>alert") && !page.contains("<img") && !page.contains('\u{1b}'));
    assert!(page.contains("shop/&lt;script&gt;alert(1)&lt;/script&gt;"));
    assert!(page.contains("a&amp;b"));
    // The data must not contain the end tag of its element.
    let data = page.split("id=\"data\">").nth(1).unwrap();
    let data = data.split("</script>").next().unwrap();
    assert!(serde_json::from_str::<Value>(data).is_ok());
}

#[test]
fn page_limits_charts_when_there_are_many_hpas() {
    let page = page::render(&sample::many(30));
    assert_eq!(page.matches("class=\"course\"").count(), 12);
    assert!(
        page.contains("Charts are limited to the first 12 HPAs; 18 more are only in the table of scores.")
    );
}

const fn secs(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

const NOTHING: Unserved = Unserved::Lost { units: 0.0, arrived: 0.0 };

/// Returns samples at intervals of 10 s, from pairs of running pods and queue length.
fn samples(points: &[(i32, f64)]) -> Vec<Sample> {
    let sample = |(index, (running, queued)): (usize, &(i32, f64))| Sample {
        at: secs(10 * index as u64),
        wanted: *running,
        running: *running,
        ready: *running,
        demand: 0.0,
        capacity: 0.0,
        queued: *queued,
        min: 1,
        max: 10,
        proposal: None,
        stabilized: None,
        rate_allows: None,
        withheld: None,
        forecast: None,
    };
    points.iter().enumerate().map(sample).collect()
}

fn metric(values: &[Option<f64>]) -> MetricSeries {
    MetricSeries {
        subject: Subject::default(),
        unit: "%",
        target: 50.0,
        tolerated_from: 45.0,
        tolerated_to: 55.0,
        values: values.to_vec(),
    }
}

#[test]
fn scores_count_each_sample_until_the_next_or_the_end() {
    let scores = scores(&samples(&[(2, 0.0), (4, 0.0), (3, 0.0)]), &[], &[], secs(26), NOTHING);
    assert_eq!(scores.pod_hours, (20.0 + 40.0 + 18.0) / 3_600.0);
    assert_eq!(scores.peak, 4);
}

#[test]
fn scores_count_queued_items_as_unserved() {
    let samples = samples(&[(1, 0.0), (1, 30.0), (1, 60.0), (1, 40.0)]);
    let scores = scores(&samples, &[], &[], secs(30), Unserved::Waits);
    assert_eq!((scores.unserved, scores.unserved_fraction), (900.0, 0.0));
}

#[test]
fn scores_take_any_metric_for_time_above_and_one_for_reaction() {
    let samples = samples(&[(1, 0.0); 7]);
    let one = metric(&[None, Some(60.0), None, Some(56.0), Some(55.0), Some(50.0), Some(70.0)]);
    let other = metric(&[Some(80.0), Some(50.0), Some(0.0), Some(0.0), Some(0.0), Some(80.0), Some(0.0)]);
    let scores = scores(&samples, &[one, other], &[], secs(60), NOTHING);
    assert_eq!(scores.above_target, secs(50), "0 to 40 and 50 to 60; the last sample has no length");
    assert_eq!(scores.longest_reaction, secs(30), "a missing value repeats the previous state");
}

#[test]
fn scores_count_direction_changes_of_rescales() {
    let rescales = [(secs(0), 2, 4), (secs(1), 4, 8), (secs(2), 8, 6), (secs(3), 6, 5), (secs(4), 5, 7)];
    let scores = scores(&[], &[], &rescales, secs(60), NOTHING);
    assert_eq!((scores.rescales, scores.direction_changes), (5, 2));
}

#[test]
fn scores_take_lost_units_as_a_fraction_of_arrived_units() {
    let scores_of = |unserved| scores(&[], &[], &[], secs(10), unserved);
    let scores = scores_of(Unserved::Lost { units: 200.0, arrived: 1_000.0 });
    assert_eq!((scores.unserved, scores.unserved_fraction), (200.0, 0.2));
    assert_eq!(scores_of(NOTHING).unserved_fraction, 0.0);
}
