//! Texts of counts, lists and durations.

use std::time::Duration;

use autoscaling::duration::GoDuration;
pub(crate) use findings::{counted, listed};

/// Formats a duration as on a command line: `5m0s`.
pub(crate) fn duration(duration: Duration) -> String {
    GoDuration(i64::try_from(duration.as_nanos()).unwrap_or(i64::MAX)).to_string()
}
