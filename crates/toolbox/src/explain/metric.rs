//! The step of one metric: the comparison of its value with its target, the counted pods, and the proposal.

use autoscaling::explanation::{
    Assumed, Corrected, FailedMetric, Measure, MetricExplanation, MetricReading, PodGroup, ProposalReason,
    amount, amount_times, milli, trimmed,
};

use super::{Line, Narrative, Step, counted};

impl Narrative<'_> {
    pub(super) fn metric(&self, index: usize) -> Option<Step> {
        let metric = self.explanation.metrics.get(index)?;
        let number = match (self.explanation.metrics.len(), self.explanation.unlisted) {
            // The position in the spec is unknown.
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
                step.lines.extend(super::pods::lines(reading));
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

/// Appends the position of a ratio relative to the tolerance.
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

/// Formats a ratio with two decimal places if that is exact. Otherwise formats it with four, so that rounding
/// does not move it onto a tolerance.
fn number(ratio: f64) -> String {
    let short = trimmed(ratio, 2);
    let exact = short.parse::<f64>().is_ok_and(|short| (short - ratio).abs() < 1e-9);
    if exact { short } else { trimmed(ratio, 4) }
}
