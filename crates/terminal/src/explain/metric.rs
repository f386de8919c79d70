//! The step of one metric: the comparison of its value with its target, the pods with the reason for each uncounted
//! pod, and the proposal.

use autoscaling::explanation::{
    Assumed, Corrected, FailedMetric, Measure, MetricExplanation, MetricReading, PodGroup, PodVerdict,
    ProposalReason, UnmatchedSamples, amount, amount_times, milli, trimmed,
};

use super::{Line, Narrative, Step, counted, share_of};

/// Maximum number of uncounted pods to name per reason.
const NAMED: usize = 10;

/// The groups of pods that are not counted, in the order of the output.
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

impl Narrative<'_> {
    pub(super) fn metric(&self, index: usize) -> Option<Step> {
        let metric = self.explanation.metrics.get(index)?;
        let number = match (self.explanation.metrics.len(), self.explanation.unlisted) {
            // If a record does not list all metrics, the positions of the listed metrics in the spec are unknown.
            (1, None) | (_, Some(_)) => "Metric".to_owned(),
            (several, None) => format!("Metric {} of {several}", index + 1),
        };
        let subject = metric.subject();
        let mut step = Step::new(format!("{number}: {subject} ({})", subject.kind));
        match metric {
            MetricExplanation::Failed(failed) => step.lines = self.failure(failed),
            MetricExplanation::Valid(reading) => {
                step.push(self.value(reading));
                step.push(target(reading));
                step.push(ratio(reading));
                step.lines.extend(pod_lines(reading));
                step.lines.extend(reading.corrected.map(|corrected| filled_in(reading, corrected)));
                step.push(proposal(reading));
            }
        }
        Some(step)
    }

    fn value(&self, reading: &MetricReading) -> Line {
        let subject = &reading.subject;
        let line = Line::new("value");
        match (reading.total, reading.value) {
            (Some(total), _) if self.explanation.status_replicas == 0 => {
                line.strong(milli(total, subject)).plain(" in total; no replicas to divide it by")
            }
            (Some(total), value) => line.strong(amount(value, subject)).plain(format!(
                " ({} in total, divided by {} of status.replicas)",
                milli(total, subject),
                counted(self.explanation.status_replicas, "replica")
            )),
            (None, value @ Measure::Percent(_)) => line.strong(amount(value, subject)).plain(" of request"),
            (None, value) => line.strong(amount(value, subject)),
        }
    }

    fn failure(&self, failed: &FailedMetric) -> Vec<Line> {
        let effect = if self.explanation.failed_count() < self.explanation.metric_count() {
            "no proposal; while it fails, the other metrics can scale up but not down"
        } else {
            "while it fails, nothing is scaled"
        };
        let mut lines = vec![
            Line::new("failed").bad(failed.cause()),
            Line::new("effect").plain(effect),
            Line::new("reason").dim(&*failed.reason),
        ];
        if failed.cause() != &*failed.error {
            lines.push(Line::new("in full").dim(&*failed.error));
        }
        lines
    }
}

/// Returns the line for the proposal, with the arithmetic.
fn proposal(reading: &MetricReading) -> Line {
    let line = Line::new("asks for").strong(reading.proposal.to_string());
    let product = |ratio: f64, pods: i64| {
        format!(
            "{} × {} = {}, rounded up",
            number(ratio),
            counted(pods, "pod"),
            trimmed(ratio * pods as f64, 3)
        )
    };
    match reading.why {
        ProposalReason::WithinTolerance => line.plain(", unchanged: the ratio is within tolerance"),
        ProposalReason::CorrectedWithinTolerance => {
            line.plain(", unchanged: the corrected ratio is within tolerance")
        }
        ProposalReason::DirectionReversed => {
            line.plain(", unchanged: the corrected ratio points the other way, so it is ignored")
        }
        ProposalReason::CountReversed => {
            line.plain(", unchanged: the count would move against the ratio, so it is ignored")
        }
        ProposalReason::Ratio => {
            line.plain(format!(": {}", product(reading.ratio, reading.counted().unwrap_or(0))))
        }
        ProposalReason::CorrectedRatio => match reading.corrected {
            Some(corrected) => line.plain(format!(": {}", product(corrected.ratio, corrected.values))),
            None => line,
        },
        ProposalReason::PerPod => line.plain(match reading.total {
            Some(total) => format!(
                ": {} in total / {}, rounded up",
                milli(total, &reading.subject),
                amount(reading.target, &reading.subject)
            ),
            None => ": the value divided by the target per pod, rounded up".to_owned(),
        }),
        ProposalReason::FromZero => {
            line.plain(": at zero replicas the ratio itself, rounded up; tolerance does not apply")
        }
    }
}

