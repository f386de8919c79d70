//! The results of an import: ScalingPolicies, and notes about the fields of the imported objects.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use serde::Serialize;
use serde_json::Value;

use super::{Field, Source};
use crate::spec::{Cause, Level, MAX_ENTRIES, Mode, Strategy, read};

/// Maximum bytes of the name of a schedule, and of a label value.
const MAX_NAME: usize = 63;
/// The label with which an imported policy selects its HPA.
const LABEL: &str = "concertina.dev/imported-from";

/// A ScalingPolicy, as in a manifest.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ScalingPolicy {
    api_version: &'static str,
    kind: &'static str,
    metadata: Metadata,
    spec: Spec,
    /// The imported object: `ScaledObject shop/web, web.yaml: document 2`.
    #[serde(skip)]
    pub origin: String,
    #[serde(skip)]
    location: Arc<str>,
    #[serde(skip)]
    title: Arc<str>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Metadata {
    name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    namespace: Option<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Spec {
    selector: Selector,
    #[serde(skip_serializing_if = "Option::is_none")]
    mode: Option<Mode>,
    #[serde(skip_serializing_if = "Option::is_none")]
    replicas: Option<i64>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    schedules: Vec<Schedule>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    fallback: Vec<Fallback>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    metrics: Vec<Metric>,
}

/// An entry of `metrics`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(super) struct Metric {
    metric: String,
    prometheus: Prometheus,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
struct Prometheus {
    server: &'static str,
    query: String,
}

impl Metric {
    pub(super) fn prometheus(metric: &str, server: &'static str, query: String) -> Self {
        Self { metric: metric.to_owned(), prometheus: Prometheus { server, query } }
    }
}

#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
struct Selector {
    match_labels: BTreeMap<String, String>,
}

/// An entry of `schedules`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schedule {
    pub(super) name: String,
    pub(super) time_zone: String,
    pub(super) start: String,
    pub(super) end: String,
    pub(super) min_replicas: i64,
}

/// An entry of `fallback`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Fallback {
    pub(super) when: Cause,
    pub(super) failure_duration_seconds: i64,
    pub(super) action: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) strategy: Option<Strategy>,
}

impl ScalingPolicy {
    /// Creates an empty policy for the HPAs with `labels`.
    pub(super) fn new(source: &Source<'_>, prefix: &str, labels: BTreeMap<String, String>) -> Self {
        Self {
            api_version: "autoscaling.concertina.dev/v1alpha1",
            kind: "ScalingPolicy",
            metadata: Metadata {
                name: format!("{prefix}-{}", source.name),
                namespace: source.namespace.map(str::to_owned),
            },
            spec: Spec { selector: Selector { match_labels: labels }, ..Spec::default() },
            origin: format!("{}, {}", source.title, source.location),
            location: Arc::clone(&source.location),
            title: Arc::clone(&source.title),
        }
    }

    /// Creates an empty policy for one HPA. Also returns the label that the operator must add to the HPA.
    pub(super) fn labelled(source: &Source<'_>, prefix: &str) -> (Self, String) {
        // A label value has at most 63 bytes, and ends with a letter or a digit.
        let value = shortened(source.name).trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        let label = format!("{LABEL}={value}");
        let labels = [(LABEL.to_owned(), value.to_owned())].into();
        (Self::new(source, prefix, labels), label)
    }

    /// Sets the mode, and the count of [`Mode::Pinned`].
    pub(super) fn set_mode(&mut self, mode: Mode, replicas: Option<i64>) {
        self.spec.mode = Some(mode);
        self.spec.replicas = replicas;
    }

    /// Adds a schedule. Notes the reason and returns false if the policy would be invalid.
    pub(super) fn add_schedule(
        &mut self,
        source: &mut Source<'_>,
        field: &Field<'_>,
        schedule: Schedule,
    ) -> bool {
        let schedule = Schedule { name: shortened(&schedule.name).to_owned(), ..schedule };
        add("schedules", &mut self.spec.schedules, source, field, schedule)
    }

    /// Adds a fallback. Notes the reason and returns false if the policy would be invalid.
    pub(super) fn add_fallback(
        &mut self,
        source: &mut Source<'_>,
        field: &Field<'_>,
        fallback: Fallback,
    ) -> bool {
        add("fallback", &mut self.spec.fallback, source, field, fallback)
    }

    /// Adds a metric, or notes the reason if the policy would be invalid. A policy has at most one query per metric
    /// name.
    pub(super) fn add_metric(&mut self, source: &mut Source<'_>, field: &Field<'_>, metric: Metric) {
        if let Some(other) = self.spec.metrics.iter().find(|other| other.metric == metric.metric) {
            if *other != metric {
                let reason =
                    "a policy has one query per metric name, and an earlier metric uses a different query";
                source.note(field, Remark::Refused(reason.to_owned()));
            }
            return;
        }
        add("metrics", &mut self.spec.metrics, source, field, metric);
    }

    /// Returns `None` if the policy sets no field.
    pub(super) fn if_useful(self) -> Option<Self> {
        let Spec { mode, schedules, fallback, metrics, .. } = &self.spec;
        let is_useful =
            mode.is_some() || !schedules.is_empty() || !fallback.is_empty() || !metrics.is_empty();
        is_useful.then_some(self)
    }

    /// The note about a policy that is valid for the import, but not for `policy check`.
    pub fn refused(&self, reason: String) -> Note {
        Note {
            location: Arc::clone(&self.location),
            object: Arc::clone(&self.title),
            field: String::new(),
            remark: Remark::Refused(reason),
        }
    }

