//! What a sync read from the sources that a scaling policy names: the step of the answer, and its findings.

use controller::reconcile::{NO_SOURCES, SourceReading, SourceValue};
use controller::record::wire::DecisionList;

use super::Situation;
use super::findings::{Finding, FindingId};
use super::from;
use super::situation::Source;
use crate::explain::{Line, Step};

/// The age from which on numbers are reported, in seconds. Sources are read at least once a minute.
const STALE_SECONDS: f64 = 60.0;
/// The reasons that need a change of the source file.
const NOT_ALLOWED: &str = "NotAllowed";
/// The reason of a number beyond `maxAgeSeconds`.
const TOO_OLD: &str = "TooOld";

/// Returns the situation of the controller's record if the controller read sources, which this command cannot
/// reach. Otherwise returns the own one. `from`: the pod of the controller.
pub(super) fn of_controller(own: Situation, record: Option<&DecisionList>, from: &str) -> Situation {
    let reads = |record: &&DecisionList| {
        let last = record.decisions.first();
        last.is_some_and(|last| {
            last.sources.iter().any(|reading| reading.reason.as_deref() != Some(NO_SOURCES))
        })
    };
    let Some(record) = record.filter(reads) else { return own };
    let skew = own.skew.unwrap_or_default();
    let Ok(recorded) = from::situation(own.key.clone(), record, from, skew) else { return own };
    Situation {
        hpa: own.hpa,
        rules: own.rules,
        pods: own.pods,
        owners: own.owners,
        status_writer: own.status_writer,
        in_charge: own.in_charge,
        target: own.target,
        sharing: own.sharing,
        recent_events: own.recent_events,
        server_version: own.server_version,
        skew: own.skew,
        ..recorded
    }
}

/// Renders what was read: for each metric its source, the age, and the numbers as the source returned them.
pub(super) fn step(situation: &Situation) -> Option<Step> {
    if situation.sources.is_empty() {
        return None;
    }
    let mut step = Step::new("Metric sources");
    for reading in &situation.sources {
        step.push(Line::new(reading.metric.clone()).plain(reading.source.as_str()));
        if let Some(age) = reading.age_seconds {
            step.push(Line::new("age").plain(format!("{age:.1} s, {}", numbers(reading))));
        }
        if let Some(problem) = &reading.problem {
            let line = Line::new("problem");
            step.push(if reading.age_seconds.is_some() {
                line.warn(problem.as_str())
            } else {
                line.bad(problem.as_str())
            });
        }
    }
    Some(step)
}

/// `3 numbers: web-1 2, web-2 4.5, …`.
fn numbers(reading: &SourceReading) -> String {
    let shown = |SourceValue { pod, value }: &SourceValue| match pod {
        Some(pod) => format!("{pod} {value}"),
        None => value.to_string(),
    };
    let mut values: Vec<String> = reading.values.iter().map(shown).collect();
    if reading.numbers > values.len() {
        values.push("…".to_owned());
    }
    match reading.numbers {
        0 => "no number".to_owned(),
        1 => format!("1 number: {}", values.join(", ")),
        count => format!("{count} numbers: {}", values.join(", ")),
    }
}

/// Whether a source failed for a metric, which has a finding here.
pub(super) fn is_failed(situation: &Situation, metric: &str) -> bool {
    let failed = |reading: &SourceReading| {
        reading.age_seconds.is_none() && reading.reason.as_deref() != Some(NO_SOURCES)
    };
    situation.sources.iter().any(|reading| reading.metric == metric && failed(reading))
}

/// Finds sources that are absent, failing, incomplete or stale.
pub(super) fn findings(situation: &Situation) -> Vec<Finding> {
    situation.sources.iter().filter_map(|reading| finding(situation, reading)).collect()
}

