//! The deployment controller: one ReplicaSet for each pod template of a Deployment.

use std::time::Duration;

use serde_json::{Value, json};

use super::informer_cache::InformerCache;
use super::objects::{name, namespace, owned_by, set, uid};
use super::pod_state::{Id, Owner};
use super::pods::HASH_LABEL;
use super::rollout::{self, DesiredRollout, Set, Strategy};
use super::{Pass, RETRY};
use crate::object::{at, int, text};

/// Default number of retained ReplicaSets of old templates.
const HISTORY: i64 = 10;

/// Returns the replicas and the strategy of a Deployment.
pub(super) fn desired_rollout(deployment: &Owner) -> DesiredRollout {
    let replicas = i64::try_from(deployment.wanted).unwrap_or(i64::MAX);
    let object = &deployment.object;
    let strategy = if text(object, &["spec", "strategy", "type"]) == "Recreate" {
        Strategy::Recreate
    } else {
        let part = |field: &str, rounding: fn(i64, i64) -> i64| {
            let value = at(object, &["spec", "strategy", "rollingUpdate", field]);
            value.map_or_else(|| rounding(25, replicas), |value| part_of(value, replicas, rounding))
        };
        let (surge, unavailable) = (part("maxSurge", rounded_up), part("maxUnavailable", rounded_down));
        // With a surge of zero and no unavailable pods, a rollout cannot start. In this case one pod may be
        // unavailable, as in Kubernetes.
        let unavailable = if surge == 0 && unavailable == 0 { 1 } else { unavailable };
        Strategy::RollingUpdate { surge, unavailable: unavailable.min(replicas) }
    };
    DesiredRollout {
        replicas,
        strategy,
        is_paused: at(object, &["spec", "paused"]) == Some(&Value::Bool(true)),
    }
}

/// Resolves a count or a percentage of the replicas.
fn part_of(value: &Value, replicas: i64, rounding: fn(i64, i64) -> i64) -> i64 {
    match value {
        Value::String(text) => {
            let percent = text.strip_suffix('%').and_then(|percent| percent.parse().ok());
            percent.map_or(0, |percent: i64| rounding(percent.clamp(0, 10_000), replicas))
        }
        value => value.as_i64().unwrap_or(0).max(0),
    }
}

fn rounded_up(percent: i64, replicas: i64) -> i64 {
    percent.saturating_mul(replicas).saturating_add(99) / 100
}

fn rounded_down(percent: i64, replicas: i64) -> i64 {
    percent.saturating_mul(replicas) / 100
}

/// The changes that a Deployment requires.
struct Plan {
    desired: DesiredRollout,
    /// The missing ReplicaSet of the current template. `None` if it exists or must not be created yet.
    missing: Option<Value>,
    /// The new sizes of the ReplicaSets.
    sizes: Vec<(Id, i64)>,
    /// Namespace and name of empty ReplicaSets beyond the history limit.
    expired: Vec<(String, String)>,
}

impl Plan {
    fn new(cache: &InformerCache, deployment: &Owner, now: Duration) -> Self {
        let sets: Vec<_> =
            deployment.sets.iter().filter_map(|id| Some((*id, cache.owners.get(id)?))).collect();
        let desired = desired_rollout(deployment);
        let figures = |set: &Owner| {
            let available = whole(cache.count(set, now).available);
            Set { size: whole(set.wanted), available, pods: whole(set.pods.len()), sized_for: set.sized_for }
        };
        let new = sets.iter().find(|(_, set)| set.hash == deployment.hash);
        let old: Vec<_> = sets.iter().filter(|(_, set)| set.hash != deployment.hash).collect();
        let old_figures: Vec<_> = old.iter().map(|(_, set)| figures(set)).collect();
        let step = rollout::step(&desired, new.map(|(_, set)| figures(set)), &old_figures);

        let missing = step.new.filter(|_| new.is_none());
        let missing = missing.map(|size| replica_set_of(&deployment.object, &deployment.hash, size));
        let new_size = new.map(|(id, _)| *id).into_iter().zip(step.new);
        let sizes = new_size.chain(old.iter().map(|(id, _)| *id).zip(step.old)).collect();
        let limit = int(&deployment.object, &["spec", "revisionHistoryLimit"]).unwrap_or(HISTORY);
        let empty: Vec<_> = old.iter().filter(|(_, set)| set.wanted == 0 && set.pods.is_empty()).collect();
        let too_many = empty.len().saturating_sub(usize::try_from(limit).unwrap_or(0));
        let path = |set: &Owner| (namespace(&set.object).to_owned(), name(&set.object).to_owned());
        let expired = empty.iter().take(too_many).map(|(_, set)| path(set)).collect();
        Self { desired, missing, sizes, expired }
    }
}

impl Pass<'_> {
    /// Takes one rollout step of a Deployment. Returns whether anything changed.
    pub(super) fn roll_out(&mut self, id: Id) -> bool {
        let Some(deployment) = self.state.cache.owners.get(&id) else { return false };
        let plan = Plan::new(&self.state.cache, deployment, self.now.at);
        for (namespace, name) in &plan.expired {
            // A ReplicaSet that no longer exists needs no deletion.
            let _ = self.cluster.delete("apps/replicasets", namespace, name);
        }
        let is_made = plan.missing.is_some_and(|set| self.create_set(set, &plan.desired));
        plan.sizes.into_iter().fold(is_made, |any, (id, size)| self.resize(id, size, &plan.desired) || any)
    }

    fn create_set(&mut self, set: Value, desired: &DesiredRollout) -> bool {
        // After a name conflict, a retry cannot help, because another owner has the name.
        let Ok(created) = self.cluster.create(set) else { return false };
        self.state.cache.update(self.now.at);
        let id = self.state.cache.id(uid(&created));
        if let Some(set) = id.and_then(|id| self.state.cache.owners.get_mut(&id)) {
            set.sized_for = Some((desired.replicas, desired.max_pods()));
        }
        true
    }

    /// Sets the size of a ReplicaSet. Returns whether the size changed.
    fn resize(&mut self, id: Id, size: i64, desired: &DesiredRollout) -> bool {
        let Some(replica_set) = self.state.cache.owners.get_mut(&id) else { return false };
        replica_set.sized_for = Some((desired.replicas, desired.max_pods()));
        if whole(replica_set.wanted) == size {
            return false;
        }
        let mut resized = Value::clone(&replica_set.object);
        set(&mut resized, &["spec", "replicas"], size);
        let is_written = self.cluster.update(resized).is_ok();
        if !is_written {
            // The ReplicaSet was changed or deleted in the meantime.
            self.state.cache.schedule_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
        is_written
    }
}

fn whole(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

fn replica_set_of(deployment: &Value, hash: &str, replicas: i64) -> Value {
    let mut template = at(deployment, &["spec", "template"]).cloned().unwrap_or_default();
    set(&mut template, &["metadata", "labels", HASH_LABEL], hash);
    let mut selector = at(deployment, &["spec", "selector"]).cloned().unwrap_or_default();
    set(&mut selector, &["matchLabels", HASH_LABEL], hash);
    let mut spec = json!({"replicas": replicas, "selector": selector, "template": template});
    if let Some(min_ready) = at(deployment, &["spec", "minReadySeconds"]) {
        set(&mut spec, &["minReadySeconds"], min_ready.clone());
    }
    json!({
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": format!("{}-{hash}", name(deployment)),
            "namespace": namespace(deployment),
            "labels": at(&template, &["metadata", "labels"]),
            "ownerReferences": [owned_by(deployment)],
        },
        "spec": spec,
    })
}
