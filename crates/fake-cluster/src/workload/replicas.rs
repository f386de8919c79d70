//! The controllers that keep `spec.replicas` pods: interchangeable pods, and the ordered pods of a StatefulSet. Also
//! computes the status of every workload from its pods.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::informer_cache::InformerCache;
use super::pods::{
    self, Counts, Id, Kind, Owner, Pod, PodPhase, REVISION_LABEL, announce_end, from_template, name,
    namespace, pod_suffix, set,
};
use super::rollout::desired_rollout;
use super::{Pass, RETRY, TimePoint};
use crate::object::{at, int, list, text, time_text};
use crate::scale::labels_text;

impl Pass<'_> {
    /// Adjusts the number of an owner's pods. Returns whether anything changed.
    pub(super) fn keep_count(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.cache.owners.get(&id) else { return false };
        let wanted = owner.wanted;
        let mut active: Vec<_> = self
            .state
            .cache
            .pods_of(owner)
            .filter(|(_, pod)| pod.is_active())
            .map(|(id, pod)| (deletion_order(id, pod), id))
            .collect();
        let created = (active.len()..wanted).filter(|_| self.create_numbered(id)).count();
        active.sort_unstable();
        let too_many = active.len().saturating_sub(wanted);
        for (_, pod) in active.iter().take(too_many) {
            self.terminate(*pod);
        }
        created + too_many > 0
    }

    fn create_numbered(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.cache.owners.get_mut(&id) else { return false };
        let suffix = pod_suffix(name(&owner.object), owner.created);
        owner.created += 1;
        let pod_name = format!("{}-{suffix}", name(&owner.object));
        self.create_pod(id, &pod_name)
    }

    /// Creates a pod on a node. Returns false if the request fails, such as in a terminating namespace.
    pub(super) fn create_pod(&mut self, id: Id, pod_name: &str) -> bool {
        let Some(owner) = self.state.cache.owners.get(&id) else { return false };
        let mut pod = from_template(&owner.object, &template_of(owner), pod_name);
        if owner.kind == Kind::StatefulSet {
            set(&mut pod, &["metadata", "labels", REVISION_LABEL], owner.hash.as_str());
        }
        set(&mut pod, &["spec", "nodeName"], pods::node(self.state.placed));
        let is_created = self.cluster.create(pod).is_ok();
        if is_created {
            self.state.placed = self.state.placed.wrapping_add(1);
        } else {
            self.state.cache.schedule_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
        is_created
    }

    pub(super) fn terminate(&mut self, id: Id) {
        if let Some(pod) = self.state.cache.pods.get(&id) {
            let ending = announce_end(pod.stored.value(), pod.grace, self.now.time);
            self.cluster.put_raw(ending);
        }
    }
}

/// Returns the deletion order of a pod, as in Kubernetes but without deletion costs and nodes. Pods that have not
/// started are first, then unready pods, then pods with more restarts, then younger pods.
fn deletion_order(id: Id, pod: &Pod) -> (bool, bool, Reverse<u32>, Reverse<Id>) {
    let restarts = pod.lifecycle.as_ref().map_or(0, |lifecycle| lifecycle.restarts);
    (pod.phase != PodPhase::Pending, pod.is_ready(), Reverse(restarts), Reverse(id))
}

/// Returns `spec.template`. A Widget without a template gets a default container and a label with the Widget's name.
fn template_of(owner: &Owner) -> Value {
    let object: &Arc<Value> = &owner.object;
    match at(object, &["spec", "template"]) {
        Some(template) if template.is_object() => template.clone(),
        _ => json!({
            "metadata": {"labels": {"widget": name(object)}},
            "spec": {"containers": [{"name": "app", "image": "widget", "resources": {"requests": {"cpu": "100m"}}}]},
        }),
    }
}

/// Returns the key of a pod's model: the namespace and the name of the object that the user created. For a pod of a
/// Deployment, that is the Deployment and not the ReplicaSet.
pub(super) fn model_key(owner: &Value, parent: Option<&Value>) -> (String, String) {
    (namespace(owner).to_owned(), name(parent.unwrap_or(owner)).to_owned())
}

/// A change of a StatefulSet's pods. Ordered management applies one change at a time. Parallel management creates and
/// removes all pods at once.
#[derive(Debug, PartialEq, Eq)]
enum Action {
    Create(String),
    Terminate(Id),
}

impl Pass<'_> {
    /// Keeps the pods `name-0` to `name-(wanted - 1)`. Returns whether anything changed.
    pub(super) fn keep_ordinals(&mut self, id: Id) -> bool {
        let Some(owner) = self.state.cache.owners.get(&id) else { return false };
        let actions = actions(&self.state.cache, owner);
        actions.into_iter().fold(false, |any, action| match action {
            Action::Create(pod_name) => self.create_pod(id, &pod_name) || any,
            Action::Terminate(pod) => {
                self.terminate(pod);
                true
            }
        })
    }
}

/// Computes the next changes of a StatefulSet. Pods are created in order, each when all previous pods are ready. Pods
/// are terminated from the highest ordinal down, each after the removal of the pod above.
/// `podManagementPolicy: Parallel` skips these waits. Then pods of a previous template are terminated one by one, from
/// the highest ordinal down to the partition, and recreated.
fn actions(cache: &InformerCache, owner: &Owner) -> Vec<Action> {
    let in_order = text(&owner.object, &["spec", "podManagementPolicy"]) != "Parallel";
    let mut pods: Vec<_> =
        cache.pods_of(owner).filter_map(|(id, pod)| Some((ordinal(pod)?, id, pod))).collect();
    pods.sort_unstable_by_key(|(ordinal, ..)| *ordinal);
    let mut actions = Vec::new();
    for ordinal in 0..owner.wanted {
        match pods.binary_search_by_key(&ordinal, |(existing, ..)| *existing).ok().and_then(|at| pods.get(at))
        {
            None => {
                actions.push(Action::Create(format!("{}-{ordinal}", name(&owner.object))));
                if in_order {
                    return actions;
                }
            }
            // With ordered management, all later pods wait for a pod that is not ready or is terminating.
            Some((.., pod)) if in_order && !is_healthy(pod) => return actions,
            Some(_) => {}
        }
    }
    for (_, id, pod) in pods.iter().rev().take_while(|(ordinal, ..)| *ordinal >= owner.wanted) {
        if pod.is_active() {
            actions.push(Action::Terminate(*id));
        }
        if in_order {
            return actions;
        }
    }
    if !actions.is_empty() || text(&owner.object, &["spec", "updateStrategy", "type"]) == "OnDelete" {
        return actions;
    }
    let partition =
        int(&owner.object, &["spec", "updateStrategy", "rollingUpdate", "partition"]).unwrap_or(0);
    let partition = usize::try_from(partition).unwrap_or(0);
    for (_, id, pod) in pods.iter().rev().take_while(|(ordinal, ..)| *ordinal >= partition) {
        if pod.revision != owner.hash && pod.is_active() {
            return vec![Action::Terminate(*id)];
        }
        if !is_healthy(pod) {
            return actions;
        }
    }
    actions
}

fn is_healthy(pod: &Pod) -> bool {
    pod.is_active() && pod.is_ready()
}

fn ordinal(pod: &Pod) -> Option<usize> {
    pod.stored.name().rsplit_once('-')?.1.parse().ok()
}

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

/// Returns a condition. An unchanged status keeps the previous `lastTransitionTime`. An unchanged status and reason
/// also keep the previous `lastUpdateTime`.
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