    /// The name of the policy, as `namespace/name` if the imported object has a namespace.
    pub fn name(&self) -> Arc<str> {
        match &self.metadata.namespace {
            Some(namespace) => format!("{namespace}/{}", self.metadata.name).into(),
            None => self.metadata.name.as_str().into(),
        }
    }
}

/// Adds an entry to the list with the name `list`. Notes the reason and returns false if the entry would be refused.
fn add<T: Serialize>(
    list: &str,
    entries: &mut Vec<T>,
    source: &mut Source<'_>,
    field: &Field<'_>,
    entry: T,
) -> bool {
    let reason = refusal(list, entries.len(), &entry);
    let is_valid = reason.is_none();
    match reason {
        None => entries.push(entry),
        Some(reason) => source.note(field, Remark::Refused(reason)),
    }
    is_valid
}

/// The reason why a list with a number of entries cannot contain a further entry.
fn refusal(list: &str, entries: usize, entry: &impl Serialize) -> Option<String> {
    if entries >= MAX_ENTRIES {
        return Some(format!("a policy has at most {MAX_ENTRIES} {list}"));
    }
    let value = match serde_json::to_value(entry) {
        Ok(value) => value,
        Err(error) => return Some(error.to_string()),
    };
    let problems = read(serde_json::json!({ list: [value] }), Level::Namespaced).problems;
    let text = |problem: &crate::spec::Problem| {
        let text = problem.to_string();
        let entry = text.strip_prefix(list).and_then(|text| text.strip_prefix("[0]"));
        entry.unwrap_or(&text).trim_start_matches(['.', ':', ' ']).to_owned()
    };
    let reasons: Vec<String> = problems.iter().map(text).collect();
    (!reasons.is_empty()).then(|| reasons.join("; "))
}

/// Truncates a name to the maximum length of a schedule's name and of a label value.
fn shortened(name: &str) -> &str {
    name.get(..name.floor_char_boundary(MAX_NAME)).unwrap_or_default()
}

/// A note about a field of an imported object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Note {
    /// The location of the object: `web.yaml: document 2`.
    pub location: Arc<str>,
    /// The kind and the name of the object: `ScaledObject shop/web`.
    pub object: Arc<str>,
    /// The path of the field: `spec.triggers[0]`. Empty for the object as a whole.
    pub field: String,
    /// The content of the note.
    pub remark: Remark,
}

/// The content of a [`Note`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Remark {
    /// Policies have no counterpart of the field, for this reason.
    NoCounterpart(&'static str),
    /// The field is invalid in the imported object.
    Invalid {
        /// The valid values.
        expected: &'static str,
        /// The value of the field, possibly truncated.
        value: String,
    },
    /// The field is required in the imported object, but absent.
    Missing,
    /// The imported object has no such field.
    Unknown {
        /// The field with the most similar name.
        suggestion: Option<&'static str>,
    },
    /// A policy with the field would be invalid, for this reason.
    Refused(String),
    /// The field is imported, with this difference in its effect.
    Differs(Cow<'static, str>),
    /// The field keeps its effect after the import, for this reason.
    Kept(&'static str),
    /// A step for the operator that completes the import.
    Next(String),
}

impl Remark {
    /// Whether the field has no effect after the import.
    pub fn is_lost(&self) -> bool {
        match self {
            Self::NoCounterpart(_)
            | Self::Invalid { .. }
            | Self::Missing
            | Self::Unknown { .. }
            | Self::Refused(_) => true,
            Self::Differs(_) | Self::Kept(_) | Self::Next(_) => false,
        }
    }
}

impl fmt::Display for Remark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NoCounterpart(reason) => write!(f, "not imported: {reason}"),
            Self::Invalid { expected, value } => write!(f, "not imported: must be {expected}, not {value}"),
            Self::Missing => f.write_str("not imported: is missing"),
            Self::Unknown { suggestion: None } => f.write_str("not imported: the field is unknown"),
            Self::Unknown { suggestion: Some(name) } => {
                write!(f, "not imported: the field is unknown; did you mean {name}?")
            }
            Self::Refused(reason) => write!(f, "not imported: {reason}"),
            Self::Differs(difference) => write!(f, "imported with a difference: {difference}"),
            Self::Kept(reason) => write!(f, "stays in effect: {reason}"),
            Self::Next(step) => write!(f, "next step: {step}"),
        }
    }
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { location, object, field, remark } = self;
        write!(f, "{location}: {object}: ")?;
        if !field.is_empty() {
            write!(f, "{field}: ")?;
        }
        remark.fmt(f)
    }
}

/// Prints a value for a note.
pub(super) fn shown(value: &Value) -> String {
    const LONGEST: usize = 40;
    match value {
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "a mapping".to_owned(),
        Value::String(text) => format!("{:?}", text.chars().take(LONGEST).collect::<String>()),
        value => value.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_shortened_between_characters() {
        assert_eq!(shortened("office"), "office");
        assert_eq!(shortened(&"x".repeat(MAX_NAME + 1)).len(), MAX_NAME);
        assert_eq!(shortened(&"é".repeat(MAX_NAME)), "é".repeat(MAX_NAME / 2));
    }

    #[test]
    fn field_without_effect_is_lost() {
        let lost = [
            Remark::NoCounterpart("no"),
            Remark::Invalid { expected: "a number", value: "x".to_owned() },
            Remark::Missing,
            Remark::Unknown { suggestion: None },
            Remark::Refused("no".to_owned()),
        ];
        let kept = [Remark::Differs("later".into()), Remark::Kept("stays"), Remark::Next("apply".to_owned())];
        assert!(lost.iter().all(Remark::is_lost) && !kept.iter().any(Remark::is_lost));
    }
}
