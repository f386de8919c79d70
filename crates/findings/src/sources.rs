//! Findings about the sources that a scaling policy names.

use policies::steps::{NO_SOURCES, SourceReading};

use crate::{Facts, Finding, FindingId};

/// Age above which a number is reported as stale, in seconds. By default, sources are read at least once a minute.
const STALE_SECONDS: f64 = 60.0;
/// The reason of a source that the metric may not use.
const NOT_ALLOWED: &str = "NotAllowed";
/// The reason of a number that is older than `maxAgeSeconds`.
const TOO_OLD: &str = "TooOld";

/// Whether a source failed for a metric. Such a failure has a finding in this module.
pub(crate) fn is_failed(facts: &Facts<'_>, metric: &str) -> bool {
    let failed = |reading: &SourceReading| {
        reading.age_seconds.is_none() && reading.reason.as_deref() != Some(NO_SOURCES)
    };
    facts.sources.iter().any(|reading| reading.metric == metric && failed(reading))
}

/// Finds sources that are absent, failing, incomplete or stale.
pub(crate) fn findings(facts: &Facts<'_>) -> Vec<Finding> {
    facts.sources.iter().filter_map(|reading| finding(facts, reading)).collect()
}

fn finding(facts: &Facts<'_>, reading: &SourceReading) -> Option<Finding> {
    let SourceReading { metric, source, age_seconds, reason, problem, .. } = reading;
    match (age_seconds, reason.as_deref(), problem) {
        (None, Some(NO_SOURCES), _) => Some(absent(facts, reading)),
        (None, Some(NOT_ALLOWED), Some(problem)) => Some(Finding::error(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy: {problem}"),
            "Correct the source in the policy, or ask the operator to add it to the file of --metric-sources, with this \
             namespace.",
        )),
        (None, Some(TOO_OLD), Some(problem)) => Some(Finding::error(
            FindingId::StaleSource,
            format!("{metric} from {source} cannot be used: {problem}"),
            "Check whether the source is slow, or raise maxAgeSeconds of the metric in the policy above its interval.",
        )),
        (None, _, Some(problem)) => Some(Finding::error(
            FindingId::FailedSource,
            format!("{metric} from {source} cannot be read: {problem}"),
            "While it fails, nothing is scaled down, and this metric cannot scale up. The text comes from the source; a \
             fallback of the policy bridges the time.",
        )),
        (Some(_), _, Some(problem)) => Some(Finding::warning(
            FindingId::IncompleteSource,
            format!("{metric} has no value for at least one pod: {problem}"),
            "Such a pod counts with its target for a scale-down, and with 0 for a scale-up. Check its port and page, and \
             whether a NetworkPolicy admits Concertina.",
        )),
        (Some(age), _, None) if *age > STALE_SECONDS => Some(Finding::warning(
            FindingId::StaleSource,
            format!("the oldest number of {metric} from {source} is {age:.0} s old"),
            "The decision uses it as if it were fresh. Shorten intervalSeconds, or set maxAgeSeconds in the policy.",
        )),
        _ => None,
    }
}

/// The finding for a policy with a source, in a process without sources.
fn absent(facts: &Facts<'_>, reading: &SourceReading) -> Finding {
    let SourceReading { metric, source, .. } = reading;
    if facts.is_recorded {
        return Finding::error(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy, but the controller has no sources"),
            "Set --metric-sources on the controller. Until then, the metrics API answers.",
        );
    }
    Finding::warning(
        FindingId::AbsentSource,
        format!("{metric} comes from {source} by the scaling policy, which this command does not read"),
        "The value is that of the metrics API. The record of the controller has the number of the source: allow \
         pods/portforward on its pod, or use --from.",
    )
}
