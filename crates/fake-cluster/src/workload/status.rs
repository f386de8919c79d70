//! The status of every workload, computed from its pods.

use serde_json::{Map, Value, json};

use super::pod_state::{Counts, Id, Kind, Owner};
use super::pods::{name, set};
use super::rollout::desired_rollout;
use super::{Pass, RETRY, TimePoint};
use crate::object::{at, list, text, time_text};
use crate::scale::labels_text;

impl Pass<'_> {
    /// Writes the status of an owner if the status has changed.
    pub(super) fn write_status_of(&mut self, id: Id) {
        let cache = &self.state.cache;
        let Some(owner) = cache.owners.get(&id) else { return };
        let all = cache.count(owner, self.now.at);
        let ready_and_available = [("readyReplicas", all.ready), ("availableReplicas", all.available)];
        let status = match owner.kind {
            Kind::Deployment => {
                let sets = owner.sets.iter().filter_map(|id| cache.owners.get(id));
                let new = sets.into_iter().find(|set| set.hash == owner.hash);
                let updated = new.map(|set| cache.count(set, self.now.at)).unwrap_or_default();
                deployment_status(owner, all, updated, self.now)
            }
            Kind::ReplicaSet | Kind::ReplicationController => {
                let labeled = [("fullyLabeledReplicas", all.active)];
                status_of(owner, all, labeled.into_iter().chain(ready_and_available))
            }
            Kind::StatefulSet => {
                let pods = cache.pods_of(owner).filter(|(_, pod)| pod.is_active());
                let updated = pods.filter(|(_, pod)| pod.revision == owner.hash).count();
                let current = if updated == all.active { updated } else { all.active - updated };
                let revisions = [("currentReplicas", current), ("updatedReplicas", updated)];
                status_of(owner, all, ready_and_available.into_iter().chain(revisions))
            }
            Kind::Widget => {
                let mut status = status_of(owner, all, []);
                set(&mut status, &["selector"], widget_selector(&owner.object));
                status
            }
        };
        if at(&owner.object, &["status"]) == Some(&status) {
            return;
        }
        let mut object = Value::clone(&owner.object);
        set(&mut object, &["status"], status);
        if self.cluster.update_status(object).is_err() {
            // Another client has changed or deleted the owner.
            self.state.cache.schedule_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
    }
}

/// Builds a status with the fields that all workloads have, and adds `counts`. Counts of 0 are omitted, as in Go.
fn status_of<'a>(owner: &Owner, all: Counts, counts: impl IntoIterator<Item = (&'a str, usize)>) -> Value {
    let mut status = Map::new();
    if let Some(generation) = at(&owner.object, &["metadata", "generation"]) {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    status.insert("replicas".to_owned(), all.active.into());
    for (field, count) in counts.into_iter().filter(|(_, count)| *count > 0) {
        status.insert(field.to_owned(), count.into());
    }
    Value::Object(status)
}

fn deployment_status(deployment: &Owner, all: Counts, updated: Counts, now: TimePoint) -> Value {
    let wanted = deployment.wanted;
    let counts = [
        ("updatedReplicas", updated.active),
        ("readyReplicas", all.ready),
        ("availableReplicas", all.available),
        ("unavailableReplicas", wanted.max(all.active).saturating_sub(all.available)),
    ];
    let mut status = status_of(deployment, all, counts);
    let minimum = usize::try_from(desired_rollout(deployment).min_available()).unwrap_or(0);
    let is_available = all.available >= minimum;
    let is_done = updated.active == wanted && all.active == wanted && updated.available >= wanted;
    let conditions = [
        if is_available {
            ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        },
        if is_done {
            ("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet has successfully progressed.")
        } else {
            ("Progressing", "True", "ReplicaSetUpdated", "ReplicaSet is progressing.")
        },
    ];
    let conditions = conditions.map(|condition| keep_times(&deployment.object, condition, now));
    set(&mut status, &["conditions"], conditions.to_vec());
    status
}

/// Returns a condition. It keeps the previous times if its status, or its status and reason, are unchanged.
fn keep_times(
    object: &Value,
    (kind, status, reason, message): (&str, &str, &str, &str),
    now: TimePoint,
) -> Value {
    let time = time_text(now.time);
    let before = list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == kind);
    let before = before.unwrap_or(&Value::Null);
    let time_of = |field: &str, same: bool| match text(before, &[field]) {
        before if same && !before.is_empty() => before.to_owned(),
        _ => time.clone(),
    };
    let same_status = text(before, &["status"]) == status;
    let same_reason = same_status && text(before, &["reason"]) == reason;
    json!({
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": time_of("lastTransitionTime", same_status),
        "lastUpdateTime": time_of("lastUpdateTime", same_reason),
    })
}

/// Returns `spec.selector` as text. Without a selector, returns the label of the Widget's pods.
fn widget_selector(widget: &Value) -> String {
    match at(widget, &["spec", "selector"]) {
        Some(Value::String(selector)) => selector.clone(),
        Some(selector) => labels_text(at(selector, &["matchLabels"]).unwrap_or(&Value::Null)),
        None => match text(widget, &["spec", "template", "metadata", "labels", "app"]) {
            "" => format!("widget={}", name(widget)),
            app => format!("app={app}"),
        },
    }
}
