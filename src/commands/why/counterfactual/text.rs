//! What would have to change, in words.

use autoscaling::explanation::{Explanation, LimitingStep, Measure, Span, amount, milli};
use autoscaling::history::Direction;
use jiff::Timestamp;

use super::{Change, Counterfactual, Hold, Threshold};
use crate::commands::story::{Line, Step, Zone, share_of};

impl Counterfactual {
    /// As a step of the story; none if nothing is known.
    pub fn step(&self, explanation: &Explanation, at: Timestamp, zone: &Zone) -> Option<Step> {
        let mut step = Step::new("What would have to change for another result");
        step.lines.extend(self.changes.iter().map(|change| line(change, at, zone)));
        step.lines.extend(self.holds.iter().map(|hold| held(*hold, explanation)));
        (!step.lines.is_empty()).then_some(step)
    }
}

fn line(change: &Change, at: Timestamp, zone: &Zone) -> Line {
    match change {
        Change::Metrics { direction, thresholds, for_seconds, to } => {
            let all = join(thresholds, |threshold| match direction {
                Direction::Up => threshold.tell("above", Side::Last),
                Direction::Down => threshold.tell("at most", Side::First),
            });
            let together = if thresholds.len() == 2 { ", both" } else { "" };
            let line = Line::new(format!("for {to}")).plain(all);
            match for_seconds {
                0 => line,
                seconds => line.plain(format!("{together} for {}", Span::seconds(*seconds))),
            }
        }
        Change::Keep { direction, thresholds, to } => {
            let word = match direction {
                Direction::Up => "at least",
                Direction::Down => "at most",
            };
            Line::new(format!("to stay {to}"))
                .plain(join(thresholds, |threshold| threshold.tell(word, Side::First)))
        }
        Change::Wait { until, step, to } => {
            let wait =
                if *until > at { format!(" (in {})", Span::between(at, *until)) } else { String::new() };
            Line::new(format!("for {to}"))
                .plain("wait until ")
                .strong(zone.time(*until, at))
                .plain(format!("{wait}, when {}, if the metrics stay as they are", lets_go(*step)))
        }
        Change::Field { path, now, must_be, to } => {
            Line::new(format!("for {to}")).plain(format!("{path} {must_be} (it is {now})"))
        }
        Change::Repair { what } => Line::new("needed").plain(what.as_str()),
    }
}

fn join(thresholds: &[Threshold], tell: impl Fn(&Threshold) -> String) -> String {
    thresholds.iter().map(tell).collect::<Vec<_>>().join(" and ")
}

/// Of a change: the last value before it, or the first beyond it.
#[derive(Clone, Copy)]
enum Side {
    Last,
    First,
}

impl Threshold {
    /// `cpu above 88 % of request (440m of 500m per pod; now 86 %)`.
    fn tell(&self, word: &str, side: Side) -> String {
        let subject = &self.subject;
        let now = amount(self.now, subject);
        let (value, total) = match side {
            Side::Last => (self.last, self.totals.map(|[_, last, _]| last)),
            Side::First => (self.first, self.totals.map(|[.., first]| first)),
        };
        if let Some(total) = total {
            return format!(
                "{subject} {word} {} in all, that is {} (now {now})",
                milli(total, subject),
                amount(value, subject)
            );
        }
        match (value, self.request) {
            (Measure::Percent(percent), Some(request)) => {
                let used = i128::from(request) * i128::from(percent) / 100;
                let used = share_of(i64::try_from(used).unwrap_or(i64::MAX), request, subject);
                format!("{subject} {word} {percent} % of request ({used} per pod; now {now})")
            }
            (Measure::Percent(percent), None) => {
                format!("{subject} {word} {percent} % of request (now {now})")
            }
            _ => format!("{subject} {word} {} (now {now})", amount(value, subject)),
        }
    }
}

fn lets_go(step: LimitingStep) -> &'static str {
    match step {
        LimitingStep::ScaleUpWindow => "the scale-up window lets go",
        LimitingStep::ScaleDownWindow => "the scale-down window lets go",
        LimitingStep::ScaleUpPolicy => "the scale-up policies allow more",
        LimitingStep::ScaleDownPolicy => "the scale-down policies allow more",
        _ => "what holds the count lets go",
    }
}

fn held(hold: Hold, explanation: &Explanation) -> Line {
    let (label, what) = match hold.direction {
        Direction::Up => ("for more", "adds a pod"),
        Direction::Down => ("for fewer", "removes a pod"),
    };
    let why = match hold.by {
        LimitingStep::Failure => "while a metric cannot be read, nothing is scaled down".to_owned(),
        LimitingStep::Tolerance => "the tolerance hides every change".to_owned(),
        LimitingStep::MissingPods => "too many pods have no sample or are not ready".to_owned(),
        LimitingStep::ScaleUpWindow => "the scale-up window holds".to_owned(),
        LimitingStep::ScaleDownWindow => "the scale-down window holds".to_owned(),
        LimitingStep::ScaleUpPolicy => "the scale-up policies forbid it".to_owned(),
        LimitingStep::ScaleDownPolicy => "the scale-down policies forbid it".to_owned(),
        LimitingStep::Maximum => format!("maxReplicas is {}", explanation.max),
        LimitingStep::Minimum => format!("minReplicas is {}", explanation.min),
    };
    Line::new(label).plain(format!("no value of a metric {what}: {why}"))
}
