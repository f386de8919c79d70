//! Counts, lists and durations as text.

use std::time::Duration;

use autoscaling::duration::GoDuration;

/// Formats a count with its noun: `1 pod`, `2 pods`, and `no pods` for a negative number.
pub(crate) fn counted(number: impl TryInto<u64>, what: &str) -> String {
    match number.try_into() {
        Ok(1) => format!("1 {what}"),
        Ok(number) => format!("{number} {what}s"),
        Err(_) => format!("no {what}s"),
    }
}

/// Formats a list with at most `most` names: `a, b, c and 4 more`.
pub(crate) fn listed(names: &[&str], most: usize) -> String {
    let first = names.get(..most).unwrap_or(names);
    match names.len() - first.len() {
        0 => first.join(", "),
        more => format!("{} and {more} more", first.join(", ")),
    }
}

/// Formats a duration as on a command line: `5m0s`.
pub(crate) fn duration(duration: Duration) -> String {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}
