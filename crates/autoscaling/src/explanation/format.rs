//! Amounts and durations in readable form.

use std::fmt;

use jiff::Timestamp;

use super::{Measure, Subject};

/// An amount with its unit, in readable form: `80 %`, `250m`, `12.5 per pod`, `316 Mi`.
pub fn amount(measure: Measure, subject: &Subject) -> String {
    amount_times(measure, 1.0, subject)
}

/// An amount multiplied by a factor: `72 %` for 0.9 times 80 %.
pub fn amount_times(measure: Measure, factor: f64, subject: &Subject) -> String {
    match measure {
        Measure::Percent(percent) => format!("{} %", trimmed(f64::from(percent) * factor, 2)),
        Measure::Milli(amount) => number(amount as f64 * factor, subject),
        Measure::MilliPerPod(amount) => format!("{} per pod", number(amount as f64 * factor, subject)),
    }
}

/// Milli-units in readable form: cpu below one core in milli-cores, memory in binary units, all others as a
/// number.
pub fn milli(amount: i64, subject: &Subject) -> String {
    number(amount as f64, subject)
}

fn number(milli: f64, subject: &Subject) -> String {
    let is_resource = matches!(&*subject.kind, "Resource" | "ContainerResource");
    match &*subject.name {
        "cpu" if is_resource && milli.abs() < 1000.0 => format!("{}m", trimmed(milli, 1)),
        "memory" if is_resource => binary(milli / 1000.0),
        _ => trimmed(milli / 1000.0, 3),
    }
}

fn binary(bytes: f64) -> String {
    let mut rest = bytes;
    for unit in ["", " Ki", " Mi", " Gi"] {
        if rest.abs() < 1024.0 {
            return format!("{}{unit}", trimmed(rest, 1));
        }
        rest /= 1024.0;
    }
    format!("{} Ti", trimmed(rest, 1))
}

/// A number with at most `places` decimal places, without trailing zeros.
pub fn trimmed(number: f64, places: usize) -> String {
    let text = format!("{number:.places$}");
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// A duration in readable form, in whole seconds rounded up: `45 s`, `2 min 10 s`, `1 h 5 min`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span {
    seconds: u64,
}

impl Span {
    /// Creates a span of `seconds`; zero if negative.
    pub fn seconds(seconds: i64) -> Self {
        Self { seconds: u64::try_from(seconds).unwrap_or(0) }
    }

    /// Creates the span from one instant to a later one; zero if `to` is not later.
    pub fn between(from: Timestamp, to: Timestamp) -> Self {
        let length = to.duration_since(from);
        let partial = i64::from(length.subsec_nanos() > 0);
        Self::seconds(length.as_secs().saturating_add(partial))
    }
}

impl fmt::Display for Span {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let units = [
            (self.seconds / 86_400, "d"),
            (self.seconds / 3600 % 24, "h"),
            (self.seconds / 60 % 60, "min"),
            (self.seconds % 60, "s"),
        ];
        let first = units.iter().position(|(amount, _)| *amount > 0).unwrap_or(units.len() - 1);
        let mut separator = "";
        for (index, (amount, unit)) in units.iter().enumerate().skip(first).take(2) {
            if *amount > 0 || index == first {
                write!(f, "{separator}{amount} {unit}")?;
                separator = " ";
            }
        }
        Ok(())
    }
}
