//! The controllers of interchangeable pods, which keep `spec.replicas` pods.

use std::cmp::Reverse;
use std::sync::Arc;

use serde_json::{Value, json};

use super::names::pod_suffix;
use super::objects::{name, namespace, set};
use super::pod_lifecycle::PodLifecycle;
use super::pod_state::{Id, Kind, Owner, Pod, PodPhase};
use super::pods::{announce_end, from_template};
use super::stateful::REVISION_LABEL;
use super::{Pass, RETRY, scheduling};
use crate::object::at;

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
        set(&mut pod, &["spec", "nodeName"], scheduling::node(self.state.placed));
        let is_created = self.cluster.create(pod).is_ok();
        if is_created {
            self.state.placed = self.state.placed.wrapping_add(1);
        } else {
            self.state.cache.schedule_owner(id, Some(self.now.at.saturating_add(RETRY)));
        }
        is_created
    }

    /// Marks a pod as terminating.
    pub(super) fn terminate(&mut self, id: Id) {
        if let Some(pod) = self.state.cache.pods.get(&id) {
            let ending = announce_end(pod.stored.value(), pod.grace, self.now.time);
            self.cluster.put_raw(ending);
        }
    }
}

/// Returns the deletion order of a pod, as in Kubernetes but without pod deletion costs and nodes: first pods
/// that have not started, then unready ones, then those with more restarts, then the youngest.
fn deletion_order(id: Id, pod: &Pod) -> (bool, bool, Reverse<u32>, Reverse<Id>) {
    let restarts = pod.lifecycle.as_ref().map_or(0, PodLifecycle::restarts);
    (pod.phase != PodPhase::Pending, pod.is_ready(), Reverse(restarts), Reverse(id))
}

/// Returns `spec.template`. A Widget without a template gets a default container and a label with the
/// Widget's name.
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

/// Returns the key of a pod's model: the namespace and name of the user's object. For pods of a Deployment's
/// ReplicaSets, the user's object is the Deployment.
pub(super) fn model_key(owner: &Value, parent: Option<&Value>) -> (String, String) {
    (namespace(owner).to_owned(), name(parent.unwrap_or(owner)).to_owned())
}
