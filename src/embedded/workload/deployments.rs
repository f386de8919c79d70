//! The deployment controller: one ReplicaSet for each pod template that a Deployment has had.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names::template_hash;
use super::objects::{by_controller, controller, name, namespace, owned_by, set, uid, wanted_replicas};
use crate::embedded::Cluster;
use crate::embedded::object::{at, int, text};

const HASH_LABEL: &str = "pod-template-hash";

/// What `hash_of` answers for the ReplicaSet of a Deployment's present template.
pub(super) fn current_hash(deployment: &Value) -> String {
    template_hash(at(deployment, &["spec", "template"]).unwrap_or(&Value::Null))
}

/// Of which template a ReplicaSet is.
pub(super) fn hash_of(replica_set: &Value) -> &str {
    text(replica_set, &["metadata", "labels", HASH_LABEL])
}

/// One pass over all Deployments.
pub(super) fn reconcile(cluster: &Cluster) {
    let deployments = cluster.list("apps/deployments", None);
    let replica_sets = cluster.list("apps/replicasets", None);
    let owned = by_controller(&replica_sets);
    for deployment in &deployments {
        reconcile_one(cluster, deployment, owned.get(uid(deployment)).map_or(&[], Vec::as_slice));
    }
    let alive: BTreeSet<_> = deployments.iter().map(uid).collect();
    for replica_set in &replica_sets {
        let deployment = controller(replica_set).filter(|owner| text(owner, &["kind"]) == "Deployment");
        if deployment.is_some_and(|deployment| !alive.contains(text(deployment, &["uid"]))) {
            // Gone already is as good.
            let _ = cluster.delete("apps/replicasets", namespace(replica_set), name(replica_set));
        }
    }
}

fn reconcile_one(cluster: &Cluster, deployment: &Value, replica_sets: &[&Value]) {
    let hash = current_hash(deployment);
    let wanted = wanted_replicas(deployment);
    let is_current = |set: &&&Value| hash_of(set) == hash;
    let Some(current) = replica_sets.iter().find(is_current) else {
        // A conflict of names means that somebody else owns the name: nothing that a pass could mend.
        let _ = cluster.create(replica_set_of(deployment, &hash, wanted));
        return;
    };
    resize(cluster, current, wanted);

    let ready = int(current, &["status", "readyReplicas"]).unwrap_or(0);
    let mut still_needed = wanted.saturating_sub(usize::try_from(ready).unwrap_or(0));
    for old in replica_sets.iter().filter(|set| !is_current(set)) {
        let kept = wanted_replicas(old).min(still_needed);
        still_needed -= kept;
        resize(cluster, old, kept);
    }
}

fn resize(cluster: &Cluster, replica_set: &Value, replicas: usize) {
    if wanted_replicas(replica_set) != replicas {
        let mut resized = replica_set.clone();
        set(&mut resized, &["spec", "replicas"], replicas);
        // Changed meanwhile: the next pass reads it again.
        let _ = cluster.update(resized);
    }
}

fn replica_set_of(deployment: &Value, hash: &str, replicas: usize) -> Value {
    let mut template = at(deployment, &["spec", "template"]).cloned().unwrap_or_default();
    set(&mut template, &["metadata", "labels", HASH_LABEL], hash);
    let mut selector = at(deployment, &["spec", "selector"]).cloned().unwrap_or_default();
    set(&mut selector, &["matchLabels", HASH_LABEL], hash);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)),
            "namespace": namespace(deployment),
            "labels": at(&template, &["metadata", "labels"]),
            "ownerReferences": [owned_by(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}
