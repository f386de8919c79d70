//! The deployment controller: one ReplicaSet for each pod template of a Deployment.
//!
//! [`step`] computes the sizes of the ReplicaSets from plain numbers. Each call returns one step, which the pods then
//! follow. Counts are signed, because the rules subtract.

use std::time::Duration;

use serde_json::{Value, json};

use super::informer_cache::InformerCache;
use super::pods::{HASH_LABEL, Id, Owner, name, namespace, owned_by, set, uid};
use super::{Pass, RETRY};
use crate::object::{at, int, text};

/// Default number of retained ReplicaSets of previous templates.
const HISTORY: i64 = 10;

/// The replicas and strategy of a Deployment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct DesiredRollout {
    pub(super) replicas: i64,
    pub(super) strategy: Strategy,
    /// `spec.paused`. A paused Deployment scales but does not roll out.
    pub(super) is_paused: bool,
}

/// The strategy for the replacement of old pods.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Strategy {
    /// All old pods are removed before new pods are created.
    Recreate,
    /// Old pods are replaced step by step.
    RollingUpdate {
        /// `maxSurge` as a number of pods.
        surge: i64,
        /// `maxUnavailable` as a number of pods.
        unavailable: i64,
    },
}

impl DesiredRollout {
    fn surge(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { surge, .. } if self.replicas > 0 => surge,
            _ => 0,
        }
    }

    /// Returns the maximum number of pods.
    pub(super) fn max_pods(&self) -> i64 {
        self.replicas + self.surge()
    }

    /// Returns the minimum number of available pods.
    pub(super) fn min_available(&self) -> i64 {
        match self.strategy {
            Strategy::RollingUpdate { unavailable, .. } => (self.replicas - unavailable).max(0),
            Strategy::Recreate => self.replicas,
        }
    }
}

/// The counts of a ReplicaSet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Set {
    /// `spec.replicas`.
    pub(super) size: i64,
    /// The number of available pods.
    pub(super) available: i64,
    /// The number of pods, including terminating pods.
    pub(super) pods: i64,
    /// The replicas and the maximum pods of the Deployment at the last resize of the ReplicaSet. `None` if another
    /// client created the ReplicaSet.
    pub(super) sized_for: Option<(i64, i64)>,
}

/// The sizes after one step.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Step {
    /// The size of the current template's ReplicaSet. `None` if the ReplicaSet must not be created yet.
    pub(super) new: Option<i64>,
    /// The sizes of the other ReplicaSets, in the order of the input.
    pub(super) old: Vec<i64>,
}

/// Computes the next step. `new` is the ReplicaSet of the current template. `old` contains the other ReplicaSets, the
/// oldest first.
pub(super) fn step(desired: &DesiredRollout, new: Option<Set>, old: &[Set]) -> Step {
    let unchanged = Step { new: new.map(|new| new.size), old: old.iter().map(|set| set.size).collect() };
    let is_scaled =
        |set: &Set| set.size > 0 && set.sized_for.is_some_and(|(replicas, _)| replicas != desired.replicas);
    if desired.is_paused || new.iter().chain(old).any(is_scaled) {
        return scaled(desired, new, old, unchanged);
    }
    match desired.strategy {
        Strategy::Recreate => recreated(desired, old, unchanged),
        Strategy::RollingUpdate { .. } => rolled(desired, new, old, unchanged),
    }
}

/// Scales to the new replicas of the Deployment. During a rolling update, all active ReplicaSets are resized in
/// proportion to their sizes. If the ReplicaSet of the current template is complete, the other ReplicaSets are emptied
/// instead.
fn scaled(desired: &DesiredRollout, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let active = new.iter().chain(old).filter(|set| set.size > 0).count();
    let old_active = old.iter().position(|set| set.size > 0);
    let is_saturated = new.is_some_and(|new| {
        let is_sized = new.sized_for.is_some_and(|(replicas, _)| replicas == desired.replicas);
        is_sized && new.size == desired.replicas && new.available == desired.replicas
    });
    if active <= 1 {
        // The only active ReplicaSet gets the replicas. Without an active ReplicaSet, the newest ReplicaSet gets them.
        let newest = old_active.or_else(|| old.len().checked_sub(1));
        if old_active.is_none() && new.is_some() {
            step.new = Some(desired.replicas);
        } else if let Some(size) = newest.and_then(|index| step.old.get_mut(index)) {
            *size = desired.replicas;
        }
    } else if is_saturated {
        step.old.fill(0);
    } else if matches!(desired.strategy, Strategy::RollingUpdate { .. }) {
        return shared(desired, new, old);
    }
    step
}

