//! Formats words and numbers for readers.

use std::time::Duration;

use autoscaling::explanation::Span;

use super::run::Run;

/// Formats a number with about four significant digits and without trailing zeros: `0.0725`, `3.142`, `1234`.
pub(super) fn number(value: f64) -> String {
    let magnitude = value.abs();
    if !value.is_finite() {
        return "?".to_owned();
    }
    let places = match magnitude {
        0.0..1e-6 => 0,
        _ if magnitude < 0.01 => 6,
        _ if magnitude < 1.0 => 4,
        _ if magnitude < 10.0 => 3,
        _ if magnitude < 100.0 => 2,
        _ if magnitude < 1000.0 => 1,
        _ => 0,
    };
    let text = format!("{value:.places$}");
    let text = if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.') } else { &text };
    if text == "-0" { "0".to_owned() } else { text.to_owned() }
}

/// Formats a number in few characters. Numbers of at least ten thousand have the suffix `k`, `M` or `G`.
pub(super) fn short(value: f64) -> String {
    match value.abs() {
        magnitude if magnitude >= 1e10 => format!("{}G", number(value / 1e9)),
        magnitude if magnitude >= 1e7 => format!("{}M", number(value / 1e6)),
        magnitude if magnitude >= 1e4 => format!("{}k", number(value / 1e3)),
        _ => number(value),
    }
}

/// Formats a fraction as a percentage. The result for a value other than 0 is never `0 %`.
pub(super) fn percent(fraction: f64) -> String {
    let percent = fraction * 100.0;
    match percent.abs() {
        magnitude if magnitude > 0.0 && magnitude < 0.01 => "< 0.01 %".to_owned(),
        magnitude if magnitude < 1.0 => format!("{} %", number((percent * 100.0).round() / 100.0)),
        _ => format!("{} %", number((percent * 10.0).round() / 10.0)),
    }
}

/// Formats a duration in whole seconds: `2 min 10 s`.
pub(super) fn span(length: Duration) -> String {
    Span::seconds(i64::try_from(length.as_secs()).unwrap_or(i64::MAX)).to_string()
}

/// The parameters of a run, for the heading of a report.
pub(super) fn facts(run: &Run) -> [String; 3] {
    [
        format!("{} from {} UTC", span(run.duration), run.start.strftime("%Y-%m-%d %H:%M")),
        format!("a sync every {}", span(run.period)),
        format!("seed {}", run.seed),
    ]
}

/// The UTC time of day at `after` from the start of a run: `09:31:15`. For a run of more than one day, the time has a
/// date.
pub(super) fn time_of_day(run: &Run, after: Duration) -> String {
    let Ok(at) = run.start.checked_add(after) else { return format!("+{}", span(after)) };
    let is_long = run.duration > Duration::from_hours(24);
    at.strftime(if is_long { "%Y-%m-%d %H:%M:%S" } else { "%H:%M:%S" }).to_string()
}

/// The sentence of a decision without the prefix `goes from 2 to 4: `, for texts that already contain both counts.
pub(super) fn reason(sentence: &str) -> &str {
    match sentence.split_once(": ") {
        Some((verdict, reason)) if verdict.starts_with("goes from ") => reason,
        _ => sentence,
    }
}

/// Formats a count with its noun: `1 pod`, `2 pods`.
pub(super) fn counted(count: u64, one: &str, many: &str) -> String {
    if count == 1 { format!("1 {one}") } else { format!("{count} {many}") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn number_keeps_four_significant_digits() {
        let texts = [0.0, 0.072_514, 3.234_56, 12.5, 80.0, 123.456, 54_321.9, -0.000_000_1].map(number);
        assert_eq!(texts, ["0", "0.0725", "3.235", "12.5", "80", "123.5", "54322", "0"]);
        assert_eq!([9_999.0, 12_000.0, 2.5e7, 3e10].map(short), ["9999", "12k", "25M", "30G"]);
        assert_eq!([0.0, 0.000_01, 0.001_234, 0.25].map(percent), ["0 %", "< 0.01 %", "0.12 %", "25 %"]);
    }
}
