//! The recent past of an HPA, from a situation of `why`, the controller's record, and the observations of the
//! console.

use std::sync::Arc;

use ::console::Subject;
use ::console::observations::Observation;
use autoscaling::event::EventKind;
use controller::record::wire::{DecisionEntry, DecisionList, Outcome};
use jiff::{SignedDuration, Timestamp};

use super::leaders::LeaderChanges;
use crate::simulate::past::{Past, PastDecision, PastStatus};
use crate::why::Situation;
use crate::why::findings::occurrences;
use policies::steps::PolicyEffect;

/// The longest past with a record.
const RECORDED: SignedDuration = SignedDuration::from_hours(24);
/// The longest past without a record.
const SEEN: SignedDuration = SignedDuration::from_hours(1);

/// The field managers of HPA controllers. Their writes of `spec.replicas` are rescales, not foreign writes.
const CONTROLLERS: [&str; 2] = ["kube-controller-manager", "concertina"];

/// The longest past to draw.
pub(super) fn longest(record: Option<&DecisionList>) -> SignedDuration {
    if record.is_some_and(|record| !record.decisions.is_empty()) { RECORDED } else { SEEN }
}

/// Collects the past. `None` if the HPA itself was not read.
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

/// The replica counts from the events and from the watch.
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

/// The last status write of each manager, if several managers write the status, and the last write of each foreign
/// manager to the target's replicas.
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
