//! Reads the fields of a mapping one by one, and reports invalid and unknown fields. The value of a field may be an
//! [`Amount`].

use std::fmt;
use std::ops::RangeInclusive;

use autoscaling::settings::StatusPrecision;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use super::{MAX_ENTRIES, Named, Problem, ProblemReason};
use crate::schedule;

/// Maximum number of characters of a value or a name in a report.
const SHOWN: usize = 40;
/// Minimum similarity of an unknown name and a suggested name, from 0 to 1.
const SIMILAR: f64 = 0.8;

pub(super) struct Reader<'a> {
    /// The path of the mapping in the policy. Empty for the policy itself.
    path: String,
    /// The fields that were not taken yet.
    fields: Map<String, Value>,
    /// The names of the fields that were taken.
    known: Vec<&'static str>,
    problems: &'a mut Vec<Problem>,
}

impl<'a> Reader<'a> {
    pub(super) fn new(path: String, fields: Map<String, Value>, problems: &'a mut Vec<Problem>) -> Self {
        Self { path, fields, known: Vec::new(), problems }
    }

    fn path_of(&self, field: &str) -> String {
        if self.path.is_empty() { field.to_owned() } else { format!("{}.{field}", self.path) }
    }

    pub(super) fn report(&mut self, field: &str, reason: ProblemReason) {
        let path = self.path_of(field);
        self.problems.push(Problem { path, reason });
    }

    /// Reports a problem of the mapping as a whole.
    pub(super) fn report_whole(&mut self, reason: ProblemReason) {
        self.problems.push(Problem { path: self.path.clone(), reason });
    }

    /// Adds problems that already have their paths.
    pub(super) fn add(&mut self, problems: Vec<Problem>) {
        self.problems.extend(problems);
    }

    /// Takes a field. A field with the value null is absent.
    pub(super) fn take(&mut self, field: &'static str) -> Option<Value> {
        self.known.push(field);
        self.fields.remove(field).filter(|value| !value.is_null())
    }

    pub(super) fn has(&self, field: &str) -> bool {
        self.fields.get(field).is_some_and(|value| !value.is_null())
    }

    /// Reports a field that is absent.
    pub(super) fn require(&mut self, field: &str) {
        if !self.has(field) {
            self.report(field, ProblemReason::Required);
        }
    }

    pub(super) fn convert<T>(
        &mut self,
        field: &'static str,
        expected: impl FnOnce() -> String,
        convert: impl FnOnce(&Value) -> Option<T>,
    ) -> Option<T> {
        let value = self.take(field)?;
        let converted = convert(&value);
        if converted.is_none() {
            self.report(field, ProblemReason::Invalid { expected: expected(), value: shown(&value) });
        }
        converted
    }

    /// Takes a field with nested values without a copy of them. `convert` returns a value of another type.
    fn consume<T>(
        &mut self,
        field: &'static str,
        expected: &str,
        convert: impl FnOnce(Value) -> Result<T, Value>,
    ) -> Option<T> {
        let value = match convert(self.take(field)?) {
            Ok(converted) => return Some(converted),
            Err(value) => shown(&value),
        };
        self.report(field, ProblemReason::Invalid { expected: expected.to_owned(), value });
        None
    }

    pub(super) fn integer<T: TryFrom<i64>>(
        &mut self,
        field: &'static str,
        range: RangeInclusive<i64>,
    ) -> Option<T> {
        let expected = || format!("a whole number from {} to {}", range.start(), range.end());
        self.convert(field, expected, |value| {
            value.as_i64().filter(|value| range.contains(value)).and_then(|value| T::try_from(value).ok())
        })
    }

    pub(super) fn count(&mut self, field: &'static str) -> Option<i32> {
        self.integer(field, 0..=i32::MAX.into())
    }

    pub(super) fn boolean(&mut self, field: &'static str) -> Option<bool> {
        self.convert(field, || "true or false".to_owned(), Value::as_bool)
    }

    pub(super) fn text(&mut self, field: &'static str, maximum: usize) -> Option<String> {
        let expected = || format!("a text of 1 to {maximum} bytes");
        self.convert(field, expected, |value| {
            value.as_str().filter(|text| (1..=maximum).contains(&text.len())).map(str::to_owned)
        })
    }

    pub(super) fn time(&mut self, field: &'static str) -> Option<Timestamp> {
        self.convert(
            field,
            || "a time such as 2026-12-01T08:00:00Z".to_owned(),
            |value| value.as_str()?.parse().ok(),
        )
    }

