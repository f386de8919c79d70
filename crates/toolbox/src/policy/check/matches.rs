//! The HPAs that the policies of files match, each with the effect of all its policies.

use std::sync::Arc;

use jiff::Timestamp;
use policies::merge::{Policy, Source};
use policies::resolve::resolve;
use policies::spec::{Mode, ProblemReason};
use serde::Serialize;

use super::document::{Document, FieldProblem};
use super::world::World;

/// The effect of the policies of one HPA, at the time of the check.
#[derive(Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Row {
    pub(super) namespace: String,
    pub(super) name: String,
    /// The policies in the order of their precedence.
    pub(super) policies: Vec<String>,
    /// The mode, or `Invalid` for an invalid mode, which keeps the count.
    pub(super) mode: &'static str,
    /// The count of the mode Pinned.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) replicas: Option<i32>,
    /// The end of the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) until: Option<Timestamp>,
    /// The lowest count.
    pub(super) min_replicas: i32,
    /// The highest count.
    pub(super) max_replicas: i32,
    /// The changes of the HPA's bounds.
    pub(super) bounds: Vec<String>,
    /// The next start or end of a schedule, or the end of the mode.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) next_change: Option<Timestamp>,
    /// Fields without effect because an older policy of the same kind sets them. At least one of the two policies is
    /// in a file.
    pub(super) overridden: Vec<String>,
    /// Fields of the files' policies beyond the limits of a ClusterScalingPolicy.
    pub(super) problems: Vec<PolicyProblem>,
}

/// A field without effect on an HPA.
#[derive(Debug, Serialize)]
pub(super) struct PolicyProblem {
    pub(super) policy: String,
    #[serde(flatten)]
    pub(super) problem: FieldProblem,
}

/// The HPAs that a policy of a file applies to, by namespace and name.
pub(super) fn rows(documents: &[Document], world: &World, now: Timestamp) -> Vec<Row> {
    let mut rows = Vec::new();
    if documents.is_empty() {
        return rows;
    }
    for ((namespace, name), hpa) in &world.hpas {
        let Some(applicable) = world.applicable(namespace, hpa).filter(|found| found.is_checked) else {
            continue;
        };
        let policy = Arc::new(Policy::merge(applicable.sources));
        let rules = resolve(&policy, now);
        let bounded = rules.bounds.apply(hpa.min, hpa.max);
        let is_in_files =
            |index: usize| policy.sources.get(index).is_some_and(|source| world.is_in_files(source, hpa));
        let shown = |index: usize| policy.sources.get(index).map(Source::to_string).unwrap_or_default();
        let overridden =
            policy.overridden.iter().filter(|field| is_in_files(field.source) || is_in_files(field.by));
        let overridden = overridden.map(|field| {
            format!("{} of {} has no effect: {} is older", field.field, shown(field.source), shown(field.by))
        });
        // The documents report all other problems.
        let limited = policy.problems.iter().filter(|(index, problem)| {
            matches!(problem.reason, ProblemReason::Limited { .. }) && is_in_files(*index)
        });
        let problems =
            limited.map(|(index, problem)| PolicyProblem { policy: shown(*index), problem: problem.into() });
        rows.push(Row {
            namespace: namespace.clone(),
            name: name.clone(),
            policies: policy.sources.iter().map(Source::to_string).collect(),
            mode: rules.mode.mode.map_or("Invalid", Mode::as_str),
            replicas: (rules.mode.mode == Some(Mode::Pinned)).then_some(rules.mode.replicas),
            until: rules.mode.until,
            min_replicas: bounded.min,
            max_replicas: bounded.max,
            bounds: bounded.steps.iter().map(ToString::to_string).collect(),
            next_change: rules.next_edge,
            overridden: overridden.collect(),
            problems: problems.collect(),
        });
    }
    rows
}