fn target(reading: &MetricReading) -> Line {
    let subject = &reading.subject;
    let line = Line::new("target").plain(match reading.target {
        Measure::Percent(_) => format!("{} of request", amount(reading.target, subject)),
        _ => amount(reading.target, subject),
    });
    line.plain(format!(
        ", no change between {} and {}",
        amount_times(reading.target, reading.lowest_tolerated, subject),
        amount_times(reading.target, reading.highest_tolerated, subject),
    ))
}

fn ratio(reading: &MetricReading) -> Line {
    if !reading.ratio.is_finite() {
        return Line::new("ratio").plain("none: the divisor is 0");
    }
    let line = Line::new("ratio").strong(number(reading.ratio));
    judged(line, reading.ratio, reading)
}

/// Appends whether a ratio is above, below or within the tolerance.
fn judged(line: Line, ratio: f64, reading: &MetricReading) -> Line {
    let (lowest, highest) = (reading.lowest_tolerated, reading.highest_tolerated);
    let band = format!(" ({} to {})", number(lowest), number(highest));
    if ratio > highest {
        line.plain(": ").warn("above").plain(" the tolerance").dim(band)
    } else if ratio < lowest {
        line.plain(": ").warn("below").plain(" the tolerance").dim(band)
    } else {
        line.plain(": ").good("within").plain(" the tolerance").dim(band)
    }
}

/// Returns the line for the usage assumed for missing and unready pods, and for the corrected ratio.
fn filled_in(reading: &MetricReading, corrected: Corrected) -> Line {
    let mut assumed = Vec::new();
    let missing = reading.count(|group| group == PodGroup::Missing);
    match (corrected.missing, reading.target) {
        (Some(Assumed::Zero), _) => assumed.push(format!("{missing} missing with zero usage")),
        (Some(Assumed::Target), Measure::Percent(percent)) => {
            assumed.push(format!("{missing} missing with {} % of request", percent.max(100)));
        }
        (Some(Assumed::Target), target) => {
            assumed.push(format!("{missing} missing with the target, {}", amount(target, &reading.subject)));
        }
        (None, _) => {}
    }
    if corrected.unready {
        assumed.push(format!("{} unready with zero usage", reading.count(PodGroup::is_unready)));
    }
    let line = Line::new("filled in");
    let line = if assumed.is_empty() {
        line.plain("nothing, the ratio is exactly 1")
    } else {
        line.plain(assumed.join(", "))
    };
    let line = line.plain(format!(": over {} the ratio is ", counted(corrected.values, "value")));
    judged(line.strong(number(corrected.ratio)), corrected.ratio, reading)
}

/// Formats a ratio with up to two decimal places if they are exact, and otherwise with up to four. With only two
/// places, a ratio outside the tolerance could appear to be at its limit.
fn number(ratio: f64) -> String {
    let short = trimmed(ratio, 2);
    let exact = short.parse::<f64>().is_ok_and(|short| (short - ratio).abs() < 1e-9);
    if exact { short } else { trimmed(ratio, 4) }
}

fn pod_lines(reading: &MetricReading) -> Vec<Line> {
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

/// Returns the line about a group of uncounted pods: the number of pods, the reason, and up to [`NAMED`] names.
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