    pub(super) fn amount(&mut self, field: &'static str) -> Option<Amount> {
        self.convert(
            field,
            || "a count of pods such as 5, or a percentage such as 20%".to_owned(),
            |value| match value {
                Value::String(text) => Amount::parse(text),
                value => value.as_u64().and_then(|pods| u32::try_from(pods).ok()).map(Amount::Pods),
            },
        )
    }

    /// Reads a fraction, which is a number or the text of a quantity.
    pub(super) fn fraction(&mut self, field: &'static str) -> Option<f64> {
        self.convert(
            field,
            || "a fraction of at least 0, such as 0.1".to_owned(),
            |value| {
                let fraction = match value {
                    Value::String(text) => text.parse::<autoscaling::quantity::Quantity>().ok()?.as_f64(),
                    value => value.as_f64()?,
                };
                (fraction.is_finite() && fraction >= 0.0).then_some(fraction)
            },
        )
    }

    pub(super) fn precision(&mut self, field: &'static str) -> Option<StatusPrecision> {
        let expected = || "a percentage from 0% to 100%".to_owned();
        self.convert(field, expected, |value| value.as_str()?.parse().ok())
    }

    pub(super) fn choice<T: Named>(&mut self, field: &'static str) -> Option<T> {
        self.convert(field, names::<T>, find::<T>)
    }

    pub(super) fn choices<T: Named>(&mut self, field: &'static str) -> Option<Vec<T>> {
        let expected = || format!("a list of {}", names::<T>());
        self.convert(field, expected, |value| value.as_array()?.iter().map(find::<T>).collect())
    }

    pub(super) fn texts(&mut self, field: &'static str, maximum: usize) -> Option<Vec<String>> {
        let expected = || format!("a list of at most {MAX_ENTRIES} texts of 1 to {maximum} bytes");
        self.convert(field, expected, |value| {
            let entries = value.as_array().filter(|entries| entries.len() <= MAX_ENTRIES)?;
            let text = |entry: &Value| {
                entry.as_str().filter(|text| (1..=maximum).contains(&text.len())).map(str::to_owned)
            };
            entries.iter().map(text).collect()
        })
    }