fn finding(situation: &Situation, reading: &SourceReading) -> Option<Finding> {
    let SourceReading { metric, source, age_seconds, reason, problem, .. } = reading;
    match (age_seconds, reason.as_deref(), problem) {
        (None, Some(NO_SOURCES), _) => Some(absent(situation, reading)),
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
            format!("{metric} has no number of at least one pod: {problem}"),
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

/// The finding for a policy with a source in a process that has none.
fn absent(situation: &Situation, reading: &SourceReading) -> Finding {
    let SourceReading { metric, source, .. } = reading;
    match situation.source {
        Source::Record { .. } => Finding::error(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy, but the controller has no sources"),
            "Set --metric-sources on the controller. Until then, the metrics API answers.",
        ),
        Source::Cluster { .. } => Finding::warning(
            FindingId::AbsentSource,
            format!("{metric} comes from {source} by the scaling policy, which this command does not read"),
            "The value is that of the metrics API. The record of the controller has the number of the source: allow \
             pods/portforward on its pod, or use --from.",
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::explain::Style;
    use crate::why::render;
    use crate::why::scene::{Scene, pods_metric};
    use crate::why::situation::{Recorded, Situation};

    fn reading(age_seconds: Option<f64>, reason: Option<&str>, problem: Option<&str>) -> SourceReading {
        let values = age_seconds.map(|_| SourceValue { pod: Some("web-1".to_owned()), value: 2.5 });
        SourceReading {
            metric: "waiting".to_owned(),
            source: "prometheus \"main\", query \"sum(waiting)\"".to_owned(),
            age_seconds,
            numbers: values.iter().len() * 12,
            values: values.into_iter().collect(),
            reason: reason.map(str::to_owned),
            problem: problem.map(str::to_owned),
        }
    }

    fn situation(reading: SourceReading) -> Situation {
        let mut situation = Scene::cpu(5, 400).situation();
        situation.sources = vec![reading];
        situation
    }

    fn codes(reading: SourceReading) -> Vec<&'static str> {
        findings(&situation(reading)).iter().map(|finding| finding.code.as_str()).collect()
    }

    #[test]
    fn each_state_of_a_source_has_its_finding() {
        for (age, reason, problem, expected) in [
            (Some(0.4), None, None, None),
            (Some(90.0), None, None, Some("stale-source")),
            (Some(0.4), Some("Timeout"), Some("pod web-2: no complete response"), Some("incomplete-source")),
            (None, Some("TooOld"), Some("the number is 40 s old"), Some("stale-source")),
            (None, Some("Request"), Some("the server answers 503"), Some("failed-source")),
            (None, Some("NotAllowed"), Some("no such server"), Some("absent-source")),
            (None, Some(NO_SOURCES), Some("--metric-sources is not set"), Some("absent-source")),
        ] {
            assert_eq!(codes(reading(age, reason, problem)), Vec::from_iter(expected), "{reason:?} {age:?}");
        }
    }

    #[test]
    fn source_with_query_age_and_numbers_is_shown() {
        let mut shown = situation(reading(Some(0.42), Some("Timeout"), Some("pod web-2: late")));
        shown.source = Source::Cluster { watching_since: None, record: Recorded::NotRequested };
        let text = render::whole(&shown, &[], Style::default(), &crate::explain::Zone::local(true));
        for line in [
            "Metric sources",
            "prometheus \"main\", query \"sum(waiting)\"",
            "0.4 s, 12 numbers: web-1 2.5, …",
            "pod web-2: late",
        ] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }

    #[test]
    fn failed_source_is_reported_once() {
        let failed = reading(None, Some("Request"), Some("the server answers 503"));
        let mut shown = Scene::cpu(5, 200).and(pods_metric("waiting", "30"), Err("prometheus")).situation();
        shown.sources = vec![failed];
        let codes: Vec<_> =
            super::super::findings::findings(&shown).iter().map(|finding| finding.code.as_str()).collect();
        assert_eq!(codes, ["failed-source"]);
    }
}
