use super::super::sample;
use super::*;

fn plain(width: usize) -> ChartStyle {
    ChartStyle { width, ascii: false, color: false }
}

#[test]
fn chart_of_a_day_fits_80_columns() {
    let chart = render(&sample::day(), &plain(80));
    assert!(
        chart
            .lines()
            .take_while(|line| !line.contains("above target"))
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
    let chart = render(&sample::outage(), &plain(100));
    assert!(chart.contains("━━━ resource metrics API is down") && chart.contains('◆'), "{chart}");
    assert_eq!(chart.matches("FailedGetResourceMetric").count(), 1, "{chart}");
}

#[test]
fn chart_is_ascii_when_the_style_is_ascii() {
    let chart = render(&sample::outage(), &ChartStyle { width: 80, ascii: true, color: false });
    assert!(chart.is_ascii(), "{chart}");
}

#[test]
fn chart_has_only_colour_escapes_and_only_in_colour() {
    let chart = render(&sample::many(5), &ChartStyle { width: 80, ascii: false, color: true });
    let without = chart.replace("\u{1b}[", "");
    assert!(!without.contains('\u{1b}'), "{without}");
    let stripped = ["0", "1", "2", "31", "32", "33", "34"]
        .iter()
        .fold(chart, |chart, code| chart.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(stripped, render(&sample::many(5), &plain(80)));
}

#[test]
fn chart_shows_replicas_of_every_variant() {
    let chart = render(&sample::variants(), &plain(80));
    assert_eq!(chart.matches("█ ready").count(), 3);
    assert_eq!(chart.matches("cpu in %").count(), 1);
}

#[test]
fn chart_is_empty_when_there_is_no_run() {
    assert_eq!(render(&Comparison::default(), &plain(80)), "");
    let mut empty = sample::day();
    empty.runs[0].hpas[0].samples.clear();
    empty.runs[0].hpas[0].metrics[0].values.clear();
    assert!(render(&empty, &plain(20)).contains("replicas"));
}