    /// Reads a nested mapping. Its valid fields are used, even if others are invalid.
    pub(super) fn group<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> T,
    ) -> Option<T> {
        let path = self.path_of(field);
        let fields = self.consume(field, "a mapping", |value| match value {
            Value::Object(fields) => Ok(fields),
            value => Err(value),
        })?;
        let mut reader = Reader::new(path, fields, self.problems);
        let value = read(&mut reader);
        reader.end();
        Some(value)
    }

    /// Reads a nested mapping, which is valid only if all its fields are valid.
    pub(super) fn unit<T>(
        &mut self,
        field: &'static str,
        read: impl FnOnce(&mut Reader<'_>) -> Option<T>,
    ) -> Option<T> {
        let before = self.problems.len();
        let value = self.group(field, read)?;
        value.filter(|_| self.problems.len() == before)
    }

    /// Reads the valid entries of a list.
    pub(super) fn list<T>(
        &mut self,
        field: &'static str,
        read: impl Fn(&mut Reader<'_>) -> Option<T>,
    ) -> Option<Vec<T>> {
        let path = self.path_of(field);
        let entries = self.consume(field, "a list", |value| match value {
            Value::Array(entries) => Ok(entries),
            value => Err(value),
        })?;
        if entries.len() > MAX_ENTRIES {
            let reason = ProblemReason::TooMany { entries: entries.len(), maximum: MAX_ENTRIES };
            self.report(field, reason);
            return None;
        }
        let mut valid = Vec::new();
        for (index, entry) in entries.into_iter().enumerate() {
            let path = format!("{path}[{index}]");
            let Value::Object(fields) = entry else {
                let reason =
                    ProblemReason::Invalid { expected: "a mapping".to_owned(), value: shown(&entry) };
                self.problems.push(Problem { path, reason });
                continue;
            };
            let before = self.problems.len();
            let mut reader = Reader::new(path, fields, self.problems);
            let value = read(&mut reader);
            reader.end();
            valid.extend(value.filter(|_| self.problems.len() == before));
        }
        Some(valid)
    }

    /// Reports the fields that were not taken.
    pub(super) fn end(self) {
        for name in self.fields.keys() {
            let shown: String = name.chars().take(SHOWN).collect();
            let path = if self.path.is_empty() { shown } else { format!("{}.{shown}", self.path) };
            let reason = ProblemReason::Unknown { suggestion: similar(name, &self.known) };
            self.problems.push(Problem { path, reason });
        }
    }
}

/// Returns the known name that is the most similar to an unknown one.
pub(crate) fn similar(name: &str, known: &[&'static str]) -> Option<&'static str> {
    let similarity =
        |known: &str| strsim::jaro_winkler(&name.to_ascii_lowercase(), &known.to_ascii_lowercase());
    let known = known.iter().map(|known| (similarity(known), *known));
    let best = known.filter(|(similarity, _)| *similarity >= SIMILAR).max_by(|a, b| a.0.total_cmp(&b.0));
    best.map(|(_, known)| known)
}

fn find<T: Named>(value: &Value) -> Option<T> {
    let text = value.as_str()?;
    T::NAMES.iter().find(|(name, _)| *name == text).map(|(_, value)| *value)
}

/// Prints the names of an enumeration: `Max or Min`.
pub(super) fn names<T: Named>() -> String {
    let names: Vec<&str> = T::NAMES.iter().map(|(name, _)| *name).collect();
    match names.split_last() {
        Some((last, [])) => (*last).to_owned(),
        Some((last, others)) => format!("{} or {last}", others.join(", ")),
        None => String::new(),
    }
}

/// Prints a value for a report.
pub(super) fn shown(value: &Value) -> String {
    let text = match value {
        Value::Array(_) => return "a list".to_owned(),
        Value::Object(_) => return "a mapping".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(SHOWN + 1).collect::<String>()),
        value => value.to_string(),
    };
    if text.chars().count() > SHOWN + 2 { text.chars().take(SHOWN).collect::<String>() + "…" } else { text }
}

/// A number of pods, or a percentage of a count.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum Amount {
    /// A number of pods.
    Pods(u32),
    /// A percentage of a count.
    Percent(u32),
}

impl Amount {
    /// Parses a text such as `5` or `20%`. `None` for any other text.
    pub fn parse(text: &str) -> Option<Self> {
        let (number, amount): (&str, fn(u32) -> Self) = match text.strip_suffix('%') {
            Some(percent) => (percent, Self::Percent),
            None => (text, Self::Pods),
        };
        schedule::number(number).map(amount)
    }

    /// The number of pods. A percentage of `replicas` is rounded up.
    pub fn pods(self, replicas: i32) -> i32 {
        let pods = match self {
            Self::Pods(pods) => u64::from(pods),
            Self::Percent(percent) => {
                let replicas = u64::from(u32::try_from(replicas).unwrap_or(0));
                (replicas * u64::from(percent)).div_ceil(100)
            }
        };
        i32::try_from(pods).unwrap_or(i32::MAX)
    }

    /// The number of pods by which a step may change `replicas`. A percentage above 0 allows at least one pod, so a
    /// target at zero replicas can be scaled up.
    pub fn step(self, replicas: i32) -> i32 {
        match self {
            Self::Percent(percent) if percent > 0 => self.pods(replicas).max(1),
            Self::Pods(_) | Self::Percent(_) => self.pods(replicas),
        }
    }
}

impl fmt::Display for Amount {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pods(pods) => write!(f, "{pods}"),
            Self::Percent(percent) => write!(f, "{percent}%"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn amount_is_a_count_or_a_percentage() {
        assert_eq!(Amount::parse("5"), Some(Amount::Pods(5)));
        assert_eq!(Amount::parse("20%"), Some(Amount::Percent(20)));
        for text in ["", "%", "-1", "+1", "1.5", "20 %", "20%%", "99999999999", "five"] {
            assert_eq!(Amount::parse(text), None, "{text:?}");
        }
        assert_eq!(Amount::Percent(20).to_string(), "20%");
        assert_eq!(Amount::Pods(5).to_string(), "5");
    }

    #[test]
    fn percentage_rounds_up_to_whole_pods() {
        for (percent, replicas, pods, step) in [
            (20, 0, 0, 1),
            (100, 0, 0, 1),
            (0, 0, 0, 0),
            (0, 10, 0, 0),
            (20, 1, 1, 1),
            (20, 4, 1, 1),
            (20, 5, 1, 1),
            (20, 6, 2, 2),
            (20, 10, 2, 2),
            (100, 7, 7, 7),
            (150, 3, 5, 5),
            (1, 1000, 10, 10),
            (u32::MAX, i32::MAX, i32::MAX, i32::MAX),
            (100, -3, 0, 1),
        ] {
            let amount = Amount::Percent(percent);
            assert_eq!(
                (amount.pods(replicas), amount.step(replicas)),
                (pods, step),
                "{percent}% of {replicas}"
            );
        }
        assert_eq!((Amount::Pods(0).step(10), Amount::Pods(u32::MAX).pods(0)), (0, i32::MAX));
    }
}
