//! The deployment controller: one ReplicaSet for each pod template that a Deployment has had.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::names::template_hash;
use super::objects::{by_controller, controller, name, namespace, owned_by, set, uid, wanted_replicas};
use crate::embedded::Cluster;

const HASH_LABEL: &str = "pod-template-hash";

/// One pass over all Deployments.
pub(super) fn reconcile(cluster: &Cluster) {
    let deployments = cluster.list("apps/deployments", None);
    let replica_sets = cluster.list("apps/replicasets", None);
    let owned = by_controller(&replica_sets);
    for deployment in &deployments {
        reconcile_one(
            cluster,
            deployment,
            owned.get(uid(deployment)).map_or(&[], Vec::as_slice),
        );
    }
    let alive: BTreeSet<_> = deployments.iter().map(uid).collect();
    for replica_set in &replica_sets {
        let owner = controller(replica_set).filter(|owner| owner["kind"] == "Deployment");
        if owner.is_some_and(|owner| !alive.contains(owner["uid"].as_str().unwrap_or_default())) {
            // Gone already is as good.
            let _ = cluster.delete("apps/replicasets", namespace(replica_set), name(replica_set));
        }
    }
}

fn reconcile_one(cluster: &Cluster, deployment: &Value, replica_sets: &[&Value]) {
    let hash = template_hash(&deployment["spec"]["template"]);
    let wanted = wanted_replicas(deployment);
    let is_current = |set: &&&Value| set["metadata"]["labels"][HASH_LABEL] == hash.as_str();
    let Some(current) = replica_sets.iter().find(is_current) else {
        // A conflict of names means that somebody else owns the name: nothing that a pass could mend.
        let _ = cluster.create(replica_set_of(deployment, &hash, wanted));
        return;
    };
    resize(cluster, current, wanted);

    let ready = current
        .pointer("/status/readyReplicas")
        .and_then(Value::as_u64)
        .unwrap_or(0);
    let mut still_needed = wanted.saturating_sub(usize::try_from(ready).unwrap_or(usize::MAX));
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
    let mut template = deployment["spec"]["template"].clone();
    set(&mut template, &["metadata", "labels", HASH_LABEL], hash);
    let mut selector = deployment["spec"]["selector"].clone();
    set(&mut selector, &["matchLabels", HASH_LABEL], hash);
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)),
            "namespace": namespace(deployment),
            "labels": template["metadata"]["labels"],
            "ownerReferences": [owned_by(deployment)],
        },
        "spec": {"replicas": replicas, "selector": selector, "template": template},
    })
}
