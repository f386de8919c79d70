//! The status of every workload, from its pods.

use serde_json::{Map, Value, json};

use super::Moment;
use super::deployments::{current_hash, hash_of};
use super::objects::{by_controller, name, set, uid, wanted_replicas};
use super::pods::{is_active, is_ready};
use crate::embedded::Cluster;
use crate::embedded::object::{at, list, text, time_text};

/// Pods of one workload, counted.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    replicas: u64,
    ready: u64,
}

impl Count {
    fn of(pods: &[&Value]) -> Self {
        pods.iter().filter(|pod| is_active(pod)).fold(Self::default(), |count, pod| Self {
            replicas: count.replicas + 1,
            ready: count.ready + u64::from(is_ready(pod)),
        })
    }

    fn plus(self, other: Self) -> Self {
        Self { replicas: self.replicas + other.replicas, ready: self.ready + other.ready }
    }
}

/// One pass over the statuses.
pub(super) fn reconcile(cluster: &Cluster, now: Moment) {
    let pods = cluster.list("pods", None);
    let pods = by_controller(&pods);
    let count = |owner: &Value| Count::of(pods.get(uid(owner)).map_or(&[], Vec::as_slice));

    let replica_sets = cluster.list("apps/replicasets", None);
    for replica_set in &replica_sets {
        let count = count(replica_set);
        let fields = [
            ("fullyLabeledReplicas", count.replicas),
            ("readyReplicas", count.ready),
            ("availableReplicas", count.ready),
        ];
        write(cluster, replica_set, status_of(replica_set, count, &fields));
    }
    for controller in cluster.list("replicationcontrollers", None) {
        let count = count(&controller);
        let fields = [
            ("fullyLabeledReplicas", count.replicas),
            ("readyReplicas", count.ready),
            ("availableReplicas", count.ready),
        ];
        write(cluster, &controller, status_of(&controller, count, &fields));
    }
    for stateful_set in cluster.list("apps/statefulsets", None) {
        let count = count(&stateful_set);
        let fields = [
            ("readyReplicas", count.ready),
            ("availableReplicas", count.ready),
            ("currentReplicas", count.replicas),
            ("updatedReplicas", count.replicas),
        ];
        write(cluster, &stateful_set, status_of(&stateful_set, count, &fields));
    }
    for widget in cluster.list("example.com/widgets", None) {
        let mut status = status_of(&widget, count(&widget), &[]);
        set(&mut status, &["selector"], widget_selector(&widget));
        write(cluster, &widget, status);
    }

    let sets = by_controller(&replica_sets);
    for deployment in cluster.list("apps/deployments", None) {
        let sets = sets.get(uid(&deployment)).map_or(&[][..], Vec::as_slice);
        let hash = current_hash(&deployment);
        let (mut all, mut updated) = (Count::default(), Count::default());
        for replica_set in sets {
            let count = count(replica_set);
            all = all.plus(count);
            if hash_of(replica_set) == hash {
                updated = updated.plus(count);
            }
        }
        write(cluster, &deployment, deployment_status(&deployment, all, updated, now));
    }
}

/// What every workload says, and `counts` where they are not 0: Go leaves zeros out.
fn status_of(object: &Value, count: Count, counts: &[(&str, u64)]) -> Value {
    let mut status = Map::new();
    if let Some(generation) = at(object, &["metadata", "generation"]) {
        status.insert("observedGeneration".to_owned(), generation.clone());
    }
    status.insert("replicas".to_owned(), count.replicas.into());
    for (field, count) in counts.iter().filter(|(_, count)| *count > 0) {
        status.insert((*field).to_owned(), (*count).into());
    }
    Value::Object(status)
}

fn deployment_status(deployment: &Value, all: Count, updated: Count, now: Moment) -> Value {
    let wanted = u64::try_from(wanted_replicas(deployment)).unwrap_or(u64::MAX);
    let mut status = status_of(
        deployment,
        all,
        &[
            ("updatedReplicas", updated.replicas),
            ("readyReplicas", all.ready),
            ("availableReplicas", all.ready),
            ("unavailableReplicas", wanted.max(all.replicas).saturating_sub(all.ready)),
        ],
    );
    // Of the wanted pods a quarter, rounded down, may be missing: the default of maxUnavailable.
    let available = all.ready >= wanted - wanted / 4;
    let done = updated.ready >= wanted && all.replicas == updated.replicas;
    let conditions = [
        if available {
            ("Available", "True", "MinimumReplicasAvailable", "Deployment has minimum availability.")
        } else {
            (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        },
        if done {
            ("Progressing", "True", "NewReplicaSetAvailable", "ReplicaSet has successfully progressed.")
        } else {
            ("Progressing", "True", "ReplicaSetUpdated", "ReplicaSet is progressing.")
        },
    ];
    let conditions = conditions.map(|condition| keep_times(deployment, condition, now));
    set(&mut status, &["conditions"], conditions.to_vec());
    status
}

/// A condition with the times it has already, as far as they still hold.
fn keep_times(
    object: &Value,
    (kind, status, reason, message): (&str, &str, &str, &str),
    now: Moment,
) -> Value {
    let time = time_text(now.time);
    let before = list(object, &["status", "conditions"]).iter().find(|it| text(it, &["type"]) == kind);
    let before = before.unwrap_or(&Value::Null);
    let kept = |field: &str, same: bool| match text(before, &[field]) {
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
        "lastTransitionTime": kept("lastTransitionTime", same_status),
        "lastUpdateTime": kept("lastUpdateTime", same_reason),
    })
}

/// `spec.selector` as text, or the label that pods of a Widget without template carry.
fn widget_selector(widget: &Value) -> String {
    match at(widget, &["spec", "selector"]) {
        Some(Value::String(selector)) => selector.clone(),
        Some(selector) => at(selector, &["matchLabels"])
            .and_then(Value::as_object)
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(","),
        None => match text(widget, &["spec", "template", "metadata", "labels", "app"]) {
            "" => format!("widget={}", name(widget)),
            app => format!("app={app}"),
        },
    }
}

fn write(cluster: &Cluster, object: &Value, status: Value) {
    if at(object, &["status"]) != Some(&status) {
        let mut object = object.clone();
        set(&mut object, &["status"], status);
        // Changed meanwhile: the next pass reads it again.
        let _ = cluster.update_status(object);
    }
}
