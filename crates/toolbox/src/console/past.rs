//! The recent past of an HPA, from a situation of `why`, the controller's record, the observations of the console, and
//! the Prometheus servers that the scaling policy names.

use std::collections::BTreeMap;
use std::sync::Arc;

use ::console::{Observation, Subject};
use autoscaling::event::EventKind;
use autoscaling::spec::MetricSource;
use controller::record::wire::{DecisionEntry, DecisionList, Outcome};
use futures::future::join_all;
use jiff::{SignedDuration, Timestamp};
use policies::spec::{MetricOrigin, MetricRule};
use sources::{Form, PastTarget, Sources, TimeRange};

use super::leader::LeaderChanges;
use crate::simulate::past::{Past, PastDecision, PastStatus};
use crate::simulate::what_if::{PastError, SourceLoads};
use crate::why::Situation;
use crate::why::findings::occurrences;
use policies::steps::PolicyEffect;

/// The longest past to draw with a record.
const RECORDED: SignedDuration = SignedDuration::from_hours(24);
/// The longest past to draw without a record.
const SEEN: SignedDuration = SignedDuration::from_hours(1);
/// Maximum number of metrics whose past values are read for one question.
const MAX_METRICS: usize = 10;
/// The field managers of HPA controllers. Their writes of `spec.replicas` are rescales, not foreign writes.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "concertina"];

/// Returns the longest past to draw.
pub(super) fn longest(record: Option<&DecisionList>) -> SignedDuration {
    if record.is_some_and(|record| !record.decisions.is_empty()) { RECORDED } else { SEEN }
}

/// Collects the past. Returns `None` if the HPA itself was not read.
pub(super) fn past(
    situation: &Situation,
    record: Option<&DecisionList>,
    subject: &Subject,
    changes: &LeaderChanges,
) -> Option<Past> {
    let hpa = situation.hpa.as_ref()?;
    let reference = &hpa.spec.target;
    let entries = record.map(|record| record.decisions.as_slice()).unwrap_or_default();
    let current = PastDecision {
        first: situation.at,
        last: situation.at,
        syncs: 1,
        explanation: Arc::new(situation.explanation.clone()),
        policy: situation.policy.clone().map(Arc::new),
        wanted: Some(situation.explanation.current),
        ratios: Vec::new(),
    };
    let mut happenings = writers(situation);
    happenings.extend(changes.marks());
    happenings.sort();
    Some(Past {
        namespace: situation.key.namespace.to_string(),
        name: situation.key.name.to_string(),
        target: format!("{}/{}", reference.kind, reference.name),
        spec: Arc::clone(&hpa.spec),
        settings: situation.settings.clone(),
        period: situation.period,
        to: situation.at,
        decisions: entries.iter().rev().map(decision).collect(),
        current,
        observations: subject.observations.iter().map(status).collect(),
        counts: counts(situation, subject),
        events: events(situation),
        happenings,
    })
}

fn decision(entry: &DecisionEntry) -> PastDecision {
    let result = &entry.result;
    PastDecision {
        first: entry.first_at,
        last: entry.last_at,
        syncs: entry.syncs,
        explanation: Arc::new(entry.explanation.clone()),
        policy: entry.policy.clone().map(PolicyEffect::from).map(Arc::new),
        wanted: if result.outcome == Outcome::Done { result.to } else { result.from },
        ratios: entry
            .ratios
            .iter()
            .map(|range| (range.metric.clone(), range.lowest, range.highest))
            .collect(),
    }
}

fn status(observation: &Observation) -> PastStatus {
    let Observation { at, current, desired, values } = *observation;
    PastStatus { at, current, desired, values: values.to_vec() }
}

/// Returns the changes of the replica count, from the events and from the watch.
fn counts(situation: &Situation, subject: &Subject) -> Vec<(Timestamp, i32)> {
    let seen = subject.history.iter().map(|count| (count.at, count.replicas));
    let mut counts: Vec<_> = situation.recent_events.iter().flat_map(occurrences).chain(seen).collect();
    counts.sort_unstable();
    counts.dedup_by_key(|(_, count)| *count);
    counts
}

