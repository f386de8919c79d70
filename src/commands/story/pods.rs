//! How the pods of a metric were counted, and why.

use autoscaling::explanation::{Measure, MetricReading, PodGroup, PodVerdict, Strangers, milli, trimmed};

use super::{Line, counted, share_of};

/// So many pods that do not count are named for each reason.
const NAMED: usize = 10;

/// The groups that do not count, in the order in which they are told.
const UNCOUNTED: [PodGroup; 10] = [
    PodGroup::Missing,
    PodGroup::UnreadyPending,
    PodGroup::UnreadyNoCondition,
    PodGroup::UnreadyNotStarted,
    PodGroup::UnreadyInitializing,
    PodGroup::UnreadySampleTooOld,
    PodGroup::UnreadyNeverReady,
    PodGroup::IgnoredTerminating,
    PodGroup::IgnoredFailed,
    PodGroup::IgnoredSucceeded,
];

/// The lines about pods.
pub(super) fn lines(reading: &MetricReading) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(ready) = reading.ready_pods {
        lines.push(
            Line::new("pods")
                .strong(counted(ready, "pod"))
                .plain(" running and ready: the ratio is multiplied with that"),
        );
    }
    if !reading.pods.is_empty() || !reading.unlisted.is_empty() {
        lines.push(counted_pods(reading));
    }
    for group in UNCOUNTED {
        lines.extend(uncounted(reading, group));
    }
    lines.extend(reading.strangers.and_then(|strangers| others(reading, strangers)));
    lines
}

/// Samples of pods that the selector does not match, where they matter.
fn others(reading: &MetricReading, strangers: Strangers) -> Option<Line> {
    let line =
        Line::new("others").warn(counted(strangers.samples, "sample")).plain(" of pods that are not known");
    match reading.target {
        Measure::Percent(_) => {
            reading.corrected.map(|_| line.plain(": they have no request and count as values alone"))
        }
        _ => Some(line.plain(format!(
            " count in the average too, together {}",
            milli(strangers.sum, &reading.subject)
        ))),
    }
}

/// The pods that count, with their average and spread.
fn counted_pods(reading: &MetricReading) -> Line {
    let number = reading.count(|group| group == PodGroup::Ready);
    let line = Line::new("counted").strong(counted(u64::try_from(number).unwrap_or(u64::MAX), "pod"));
    let mut listed: Vec<(&PodVerdict, i64)> = reading
        .pods
        .iter()
        .filter(|pod| pod.group == PodGroup::Ready)
        .filter_map(|pod| Some((pod, pod.sample?)))
        .collect();
    if listed.is_empty() {
        return line;
    }
    listed.sort_by(|(a, a_sample), (b, b_sample)| share(a).total_cmp(&share(b)).then(a_sample.cmp(b_sample)));
    let usage: i128 = listed.iter().map(|(_, sample)| i128::from(*sample)).sum();
    let requests: i128 = listed.iter().filter_map(|(pod, _)| pod.request).map(i128::from).sum();
    let average = |sum: i128| i64::try_from(sum / listed.len().max(1) as i128).unwrap_or(i64::MAX);
    let line = match reading.target {
        Measure::Percent(_) => line
            .plain(format!(": {} on average", share_of(average(usage), average(requests), &reading.subject))),
        _ => line.plain(format!(": {} on average", milli(average(usage), &reading.subject))),
    };
    match (&listed[..], number) {
        ([(lowest, _), .., (highest, _)], _) => {
            let each = |pod: &PodVerdict| format!("{} ({})", of_one(pod, reading), pod.name);
            if of_one(lowest, reading) == of_one(highest, reading) {
                return line.plain(", all alike");
            }
            line.plain(format!(", from {} to {}", each(lowest), each(highest)))
        }
        _ => line,
    }
}

/// What a pod uses of what it requests, or just uses.
fn share(pod: &PodVerdict) -> f64 {
    let sample = pod.sample.unwrap_or(0) as f64;
    match pod.request {
        Some(request) if request > 0 => sample / request as f64,
        _ => sample,
    }
}

fn of_one(pod: &PodVerdict, reading: &MetricReading) -> String {
    match (reading.target, pod.request) {
        (Measure::Percent(_), Some(request)) if request > 0 => {
            format!("{} %", trimmed(share(pod) * 100.0, 0))
        }
        _ => milli(pod.sample.unwrap_or(0), &reading.subject),
    }
}

/// One group that does not count: how many, why, and who.
fn uncounted(reading: &MetricReading, group: PodGroup) -> Option<Line> {
    let number = reading.count(|other| other == group);
    if number == 0 {
        return None;
    }
    let label = match group {
        PodGroup::Missing => "missing",
        group if group.is_ignored() => "ignored",
        _ => "unready",
    };
    let line = Line::new(label).warn(counted(u64::try_from(number).unwrap_or(u64::MAX), "pod"));
    let line = line.plain(format!(", {}", reason(group)));
    let names: Vec<&str> =
        reading.pods.iter().filter(|pod| pod.group == group).map(|pod| &*pod.name).take(NAMED).collect();
    if names.is_empty() {
        return Some(line);
    }
    let more = number - names.len();
    let rest = if more > 0 { format!(" and {more} more") } else { String::new() };
    Some(line.dim(format!(": {}{rest}", names.join(", "))))
}

/// Why pods of a group do not count.
fn reason(group: PodGroup) -> &'static str {
    match group {
        PodGroup::Ready => "counted",
        PodGroup::Missing => "no sample in the answer of the metrics API",
        PodGroup::IgnoredTerminating => "being deleted",
        PodGroup::IgnoredFailed => "failed",
        PodGroup::IgnoredSucceeded => "ended",
        PodGroup::UnreadyPending => "still pending",
        PodGroup::UnreadyNoCondition => "without a Ready condition",
        PodGroup::UnreadyNotStarted => "without a start time",
        PodGroup::UnreadyInitializing => "not ready, and younger than the cpu initialization period",
        PodGroup::UnreadySampleTooOld => {
            "ready only since its sample began, and younger than the cpu initialization period"
        }
        PodGroup::UnreadyNeverReady => "not ready, and never was since it started",
    }
}