/// Distributes the difference between the maximum number of pods and the sum of all sizes. Each active ReplicaSet gets
/// a part in proportion to its size. The largest ReplicaSet gets the rounding remainder.
fn shared(desired: &DesiredRollout, new: Option<Set>, old: &[Set]) -> Step {
    let total: i64 = new.iter().chain(old).map(|set| set.size).sum();
    let to_add = desired.max_pods() - total;
    // The largest ReplicaSet is first. Among equal sizes, the newest grows first and the oldest shrinks first.
    let mut order: Vec<(usize, Set)> = old.iter().copied().chain(new).enumerate().collect();
    order.retain(|(_, set)| set.size > 0);
    order.sort_by_key(|(age, set)| {
        let age = i64::try_from(*age).unwrap_or(i64::MAX);
        (-set.size, if to_add > 0 { -age } else { age })
    });
    let mut sizes: Vec<i64> = old.iter().chain(new.iter()).map(|set| set.size).collect();
    let mut added = 0;
    for (index, set) in &order {
        let share = if to_add == 0 { 0 } else { share_of(desired, set, total) };
        let rest = to_add - added;
        let share = if to_add > 0 { share.clamp(0, rest) } else { share.clamp(rest, 0) };
        added += share;
        if let Some(size) = sizes.get_mut(*index) {
            *size += share;
        }
    }
    if let Some(size) = order.first().and_then(|(index, _)| sizes.get_mut(*index)) {
        *size = (*size + to_add - added).max(0);
    }
    let new = new.and_then(|_| sizes.pop());
    Step { new, old: sizes }
}

/// Returns the change of size that preserves the share of a ReplicaSet in the maximum pods.
fn share_of(desired: &DesiredRollout, set: &Set, total: i64) -> i64 {
    if desired.replicas == 0 {
        return -set.size;
    }
    let max_before = set.sized_for.map_or(total, |(_, max_pods)| max_pods).max(1);
    // The division rounds half up. No operand is negative.
    (2 * set.size * desired.max_pods() + max_before) / (2 * max_before) - set.size
}

fn recreated(desired: &DesiredRollout, old: &[Set], mut step: Step) -> Step {
    if old.iter().any(|set| set.size > 0) {
        step.old.fill(0);
    } else if old.iter().all(|set| set.pods == 0) {
        step.new = Some(desired.replicas);
    }
    step
}

fn rolled(desired: &DesiredRollout, new: Option<Set>, old: &[Set], mut step: Step) -> Step {
    let old_total: i64 = old.iter().map(|set| set.size).sum();
    let new_set = new.unwrap_or_default();
    let total = old_total + new_set.size;
    let new_size = if new_set.size > desired.replicas {
        desired.replicas
    } else {
        new_set.size + (desired.max_pods() - total).clamp(0, desired.replicas - new_set.size)
    };
    step.new = Some(new_size);
    if new.map(|new| new.size) != step.new {
        return step;
    }
    // Each unavailable new pod reduces the number of old pods that may be removed.
    let unavailable = new_set.size - new_set.available;
    let mut removable = total - desired.min_available() - unavailable;
    if old_total == 0 || removable <= 0 {
        return step;
    }
    // Unavailable pods are removed first, then available pods above the minimum.
    for (size, set) in step.old.iter_mut().zip(old) {
        let removed = removable.min(set.size - set.available).max(0);
        *size -= removed;
        removable -= removed;
    }
    let available: i64 = new.iter().chain(old).map(|set| set.available).sum();
    let mut removable = available - desired.min_available();
    for size in &mut step.old {
        let removed = removable.min(*size).max(0);
        *size -= removed;
        removable -= removed;
    }
    step
}

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
        // A rollout needs a surge or an unavailable pod. If both limits round to zero, one pod may be unavailable, as
        // in Kubernetes.
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

/// The next changes of a Deployment.
struct Plan {
    desired: DesiredRollout,
    /// The ReplicaSet to create for the current template, if any.
    missing: Option<Value>,
    /// The new sizes of the ReplicaSets.
    sizes: Vec<(Id, i64)>,
    /// The namespace and name of each empty ReplicaSet beyond the history limit.
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
        let step = step(&desired, new.map(|(_, set)| figures(set)), &old_figures);

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
            // The ReplicaSet may already be deleted.
            let _ = self.cluster.delete("apps/replicasets", namespace, name);
        }
        let is_made = plan.missing.is_some_and(|set| self.create_set(set, &plan.desired));
        plan.sizes.into_iter().fold(is_made, |any, (id, size)| self.resize(id, size, &plan.desired) || any)
    }

    fn create_set(&mut self, set: Value, desired: &DesiredRollout) -> bool {
        // A failed creation is not retried, because a name conflict would occur again.
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
            // Another client has changed or deleted the ReplicaSet.
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

#[cfg(test)]
mod tests;