fn events(situation: &Situation) -> Vec<(Timestamp, bool, String, String)> {
    let events = situation.recent_events.iter().map(|event| {
        let content = &event.content;
        let is_warning = content.kind == EventKind::Warning;
        (event.last, is_warning, content.reason.clone(), content.message.clone())
    });
    let mut events: Vec<_> = events.collect();
    events.sort();
    events
}

/// Returns the last status write of each manager if several managers write the status, and the last write of the
/// target's replicas by each foreign manager.
fn writers(situation: &Situation) -> Vec<(Timestamp, String)> {
    let statuses = situation.hpa.as_ref().map(|hpa| hpa.status_writers.as_slice()).unwrap_or_default();
    let of_status = statuses
        .iter()
        .filter(|_| statuses.len() > 1)
        .map(|writer| (writer.at, format!("status written by {}", writer.manager)));
    let object = situation.target.as_ref().and_then(|target| target.object.as_ref());
    let managers = object.map(|object| object.replicas_owners.as_slice()).unwrap_or_default();
    let is_controller = |manager: &str| {
        CONTROLLERS.contains(&manager) || statuses.iter().any(|writer| &*writer.manager == manager)
    };
    let of_replicas = managers.iter().filter(|manager| !is_controller(&manager.manager));
    let of_replicas = of_replicas
        .filter_map(|manager| Some((manager.time?, format!("spec.replicas written by {}", manager.manager))));
    of_status.chain(of_replicas).collect()
}

/// Reads past values of the metrics for which the scaling policy names a Prometheus server. `sources` has the servers
/// of `--metric-sources-file`. `range` is `None` if there is no past to simulate.
pub(super) async fn source_loads(
    situation: &Situation,
    sources: Option<&Sources>,
    range: Option<TimeRange>,
) -> SourceLoads {
    let (Some(hpa), Some(rules), Some(range)) = (&situation.hpa, &situation.rules, range) else {
        return SourceLoads::default();
    };
    let reference = &hpa.spec.target;
    let target =
        PastTarget { namespace: &situation.key.namespace, kind: &reference.kind, name: &reference.name };
    let rules = rules.policy.spec.metrics.as_deref().unwrap_or_default();
    let metrics = hpa.spec.metrics.iter().enumerate();
    let found = metrics.filter_map(|(index, metric)| Some((index, rule_of(rules, metric)?)));
    let reads = found.enumerate().map(async |(position, (index, (rule, form)))| {
        let read = match sources {
            None => Some(Err(PastError::NoFile(sources::described(&rule.origin)))),
            Some(_) if position >= MAX_METRICS => Some(Err(PastError::TooManyMetrics(MAX_METRICS))),
            Some(sources) => {
                let read = sources.past(rule, form, &target, range).await;
                read.map(|read| read.map_err(PastError::from))
            }
        };
        Some((index, read?))
    });
    let by_metric: BTreeMap<_, _> = join_all(reads).await.into_iter().flatten().collect();
    SourceLoads { by_metric }
}

/// Returns the rule of the scaling policy that reads a metric from a Prometheus server, and the form of the metric's
/// numbers.
fn rule_of<'a>(rules: &'a [MetricRule], metric: &MetricSource) -> Option<(&'a MetricRule, Form)> {
    let (identifier, form) = match metric {
        MetricSource::Pods { metric, .. } => (metric, Form::PerPod),
        MetricSource::Object { metric, .. } | MetricSource::External { metric, .. } => (metric, Form::Single),
        _ => return None,
    };
    let rule = MetricRule::find(rules, &identifier.name)?;
    matches!(rule.origin, MetricOrigin::Prometheus { .. }).then_some((rule, form))
}
