//! The status of every workload, from its pods.

use serde_json::{Map, Value, json};

use super::Moment;
use super::objects::{by_controller, name, text, uid, wanted_replicas};
use super::pods::{is_active, is_ready, whole_seconds};
use crate::embedded::Cluster;

/// Pods of one workload, counted.
#[derive(Debug, Clone, Copy, Default)]
struct Count {
    replicas: u64,
    ready: u64,
}

impl Count {
    fn of(pods: &[&Value]) -> Self {
        pods.iter()
            .filter(|pod| is_active(pod))
            .fold(Self::default(), |count, pod| Self {
                replicas: count.replicas + 1,
                ready: count.ready + u64::from(is_ready(pod)),
            })
    }

    fn plus(self, other: Self) -> Self {
        Self {
            replicas: self.replicas + other.replicas,
            ready: self.ready + other.ready,
        }
    }
}

/// One pass over the statuses.
pub(super) fn reconcile(cluster: &Cluster, now: Moment) {
    let pods = cluster.list("pods", None);
    let pods = by_controller(&pods);
    let count = |owner: &Value| Count::of(pods.get(uid(owner)).map_or(&[], Vec::as_slice));

    let replica_sets = cluster.list("apps/replicasets", None);
    for set in &replica_sets {
        let count = count(set);
        let fields = [
            ("fullyLabeledReplicas", count.replicas),
            ("readyReplicas", count.ready),
            ("availableReplicas", count.ready),
        ];
        write(cluster, set, status_of(set, count, &fields));
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
    for set in cluster.list("apps/statefulsets", None) {
        let count = count(&set);
        let fields = [
            ("readyReplicas", count.ready),
            ("availableReplicas", count.ready),
            ("currentReplicas", count.replicas),
            ("updatedReplicas", count.replicas),
        ];
        write(cluster, &set, status_of(&set, count, &fields));
    }
    for widget in cluster.list("example.com/widgets", None) {
        let mut status = status_of(&widget, count(&widget), &[]);
        status["selector"] = widget_selector(&widget).into();
        write(cluster, &widget, status);
    }

    let sets = by_controller(&replica_sets);
    for deployment in cluster.list("apps/deployments", None) {
        let sets = sets.get(uid(&deployment)).map_or(&[][..], Vec::as_slice);
        let hash = super::names::template_hash(&deployment["spec"]["template"]);
        let (mut all, mut updated) = (Count::default(), Count::default());
        for set in sets {
            let count = count(set);
            all = all.plus(count);
            if set["metadata"]["labels"]["pod-template-hash"] == hash.as_str() {
                updated = updated.plus(count);
            }
        }
        write(
            cluster,
            &deployment,
            deployment_status(&deployment, all, updated, now),
        );
    }
}

/// What every workload says, and `counts` where they are not 0: Go leaves zeros out.
fn status_of(object: &Value, count: Count, counts: &[(&str, u64)]) -> Value {
    let mut status = Map::new();
    if let Some(generation) = object.pointer("/metadata/generation") {
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
            (
                "unavailableReplicas",
                wanted.max(all.replicas).saturating_sub(all.ready),
            ),
        ],
    );
    // Of the wanted pods a quarter, rounded down, may be missing: the default of maxUnavailable.
    let available = all.ready >= wanted - wanted / 4;
    let done = updated.ready >= wanted && all.replicas == updated.replicas;
    let conditions = [
        if available {
            (
                "Available",
                "True",
                "MinimumReplicasAvailable",
                "Deployment has minimum availability.",
            )
        } else {
            (
                "Available",
                "False",
                "MinimumReplicasUnavailable",
                "Deployment does not have minimum availability.",
            )
        },
        if done {
            (
                "Progressing",
                "True",
                "NewReplicaSetAvailable",
                "ReplicaSet has successfully progressed.",
            )
        } else {
            (
                "Progressing",
                "True",
                "ReplicaSetUpdated",
                "ReplicaSet is progressing.",
            )
        },
    ];
    status["conditions"] = conditions
        .into_iter()
        .map(|condition| keep_times(deployment, condition, now))
        .collect();
    status
}

/// A condition with the times it has already, as far as they still hold.
fn keep_times(
    object: &Value,
    (kind, status, reason, message): (&str, &str, &str, &str),
    now: Moment,
) -> Value {
    let time = whole_seconds(now.time);
    let before = object.pointer("/status/conditions").and_then(Value::as_array);
    let before = before.and_then(|all| all.iter().find(|it| it["type"] == kind));
    let kept = |field: &str, same: bool| match before {
        Some(before) if same && before[field].is_string() => before[field].clone(),
        _ => time.clone().into(),
    };
    let same_status = before.is_some_and(|before| before["status"] == status);
    let same_reason = same_status && before.is_some_and(|before| before["reason"] == reason);
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
    match widget.pointer("/spec/selector") {
        Some(Value::String(selector)) => selector.clone(),
        Some(selector) => selector["matchLabels"]
            .as_object()
            .into_iter()
            .flatten()
            .map(|(key, value)| format!("{key}={}", value.as_str().unwrap_or_default()))
            .collect::<Vec<_>>()
            .join(","),
        None => match widget.pointer("/spec/template/metadata/labels/app") {
            Some(_) => format!("app={}", text(widget, "/spec/template/metadata/labels/app")),
            None => format!("widget={}", name(widget)),
        },
    }
}

fn write(cluster: &Cluster, object: &Value, status: Value) {
    if object["status"] != status {
        let mut object = object.clone();
        object["status"] = status;
        // Changed meanwhile: the next pass reads it again.
        let _ = cluster.update_status(object);
    }
}
