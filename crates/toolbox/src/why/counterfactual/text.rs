//! The changes that would give another result, rendered as text.

use autoscaling::explanation::{Explanation, LimitingStep, Measure, Span, amount, milli};
use autoscaling::history::Direction;
use jiff::Timestamp;

use super::{Change, Counterfactual, Hold, Threshold};
use crate::explain::{Line, Step, Zone, share_of};

impl Counterfactual {
    /// Renders the changes as a step. Returns `None` without changes.
    pub fn step(&self, explanation: &Explanation, at: Timestamp, zone: &Zone) -> Option<Step> {
        let mut step = Step::new("What would have to change for another result");
        step.lines.extend(self.changes.iter().map(|change| line(change, at, zone)));
        step.lines.extend(self.holds.iter().map(|hold| hold_line(*hold, explanation)));
        (!step.lines.is_empty()).then_some(step)
    }
}

fn line(change: &Change, at: Timestamp, zone: &Zone) -> Line {
    match change {
        Change::Metrics { direction, thresholds, for_seconds, to } => {
            let all = join(thresholds, |threshold| threshold.describe(*direction));
            let together = if thresholds.len() == 2 { ", both" } else { "" };
            let line = Line::new(format!("for {to}")).plain(all);
            match for_seconds {
                0 => line,
                seconds => line.plain(format!("{together} for {}", Span::seconds(*seconds))),
            }
        }
        Change::Keep { direction, thresholds, to } => Line::new(format!("to stay {to}"))
            .plain(join(thresholds, |threshold| threshold.describe_first(*direction))),
        Change::Wait { until, step, to } => {
            let wait =
                if *until > at { format!(" (in {})", Span::between(at, *until)) } else { String::new() };
            Line::new(format!("for {to}"))
                .plain("wait until ")
                .strong(zone.time(*until, at))
                .plain(format!("{wait}, when {}, if the metrics stay as they are", expiry(*step)))
        }
        Change::Field { path, now, must_be, to } => {
            Line::new(format!("for {to}")).plain(format!("{path} {must_be} (it is {now})"))
        }
        Change::Policy { at: from, what, to } => {
            let wait = if *from > at { format!(" (in {})", Span::between(at, *from)) } else { String::new() };
            let label = to.map_or_else(|| "policy".to_owned(), |to| format!("for {to}"));
            let metrics = if to.is_some() { ", if the metrics stay as they are" } else { "" };
            Line::new(label)
                .plain("at ")
                .strong(zone.time(*from, at))
                .plain(format!("{wait} {what}{metrics}"))
        }
        Change::Repair { what } => Line::new("needed").plain(what.as_str()),
    }
}

fn join(thresholds: &[Threshold], describe: impl Fn(&Threshold) -> String) -> String {
    thresholds.iter().map(describe).collect::<Vec<_>>().join(" and ")
}

impl Threshold {
    /// Describes a threshold: `cpu above 88 % of request (440m of 500m per pod; now 86 %)`. The number is the last
    /// value with the same result or the first value with another result, depending on which is shorter.
    fn describe(&self, direction: Direction) -> String {
        let subject = &self.subject;
        let (beyond, up_to) = match direction {
            Direction::Up => ("above", "at least"),
            Direction::Down => ("below", "at most"),
        };
        let number = |value: Measure, total: Option<i64>| match total {
            Some(total) => milli(total, subject),
            None => amount(value, subject),
        };
        let last = number(self.last, self.totals.map(|[_, last, _]| last));
        let first = number(self.first, self.totals.map(|[.., first]| first));
        if last == first {
            // The values differ only by less than the precision of the printed number.
            self.phrase(beyond, self.first, &first)
        } else if last.len() < first.len() || (direction == Direction::Up && last.len() == first.len()) {
            // `above 88 %` reads better than `at least 89 %`.
            self.phrase(beyond, self.last, &last)
        } else {
            self.phrase(up_to, self.first, &first)
        }
    }

    /// Describes a threshold by the first value with another result: `cpu at most 88 % of request (...)`.
    fn describe_first(&self, direction: Direction) -> String {
        let within_one = self.last == self.first && self.totals.is_none_or(|[_, last, first]| last == first);
        let word = match (direction, within_one) {
            (Direction::Up, false) => "at least",
            (Direction::Up, true) => "above",
            (Direction::Down, false) => "at most",
            (Direction::Down, true) => "below",
        };
        let number = match self.totals {
            Some([.., first]) => milli(first, &self.subject),
            None => amount(self.first, &self.subject),
        };
        self.phrase(word, self.first, &number)
    }

    fn phrase(&self, word: &str, value: Measure, number: &str) -> String {
        let subject = &self.subject;
        let now = amount(self.now, subject);
        match (value, self.request) {
            _ if self.totals.is_some() => {
                format!("{subject} {word} {number} in total, that is {} (now {now})", amount(value, subject))
            }
            (Measure::Percent(percent), Some(request)) => {
                let used = i128::from(request) * i128::from(percent) / 100;
                let used = share_of(i64::try_from(used).unwrap_or(i64::MAX), request, subject);
                format!("{subject} {word} {number} of request ({used} per pod; now {now})")
            }
            (Measure::Percent(_), None) => format!("{subject} {word} {number} of request (now {now})"),
            _ => format!("{subject} {word} {number} (now {now})"),
        }
    }
}

fn expiry(step: LimitingStep) -> &'static str {
    match step {
        LimitingStep::ScaleUpWindow => "the scale-up window expires",
        LimitingStep::ScaleDownWindow => "the scale-down window expires",
        LimitingStep::ScaleUpPolicy => "the scale-up policies allow more",
        LimitingStep::ScaleDownPolicy => "the scale-down policies allow more",
        _ => "the limit expires",
    }
}

fn hold_line(hold: Hold, explanation: &Explanation) -> Line {
    let (label, what) = match hold.direction {
        Direction::Up => ("for more", "adds a pod"),
        Direction::Down => ("for fewer", "removes a pod"),
    };
    let why = match hold.by {
        LimitingStep::Failure => "while a metric cannot be read, nothing is scaled down".to_owned(),
        LimitingStep::Tolerance => "the tolerance hides every change".to_owned(),
        LimitingStep::MissingPods => "too many pods have no sample or are not ready".to_owned(),
        LimitingStep::ScaleUpWindow => "the scale-up window prevents it".to_owned(),
        LimitingStep::ScaleDownWindow => "the scale-down window prevents it".to_owned(),
        LimitingStep::ScaleUpPolicy => "the scale-up policies prevent it".to_owned(),
        LimitingStep::ScaleDownPolicy => "the scale-down policies prevent it".to_owned(),
        LimitingStep::Maximum => format!("maxReplicas is {}", explanation.max),
        LimitingStep::Minimum => format!("minReplicas is {}", explanation.min),
    };
    Line::new(label).plain(format!("no metric value {what}: {why}"))
}
