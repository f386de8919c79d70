use super::super::sample;
use super::*;

fn plain(width: usize) -> ChartStyle {
    ChartStyle { width, ascii: false, color: false }
}

#[test]
fn a_day_is_readable_in_eighty_columns() {
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
fn an_outage_is_drawn_and_its_warnings_are_one_line() {
    let chart = render(&sample::outage(), &plain(100));
    assert!(chart.contains("━━━ resource metrics API is down") && chart.contains('◆'), "{chart}");
    assert_eq!(chart.matches("FailedGetResourceMetric").count(), 1, "{chart}");
}

#[test]
fn ascii_is_all_that_is_left_where_nothing_else_is_known() {
    let chart = render(&sample::outage(), &ChartStyle { width: 80, ascii: true, color: false });
    assert!(chart.is_ascii(), "{chart}");
}

#[test]
fn colours_only_where_they_are_wanted_and_no_other_escapes_ever() {
    let chart = render(&sample::many(5), &ChartStyle { width: 80, ascii: false, color: true });
    let without = chart.replace("\u{1b}[", "");
    assert!(!without.contains('\u{1b}'), "{without}");
    let stripped = ["0", "1", "2", "31", "32", "33", "34"]
        .iter()
        .fold(chart, |chart, code| chart.replace(&format!("\u{1b}[{code}m"), ""));
    assert_eq!(stripped, render(&sample::many(5), &plain(80)));
}

#[test]
fn variants_have_their_replicas_below_each_other() {
    let chart = render(&sample::variants(), &plain(80));
    assert_eq!(chart.matches("█ ready").count(), 3);
    assert_eq!(chart.matches("cpu in %").count(), 1);
}

#[test]
fn nothing_is_drawn_of_nothing() {
    assert_eq!(render(&Comparison::default(), &plain(80)), "");
    let mut empty = sample::day();
    empty.runs[0].hpas[0].samples.clear();
    empty.runs[0].hpas[0].metrics[0].values.clear();
    assert!(render(&empty, &plain(20)).contains("replicas"));
}
