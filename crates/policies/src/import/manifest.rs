//! The ScalingPolicy that an import creates.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde::Serialize;

use super::note::Remark;
use super::{Field, Source};
use crate::spec::{Cause, Level, MAX_ENTRIES, Mode, Strategy, read};

/// Maximum bytes of the name of a schedule, and of a label value.
const MAX_NAME: usize = 63;
/// The label of an HPA that an imported policy selects.
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
    /// A metric from a query.
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
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Schedule {
    pub(super) name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) time_zone: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) start: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) end: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) from: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) to: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) min_replicas: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) max_replicas: Option<i64>,
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
    /// An empty policy for the HPAs with `labels`.
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
        }
    }

    /// An empty policy for one HPA, and the label that the HPA needs.
    pub(super) fn labelled(source: &Source<'_>, prefix: &str) -> (Self, String) {
        // A label value has at most 63 bytes and ends with a letter or a digit. A name may be longer.
        let value = shortened(source.name).trim_end_matches(|last: char| !last.is_ascii_alphanumeric());
        let label = format!("{LABEL}={value}");
        let labels = [(LABEL.to_owned(), value.to_owned())].into();
        (Self::new(source, prefix, labels), label)
    }

    /// Sets the mode, and the count of a pinned mode.
    pub(super) fn set_mode(&mut self, mode: Mode, replicas: Option<i64>) {
        self.spec.mode = Some(mode);
        self.spec.replicas = replicas;
    }

    /// Adds a schedule, or notes why a policy cannot contain it. Returns whether it was added.
    pub(super) fn add_schedule(
        &mut self,
        source: &mut Source<'_>,
        field: &Field<'_>,
        schedule: Schedule,
    ) -> bool {
        let schedule = Schedule { name: shortened(&schedule.name).to_owned(), ..schedule };
        let reason = refusal("schedules", self.spec.schedules.len(), &schedule);
        let is_valid = reason.is_none();
        match reason {
            None => self.spec.schedules.push(schedule),
            Some(reason) => source.note(field, Remark::Refused(reason)),
        }
        is_valid
    }

    /// Adds a fallback, or notes why a policy cannot contain it. Returns whether it was added.
    pub(super) fn add_fallback(
        &mut self,
        source: &mut Source<'_>,
        field: &Field<'_>,
        fallback: Fallback,
    ) -> bool {
        let reason = refusal("fallback", self.spec.fallback.len(), &fallback);
        let is_valid = reason.is_none();
        match reason {
            None => self.spec.fallback.push(fallback),
            Some(reason) => source.note(field, Remark::Refused(reason)),
        }
        is_valid
    }

    /// Adds a metric, or notes why a policy cannot contain it. Each name has at most one query.
    pub(super) fn add_metric(&mut self, source: &mut Source<'_>, field: &Field<'_>, metric: Metric) {
        if let Some(other) = self.spec.metrics.iter().find(|other| other.metric == metric.metric) {
            if *other != metric {
                let reason =
                    "a policy has one query per metric name, and an earlier metric uses a different query";
                source.note(field, Remark::Refused(reason.to_owned()));
            }
            return;
        }
        match refusal("metrics", self.spec.metrics.len(), &metric) {
            None => self.spec.metrics.push(metric),
            Some(reason) => source.note(field, Remark::Refused(reason)),
        }
    }

    /// The policy, if it sets any field.
    pub(super) fn if_useful(self) -> Option<Self> {
        let Spec { mode, schedules, fallback, metrics, .. } = &self.spec;
        let is_useful =
            mode.is_some() || !schedules.is_empty() || !fallback.is_empty() || !metrics.is_empty();
        is_useful.then_some(self)
    }

    /// The name of the policy, with its namespace.
    pub fn name(&self) -> Arc<str> {
        match &self.metadata.namespace {
            Some(namespace) => format!("{namespace}/{}", self.metadata.name).into(),
            None => self.metadata.name.as_str().into(),
        }
    }
}

/// The reason why a list of a policy cannot contain a further entry: its length, or the entry itself.
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_is_shortened_between_characters() {
        assert_eq!(shortened("office"), "office");
        assert_eq!(shortened(&"x".repeat(MAX_NAME + 1)).len(), MAX_NAME);
        assert_eq!(shortened(&"é".repeat(MAX_NAME)), "é".repeat(MAX_NAME / 2));
    }
}
