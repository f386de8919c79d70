//! The lines about the pods of a metric, with the reason for each uncounted pod.

use autoscaling::explanation::{
    Measure, MetricReading, PodGroup, PodVerdict, UnmatchedSamples, milli, trimmed,
};

use super::{Line, counted, share_of};

/// Maximum number of uncounted pods to name per reason.
const NAMED: usize = 10;

/// The uncounted groups, in the order of the output.
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

pub(super) fn lines(reading: &MetricReading) -> Vec<Line> {
    let mut lines = Vec::new();
    if let Some(ready) = reading.ready_pods {
        lines.push(
            Line::new("pods")
                .strong(counted(ready, "pod"))
                .plain(" running and ready, multiplied with the ratio"),
        );
    }
    if !reading.pods.is_empty() || !reading.unlisted.is_empty() {
        lines.push(counted_pods(reading));
    }
    for group in UNCOUNTED {
        lines.extend(uncounted(reading, group));
    }
    lines.extend(reading.unmatched.and_then(|unmatched| others(reading, unmatched)));
    lines
}

/// Returns the line about samples of pods that the selector does not match, if the samples affect the result.
fn others(reading: &MetricReading, unmatched: UnmatchedSamples) -> Option<Line> {
    let line = Line::new("others").warn(counted(unmatched.samples, "sample")).plain(" of unknown pods");
    match reading.target {
        Measure::Percent(_) => reading
            .corrected
            .map(|_| line.plain(": they have no request and only add to the number of values")),
        _ => Some(line.plain(format!(
            " also count in the average, {} in total",
            milli(unmatched.sum, &reading.subject)
        ))),
    }
}

/// Returns the line about the counted pods, with their average and range.
fn counted_pods(reading: &MetricReading) -> Line {
    let number = reading.count(|group| group == PodGroup::Ready);
    let line = Line::new("counted").strong(counted(number, "pod"));
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
                return line.plain(", all equal");
            }
            line.plain(format!(", from {} to {}", each(lowest), each(highest)))
        }
        _ => line,
    }
}

/// Returns a pod's usage as a share of its request, or the usage itself if the pod has no request.
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

/// Returns the line about one uncounted group: the number of pods, the reason, and the names of the pods.
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
    let line = Line::new(label).warn(counted(number, "pod"));
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

/// Returns the reason why the pods of a group are not counted.
fn reason(group: PodGroup) -> &'static str {
    match group {
        PodGroup::Ready => "counted",
        PodGroup::Missing => "no sample in the metrics API response",
        PodGroup::IgnoredTerminating => "being deleted",
        PodGroup::IgnoredFailed => "failed",
        PodGroup::IgnoredSucceeded => "succeeded",
        PodGroup::UnreadyPending => "pending",
        PodGroup::UnreadyNoCondition => "without a Ready condition",
        PodGroup::UnreadyNotStarted => "without a start time",
        PodGroup::UnreadyInitializing => "not ready, and younger than the cpu initialization period",
        PodGroup::UnreadySampleTooOld => {
            "became ready after its sample started, and younger than the cpu initialization period"
        }
        PodGroup::UnreadyNeverReady => "not ready, and never ready since it started",
    }
}
